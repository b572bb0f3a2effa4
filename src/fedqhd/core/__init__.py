"""Protocols and records, errors, generators, files: what everything else is built on."""

"""The foundations of the package: protocols, records, errors, random generators, files and settings."""

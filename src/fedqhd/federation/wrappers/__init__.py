"""Wrappers around any federation or engine: differential privacy, rounded replies, attacks."""

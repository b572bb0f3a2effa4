"""A run from settings to result files."""

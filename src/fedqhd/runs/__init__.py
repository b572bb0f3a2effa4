"""One run: its settings, its parts, its rounds and its results."""

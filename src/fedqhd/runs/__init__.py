"""One run: its settings, its parts, its rounds, and what comes of it."""

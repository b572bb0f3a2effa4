"""Pages, charts and terminal output, made from result files and records alone."""

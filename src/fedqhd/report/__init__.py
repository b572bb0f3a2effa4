"""What people look at; made from result files and records alone."""

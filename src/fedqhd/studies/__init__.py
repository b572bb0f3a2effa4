"""Studies of many runs: the tables and figures of the paper, and our own."""

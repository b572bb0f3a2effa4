"""Many runs: the tables and figures of the paper, and ours."""

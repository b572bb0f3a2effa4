"""The studies, one file each: those of the paper's tables and figures, and ours."""

"""The federation gap: the bound of the paper, the exact terms, advice before a run, and a reference Q*."""

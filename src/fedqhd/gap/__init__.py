"""The federation gap: its bound, its exact terms, advice before a run, and a reference Q*."""

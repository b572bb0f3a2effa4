"""Linear algebra: ridge solves, normal equations and the geometry of features."""

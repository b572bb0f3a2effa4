"""Linear algebra of the method: ridge solves, normal equations, the geometry of features."""

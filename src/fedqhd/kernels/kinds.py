"""Constants for the kinds of encoders, which `encode` describes."""

FOURIER, COMPLEX, SYMBOLIC, PRECOMPUTED = 0, 1, 2, 3

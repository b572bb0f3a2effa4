"""The kinds of encoders, as the kernels know them (see `encode`)."""

FOURIER, COMPLEX, SYMBOLIC, GIVEN = 0, 1, 2, 3

"""Special functions: error functions, gamma, zeta, Bessel functions, orthogonal polynomials."""

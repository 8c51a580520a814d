"""Matrices: products, factorisations, eigenvalues, equations."""

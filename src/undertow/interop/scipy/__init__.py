"""SciPy's functions, optimizers and sparse matrices on tensors."""

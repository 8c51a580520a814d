"""NumPy's functions on tensors: `np.sin(t)`, `np.concatenate([t, u])`, recorded as undertow's own."""

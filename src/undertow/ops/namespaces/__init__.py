"""undertow.fft, .linalg, .special, .sparse, .functional, and lists of tensors (_foreach_): groups that PyTorch has."""

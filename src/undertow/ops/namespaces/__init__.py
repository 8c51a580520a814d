"""undertow.fft, .linalg, .special, .sparse, .functional: operations in the groups PyTorch has for them."""

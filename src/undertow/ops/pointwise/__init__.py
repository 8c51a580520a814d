"""One number in, one number out: arithmetic, powers, where, complex numbers, activations."""

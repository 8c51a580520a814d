"""How gradients flow back."""

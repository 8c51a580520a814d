"""What PyTorch keeps under this name."""

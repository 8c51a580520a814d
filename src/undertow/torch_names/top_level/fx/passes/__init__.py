"""What PyTorch has under `torch.fx.passes`: here, `shape_prop`."""

"""What PyTorch has under `torch.fx.experimental`: here, `proxy_tensor.make_fx`."""

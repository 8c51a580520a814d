"""`torch.testing._internal`: the test tools PyTorch's files import, written for undertow."""

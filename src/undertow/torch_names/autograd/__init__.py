"""Modules that PyTorch has below `torch.autograd`, and undertow elsewhere."""

"""Modules of `torch.autograd` that are found as `undertow.autograd.<name>`, whose `__path__` ends with this folder."""

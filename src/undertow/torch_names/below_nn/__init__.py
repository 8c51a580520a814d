"""Modules of `torch.nn` that are found as `undertow.nn.<name>`: the `__path__` of that ends with this folder."""

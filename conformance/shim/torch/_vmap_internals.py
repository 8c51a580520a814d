"""`torch._vmap_internals`: the vmap that older PyTorch code calls."""

from ._undertow import forward

__getattr__ = forward("", "func.", "autograd.", "autograd.vmap.")

from .._undertow import forward

__getattr__ = forward("autograd.forward_ad.")

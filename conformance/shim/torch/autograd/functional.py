from .._undertow import forward

__getattr__ = forward("autograd.functional.")

from .._undertow import forward, late

__getattr__ = forward("autograd.", "")

TorchDispatchMode = late("OpMode", "autograd.OpMode", "DispatchMode")

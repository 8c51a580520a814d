from undertow.modes import current

from .._undertow import forward, late

__getattr__ = forward("autograd.", "")

TorchDispatchMode = late("OpMode", "autograd.OpMode", "DispatchMode")


def _get_current_dispatch_mode():
    """What stands between a function and its operations, which in undertow is an interceptor."""
    return current().intercept

from typing import Any

from .._undertow import forward, late, lookup

__getattr__ = forward("autograd.function.", "autograd.", "autograd.graph.")

Function = late("autograd.Function", "autograd.function.Function")
InplaceFunction = late("autograd.function.InplaceFunction", "autograd.InplaceFunction")


def once_differentiable(function: Any) -> Any:
    """undertow's, or a function that fails when called: the test files decorate at import."""

    def absent(*args: Any) -> Any:
        raise AttributeError("undertow has no autograd.function.once_differentiable")

    try:
        return lookup("autograd.function.once_differentiable", "autograd.once_differentiable")(function)
    except AttributeError:
        return absent

"""What declarations of functions of one number share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, Namespace
from undertow.errors import NotDifferentiableError
from undertow.ops.declare import primitive
from undertow.ops.declare.rules import ELEMENTWISE

#: as arrays, because a ufunc takes 300 ns to turn a Python number into one
ZERO_AND_ONE = {d: (cpu.zeros((), d), cpu.ones((), d)) for d in (dtypes.float16, dtypes.float32, dtypes.float64)}


def one_for(xp: Namespace, grad_output: Array, output: Array) -> Array | None:
    """The number 1 in the dtype of these arrays, if they are real and alike, so that one temporary serves both."""
    dtype = output.dtype
    if xp is not cpu or dtype is not grad_output.dtype or output.shape != grad_output.shape or not output.ndim:
        return None
    return ZERO_AND_ONE.get(dtype, (None, None))[1]


def unary(name: str, forward: Callable[..., Any], vjp: Callable[..., Any], **options: Any) -> Any:
    """Declare a function of one number; integers become floats unless `promote` says otherwise."""
    declared = {"jvp": ELEMENTWISE, "batch": ELEMENTWISE, "promote": "float", **options}
    return primitive(name, forward, {"input": vjp}, **declared)


def not_implemented(name: str, fact: str = "It is zero wherever it exists") -> Any:
    """The rule of an operation that PyTorch records but does not differentiate."""

    def rule(xp: Namespace, g: Array) -> Any:
        raise NotDifferentiableError(name, f"{fact}: detach() the inputs if no gradient is to flow to them.")

    return rule


def no_slope(xp: Namespace, g: Array) -> Array:
    return xp.zeros_like(g)

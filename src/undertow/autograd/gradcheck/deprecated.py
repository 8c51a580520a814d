"""The Jacobians that PyTorch's private functions of these names returned: deprecated."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from undertow.autograd.gradcheck.reverse import Comparison, Settings, as_tuple, basis, differentiable
from undertow.tensor import Tensor


def _deprecated(name: str) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and is kept for programs that came to use it. Use "
        "`undertow.autograd.functional.jacobian` or `gradcheck`.",
        FutureWarning,
        stacklevel=3,
    )


def _expect_unit(name: str, grad_out: float) -> None:
    if grad_out != 1.0:
        raise ValueError(f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0.")


def _expect_real(name: str, outputs: Sequence[Tensor]) -> None:
    if any(o._array.dtype.kind == "c" for o in outputs):
        raise ValueError(
            f"Expected output to be non-complex. {name} no longer supports functions that return complex outputs."
        )


def get_numerical_jacobian(
    fn: Callable[[Any], Any], inputs: Any, target: Tensor | None = None, eps: float = 1e-3, grad_out: float = 1.0
) -> tuple[Tensor, ...]:
    """Deprecated: the numerical Jacobian of the first output of `fn(inputs)` for each target, by default each
    input."""
    _deprecated("get_numerical_jacobian")
    _expect_unit("get_numerical_jacobian", grad_out)
    tensors = as_tuple(inputs)
    _expect_real("get_numerical_jacobian", as_tuple(fn(tensors)))
    settings = Settings(eps, 0, 0, 0, False, False)
    comparison = Comparison(lambda *values: fn(values), tensors, settings)
    targets = differentiable(tensors if target is None else as_tuple(target))
    return tuple(Tensor(comparison.numerical_jacobians(t)[0], t._xp) for t in targets)


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """Deprecated: the Jacobians of `output` for each input; are they reentrant, of right size and dtype?"""
    _deprecated("get_analytical_jacobian")
    _expect_unit("get_analytical_jacobian", grad_out)
    _expect_real("get_analytical_jacobian", [output])
    comparison = Comparison(lambda *values: output, as_tuple(inputs), Settings(0, 0, 0, nondet_tol, False, False))
    first, again = (comparison.gradients(output, basis(output)) for _ in range(2))
    reentrant = not any(a.size and abs(a - b).max() > nondet_tol for a, b in zip(first, again, strict=True))
    right = all(a.dtype == t._array.dtype for a, t in zip(first, comparison.targets, strict=True))
    return tuple(Tensor(a, output._xp) for a in first), reentrant, True, right

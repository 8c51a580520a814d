"""Orthogonal polynomials of degree n, by their recurrences: `chebyshev_polynomial_t(x, n)` and its kin.

They are made of recorded products and sums, so x has derivatives of every order; the degree has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.backend import dtypes
from undertow.backend.interface import Array
from undertow.ops.arguments.operands import as_operand, require_tensor
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.pointwise.where_clamp import where
from undertow.tensor import Tensor

#: (p_k, p_(k-1), x, k) -> p_(k+1)
Step = Callable[[Any, Any, Any, int], Any]

#: the highest degree, which takes seconds
HIGHEST = 1_000_000

#: after how many steps it is seen whether all polynomials have become nan
STEPS = 1024

#: first polynomial and step of each family
FAMILIES: dict[str, tuple[Callable[[Any], Any], Step]] = {
    "chebyshev_polynomial_t": (lambda x: x * 1, lambda p, q, x, k: x * p * 2 - q),
    "chebyshev_polynomial_u": (lambda x: x * 2, lambda p, q, x, k: x * p * 2 - q),
    "chebyshev_polynomial_v": (lambda x: x * 2 - 1, lambda p, q, x, k: x * p * 2 - q),
    "chebyshev_polynomial_w": (lambda x: x * 2 + 1, lambda p, q, x, k: x * p * 2 - q),
    "hermite_polynomial_h": (lambda x: x * 2, lambda p, q, x, k: x * p * 2 - q * (2 * k)),
    "hermite_polynomial_he": (lambda x: x * 1, lambda p, q, x, k: x * p - q * k),
    "laguerre_polynomial_l": (lambda x: 1 - x, lambda p, q, x, k: ((2 * k + 1 - x) * p - q * k) / (k + 1)),
    "legendre_polynomial_p": (lambda x: x * 1, lambda p, q, x, k: (x * p * (2 * k + 1) - q * k) / (k + 1)),
}


def degrees(name: str, n: Array) -> Tensor:
    if isinstance(n, Tensor) and n._edge is not None:
        raise RuntimeError(f"{name}: there is no derivative with respect to the degree `n`. Pass n.detach().")
    n = as_operand(name, "n", n)
    return Tensor(n._array.astype(dtypes.int64), n._xp)


def refuse_degrees(name: str, x: Tensor, n: Tensor) -> None:
    """Refuse degrees that would take for ever, but not where the polynomial soon becomes nan, as far from 0."""
    xp = n._xp
    if bool(xp.any((n._array > HIGHEST) & (xp.abs(x._array) < 2))):
        degree = int(n._array.max())
        raise ValueError(f"special_{name}: a degree of {degree} takes as many steps. Give at most {HIGHEST}.")


def is_done(polynomial: Tensor, n: Tensor, k: int) -> bool:
    """Whether all polynomials of a degree of k or more are nan, and stay so."""
    xp, values = polynomial._xp, polynomial._array
    return k % STEPS == 0 and bool(xp.all(xp.isnan(values) | (n._array < k)))


def evaluate(name: str, x: Array, n: Any, shifted: bool = False) -> Array:
    """The polynomial of degree n at x, broadcast against each other; 0 for negative degrees."""
    require_tensor(f"special_{name}", input=x, n=n)
    x = as_operand(name, "input", x)
    if not dtypes.is_differentiable(x.dtype):
        x = recorded.astype(x, dtypes.default_dtype())
    n = degrees(name, n)
    if shifted:
        x = x * 2 - 1
    first, step = FAMILIES[name.removeprefix("shifted_")]
    previous, polynomial = recorded.ones_like(x), first(x)
    out = where(n == 0, previous, recorded.zeros_like(x))
    refuse_degrees(name, x, n)
    for k in range(1, int(n._array.max(initial=0)) + 1):
        if is_done(polynomial, n, k):
            return where(n >= k, polynomial, out)
        out = where(n == k, polynomial, out)
        previous, polynomial = polynomial, step(polynomial, previous, x, k)
    return out


def _family(name: str) -> Any:
    shifted = name.startswith("shifted_")

    def function(input: Array, n: Array) -> Array:
        return evaluate(name, input, n, shifted)

    function.__name__ = function.__qualname__ = f"special_{name}"
    function.__doc__ = (
        f"The polynomial of degree n: {name.replace('_', ' ')}. Degrees may be a tensor.\n\n"
        f"Example: `ut.special.{name}(ut.tensor([0.25, 0.75]), 3)`"
    )
    return composite(example_by_example(function), order="operands")


for _name in FAMILIES:
    globals()[f"special_{_name}"] = _family(_name)
    if _name.startswith("chebyshev"):
        globals()[f"special_shifted_{_name}"] = _family(f"shifted_{_name}")

"""Dropout: elements set to zero by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.backend.interface import Array
from undertow.modes import no_grad
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import composite
from undertow.ops.pointwise.arithmetic import mul
from undertow.ops.random.tensors import bernoulli

if TYPE_CHECKING:
    from undertow.ops.random.generator import Generator


@composite(variants="function in_place_function", random="given")
def dropout(input: Array, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> Array:
    """Every element 0 with probability p, else over 1 - p, so that the mean stays; the input itself if not training.

    >>> import undertow as ut
    >>> ut.dropout(ut.ones(3), 0.5, False)
    tensor([1., 1., 1.])
    """
    input = as_operand("dropout", "input", input)
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return mul(input, 0)
    with no_grad():
        factors = bernoulli(input, 1 - p, generator=generator) / (1 - p)
    return mul(input, factors)

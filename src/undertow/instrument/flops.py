"""How many floating-point operations a product takes: a multiplication and an addition count as two.

Only products are counted (matrices, convolutions, attention, recurrent layers), as PyTorch's flop counter does; next to
them everything else is small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

Shapes = Sequence[Sequence[int]]


def _product(left: Sequence[int], right: Sequence[int]) -> int:
    """Of matrices, vectors, and stacks of them."""
    columns = right[-1] if len(right) > 1 else 1
    rows = left[-2] if len(left) > 1 else 1
    stacks = max(prod(left[:-2]), prod(right[:-2]))
    return 2 * stacks * rows * left[-1] * columns


def _convolution(shapes: Shapes, out: Sequence[int], args: Any) -> int:
    # each element of the output (of a transposed convolution: of the input) meets every weight of one group
    input, weight = shapes[0], shapes[1]
    is_transposed = len(args or ()) == 8
    places = prod(input[2:]) if is_transposed else prod(out[2:])
    return 2 * input[0] * places * prod(weight)


def _einsum(shapes: Shapes, out: Sequence[int], args: Any) -> int:
    left, _, right = args[2].partition("->")[0].partition(",")
    sizes = dict(zip(left.strip() + right.strip(), [*shapes[0], *shapes[1]], strict=True))
    return 2 * prod(sizes.values())


def _attention(shapes: Shapes, out: Sequence[int], args: Any) -> int:
    query, key, value = shapes[:3]
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _lstm(shapes: Shapes, out: Sequence[int], args: Any) -> int:
    return 2 * prod(shapes[0][:-1]) * (prod(shapes[3]) + prod(shapes[4]))


def _recurrence(shapes: Shapes, out: Sequence[int], args: Any) -> int:
    return 2 * prod(shapes[0][:-1]) * prod(shapes[2])


#: operation -> (its cost, by the shapes of its arguments, that of its result, and the arguments;
#:               how many times that its backward costs for each of its inputs that wants a gradient)
FORMULAS: dict[str, tuple[Callable[[Shapes, Sequence[int], Any], int], tuple[float, ...]]] = {
    **{name: (lambda s, out, args: _product(s[0], s[1]), (1, 1)) for name in ("mm", "bmm", "mv", "dot")},
    **{
        name: (lambda s, out, args: _product(s[1], s[2]), (0, 1, 1)) for name in ("addmm", "baddbmm", "addmv", "addbmm")
    },
    "linear": (lambda s, out, args: 2 * prod(s[0][:-1]) * prod(s[1]), (1, 1, 0)),
    "einsum": (_einsum, (1, 1)),
    "convolution": (_convolution, (1, 1, 0)),
    # the scores are computed again, so that each of the three gradients takes 5/6 of the forward
    "scaled_dot_product_flash_attention_for_cpu": (_attention, (5 / 6, 5 / 6, 5 / 6)),
    "LSTMRecurrence": (_lstm, (2,)),
    "GRURecurrence": (_recurrence, (2,)),
    "RNNRecurrence": (_recurrence, (2,)),
}


def flops_of(name: str, shapes: Any, out: Any, args: Any = None) -> int | None:
    """The cost of an operation; None if it is not counted.

    >>> flops_of("mm", [(4, 8), (8, 16)], (4, 16))
    1024
    """
    if name not in FORMULAS or not shapes:
        return None
    return FORMULAS[name][0](shapes, out, args)


def backward_flops(name: str, forward: int, wanted: Sequence[bool]) -> int:
    """The cost of a node, given that of its operation and which of its edges are wanted."""
    factors = FORMULAS[name][1]
    if len(factors) == 1:  # a recurrence: all its gradients are computed together
        return round(forward * factors[0])
    return round(sum([forward * factor for factor, is_wanted in zip(factors, wanted, strict=False) if is_wanted]))

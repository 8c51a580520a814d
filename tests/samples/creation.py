"""Making tensors. Where numbers are random, a row leaves them no choice by its parameters, or multiplies by 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.samples import Sample, constant, normal
from undertow.backend import cpu
from undertow.ops import REGISTRY


def method(name: str) -> Any:
    """How torch calls an operation that is only a method there."""
    return lambda torch, input, *args, **kwargs: getattr(input, name)(*args, **kwargs)


def data(name: str, argument: Any, **kwargs: Any) -> Sample:
    """A row whose input is not a tensor."""
    return Sample(
        name,
        call=lambda ut: getattr(ut, name)(argument, **kwargs),
        reference=lambda torch: getattr(torch, name)(argument, **kwargs),
    )


def shape_only(name: str, *args: Any, note: str = "") -> Sample:
    """A row that compares shape and dtype."""
    return Sample(
        name,
        *args,
        call=lambda ut, *a: ut.ops.zeros_like(getattr(ut, name)(*a)),
        reference=lambda torch, *a: torch.zeros_like(getattr(torch, name)(*a)),
        note=note,
    )


FROM_DATA = [
    data("tensor", [[1.0, 2.0], [3.0, 4.0]]),
    data("tensor", [1, 2]),
    data("as_tensor", [True, False]),
    data("as_tensor", np.arange(3.0)),
    data("asarray", [1j, 2.0]),
    data("from_numpy", np.arange(6.0).reshape(2, 3)),
    Sample("frombuffer", call=lambda ut: ut.frombuffer(bytearray(b"abcd"), dtype=ut.uint8),
           reference=lambda torch: torch.frombuffer(bytearray(b"abcd"), dtype=torch.uint8)),
    Sample("scalar_tensor", 3),
    Sample("as_tensor", normal(3), note="differentiable"),
    Sample("asarray", normal(3), complex=True, note="differentiable"),
]  # fmt: skip

FROM_NOTHING = [
    Sample("zeros", 2, 3),
    Sample("zeros", (2, 0), note="tuple"),
    Sample("ones", 3),
    Sample("full", (2, 3), 2.5),
    Sample("full", (), True, note="bool"),
    Sample("eye", 3),
    Sample("eye", 2, 3, note="rectangular"),
    Sample("arange", 5),
    Sample("arange", 1, 2, 0.25, note="fractions"),
    Sample("linspace", 0, 1, 5),
    Sample("logspace", 0, 2, 3),
    shape_only("empty", 2, 3),
    shape_only("empty_strided", (2, 3), (1, 2)),
]

LIKENESS = [
    Sample("zeros_like", normal(2, 3), complex=True),
    Sample("ones_like", normal(2, 3), complex=True),
    Sample("full_like", normal(2, 3), 2.5, complex=True),
    Sample("full_like", normal(), 2, note="0-d"),
    shape_only("empty_like", normal(2, 3)),
    Sample("new_zeros", normal(2), 2, 3, reference=method("new_zeros"), complex=True),
    Sample("new_ones", normal(2), (2, 3), reference=method("new_ones")),
    Sample("new_full", normal(2), (2, 3), 2.5, reference=method("new_full")),
    Sample("new_tensor", normal(2), [1, 2], reference=method("new_tensor")),
    Sample("new_empty", normal(2), 2, 3, call=lambda ut, t, *s: ut.ops.zeros_like(ut.ops.new_empty(t, *s)),
           reference=lambda torch, t, *s: torch.zeros_like(t.new_empty(*s))),
    Sample("new_empty_strided", normal(2), (2, 3), (1, 2),
           call=lambda ut, t, *s: ut.ops.zeros_like(ut.ops.new_empty_strided(t, *s)),
           reference=lambda torch, t, *s: torch.zeros_like(t.new_empty_strided(*s))),
]  # fmt: skip

RANDOM = [
    shape_only("rand", 2, 3),
    shape_only("randn", 2, 3),
    Sample("randint", 3, 4, (2, 3)),
    shape_only("randperm", 5),
    Sample("randint_like", normal(2, 3), 3, 4),
    # probabilities of zero, means without deviation: kinks, because beside them the numbers are random
    Sample("bernoulli", constant([0.0, 0.0]), kink=True),
    Sample("bernoulli", normal(3), 1.0, reference=False, note="p"),
    Sample("poisson", constant([0.0, 0.0]), kink=True),
    Sample(
        "binomial", constant([0.0, 0.0]).without_gradient(), constant([0.5, 0.1]).without_gradient(), reference=False
    ),
    Sample("multinomial", constant([0.0, 2.0, 0.0]).without_gradient(), 1),
    Sample("multinomial", constant([[0.0, 2.0], [1.0, 0.0]]).without_gradient(), 3, True, note="replacement"),
    Sample("normal", normal(2, 3), 0.0, kink=True, note="mean"),
    Sample("normal", 1.5, constant([0.0, 0.0]), kink=True, note="std"),
    Sample("normal", normal(2, 1), constant([0.0, 0.0, 0.0]), kink=True, note="both"),
    Sample("normal", 1.5, 0.0, (2, 3), note="numbers"),
]


def fill(name: str, *args: Any, **kwargs: Any) -> Sample:
    """A row of the operation behind an in-place method, which has no counterpart in torch."""
    return Sample(name, normal(2, 3), *args, reference=False, **kwargs)


FILLS = [
    fill("_uniform", 2.0, 2.0),
    fill("_normal", 1.5, 0.0, complex=True),
    fill("_exponential", float("inf")),
    fill("_cauchy", 1.5, 1e-300),
    fill("_log_normal", 1.5, 1e-300),
    fill("_geometric", 1 - 2.0**-53),
    fill("_random", 3, 4),
    fill("_bernoulli_like", 1.0),
]

COPIES = [
    Sample("_to_device", normal(2, 3), np.dtype("float64"), cpu, cpu, complex=True, reference=False,
           call=lambda ut, x, *places: REGISTRY["_to_device"].function(x, x.dtype, *places[1:])),
]  # fmt: skip

SAMPLES = [*FROM_DATA, *FROM_NOTHING, *LIKENESS, *RANDOM, *FILLS, *COPIES]

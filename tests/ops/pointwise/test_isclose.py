"""isclose and allclose of every pair of dtypes, broadcast, empty, and with tolerances that are none."""

from __future__ import annotations

from itertools import product
from types import ModuleType
from typing import Any

import pytest

import undertow as ut

DTYPES = "float64 float32 float16 bfloat16 complex64 int64 uint8 bool".split()
SHAPES: list[Any] = [((), ()), ((3,), ()), ((0,), (0,)), ((2, 3), (3,)), ((2,), (3,))]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"equal_nan": True},
    {"rtol": 0, "atol": 0},
    {"rtol": -1.0},
    {"atol": float("inf")},
]


def outcome(L: ModuleType, function: str, dtypes: Any, shapes: Any, options: dict[str, Any]) -> Any:
    operands = [L.ones(shape, dtype=getattr(L, dtype)) for shape, dtype in zip(shapes, dtypes, strict=True)]
    try:
        found = getattr(L, function)(*operands, **options)
    except RuntimeError as error:
        assert type(error) is not RecursionError
        return "refused"
    return found if isinstance(found, bool) else found.tolist()


@pytest.mark.parametrize("function", ["isclose", "allclose"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_as_in_pytorch(torch: ModuleType, dtype: str, function: str) -> None:
    for other, shapes, options in product(DTYPES, SHAPES, OPTIONS):
        ours, theirs = (outcome(L, function, (dtype, other), shapes, options) for L in (ut, torch))
        assert ours == theirs, (other, shapes, options)

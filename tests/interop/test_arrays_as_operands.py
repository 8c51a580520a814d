"""Every operation takes plain NumPy arrays where it takes tensors, and gives tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from tests.samples import Array, Sample, all_samples
from undertow.ops import REGISTRY

#: called as methods of a tensor, so that their first argument never is an array
METHODS = {"getitem", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros"}


def made(value: Any, change: Any, rng: Any) -> Any:
    if isinstance(value, Array):
        return change(value.make(rng))
    if isinstance(value, (list, tuple)):
        return type(value)([made(v, change, rng) for v in value])
    return value


def called(sample: Sample, change: Any) -> Any:
    rng = np.random.default_rng(0)
    args = [made(a, change, rng) for a in sample.args]
    kwargs = {name: made(v, change, rng) for name, v in sample.kwargs.items()}
    ut.manual_seed(0)
    return REGISTRY[sample.op].function(*args, **kwargs)


def flatten(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in flatten(part)] if isinstance(value, (list, tuple)) else [value]


def first_samples() -> list[Sample]:
    """One row for each operation that is called plainly."""
    rows: dict[str, Sample] = {}
    for sample in all_samples():
        usable = sample.call is None and not sample.complex_only and sample.op not in METHODS
        if usable and not sample.op.startswith("_"):
            rows.setdefault(sample.op, sample)
    return list(rows.values())


@pytest.mark.filterwarnings("ignore")
@rows("sample", first_samples(), ids=lambda sample: sample.op)
def test_arrays_do_as_well_as_tensors(sample: Sample) -> None:
    expected, got = flatten(called(sample, ut.tensor)), flatten(called(sample, lambda array: array))
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert type(mine) is type(theirs)
        if isinstance(theirs, ut.Tensor) and "empty" not in sample.op:
            np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_running_statistics_may_be_arrays() -> None:
    mean, var = np.zeros(2, np.float32), np.ones(2, np.float32)
    ut.batch_norm(np.array([[1.0, 2.0], [3.0, 6.0]], np.float32), mean, var, training=True, momentum=0.5)
    assert mean.tolist() == [1, 2] and var.tolist() == [1.5, 4.5]

"""Rows of tests/samples on the (emulated) GPU, forward and backward, against the CPU.

Of the families whose kernels are few, one row for each operation; `python -m tests.cuda.test_rows_of_samples` goes
through all rows of all operations (about a minute when kernels are compiled already) and counts.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.samples import Array, Sample, all_samples
from undertow.ops.declare import REGISTRY

#: tables whose rows take few kernels
TABLES = ("views", "shape", "gather_scatter", "indexing", "extrema")

#: rows whose calls name data or places on the CPU
ON_CPU = {"linalg_cholesky", "cholesky", "_cholesky_lower", "_to_device"}


def made(value: Any, rng: np.random.Generator, complex_: bool, device: str) -> Any:
    if isinstance(value, Array):
        array = value.make(rng, complex_)
        tensor = ut.tensor(array, device=device)
        return tensor.requires_grad_() if value.differentiable and array.dtype.kind in "fc" else tensor
    if isinstance(value, (list, tuple)) and any(isinstance(v, Array) for v in value):
        return type(value)(made(v, rng, complex_, device) for v in value)
    return value


def tensors_in(value: Any) -> list[ut.Tensor]:
    if isinstance(value, ut.Tensor):
        return [value]
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (tuple, list)) else []


def host(tensor: ut.Tensor | None) -> Any:
    if tensor is None:
        return None
    tensor = tensor.detach().cpu()
    return (tensor if tensor.layout == ut.strided else tensor.to_dense()).numpy()


def outcome(sample: Sample, complex_: bool, device: str) -> list[Any]:
    """Results and gradients of a row on a device."""
    rng = np.random.default_rng(0)
    args = [made(a, rng, complex_, device) for a in sample.args]
    kwargs = {k: made(a, rng, complex_, device) for k, a in sample.kwargs.items()}
    call = sample.call or (lambda ut, *a, **k: REGISTRY[sample.op].function(*a, **k))
    ut.manual_seed(0)
    with ut.device(device), np.errstate(all="ignore"):
        out = tensors_in(call(ut, *args, **kwargs))
        roots = [o for o in out if o.requires_grad]
        leaves = [t for t in tensors_in(args) + tensors_in(list(kwargs.values())) if t.requires_grad]
        grads: Any = ()
        if roots and leaves:
            totals = [r.abs().sum() if r.is_complex() else r.sum() for r in roots]
            grads = ut.autograd.grad(totals, leaves, allow_unused=True)
    return [*map(host, out), *map(host, grads)]


def draws(sample: Sample) -> bool:
    """Whether a row's values are random: those of a GPU are other ones (test_random.py)."""
    return bool(getattr(REGISTRY.get(sample.op), "random", None)) and sample.note not in ("everything", "evaluation")


def check(sample: Sample, complex_: bool = False) -> None:
    found, wanted = outcome(sample, complex_, "cuda"), outcome(sample, complex_, "cpu")
    assert len(found) == len(wanted), sample.id
    for there, here in zip(found, wanted, strict=True):
        assert (there is None) == (here is None), sample.id
        if there is not None:
            assert (there.shape, there.dtype) == (here.shape, here.dtype), sample.id
            if draws(sample):
                continue
            np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-8, err_msg=sample.id)


def rows_of(table: str) -> list[Sample]:
    """The first row of each operation of a table."""
    from importlib import import_module

    found: dict[str, Sample] = {}
    for sample in import_module(f"tests.samples.{table}").SAMPLES:
        if not sample.complex_only and sample.op not in ON_CPU:
            found.setdefault(sample.op, sample)
    return list(found.values())


@pytest.mark.parametrize("table", TABLES)
def test_operations_give_what_they_give_on_the_cpu(table: str) -> None:
    for sample in rows_of(table):
        check(sample)


def main() -> None:
    os.environ.setdefault("UNDERTOW_CUDA", "emulate")
    right, wrong = 0, []
    for sample in all_samples():
        for complex_ in (False, True):
            if (sample.op in ON_CPU) or (
                not (sample.complex or sample.complex_only) if complex_ else sample.complex_only
            ):
                continue
            try:
                check(sample, complex_)
                right += 1
            except Exception as error:
                wrong.append(f"{sample.id}: {type(error).__name__}: {str(error)[:100]}")
    print(f"{right} rows right, {len(wrong)} not", *wrong, sep="\n")


if __name__ == "__main__":
    main()

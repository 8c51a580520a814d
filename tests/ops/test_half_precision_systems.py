"""Every sample row in half precision: as close to the truth as PyTorch's results are, and of the same dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, as_array, cases, every
from undertow.tensor import Tensor

#: the dtypes, and how many bits of a number they keep behind the first
DIGITS = {"float16": 10} if find_spec("ml_dtypes") is None else {"bfloat16": 7, "float16": 10}

CASES = [c for c in cases() if not c.complex and any([a.dtype.kind == "f" for a in c.arrays])]
REFERENCED = [c for c in CASES if c.sample.reference is not False]


def in_halves(cases: list[Case]) -> Callable[[Callable[..., None]], Any]:
    """Run a test for every one of these cases, in each of the dtypes."""
    return lambda test: pytest.mark.parametrize("half", DIGITS)(every(cases)(test))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


# ---- three ways to compute a row: in half precision here and in PyTorch, and in float64


def narrow(half: str, array: Any) -> Any:
    return array.astype(getattr(ut, half)) if array.dtype.kind == "f" else array.copy()


def is_half(array: Any) -> bool:
    return str(array.dtype) in DIGITS


def exact(array: Any) -> Any:
    return array.astype(np.float64) if is_half(array) else array


def to_torch(torch: ModuleType, array: Any) -> Any:
    array = np.array(array, order="C")
    if array.dtype.kind != "V":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def from_torch(torch: ModuleType, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype == torch.complex32:  # which undertow does not have
        value = value.to(torch.complex64)
    if value.dtype != torch.bfloat16:
        return value.numpy(force=True)
    value = value + 0 if value._is_zerotensor() else value
    return np.array(value.detach().contiguous().view(torch.int16).numpy()).view(ut.bfloat16).reshape(value.shape)


class Run:
    """A row's results and gradients, computed in one of the ways."""

    def __init__(self, case: Case, half: str, leaves: list[Any], call: Any, grad: Any, seed: Any) -> None:
        for k in case.differentiable:
            leaves[k].requires_grad_()
        self.case, self.half, self.leaves, self.grad, self.seed = case, half, leaves, grad, seed
        self.tensors = call(leaves)
        self.recorded = [k for k, r in enumerate(self.tensors) if getattr(r, "requires_grad", False)]

    @cached_property
    def gradients(self) -> list[Any]:
        rng, roots = self.case.rng("bfloat16"), [self.tensors[k] for k in self.recorded]
        seeds = [self.seed(narrow(self.half, rng.standard_normal(tuple(r.shape))), r) for r in roots]
        return list(self.grad(roots, self.case.chosen(self.leaves), seeds, allow_unused=True))


def of_undertow(case: Case, half: str, arrays: list[Any]) -> Run:
    seed = lambda array, root: ut.from_numpy(array).to(root.dtype)
    return Run(case, half, [ut.from_numpy(a.copy()) for a in arrays], case.call, ut.autograd.grad, seed)


def of_torch(torch: ModuleType, case: Case, half: str, arrays: list[Any]) -> Run:
    seed = lambda array, root: to_torch(torch, array).to(root.dtype)
    leaves = [to_torch(torch, a) for a in arrays]
    return Run(case, half, leaves, lambda values: case.torch_call(torch, values), torch.autograd.grad, seed)


# ---- how far apart


def distance(half: str, got: Any, wanted: Any) -> float:
    """The largest difference, in units of the last place of the largest number."""
    a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (got, wanted))
    assert a.shape == b.shape
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    largest = max(np.abs(a[finite]).max(initial=0), np.abs(b[finite]).max(initial=0), 1e-30)
    return float(np.abs(a - b)[finite].max(initial=0) / 2.0 ** (np.floor(np.log2(largest)) - DIGITS[half]))


def assert_close(half: str, ours: Any, theirs: Any, truth: Any, what: str) -> None:
    """One unit from PyTorch's; or, where that rounds in between, about as far from the truth at most."""
    assert ours.dtype == theirs.dtype, what
    if distance(half, ours, theirs) <= 1:
        return
    exact = truth()
    off, allowed = distance(half, ours, exact), 1 + 2 * distance(half, theirs, exact)
    assert off <= allowed, f"{what}: {off} units off, allowed are {allowed}"


#: how far results may be, in units, where a function of several operations rounds more often here
OFTEN_ROUNDED = {"gradient-coordinates, 2": 6, "kl_div-sum": 3}
#: the same of float16 alone, whose units are an eighth as large
OFTEN_ROUNDED_FLOAT16 = {**OFTEN_ROUNDED, "cumulative_trapezoid-places": 3}
#: how far results may be from float32's where PyTorch has none
WITHOUT_PYTORCH = {"bfloat16": 4, "float16": 8}

#: rows that name a dtype, or draw
OF_OTHER_DTYPES = {"native_layer_norm", "svd_lowrank", "pca_lowrank"}
#: those that make complex numbers of half precision, which PyTorch has of float16 alone
COMPLEX_HALVES = {"view_as_complex", "view_as_complex_copy"}


def often_rounded(case: Case, half: str) -> int | None:
    return (OFTEN_ROUNDED_FLOAT16 if half == "float16" else OFTEN_ROUNDED).get(case.id)


@in_halves([c for c in REFERENCED if c.sample.op not in OF_OTHER_DTYPES])
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")  # once in a process
def test_results_are_as_good_as_pytorchs(torch: ModuleType, case: Case, half: str) -> None:
    if half == "float16" and case.sample.op in COMPLEX_HALVES:
        return
    arrays = [narrow(half, a) for a in case.arrays]
    try:
        theirs = of_torch(torch, case, half, arrays)
    except (RuntimeError, NotImplementedError, ValueError):
        check_alone(case, half, arrays)
        return
    ours = of_undertow(case, half, arrays)
    truths: list[Run] = []

    def truth() -> Run:
        if not truths:
            truths.append(of_undertow(case, half, [exact(a) for a in arrays]))
        return truths[0]

    for k, (a, b) in enumerate(zip(ours.tensors, theirs.tensors, strict=True)):
        if not isinstance(a, Tensor):
            assert a == b
            continue
        wanted = from_torch(torch, b)
        most = often_rounded(case, half)
        if most is not None:
            assert distance(half, as_array(a), wanted) <= most
        else:
            assert_close(half, as_array(a), wanted, lambda k=k: as_array(truth().tensors[k]), f"output {k}")
    assert ours.recorded == theirs.recorded
    if ours.recorded:
        check_gradients(torch, case, ours, theirs, truth)


def check_gradients(torch: ModuleType, case: Case, ours: Run, theirs: Run, truth: Any) -> None:
    try:
        wanted = theirs.gradients
    except (RuntimeError, NotImplementedError):  # a backward kernel that PyTorch lacks
        return
    for k, (a, b) in enumerate(zip(ours.gradients, wanted, strict=True)):
        if a is None or b is None:  # PyTorch's None may be zeros here
            assert b is None and (a is None or not a.float().any())
            continue
        got, expected = as_array(a), from_torch(torch, b)
        most = often_rounded(case, ours.half)
        if most is not None:
            assert distance(ours.half, got, expected) <= most
        else:
            assert_close(ours.half, got, expected, lambda k=k: as_array(truth().gradients[k]), f"gradient {k}")


def check_alone(case: Case, half: str, arrays: list[Any]) -> None:
    """What PyTorch does not compute: an error here, too, or what float32 gives."""
    try:
        ours = of_undertow(case, half, arrays)
    except (RuntimeError, NotImplementedError, ValueError):
        return
    single = of_undertow(case, half, [a.astype(np.float32) if is_half(a) else a for a in arrays])
    for a, b in zip(ours.tensors, single.tensors, strict=True):
        if isinstance(a, Tensor):
            assert a.dtype == (getattr(ut, half) if b.dtype == ut.float32 else b.dtype)
            assert distance(half, as_array(a), narrow(half, as_array(b))) <= WITHOUT_PYTORCH[half]


@in_halves([c for c in CASES if c.differentiable and c not in REFERENCED and not c.sample.op.startswith("fft")])
def test_gradients_have_the_dtype_of_the_inputs(case: Case, half: str) -> None:
    ours = of_undertow(case, half, [narrow(half, a) for a in case.arrays])
    assert [k for k, r in enumerate(ours.tensors) if getattr(r, "dtype", None) == ut.float64] == []
    if ours.recorded:
        for given, leaf in zip(ours.gradients, case.chosen(ours.leaves), strict=True):
            assert given is None or (given.dtype == leaf.dtype and given.shape == leaf.shape)

"""Dtypes are NumPy's to use and PyTorch's to ask; promotion is PyTorch's."""

from __future__ import annotations

import copy
import itertools
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.backend import dtypes

NAMES = [d.name for d in dtypes.ALL]
PAIRS = list(itertools.product(NAMES, repeat=2))


def test_a_dtype_is_pytorchs_to_ask_and_numpys_to_use() -> None:
    assert ut.float32 == np.float32 and np.float32 == ut.float32 and ut.ones(2).numpy().dtype == ut.float32
    assert isinstance(ut.int64, ut.dtype) and ut.double is ut.float64 and ut.long is ut.int64
    assert ut.ones(2).dtype is ut.float32 and ut.ones(2, dtype=np.int16).dtype is ut.int16
    assert ut.dtype("float16") is ut.float16 and ut.zeros(1, dtype="float64").dtype is ut.float64
    for d in dtypes.ALL:
        shown = dtypes.public(d)
        assert hash(shown) == hash(d) and {d: 1}[shown] == {shown: 1}[d] == 1 and shown == d and d == shown
        assert np.zeros(2, shown).dtype is d and np.dtype(shown) is d and np.ones(2).astype(shown).dtype is d
        assert pickle.loads(pickle.dumps(shown)) is shown and copy.deepcopy(shown) is shown
    assert ut.float32 != ut.float64 and ut.float32 != "float" and ut.float64 != None  # noqa: E711
    with pytest.raises(AttributeError, match=r"undertow.int8 cannot be changed: it has no attribute 'mine' of yours"):
        ut.int8.mine = 1


@pytest.mark.torch
def test_what_a_dtype_tells_is_pytorchs(torch: ModuleType) -> None:
    for name in ["bfloat16", *NAMES]:
        ours, theirs = getattr(ut, name), getattr(torch, name)
        for fact in ("is_floating_point", "is_complex", "is_signed", "itemsize"):
            assert getattr(ours, fact) == getattr(theirs, fact), (name, fact)
        assert repr(ours) == str(ours) == repr(theirs).replace("torch", "undertow")
        assert str(ours.to_real()) == str(theirs.to_real()).replace("torch", "undertow")
        if ours.is_floating_point and name != "float16":  # NumPy has no complex numbers of two float16
            assert str(ours.to_complex()) == str(theirs.to_complex()).replace("torch", "undertow")


def test_the_dtypes_of_ml_dtypes() -> None:
    pytest.importorskip("ml_dtypes")
    for name in dtypes.FROM_ML_DTYPES:
        found = getattr(ut, name)
        assert isinstance(found, ut.dtype) and found.is_floating_point and repr(found) == f"undertow.{name}"
        assert pickle.loads(pickle.dumps(found)) is found and getattr(ut, name) is found


@pytest.mark.torch
@rows(("a", "b"), PAIRS, ids=lambda n: n)
def test_promotion_is_pytorchs(torch: ModuleType, a: str, b: str) -> None:
    """Where it has an answer: it refuses most mixtures of unsigned integers wider than a byte."""
    theirs = outcome(torch, "promote_types", a, b)
    if theirs == "refused":
        assert WIDE_UNSIGNED & {a, b}
    else:
        assert outcome(ut, "promote_types", a, b) == theirs
    assert outcome(ut, "can_cast", a, b) == outcome(torch, "can_cast", a, b)


WIDE_UNSIGNED = {"uint16", "uint32", "uint64"}


def outcome(L: ModuleType, function: str, a: str, b: str) -> str:
    first, second = (L.ones(1).bool().dtype if n == "bool" else getattr(L, n) for n in (a, b))
    try:
        return str(getattr(L, function)(first, second)).rpartition(".")[2]
    except RuntimeError:
        return "refused"


def test_promotion_is_symmetric_and_idempotent() -> None:
    for a, b in PAIRS:
        assert outcome(ut, "promote_types", a, b) == outcome(ut, "promote_types", b, a)
    assert all(ut.promote_types(d, d) == d for d in dtypes.ALL)


# ---- the default


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_the_default_dtype_decides_about_python_numbers(L: ModuleType, name: str) -> None:
    before = L.get_default_dtype()
    L.set_default_dtype(getattr(L, name))
    try:
        assert L.tensor(1.5).dtype == L.zeros(2).dtype == getattr(L, name) == L.get_default_dtype()
        assert (L.ones(2, dtype=L.int64) * 0.5).dtype == getattr(L, name)
        assert L.tensor(1).dtype == L.int64 and L.tensor(True).dtype == L.ones(1).bool().dtype
        if name != "float16":
            assert L.tensor(1j).dtype == (L.complex64 if name == "float32" else L.complex128)
    finally:
        L.set_default_dtype(before)


@pytest.mark.parametrize("name", ["int64", "complex64", "bool"])
def test_the_default_dtype_is_a_real_floating_one(L: ModuleType, name: str) -> None:
    with pytest.raises(TypeError, match="only floating-point types are supported as the default type"):
        L.set_default_dtype(getattr(L, name, None) or L.bool_)
    assert L.get_default_dtype() == L.float32


# ---- helpers

DTYPE_LIKE = [(np.float32, "float32"), (float, "float64"), (int, "int64"), (bool, "bool"), (complex, "complex128"),
              (np.dtype("int8"), "int8"), (ut.float16, "float16")]  # fmt: skip


@pytest.mark.parametrize(("value", "name"), DTYPE_LIKE, ids=str)
def test_what_is_understood_as_a_dtype(value: Any, name: str) -> None:
    assert dtypes.as_dtype(value).name == name and ut.zeros(1, dtype=value).dtype.name == name


@pytest.mark.parametrize("value", ["object", object, np.dtype("O"), np.dtype("U3"), np.dtype("M8[s]"), 3, [1]], ids=str)
def test_what_is_no_dtype(value: Any) -> None:
    with pytest.raises(TypeError, match=r"argument 'dtype' must be undertow\.dtype"):
        ut.zeros(1, dtype=value)


def test_real_and_complex_go_together() -> None:
    for real, complex_ in (("float32", "complex64"), ("float64", "complex128")):
        assert dtypes.complex_of(np.dtype(real)).name == complex_ and dtypes.real_of(np.dtype(complex_)).name == real


@pytest.mark.parametrize("d", dtypes.ALL, ids=NAMES)
def test_what_can_be_differentiated(d: Any) -> None:
    assert dtypes.is_differentiable(d) is (d.kind in "fc")
    if not dtypes.is_differentiable(d):
        with pytest.raises(RuntimeError, match="floating point"):
            ut.zeros(1, dtype=d, requires_grad=True)


SHOWN: dict[str, Any] = {
    "of a tensor": lambda L, x: x.dtype,
    "of its gradient": lambda L, x: x.grad_dtype,
    "of what a node takes": lambda L, x: (x * 2).grad_fn._input_metadata[0].dtype,
    "of a storage": lambda L, x: x.detach().storage().dtype,
    "of an optimizer's parameter": lambda L, x: L.optim.Adam([x]).param_groups[0]["params"][0].dtype,
    "of a promotion": lambda L, x: L.result_type(x, 1),
}


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("name", SHOWN)
def test_a_dtype_that_is_shown_is_the_librarys(L: ModuleType, name: str) -> None:
    found = SHOWN[name](L, L.ones(2, requires_grad=True))
    assert found is L.float32 and repr(found) == f"{L.__name__}.float32" and found.is_floating_point


def test_limits_and_promotions_are_looked_up_once() -> None:
    first = ut.finfo(ut.float32)
    first.eps = 1.0  # its own
    assert ut.finfo(ut.float32).eps == 2.0**-23 and ut.finfo(np.float32).max == float(np.finfo("f").max)
    assert ut.iinfo(ut.int8).max == 127 and repr(ut.iinfo(ut.uint8)) == "iinfo(min=0, max=255, dtype=uint8)"
    for _ in range(2):  # an error is none the second time either
        assert ut.promote_types("int32", np.float16) is ut.float16
        with pytest.raises(RuntimeError, match="not supported"):
            ut.promote_types(ut.uint16, ut.int32)

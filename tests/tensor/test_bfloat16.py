"""bfloat16 as a dtype: where it comes from, promotion, casts, making tensors, display, random numbers."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

ml_dtypes = pytest.importorskip("ml_dtypes")

NAMES = """bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128""".split()


def plain(value: Any) -> str:
    return str(value).replace("torch.", "").replace("undertow.", "").replace("\n      ", "").replace("  ", " ")


def python(program: str) -> str:
    """What a new interpreter prints, in which bfloat16 has not been used."""
    start = "import undertow as ut, ml_dtypes, numpy as np\n"
    done = subprocess.run([sys.executable, "-c", start + program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


# ---- where it comes from


def test_it_is_that_of_ml_dtypes() -> None:
    assert ut.bfloat16 == np.dtype(ml_dtypes.bfloat16) and ut.bfloat16 is ut.bfloat16
    assert ut.zeros(2, dtype=ml_dtypes.bfloat16).dtype is ut.bfloat16
    assert ut.zeros(2).to(np.dtype(ml_dtypes.bfloat16)).dtype is ut.bfloat16


def test_without_ml_dtypes_the_error_names_the_extra() -> None:
    program = """
import sys
sys.modules["ml_dtypes"] = None
import undertow as ut
assert not hasattr(ut, "bfloat16") and ut.get_autocast_dtype("cpu") == ut.float16
with ut.autocast("cpu"):
    assert (ut.ones(2, 2) @ ut.ones(2, 2)).dtype == ut.float16
for use in (lambda: ut.bfloat16, lambda: ut.ones(2).bfloat16()):
    try:
        use()
    except (AttributeError, ImportError) as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    attribute, method = done.stdout.strip().split("\n")
    assert attribute.startswith("AttributeError") and "pip install 'undertow[bf16]'" in attribute
    assert method.startswith("ImportError") and "ml_dtypes" in method


def test_undertow_does_not_import_it_by_itself() -> None:
    program = "import sys, undertow as ut; (ut.ones(2) * 2).sum(); print('ml_dtypes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "program",
    [
        "x = ut.from_numpy(np.ones(300, ml_dtypes.bfloat16))",
        "x = ut.zeros(300, dtype=ut.int64) + np.ones(300, ml_dtypes.bfloat16)",
        "x = ut.ones(300).to(ml_dtypes.bfloat16)",
        "x = ut.ones(300).cumprod(0, dtype=ml_dtypes.bfloat16)",
        "x = ut.full((300,), 16256, dtype=ut.int16).view(ml_dtypes.bfloat16)",
        "ut.set_default_dtype(ml_dtypes.bfloat16); x = ut.ones(300)",
        "import pickle; x = pickle.loads(pickle.dumps(ut.Tensor(np.ones(300, ml_dtypes.bfloat16), ut.ones(1)._xp)))",
    ],
)
def test_from_the_first_use_on_sums_are_exact(program: str) -> None:
    # a sum of ones in bfloat16 would stay at 256; the operation was used before, with another dtype
    assert python(f"ut.ones(3).sum(); {program}; y = x.sum(); print(y.item(), y.dtype)") == "300.0 undertow.bfloat16"


# ---- promotion, as in PyTorch


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_promotion(torch: ModuleType, name: str) -> None:
    def facts(lib: Any) -> list[str]:
        b, d = lib.bfloat16, getattr(lib, name)
        row, number = (lambda t: lib.ones(2, dtype=t)), (lambda t: lib.ones((), dtype=t))
        mixed = [(row(b), row(d)), (row(b), number(d)), (number(b), row(d)), (number(b), number(d))]
        found = [lib.promote_types(b, d), lib.promote_types(d, b), lib.can_cast(b, d), lib.can_cast(d, b)]
        return [plain(x) for x in (*found, *[(x + y).dtype for x, y in mixed], *[(y * x).dtype for x, y in mixed])]

    assert facts(ut) == facts(torch)


def test_python_numbers_keep_it() -> None:
    x = ut.ones(2, dtype=ut.bfloat16)
    assert {(x + 1).dtype, (2.5 * x).dtype, (x / True).dtype, (2**x).dtype, (x - 1.0).dtype} == {ut.bfloat16}
    assert (x * 2j).dtype == ut.complex64


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_casts(torch: ModuleType, name: str) -> None:
    def casts(lib: Any) -> list[str]:
        values = lib.tensor([0, 1, 2.7, -3.1, 257.0])
        there = values.to(getattr(lib, name)).to(lib.bfloat16)
        return [plain(there), plain(values.abs().to(lib.bfloat16).to(getattr(lib, name)))]

    assert casts(ut) == casts(torch)


def test_what_is_too_large_becomes_infinite_without_a_warning() -> None:
    largest = ut.finfo(ut.float32).max
    assert ut.tensor([largest, -largest]).bfloat16().tolist() == [float("inf"), float("-inf")]
    x = ut.tensor([1.0], dtype=ut.bfloat16, requires_grad=True)
    (x.float() * largest).sum().backward()
    assert x.grad.item() == float("inf")


# ---- tensors of it


MADE: dict[str, Any] = {
    "tensor": lambda t: t.tensor([1.5, 2, 1e6], dtype=t.bfloat16),
    "0-d": lambda t: t.tensor(0.1, dtype=t.bfloat16),
    "empty": lambda t: t.zeros(0, 2, dtype=t.bfloat16),
    "requires grad": lambda t: t.ones(2, dtype=t.bfloat16, requires_grad=True),
    "history": lambda t: t.ones(2, dtype=t.bfloat16).requires_grad_() * 3,
    "arange": lambda t: t.arange(0, 2, 0.3, dtype=t.bfloat16),
    "linspace": lambda t: t.linspace(0, 1, 5, dtype=t.bfloat16),
    "logspace": lambda t: t.logspace(0, 2, 4, dtype=t.bfloat16),
    "full": lambda t: t.full((2, 2), 1.1, dtype=t.bfloat16),
    "eye": lambda t: t.eye(2, dtype=t.bfloat16),
    "like": lambda t: t.zeros_like(t.ones(2, dtype=t.bfloat16)),
    "new": lambda t: t.ones(2, dtype=t.bfloat16).new_tensor([1.1]),
    "bits": lambda t: t.tensor([16256, 16512], dtype=t.int16).view(t.bfloat16),
    "its bits": lambda t: t.tensor([1.0, -2.0], dtype=t.bfloat16).view(t.int16),
    "comparison": lambda t: t.tensor([1.0, 2], dtype=t.bfloat16) == t.tensor([1, 3]),
    "nextafter": lambda t: t.nextafter(t.tensor([1.0, -2], dtype=t.bfloat16), t.tensor([5.0, 5], dtype=t.bfloat16)),
    "nan_to_num": lambda t: t.nan_to_num(t.tensor([float("inf"), float("nan")], dtype=t.bfloat16)),
    "finfo": lambda t: t.finfo(t.bfloat16),
    "kinds": lambda t: (t.is_floating_point(x := t.ones(1, dtype=t.bfloat16)), x.is_signed(), x.is_complex()),
    "type": lambda t: ((x := t.ones(1, dtype=t.bfloat16)).type(), x.element_size()),
    "cast to type": lambda t: t.ones(1).type(t.bfloat16).dtype,
    "numbers": lambda t: ((x := t.tensor(1.1, dtype=t.bfloat16)).item(), x.tolist(), float(x), int(x), bool(x)),
    "format": lambda t: f"{t.tensor(1.1, dtype=t.bfloat16):.3f}",
    "bfloat16()": lambda t: t.ones(1).bfloat16().dtype,
    "half()": lambda t: t.ones(1, dtype=t.bfloat16).half().dtype,
    "sum in it": lambda t: t.full((300,), 0.1).sum(dtype=t.bfloat16),
    "sum beyond it": lambda t: t.full((300,), 0.1, dtype=t.bfloat16).sum(dtype=t.float64),
    "softmax in it": lambda t: t.softmax(t.arange(3.0), 0, dtype=t.bfloat16),
    "where": lambda t: t.where(t.tensor([True, False]), t.ones(2, dtype=t.bfloat16), 2.5),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", MADE)
def test_as_in_pytorch(torch: ModuleType, name: str) -> None:
    assert plain(MADE[name](ut)) == plain(MADE[name](torch))


def test_it_can_be_the_default() -> None:
    ut.set_default_dtype(ut.bfloat16)
    try:
        assert ut.tensor([1.5]).dtype == ut.zeros(2).dtype == ut.rand(2).dtype == ut.bfloat16
        found = [ut.tensor([1, 2]) / 3, ut.sqrt(ut.tensor([2])), ut.atan2(ut.tensor([1]), ut.tensor([3]))]
        found += [ut.arange(3) * 1.5, ut.tensor([1, 2]).true_divide(3)]
        assert {x.dtype for x in found} == {ut.bfloat16}
        assert found[0].tolist() == [0.333984375, 0.66796875]
        assert repr(ut.tensor([1.5])) == "tensor([1.5000])"
    finally:
        ut.set_default_dtype(ut.float32)


def test_copies_and_pickles() -> None:
    x = ut.tensor([1.5, 2.5], dtype=ut.bfloat16, requires_grad=True)
    (x * x).sum().backward()
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.dtype is ut.bfloat16 and y.requires_grad and y.tolist() == [1.5, 2.5]
    assert copy.deepcopy(x).grad.tolist() == [3.0, 5.0]


def test_numpy_shares_the_memory() -> None:
    x = ut.zeros(3, dtype=ut.bfloat16)
    array = x.numpy()
    assert array.dtype == ml_dtypes.bfloat16
    array[1] = 2.5
    assert x.tolist() == [0.0, 2.5, 0.0]
    assert ut.from_numpy(array).data_ptr() == x.data_ptr()
    with pytest.raises(BufferError, match="bfloat16"):
        x.__dlpack__()


def test_other_dtypes_of_the_package_are_refused() -> None:
    with pytest.raises(TypeError, match="float8_e4m3fn"):
        ut.from_numpy(np.zeros(2, ml_dtypes.float8_e4m3fn))
    with pytest.raises(TypeError, match="void"):
        ut.from_numpy(np.zeros(2, "V2"))
    with pytest.raises(TypeError, match="int4"):
        ut.zeros(2, dtype=ml_dtypes.int4)


# ---- random numbers


DRAWN: dict[str, Any] = {
    "rand": lambda t, x: t.rand(40, dtype=t.bfloat16),
    "randn": lambda t, x: t.randn(40, dtype=t.bfloat16),
    "rand_like": lambda t, x: t.rand_like(x),
    "randn_like": lambda t, x: t.randn_like(x),
    "uniform_": lambda t, x: x.uniform_(-1, 2),
    "normal_": lambda t, x: x.normal_(1, 2),
    "normal": lambda t, x: t.normal(x, x + 1),
    "exponential_": lambda t, x: x.exponential_(),
    "random_": lambda t, x: x.random_(),
    "bernoulli": lambda t, x: t.bernoulli(x + 0.3),
    "dropout": lambda t, x: t.nn.functional.dropout(x + 1, 0.4),
    "randint": lambda t, x: t.randint(0, 5, (40,), dtype=t.bfloat16),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", DRAWN)
def test_random_numbers_are_pytorchs(torch: ModuleType, name: str) -> None:
    torch.manual_seed(3)
    ut.manual_seed(3)
    wanted = DRAWN[name](torch, torch.zeros(40, dtype=torch.bfloat16))
    found = DRAWN[name](ut, ut.zeros(40, dtype=ut.bfloat16))
    assert found.dtype == ut.bfloat16 and found.tolist() == wanted.tolist()


def test_one_is_never_drawn() -> None:
    x = ut.zeros(50_000, dtype=ut.bfloat16)
    assert max(x.uniform_().max().item(), ut.rand_like(x).max().item(), ut.rand_like(x).max().item()) < 1

"""Indexing, sizes, dimensions, parts and `out=` in the compiled core: what the Python functions behind them do."""

from __future__ import annotations

import contextlib
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.compiled.outcomes import outcome
from tests.rows import rows, together
from undertow import own_files
from undertow.compiled import core
from undertow.ops.declare import REGISTRY

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)


def values(*shape: int, dtype: Any = np.float32) -> Any:
    return ut.from_numpy((np.arange(np.prod(shape), dtype=np.float64).reshape(shape) % 7 / 3 - 1).astype(dtype))


def leaf(*shape: int) -> Any:
    return values(*shape).requires_grad_()


def inference_tensor() -> Any:
    with ut.inference_mode():
        return values(2, 3, 4) * 1


TENSORS: dict[str, Callable[[], Any]] = {
    "plain": lambda: values(2, 3, 4),
    "leaf": lambda: leaf(2, 3, 4),
    "recorded": lambda: leaf(2, 3, 4) * 1,
    "view": lambda: (leaf(4, 3, 4) * 1)[1:3],
    "transposed": lambda: leaf(4, 3, 2).permute(2, 1, 0),
    "one of several": lambda: leaf(4, 3, 4).chunk(2)[1],
    "double": lambda: values(2, 3, 4, dtype=np.float64),
    "whole numbers": lambda: ut.arange(24).reshape(2, 3, 4),
    "bools": lambda: values(2, 3, 4) > 0,
    "bfloat16": lambda: values(2, 3, 4).to(ut.bfloat16),
    "complex": lambda: values(2, 3, 4) * (1 + 1j),
    "matrix": lambda: leaf(3, 4),
    "vector": lambda: leaf(5),
    "ones": lambda: leaf(1, 3, 1),
    "no dimensions": lambda: ut.tensor(2.0, requires_grad=True),
    "empty": lambda: ut.zeros(0, 3, requires_grad=True),
    "expanded": lambda: values(1, 3).expand(2, 3),
    "inference": inference_tensor,
    "large": lambda: (values(70, 80) * 1024).round() / 1024,  # sums of these are exact, in whatever order
    "parameter": lambda: ut.nn.Parameter(values(2, 3)),
}

MODES: dict[str, Callable[[], Any]] = {
    "": contextlib.nullcontext,
    "no_grad": ut.no_grad,
    "inference": ut.inference_mode,
    "hooks": lambda: ut.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
}


def same(function: Any, call: Callable[..., Any], tensor: str, mode: str = "") -> None:
    """Assert that a compiled object does what the function behind it does, with and without twins."""

    def within(f: Any, x: Any) -> Any:
        with MODES[mode]():
            return call(f, x)

    def make() -> tuple[Any, ...]:
        return (TENSORS[tensor](),)

    found = outcome(function, within, make)
    core.use_twins(False)
    try:
        expected = outcome(function.function, within, make)
    finally:
        core.use_twins(True)
    assert_same(found, expected)


def assert_same(found: Any, expected: Any) -> None:
    """Equal, to the rounding of sums."""
    if type(found) is type(expected) and found == expected:
        return  # nearly always, and much sooner than number by number
    if isinstance(expected, float | complex):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)
    elif isinstance(expected, dict):
        assert_same(list(found.items()), list(expected.items()))
    elif isinstance(expected, tuple | list):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        if found == expected and {type(e) for e in expected} == {float}:
            return  # in one step: approx takes a while
        for f, e in zip(found, expected, strict=True):
            assert_same(f, e)
    else:
        assert found == expected


# ------------------------------------------------------------------ indexing

INDICES: list[Any] = [
    0, -1, 1, 5, -9, slice(None), slice(1, None), slice(None, -1), slice(0, 2, 2), slice(None, None, -1), slice(5, 9),
    slice(1, 1), slice(0, 0), slice(None, None, 0), slice(1.5, None), slice(np.int64(0), 2), None, ..., (), (0,),
    (0, 1), (0, 1, 2), (0, 1, 2, 3), (slice(None), 1), (slice(None), slice(1, 3)), (..., 0), (..., None), (0, ..., -1),
    (None, 0), (slice(None), None), (..., 0, ...), (slice(None), slice(None)), (slice(0, 100), 0), (0, 9), True, False,
    (True, 0), np.int64(1), [0, 1], (slice(None), [0, 1]), 10**30, slice(10**30), slice(-(10**30), None), "a", 1.0,
]  # fmt: skip


@pytest.mark.parametrize("tensor", TENSORS)
@together(index=INDICES)
def test_getitem(tensor: str, index: Any) -> None:
    same(REGISTRY["getitem"].function, lambda f, x: f(x, index), tensor)


@pytest.mark.parametrize("mode", MODES)
@together(
    tensor=["plain", "leaf", "view", "inference"], index=[0, slice(1, 2), (slice(None), 1), ..., None, (..., None)]
)
def test_getitem_in_modes(mode: str, tensor: str, index: Any) -> None:
    same(REGISTRY["getitem"].function, lambda f, x: f(x, index), tensor, mode)


ASSIGNED: dict[str, Callable[[Any], Any]] = {
    "a number": lambda part: 1.5,
    "an int": lambda part: 3,
    "a large int": lambda part: 300,
    "a bool": lambda part: True,
    "zeros": lambda part: ut.zeros(part),
    "one": lambda part: ut.tensor(1.0),
    "ones before": lambda part: ut.ones(1, 1, *part),
    "doubles": lambda part: ut.ones(part, dtype=ut.float64),
    "recorded": lambda part: leaf(*part),
    "an array": lambda part: np.ones(part),
    "too many": lambda part: ut.ones(11, *part),
    "nonsense": lambda part: "a",
}


@pytest.mark.parametrize(
    "tensor", ["plain", "leaf", "recorded", "view", "whole numbers", "bfloat16", "empty", "expanded"]
)
@together(index=[0, -1, 7, slice(1, None), (slice(None), 1), (0, 1), ..., None, (..., 0)], value=ASSIGNED)
def test_setitem(tensor: str, index: Any, value: str) -> None:
    def call(f: Any, x: Any) -> Any:
        try:
            part = tuple(x.detach()[index].shape)
        except IndexError:
            part = (2,)
        return f(x, index, ASSIGNED[value](part))

    same(ut.Tensor.__setitem__, call, tensor)


@pytest.mark.parametrize("tensor", ["plain", "recorded", "leaf", "view", "inference"])
@pytest.mark.parametrize("mode", MODES)
def test_setitem_in_modes(mode: str, tensor: str) -> None:
    same(ut.Tensor.__setitem__, lambda f, x: f(x, 0, 2.0), tensor, mode)
    same(ut.Tensor.__setitem__, lambda f, x: f(x, 0, ut.ones(3, 4)), tensor, mode)


def test_parts_of_one_tensor_can_be_assigned_to_each_other() -> None:
    x = ut.arange(6.0)
    x[::2] = x[:3]
    assert x.tolist() == [0, 1, 1, 3, 2, 5]
    x[:3] = x[3:]
    x[0:2] = x[0:2]
    assert x.tolist() == [3, 2, 5, 3, 2, 5]
    assert x._version == 3


# ------------------------------------------------------------------ sizes and dimensions

CALLS: dict[str, Callable[..., Any]] = {
    "reshape 1": lambda f, x: f(x, -1),
    "reshape 2": lambda f, x: f(x, 4, -1),
    "reshape 3": lambda f, x: f(x, (2, 12)),
    "reshape 4": lambda f, x: f(x, [4, 3, 2]),
    "reshape 5": lambda f, x: f(x, shape=(4, 6)),
    "reshape 6": lambda f, x: f(x, 5, -1),
    "reshape 7": lambda f, x: f(x, -1, -1),
    "reshape 8": lambda f, x: f(x, x.shape),
    "reshape 9": lambda f, x: f(x, ()),
    "reshape 10": lambda f, x: f(x, 2, 0),
    "reshape 11": lambda f, x: f(x, np.int64(4), 6),
    "reshape 12": lambda f, x: f(x, 24.0),
    "reshape 13": lambda f, x: f(x, -2, 12),
    "reshape 14": lambda f, x: f(x),
    "reshape 15": lambda f, x: f(x, -1, 0),
    "view 1": lambda f, x: f(x, -1),
    "view 2": lambda f, x: f(x, 4, 6),
    "view 3": lambda f, x: f(x, (2, 1, -1)),
    "view 4": lambda f, x: f(x, ut.int32),
    "view 5": lambda f, x: f(x, 7),
    "view 6": lambda f, x: f(x, x.shape),
    "flatten 1": lambda f, x: f(x),
    "flatten 2": lambda f, x: f(x, 1),
    "flatten 3": lambda f, x: f(x, 0, 1),
    "flatten 4": lambda f, x: f(x, -1, -1),
    "flatten 5": lambda f, x: f(x, 2, 0),
    "flatten 6": lambda f, x: f(x, start_dim=1),
    "expand 1": lambda f, x: f(x, 2, *x.shape),
    "expand 2": lambda f, x: f(x, (-1,) * x.ndim),
    "expand 3": lambda f, x: f(x, 4, 3, 5),
    "expand 4": lambda f, x: f(x, -1, *x.shape),
    "expand 5": lambda f, x: f(x, 3),
    "expand 6": lambda f, x: f(x, 1, *x.shape),
    "expand_as 1": lambda f, x: f(x, ut.zeros(2, *x.shape)),
    "expand_as 2": lambda f, x: f(x, ut.zeros(9)),
    "permute 1": lambda f, x: f(x, *range(x.ndim)[::-1]),
    "permute 2": lambda f, x: f(x, tuple(range(x.ndim))[::-1]),
    "permute 3": lambda f, x: f(x, -1, 0, 1),
    "permute 4": lambda f, x: f(x, 0, 0, 1),
    "permute 5": lambda f, x: f(x, 0, 5),
    "permute 6": lambda f, x: f(x, dims=tuple(range(x.ndim))),
    "numpy_T": lambda f, x: f(x if x.ndim == 2 else x.flatten()[None]),
    "contiguous 1": lambda f, x: f(x),
    "contiguous 2": lambda f, x: f(x, ut.channels_last),
    "squeeze 1": lambda f, x: f(x),
    "squeeze 2": lambda f, x: f(x, 0),
    "squeeze 3": lambda f, x: f(x, dim=-1),
    "squeeze 4": lambda f, x: f(x, (0, -1)),
    "squeeze 5": lambda f, x: f(x, axis=0),
    "squeeze 6": lambda f, x: f(x, 7),
    "chunk 1": lambda f, x: f(x, 2),
    "chunk 2": lambda f, x: f(x, 3, 1),
    "chunk 3": lambda f, x: f(x, 2, dim=-1),
    "chunk 4": lambda f, x: f(x, 0),
    "chunk 5": lambda f, x: f(x, 2, axis=0),
    "chunk 6": lambda f, x: f(x, 2, 9),
    "chunk 7": lambda f, x: f(x, chunks=2),
    "split 1": lambda f, x: f(x, 1),
    "split 2": lambda f, x: f(x, 2, 1),
    "split 3": lambda f, x: f(x, [1, 2], dim=1),
    "split 4": lambda f, x: f(x, (1, 1)),
    "split 5": lambda f, x: f(x, -1),
    "split 6": lambda f, x: f(x, 0),
    "split 7": lambda f, x: f(x, []),
    "sum 1": lambda f, x: f(x),
    "sum 2": lambda f, x: f(x, 0),
    "sum 3": lambda f, x: f(x, dim=-1, keepdim=True),
    "sum 4": lambda f, x: f(x, (0, 1)),
    "sum 5": lambda f, x: f(x, [0, 1], True),
    "sum 6": lambda f, x: f(x, axis=0),
    "sum 7": lambda f, x: f(x, dtype=ut.float64),
    "sum 8": lambda f, x: f(x, (1, 0), keepdim=True),
    "sum 9": lambda f, x: f(x, 9),
    "sum 10": lambda f, x: f(x, keepdim=True),
    "sum 11": lambda f, x: f(x, 0, dim=0),
    "sum 12": lambda f, x: f(x, ()),
    "matmul 1": lambda f, x: f(x, x),
    "matmul 2": lambda f, x: f(x, leaf(4, 3)),
    "matmul 3": lambda f, x: f(x, leaf(4)),
    "matmul 4": lambda f, x: f(x, leaf(5, 2) * 1),
    "matmul 5": lambda f, x: f(leaf(3), x),
    "matmul 6": lambda f, x: f(x, values(5, dtype=np.float64)),
    "matmul 7": lambda f, x: f(input=x, other=x),
    "matmul 8": lambda f, x: f(x, np.ones((4, 3), np.float32)),
    "matmul 9": lambda f, x: f(x),
    "mean 1": lambda f, x: f(x),
    "mean 2": lambda f, x: f(x, 1),
    "mean 3": lambda f, x: f(x, -1, keepdim=True),
    "mean 4": lambda f, x: f(x, dim=(0, -1)),
    "max 1": lambda f, x: f(x),
    "max 2": lambda f, x: f(x, 1),
    "max 3": lambda f, x: f(x, dim=-1, keepdim=True),
    "max 4": lambda f, x: f(x, (0, 1)),
    "max 5": lambda f, x: f(x, ut.tensor(0.0)),
    "max 6": lambda f, x: f(x, axis=0),
    "min 1": lambda f, x: f(x),
    "min 2": lambda f, x: f(x, 0),
    "min 3": lambda f, x: f(x, -1, True),
    "min 4": lambda f, x: f(x, 0, 1),
}


@rows("call", CALLS)
@together(tensor=TENSORS)
def test_functions_that_sort_out_their_arguments(tensor: str, call: str) -> None:
    function = REGISTRY[call.split()[0]].function
    assert type(function) is core.Shortcut
    same(function, CALLS[call], tensor)


def test_a_shortcut_passes_for_its_function() -> None:
    assert str(inspect.signature(ut.Tensor.reshape)).startswith("(input")
    assert "under other sizes" in (ut.reshape.__doc__ or "")
    assert ut.reshape.__name__ == "reshape"
    assert pickle.loads(pickle.dumps(ut.reshape)) is ut.reshape
    with pytest.raises(ValueError, match="no shortcut for nothing"):
        core.Shortcut("nothing", len, ())


def test_batches_go_the_general_way() -> None:
    x = ut.arange(24.0).reshape(2, 3, 4)
    for call in (lambda t: t[0], lambda t: t.reshape(-1), lambda t: t.sum(0), lambda t: t.max(0)[0], lambda t: t.T):
        assert ut.func.vmap(call)(x).tolist() == [call(t).tolist() for t in x]


# ------------------------------------------------------------------ several results

SEVERAL: dict[str, Callable[..., Any]] = {
    "_split": lambda f, x: f(x, 2, 0),
    "_split_with_sizes": lambda f, x: f(x, (1, 1), 0),
    "unbind": lambda f, x: f(x, -1),
    "_max_dim": lambda f, x: f(x, 0, False),
    "_min_dim": lambda f, x: f(x, -1, True),
    "_sort_along": lambda f, x: f(x, 0, True),
    "_topk_along": lambda f, x: f(x, 1, 0, True, True),
    "_var_mean_dims": lambda f, x: f(x, 0, 1, False),
    "_aminmax_dim": lambda f, x: f(x, 0, False),
}


for call in SEVERAL.values():
    # private operations are called by functions of undertow's own
    call.__code__ = call.__code__.replace(co_filename=own_files.__file__)


@pytest.mark.parametrize("name", SEVERAL)
@together(given=[("", t) for t in TENSORS] + [(m, t) for m in MODES if m for t in ("leaf", "view", "inference")])
def test_several_results(name: str, given: tuple[str, str]) -> None:
    mode, tensor = given
    function = REGISTRY[name].function
    assert type(function) is core.Operation
    same(function, SEVERAL[name], tensor, mode)


def test_gradients_of_some_of_several_results() -> None:
    for used in ([0], [1], [0, 2], [0, 1, 2]):
        x = ut.arange(6.0, requires_grad=True)
        parts = (x * x).split(2)
        sum(parts[k].sum() for k in used).backward()
        assert x.grad.tolist() == [2 * k if k // 2 in used else 0 for k in range(6)]
    y = ut.tensor([[1.0, 5.0], [7.0, 3.0]], requires_grad=True)
    top = y.sort(1)
    (top.values[:, 0] * 3).sum().backward()
    assert y.grad.tolist() == [[3, 0], [0, 3]]
    with pytest.raises(RuntimeError, match="second time"):
        top.values.sum().backward()


# ------------------------------------------------------------------ out=

OUT: dict[str, Callable[..., Any]] = {
    "add": lambda f, x, out: f(x, 1.0, out=out),
    "add tensors": lambda f, x, out: f(x, x, alpha=2, out=out),
    "mul": lambda f, x, out: f(x, x, out=out),
    "exp": lambda f, x, out: f(x, out=out),
    "matmul": lambda f, x, out: f(x, ut.ones(x.shape[-1:] * 2), out=out),
    "sum": lambda f, x, out: f(x, dim=0, out=out),
    "where": lambda f, x, out: f(x > 0, x, x * 2, out=out),
    "cat": lambda f, x, out: f([x, x], out=out),
    "max": lambda f, x, out: f(x, 0, out=(out, ut.zeros(0, dtype=ut.int64))),
    "none": lambda f, x, out: ut.add(x, 1, out=None),
}

OUTS: dict[str, Callable[[], Any]] = {
    "fitting": lambda: ut.zeros(2, 3, 4),
    "empty": lambda: ut.zeros(0),
    "other shape": lambda: ut.zeros(5),
    "double": lambda: ut.zeros(2, 3, 4, dtype=ut.float64),
    "whole numbers": lambda: ut.zeros(2, 3, 4, dtype=ut.int64),
    "recorded": lambda: leaf(2, 3, 4) * 1,
    "leaf": lambda: leaf(2, 3, 4),
    "view": lambda: ut.zeros(4, 3, 4)[1:3],
    "strided": lambda: ut.zeros(4, 3, 2).permute(2, 1, 0),
    "expanded": lambda: ut.zeros(1, 3, 4).expand(2, 3, 4),
    "inference": inference_tensor,
    "doubled": lambda: ut.zeros(4, 3, 4),
    "summed": lambda: ut.zeros(3, 4),
    "nonsense": lambda: 5,
}


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("mode", ["", "no_grad"])
@together(tensor=["plain", "leaf", "bfloat16"], out=OUTS)
def test_out(mode: str, name: str, tensor: str, out: str) -> None:
    function = getattr(ut, name.split()[0], ut.add)

    def call(f: Any, x: Any, target: Any) -> Any:
        with MODES[mode]():
            return OUT[name](f, x, target)

    def make() -> tuple[Any, ...]:
        return TENSORS[tensor](), OUTS[out]()

    assert type(function) in (core.Operation, core.Shortcut)
    assert_same(outcome(function, call, make), outcome(function.function, call, make))


def test_out_may_be_an_operand() -> None:
    x = ut.arange(4.0)
    assert ut.add(x, x, out=x) is x
    ut.sub(x[1:], x[::2].sum(), out=x[1:])
    assert x.tolist() == [0, -2, 0, 2]
    assert x._version == 2

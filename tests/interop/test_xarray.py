"""Tensors inside of xarray's labelled arrays: the result is labelled, its data is a tensor, and gradients flow."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.autograd.gradcheck import gradcheck

xr = pytest.importorskip("xarray")

RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.standard_normal((3, 4)), RNG.standard_normal(4)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # xarray and NumPy remark on means of nothing
        yield


def labelled(left: Any, right: Any) -> tuple[Any, Any]:
    return xr.DataArray(left, dims=("x", "y"), coords={"x": [10.0, 20.0, 30.0]}), xr.DataArray(right, dims=("y",))


CALLS = {
    "add": lambda a, b: a + b,
    "reflected": lambda a, b: 1 - a,
    "array": lambda a, b: a * RIGHT,
    "power": lambda a, b: a**2 / (1 + b**2),
    "sum": lambda a, b: a.sum(),
    "sum over x": lambda a, b: a.sum("x"),
    "mean": lambda a, b: a.mean(),
    "mean over y": lambda a, b: a.mean("y"),
    "mean with nan": lambda a, b: a.mean("y", skipna=False),
    "std": lambda a, b: a.std("x"),
    "var": lambda a, b: (a * b).var("y"),
    "max": lambda a, b: a.max("x"),
    "min": lambda a, b: a.min(),
    "prod": lambda a, b: a.prod("y"),
    "median": lambda a, b: a.median("x"),
    "quantile": lambda a, b: a.quantile([0.25, 0.5], "x"),
    "where": lambda a, b: a.where(a > 0, 0.0),
    "choose": lambda a, b: xr.where(a > 0, a, b),
    "filled": lambda a, b: a.where(a > 0).fillna(1.0),
    "select": lambda a, b: a.sel(x=20) * b,
    "position": lambda a, b: a.isel(x=0),
    "positions": lambda a, b: a.isel(y=[0, 2]),
    "slice": lambda a, b: a.isel(y=slice(1, 3)),
    "transpose": lambda a, b: a.transpose("y", "x"),
    "ufunc": lambda a, b: np.sin(a) + np.exp(b),
    "clip": lambda a, b: a.clip(-1, 1),
    "cumsum": lambda a, b: a.cumsum("x"),
    "diff": lambda a, b: a.diff("y"),
    "shift": lambda a, b: a.shift(y=1, fill_value=0.0),
    "roll": lambda a, b: a.roll(y=1),
    "pad": lambda a, b: a.pad(y=(1, 1), constant_values=0.0),
    "dot": lambda a, b: a.dot(b),
    "matmul": lambda a, b: a @ b,
    "concat": lambda a, b: xr.concat([a, 2 * a], "x"),
    "stack": lambda a, b: a.stack(z=("x", "y")),
    "expand": lambda a, b: a.expand_dims("k"),
    "broadcast": lambda a, b: xr.broadcast(a, b)[1],
    "groups": lambda a, b: a.groupby("x").mean(),
    "coarsen": lambda a, b: a.coarsen(y=2).mean(),
    "rolling": lambda a, b: a.rolling(y=2).mean().isel(y=slice(1, None)),
    "weighted": lambda a, b: a.weighted(b**2).mean("y"),
    "differentiate": lambda a, b: a.differentiate("x"),
    "integrate": lambda a, b: a.integrate("x"),
    "cov": lambda a, b: xr.cov(a, a * a, "x"),
    "apply": lambda a, b: xr.apply_ufunc(np.linalg.norm, a, input_core_dims=[["y"]], kwargs={"axis": -1}),
    "dataset": lambda a, b: (xr.Dataset({"a": a, "b": b}) * 2).mean()["a"],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_results_are_those_of_arrays_and_gradients_flow(call: Any) -> None:
    expected = call(*labelled(LEFT, RIGHT))
    leaves = [ut.tensor(array, requires_grad=True) for array in (LEFT, RIGHT)]
    found = call(*labelled(*leaves))
    assert isinstance(found.data, ut.Tensor) and found.data.requires_grad
    assert found.dims == expected.dims
    np.testing.assert_allclose(found.data.detach().numpy(), expected.data, rtol=1e-12, atol=1e-14)
    assert gradcheck(lambda *tensors: call(*labelled(*tensors)).data, leaves, check_batched_grad=False)


def test_comparisons_and_counts_have_no_gradient() -> None:
    a, _ = labelled(ut.tensor(LEFT, requires_grad=True), ut.tensor(RIGHT))
    assert (a > 0).data.tolist() == (LEFT > 0).tolist()
    assert a.count("x").data.tolist() == [3, 3, 3, 3]
    assert a.argmax("x").data.tolist() == LEFT.argmax(0).tolist()
    assert not a.isnull().any().item()


def test_a_loss_goes_back_to_the_tensor_inside() -> None:
    weight = ut.tensor([1.0, 2.0], requires_grad=True)
    readings = xr.DataArray([[1.0, 2.0], [3.0, 4.0]], dims=("day", "sensor"))
    loss = ((readings * xr.DataArray(weight, dims="sensor")).sum("sensor") ** 2).mean()
    loss.data.backward()
    np.testing.assert_allclose(weight.grad.numpy(), [38.0, 54.0])


OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_a_tensor_may_stand_on_the_left(operator: Any) -> None:
    left, labels = np.array([1.0, 5.0, 2.0]), xr.DataArray([3.0, 4.0, 2.0], dims="x")
    tensor = ut.tensor(left, requires_grad=True)
    found, expected = operator(tensor, labels), operator(left, labels)
    assert isinstance(found, xr.DataArray) and found.dims == expected.dims
    np.testing.assert_allclose(found.data.detach().numpy(), expected.data)


def test_what_has_no_operator_refuses_labels() -> None:
    tensor, labels = ut.ones(2), xr.DataArray([3.0, 4.0], dims="x")
    for call in (lambda: ut.add(tensor, labels, alpha=2), lambda: ut.sin(labels), lambda: tensor @ labels):
        with pytest.raises(TypeError, match="must be Tensor, not DataArray"):
            call()


def test_labels_print_beside_the_tensor() -> None:
    assert "tensor([1., 2.])" in repr(xr.DataArray(ut.tensor([1.0, 2.0]), dims="x"))


def test_no_gradient_is_lost_silently() -> None:
    a, _ = labelled(ut.tensor(LEFT, requires_grad=True), ut.tensor(RIGHT))
    for call in (lambda: a.values, lambda: a.to_numpy(), lambda: float(a.sum()), lambda: a.interp(x=15.0)):
        with pytest.raises(RuntimeError, match="requires grad"):
            call()
    assert a.copy(deep=False).data is a.data

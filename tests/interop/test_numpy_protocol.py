"""NumPy's functions on tensors: the same numbers, a recorded history, and never a gradient lost silently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.interop.numpy_functions import FUNCTIONS
from undertow.ops.declare import REGISTRY

_rng = np.random.default_rng(0)
_square = _rng.standard_normal((3, 3))
ARRAYS = {
    "A": _rng.standard_normal((3, 4)),
    "P": np.abs(_rng.standard_normal((3, 4))) + 0.1,
    "V": _rng.standard_normal(4),
    "S": _square,
    "D": _square @ _square.T + 3 * np.eye(3),
    "T": _rng.standard_normal((2, 3, 4)),
    "N": np.array([[1.0, np.nan], [np.nan, 4.0]]),
}

UFUNCS = """
np.add(A, A)  np.subtract(A, 1)  np.subtract(1, A)  np.multiply(A, V)  np.divide(A, V)  np.divide(2.0, A)
np.power(P, 2)  np.power(2.0, A)  np.power(P, A)  np.negative(A)  np.positive(A)  np.absolute(A)  np.fabs(A)  np.sign(A)
np.exp(A)  np.exp2(A)  np.expm1(A)  np.log(P)  np.log2(P)  np.log10(P)  np.log1p(P)  np.sqrt(P)  np.square(A)
np.reciprocal(P)  np.sin(A)  np.cos(A)  np.tan(A)  np.arcsin(np.tanh(A))  np.arccos(np.tanh(A))  np.arctan(A)
np.arctan2(A, P)  np.hypot(A, P)  np.sinh(A)  np.cosh(A)  np.tanh(A)  np.arcsinh(A)  np.arccosh(P + 1)
np.arctanh(np.tanh(A))  np.degrees(A)  np.rad2deg(A)  np.radians(A)  np.deg2rad(A)  np.maximum(A, 0)  np.minimum(A, V)
np.fmax(A, V)  np.fmin(A, V)  np.logaddexp(A, V)  np.logaddexp2(A, V)  np.floor(A)  np.ceil(A)  np.trunc(A)  np.rint(A)
np.remainder(A, P)  np.fmod(A, P)  np.copysign(A, V)  np.heaviside(A, 0.5)  np.float_power(P, 2)
np.conjugate(A + 1j)  np.sign(A + 1j)  np.matmul(A, V)  np.matmul(A, [1, 2, 3, 4])  np.add([1, 2, 3, 4], A)
np.add.reduce(A)  np.add.reduce(A, axis=1, keepdims=True)  np.multiply.reduce(P, axis=0)  np.maximum.reduce(A, axis=1)
np.minimum.reduce(A)  np.add.accumulate(A, axis=1)  np.multiply.accumulate(A)  np.add.reduce(T, axis=(0, 2))
np.arange(4.0) + A  np.arange(4.0) - A  np.arange(4.0) * A  np.arange(4.0) / P  np.arange(4.0) ** P  np.ones((2, 3)) @ A
np.float64(2) * A  np.float64(2) - A  np.float64(2) / P  np.float64(2) ** A  A + np.ones(4)  A @ np.ones(4)
np.isnan(N)  np.isfinite(N)  np.isinf(N)  np.signbit(A)  np.greater(A, 0)  np.less_equal(A, V)  np.equal(A, A)
np.not_equal(A, A)  np.logical_and(A > 0, A < 1)  np.logical_not(A > 0)  np.invert(A > 0)  np.bitwise_and(A > 0, A < 1)
np.ones(4) < A  np.ones(4) == A
np.logical_and.reduce(A > 0)  np.logical_or.reduce(A > 0, axis=1)  np.floor_divide(A, P)
"""

CALLS = """
np.sum(A)  np.sum(A, 0)  np.sum(T, axis=(0, 2), keepdims=True)  np.sum(A > 0)  np.mean(A, axis=1)  np.mean(A)
np.prod(P)  np.prod(P, axis=0)  np.prod(T, axis=(0, 2))
np.prod(A, keepdims=True)  np.max(A)  np.amax(A, 1)  np.amin(A, axis=0)
np.min(A, axis=0, keepdims=True)  np.ptp(A)  np.ptp(A, axis=0)
np.all(A > 0)  np.any(A > 0, axis=0)  np.argmax(A, axis=1)
np.argmin(A)  np.nansum(N)  np.nansum(N, axis=0)  np.nanmean(N, axis=0)  np.count_nonzero(A, axis=0)  np.var(A)
np.var(A, axis=0, ddof=1)  np.std(A, axis=1, keepdims=True)  np.std(A)
np.median(A)  np.median(A, axis=1)  np.nanmedian(N)
np.quantile(A, 0.3)  np.quantile(A, [0.3, 0.5], axis=0)  np.percentile(A, 30)  np.percentile(A, [30, 60], axis=1)
np.average(A)  np.average(A, axis=0, weights=P)
np.average(A, axis=1, weights=V)  np.average(A, axis=1, weights=np.arange(4.0))
np.cumsum(A)  np.cumsum(A, axis=1)  np.cumprod(A, axis=0)
np.cumprod(A)  np.diff(A)  np.diff(A, 2, 0)  np.diff(A, axis=0)
np.trapezoid(A)  np.trapezoid(A, dx=2.0, axis=0)  np.sort(A)
np.sort(A, axis=None)  np.sort(A, axis=0)  np.argsort(A, axis=0)
np.clip(A, -0.5, 0.5)  np.clip(A, None, 0.5)  np.clip(A, a_min=0, a_max=None)
np.clip(A, min=0)  np.round(A, 1)  np.around(A)
np.where(A > 0, A, 0)  np.where(A > 0, A, A * 2)  np.where(A > 0, 1.0, A)  np.nan_to_num(N)  np.nan_to_num(N, True, 2.0)
np.real(A)  np.imag(A + 1j * A)  np.angle(A + 1j)  np.angle(A + 1j, True)  np.sinc(A)  np.isclose(A, A)  np.isreal(A)
np.isposinf(N)  np.isneginf(N)  np.copy(A)  np.ones_like(A) * A  np.zeros_like(A) * A  np.full_like(A, 3.0) * A
np.reshape(A, (4, 3))  np.reshape(A, -1)  np.ravel(A)  np.transpose(T)  np.transpose(T, (1, 0, 2))  np.swapaxes(T, 0, 1)
np.moveaxis(T, 0, -1)  np.squeeze(A[None])
np.squeeze(A[None], axis=0)  np.expand_dims(A, 1)  np.broadcast_to(V, (3, 4))
np.flip(A)  np.flip(A, 0)  np.fliplr(A)  np.flipud(A)  np.rot90(A)  np.rot90(A, 2)  np.roll(A, 2)  np.roll(A, 1, axis=1)
np.roll(A, (1, 2), axis=(0, 1))  np.tile(V, 3)  np.tile(V, (2, 2))  np.repeat(A, 2)  np.repeat(A, 2, axis=1)
np.repeat(A, [1, 0, 2], axis=0)  np.concatenate([A, A])
np.concatenate([A, P], axis=1)  np.concatenate([A, V], axis=None)
np.concatenate([np.ones((1, 4)), A])  np.stack([V, V])  np.stack([V, V], axis=-1)  np.vstack([A, V])  np.hstack([V, V])
np.dstack([A, A])  np.column_stack([V, V])  np.split(A, 2, axis=1)  np.split(V, [1, 3])  np.array_split(V, 3)
np.atleast_1d(V)  np.atleast_2d(V)  np.atleast_3d(V)  np.diag(V)  np.diag(S, 1)  np.diag(S, k=-1)  np.diagflat(V)
np.diagonal(A)  np.diagonal(T, 0, 1, 2)  np.trace(A)  np.trace(A, 1)  np.tril(A)  np.triu(A, 1)  np.triu(A, k=-1)
np.take(A, [2, 0, 1])  np.take(A, [2, 0, 1], axis=1)  np.take(A, [[0, 1], [2, 0]], axis=0)  np.take(A, 1, axis=-1)
np.take_along_axis(A, np.argsort(A, axis=1), axis=1)  np.pad(A, 1)  np.pad(A, ((1, 2), (0, 1)), constant_values=2.0)
np.meshgrid(V, V)  np.meshgrid(V, V, indexing="ij")  np.dot(A, V)  np.dot(V, V)  np.dot(2.0, V)  np.dot(T, V)
np.dot(A, np.swapaxes(T, 1, 2))  np.vdot(A, A)  np.inner(A, V)  np.outer(V, A)  np.kron(S, S)  np.cross(S, D)
np.tensordot(A, A, axes=([1], [1]))  np.tensordot(A, A)  np.einsum("ij,j->i", A, V)  np.einsum("ij->ji", A)
np.linalg.norm(A)  np.linalg.norm(A, axis=1)  np.linalg.norm(V, 3)  np.linalg.norm(V, np.inf)  np.linalg.norm(T)
np.linalg.multi_dot([S, D, S])  np.linalg.cross(S, D)
"""

#: operation -> a call of its counterpart, which is refused as long as there is no such operation
LINEAR_ALGEBRA = {
    "linalg_inv": "np.linalg.inv(D)",
    "linalg_pinv": "np.linalg.pinv(A)",
    "linalg_det": "np.linalg.det(D)",
    "linalg_slogdet": "np.linalg.slogdet(D)[1]",
    "linalg_solve": "np.linalg.solve(D, S)",
    "linalg_cholesky": "np.linalg.cholesky(D)",
    "linalg_eigh": "np.linalg.eigh(D)[0]",
    "linalg_eigvalsh": "np.linalg.eigvalsh(D)",
    "linalg_svdvals": "np.linalg.svd(A, compute_uv=False)",
    "linalg_svd": "np.linalg.svd(A, full_matrices=False)[1]",
    "linalg_qr": "np.linalg.qr(D)",
    "linalg_matrix_power": "np.linalg.matrix_power(S, 3)",
    "linalg_matrix_norm": "np.linalg.norm(A, 'fro')",
}


def expressions(text: str) -> list[str]:
    return [part for line in text.strip().splitlines() for part in line.split("  ")]


def flatten(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in flatten(part)] if isinstance(value, (list, tuple)) else [value]


def compare(expression: str) -> None:
    expected = flatten(eval(expression, {"np": np, **ARRAYS}))
    got = flatten(eval(expression, {"np": np, **{k: ut.tensor(a, requires_grad=True) for k, a in ARRAYS.items()}}))
    assert len(got) == len(expected)
    for tensor, array in zip(got, expected, strict=True):
        assert isinstance(tensor, ut.Tensor)
        assert tuple(tensor.shape) == np.shape(array) and tensor.dtype == np.asarray(array).dtype
        np.testing.assert_allclose(tensor.detach().numpy(), array, rtol=1e-12, atol=1e-14)
        assert tensor.requires_grad == (tensor.dtype.kind in "fc")


@pytest.mark.parametrize("expression", expressions(UFUNCS))
def test_ufuncs(expression: str) -> None:
    compare(expression)


@pytest.mark.parametrize("expression", expressions(CALLS))
def test_functions(expression: str) -> None:
    compare(expression)


@pytest.mark.parametrize("op", LINEAR_ALGEBRA)
def test_linear_algebra(op: str) -> None:
    if op in REGISTRY:
        compare(LINEAR_ALGEBRA[op])
    else:
        with pytest.raises(TypeError, match="requires grad"):
            compare(LINEAR_ALGEBRA[op])


def test_every_counterpart_is_tested() -> None:
    tested = " ".join([UFUNCS, CALLS, *LINEAR_ALGEBRA.values(), "np.allclose("])
    names = {f"{f.__module__}.{f.__name__}".replace("numpy", "np", 1) for f in FUNCTIONS if hasattr(f, "__module__")}
    assert sorted(n for n in names if f"{n}(" not in tested) == []


def test_the_history_is_recorded() -> None:
    x = ut.tensor([1.0, 2.0], requires_grad=True)
    np.sum(np.concatenate([np.sin(x), np.array([2.0, 3.0]) * x])).backward()
    np.testing.assert_allclose(x.grad.numpy(), [np.cos(1) + 2, np.cos(2) + 3], rtol=1e-6)


def test_an_array_on_the_left_gives_a_tensor() -> None:
    x = ut.ones(2, requires_grad=True)
    result = np.ones(2) + x
    assert isinstance(result, ut.Tensor) and type(result.grad_fn).__name__ == "AddBackward0"


# ---- what has no counterpart


def test_an_unknown_function_is_computed_when_no_gradient_is_wanted() -> None:
    x = ut.tensor([1.0, 2.0, 4.0])
    assert isinstance(np.cbrt(x), ut.Tensor) and np.cbrt(x).tolist() == np.cbrt(x.numpy()).tolist()
    assert np.gradient(x).tolist() == [1, 1.5, 2]
    assert np.interp(1.5, x, x).item() == 1.5
    fraction, whole = np.modf(x)
    assert isinstance(whole, ut.Tensor) and whole.tolist() == [1, 2, 4] and fraction.tolist() == [0, 0, 0]
    assert np.add.outer(x, x).shape == (3, 3)


@pytest.mark.parametrize(
    "expression",
    ["np.cbrt(x)", "np.gradient(x)", "np.interp(1.5, x, x)", "np.modf(x)", "np.add.outer(x, x)", "np.convolve(x, x)",
     "np.add(x, x, where=True)", "np.add(x, x, dtype=np.float64)", "np.pad(x, 1, mode='reflect')", "np.unwrap(x)",
     "np.apply_along_axis(sum, 0, x)", "np.fft.fft(x)"],
)  # fmt: skip
def test_an_unknown_function_refuses_to_lose_a_gradient(expression: str) -> None:
    x = ut.tensor([1.0, 2.0, 4.0], requires_grad=True)
    names = {"np": np, "x": x, "sum": sum}
    with pytest.raises((TypeError, RuntimeError), match="requires grad") as caught:
        eval(expression, names)
    assert "detach()" in str(caught.value)
    with ut.no_grad():
        if "apply" not in expression:
            eval(expression, names)


def test_an_argument_that_has_no_meaning_is_an_error() -> None:
    x = ut.ones(2, 2, requires_grad=True)
    for expression in ("np.sum(x, where=True)", "np.reshape(x, 4, order='F')", "np.sum(x, 0, None, None, True)"):
        with pytest.raises(TypeError):
            eval(expression, {"np": np, "x": x})


def test_what_never_has_a_gradient_is_computed_anyway() -> None:
    x = ut.tensor([[1.0, 0.0]], requires_grad=True)
    assert np.shape(x) == (1, 2) and np.ndim(x) == 2 and np.size(x) == 2
    assert np.array_equal(x, x) and np.allclose(x, x)
    assert [t.tolist() for t in np.nonzero(x)] == [[0], [0]]
    assert np.searchsorted(np.array([0.5]), x).tolist() == [[1, 0]]


# ---- out=, in place


def test_out_writes_into_a_tensor_and_counts_a_version() -> None:
    x, out = ut.ones(2), ut.zeros(2)
    assert np.add(x, 1, out=out) is out and out.tolist() == [2, 2] and out._version == 1
    assert np.sum(x, axis=0, out=ut.zeros(())).item() == 2
    array = np.zeros(2)
    array += x
    assert type(array) is np.ndarray and array.tolist() == [1, 1]


def test_out_refuses_to_lose_a_gradient() -> None:
    x = ut.ones(2, requires_grad=True)
    array = np.zeros(2)
    for call in (lambda: np.add(x, 1, out=array), lambda: np.add(1, 1, out=x), lambda: np.sum(x, out=ut.zeros(()))):
        with pytest.raises(RuntimeError, match="arguments don't support automatic differentiation"):
            call()
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        array += x
    assert array.tolist() == [0, 0]


def test_functions_that_write_into_their_argument() -> None:
    t = ut.zeros(3)
    np.copyto(t, np.ones(3))
    np.put(t, [0], 5)
    np.add.at(t, [0, 0], 1)
    assert t.tolist() == [7, 1, 1] and t._version == 3
    x = ut.zeros(3, requires_grad=True)
    for call in (lambda: np.copyto(t, x), lambda: np.put(x, [0], 1), lambda: np.add.at(x, [0], 1)):
        with pytest.raises(TypeError, match="requires grad"):
            call()
    assert t._version == 3


# ---- __array__


def test_asarray_shares_and_array_copies() -> None:
    x = ut.zeros(2)
    shared, copied = np.asarray(x), np.array(x)
    x.add_(1)
    assert shared.tolist() == [1, 1] and copied.tolist() == [0, 0]
    assert np.asarray(x, dtype=np.int8).dtype == np.int8
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, dtype=np.int8, copy=False)


def test_a_tensor_that_requires_grad_gives_no_array() -> None:
    x = ut.ones(2, requires_grad=True)
    for call in (lambda: np.asarray(x), lambda: np.array([x, x]), lambda: np.asarray(x * 2)):
        with pytest.raises(RuntimeError, match=r"Use tensor\.detach\(\)\.numpy\(\) instead"):
            call()

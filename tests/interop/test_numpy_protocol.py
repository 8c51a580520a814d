"""NumPy's functions on tensors: the same numbers, the right gradient, and never a gradient lost silently."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.interop.numpy_calls import (
    ARRAYS,
    CALLS,
    MORE_CALLS,
    MORE_UFUNCS,
    NO_DERIVATIVE,
    REFUSED,
    STEPS,
    UFUNCS,
    WITHOUT_TENSORS,
    expressions,
)
from tests.rows import rows

SPACES = ("np", np), ("np.linalg", np.linalg), ("np.fft", np.fft)


def flatten(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in flatten(part)] if isinstance(value, (list, tuple)) else [value]


def used_in(expression: str) -> list[str]:
    return [name for name in ARRAYS if re.search(rf"\b{name}\b", expression)]


def run(expression: str, **values: Any) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # of np.matrix
        return flatten(eval(expression, {"np": np, **ARRAYS, **values}))


def leaves_for(expression: str) -> dict[str, ut.Tensor]:
    return {name: ut.tensor(ARRAYS[name], requires_grad=True) for name in used_in(expression)}


def weights_for(outputs: list[Any]) -> list[Any]:
    """A number for every element of every output that is continuous."""
    rng = np.random.default_rng(1)
    return [
        rng.standard_normal(np.shape(o)) + (1j * rng.standard_normal(np.shape(o)) if np.iscomplexobj(o) else 0)
        if np.asarray(o).dtype.kind in "fc" else None
        for o in outputs
    ]  # fmt: skip


def total(outputs: list[Any], weights: list[Any]) -> float:
    pairs = [(o, w) for o, w in zip(outputs, weights, strict=True) if w is not None]
    return float(sum(np.real(np.conj(w) * o).sum() for o, w in pairs))


def differences(expression: str, name: str, weights: list[Any], step: float = 1e-6) -> Any:
    """The gradient of the weighted total by finite differences of NumPy's own function."""
    array = ARRAYS[name]
    gradient = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        for unit in (1.0, 1j) if array.dtype.kind == "c" else (1.0,):
            ends = []
            for side in (step, -step):
                moved = array.copy()
                moved[place] += side * unit
                ends.append(total(run(expression, **{name: moved}), weights))
            gradient[place] += unit * (ends[0] - ends[1]) / (2 * step)
    return gradient


def check_values(expression: str, got: list[Any], expected: list[Any]) -> None:
    assert len(got) == len(expected)
    for tensor, array in zip(got, expected, strict=True):
        if isinstance(tensor, int):
            assert tensor == array
            continue
        assert isinstance(tensor, ut.Tensor)
        assert tuple(tensor.shape) == np.shape(array) and tensor.dtype == np.asarray(array).dtype
        np.testing.assert_allclose(tensor.detach().numpy(), array, rtol=1e-10, atol=1e-12)
        assert tensor.dtype.kind in "fc" or not tensor.requires_grad


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # since NumPy 2.5
@rows("expression", expressions(UFUNCS + MORE_UFUNCS + CALLS + MORE_CALLS))
def test_values_and_gradients(expression: str) -> None:
    expected, leaves = run(expression), leaves_for(expression)
    got = run(expression, **leaves)
    check_values(expression, got, expected)
    weights = weights_for(expected)
    found = gradients(got, weights, list(leaves.values()))
    for (name, leaf), gradient in zip(leaves.items(), found, strict=True):
        gradient = np.zeros(leaf.shape) if gradient is None else gradient.numpy()
        known = ~np.isnan(ARRAYS[name])
        wanted = differences(expression, name, weights)
        np.testing.assert_allclose(gradient[known], wanted[known], rtol=2e-5, atol=2e-6, err_msg=name)


def gradients(outputs: list[Any], weights: list[Any], leaves: list[Any]) -> Any:
    pairs = [(o, ut.tensor(w)) for o, w in zip(outputs, weights, strict=True) if w is not None and o.requires_grad]
    if not pairs:
        return [None] * len(leaves)
    continuous, seeds = map(list, zip(*pairs, strict=True))
    return ut.autograd.grad(continuous, leaves, seeds, allow_unused=True)


@pytest.mark.parametrize("expression", expressions(STEPS))
def test_steps_have_values_but_refuse_a_derivative(expression: str) -> None:
    got = run(expression, **leaves_for(expression))
    check_values(expression, got, run(expression))
    with pytest.raises(NotImplementedError, match="is not implemented"):
        sum(o.sum() for o in got).backward()


@pytest.mark.parametrize("expression", expressions(NO_DERIVATIVE))
def test_what_has_no_derivative_is_computed(expression: str) -> None:
    for tensor, array in zip(run(expression, **leaves_for(expression)), run(expression), strict=True):
        if isinstance(tensor, ut.Tensor):
            assert tensor.dtype.kind in "biu" and not tensor.requires_grad
            assert tensor.tolist() == array.tolist()
        else:
            assert tensor == array


@pytest.mark.parametrize("expression", expressions(REFUSED))
def test_what_would_lose_a_gradient_is_refused(expression: str, monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, RuntimeError, BufferError), match="require") as caught:
        run(expression, **leaves_for(expression))
    assert "grad" in str(caught.value) and list(tmp_path.iterdir()) in ([], [tmp_path / "f.npy"], [tmp_path / "f.txt"])


def public_functions() -> Iterator[tuple[str, Any]]:
    for prefix, module in SPACES:
        for name in dir(module):
            function = getattr(module, name) if not name.startswith("_") else None
            if callable(function) and not isinstance(function, type):
                yield f"{prefix}.{name}", function


def test_every_public_function_is_in_a_table() -> None:
    text = UFUNCS + MORE_UFUNCS + CALLS + MORE_CALLS + NO_DERIVATIVE + REFUSED + MUTATIONS + STEPS
    aliases = {id(f) for name, f in public_functions() if f"{name}(" in text}
    left_out = [name for name, f in public_functions() if id(f) not in aliases]
    assert [name for name in left_out if name.removeprefix("np.") not in WITHOUT_TENSORS] == []


def test_the_history_is_recorded() -> None:
    x = ut.tensor([1.0, 2.0], requires_grad=True)
    np.sum(np.concatenate([np.sin(x), np.array([2.0, 3.0]) * x])).backward()
    np.testing.assert_allclose(x.grad.numpy(), [np.cos(1) + 2, np.cos(2) + 3], rtol=1e-6)


def test_an_array_on_the_left_gives_a_tensor() -> None:
    x = ut.ones(2, requires_grad=True)
    result = np.ones(2) + x
    assert isinstance(result, ut.Tensor) and type(result.grad_fn).__name__ == "AddBackward0"


def test_a_second_derivative() -> None:
    x = ut.tensor([0.3, 0.7], requires_grad=True, dtype=ut.float64)
    (first,) = ut.autograd.grad(np.sum(np.fft.rfft(np.sin(x)).real), x, create_graph=True)
    (second,) = ut.autograd.grad(np.sum(first), x)
    np.testing.assert_allclose(second.numpy(), -2 * np.sin([0.3, 0]) * [1, 0], atol=1e-12)


# ---- what has no counterpart


def test_an_unknown_function_is_computed_when_no_gradient_is_wanted() -> None:
    x = ut.tensor([1.0, 2.0, 4.0])
    assert isinstance(np.spacing(x), ut.Tensor) and np.spacing(x).tolist() == np.spacing(x.numpy()).tolist()
    counts, _, _ = np.histogram2d(x, x, bins=2)
    assert isinstance(counts, ut.Tensor) and counts.tolist() == [[2, 0], [0, 1]]
    y = ut.tensor([1.0, 2.0, 4.0], requires_grad=True)
    with ut.no_grad():
        assert np.spacing(y).tolist() == np.spacing(x.numpy()).tolist()


def test_the_refusal_names_the_function_and_the_cure() -> None:
    x = ut.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match=r"np\.spacing .* requires grad.*tensor\.detach\(\)"):
        np.spacing(x)


def test_an_argument_that_has_no_meaning_is_an_error() -> None:
    x = ut.ones(2, 2, requires_grad=True)
    for expression in ("np.reshape(x, 4, order='F')", "np.sum(x, 0, None, None, True)", "np.cumsum(x, wher=True)"):
        with pytest.raises(TypeError):
            eval(expression, {"np": np, "x": x})


@pytest.mark.parametrize("name", ["spacing", "histogram_bin_edges"])
def test_a_tangent_and_a_batch_are_not_lost_either(name: str) -> None:
    function, x = getattr(np, name), ut.tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="no derivative"):
        ut.func.jvp(function, (x,), (x,))
    with pytest.raises((TypeError, RuntimeError)):
        ut.func.vmap(function)(ut.ones(3, 2))


def test_functions_work_under_transformations() -> None:
    x = ut.tensor([1.0, 2.0, 4.0], dtype=ut.float64)
    _, tangent = ut.func.jvp(lambda t: np.interp(t, [0.0, 10.0], [0.0, 30.0]), (x,), (ut.ones_like(x),))
    assert tangent.tolist() == [3, 3, 3]
    batch = ut.func.vmap(lambda row: np.convolve(row, np.array([1.0, -1.0]), "valid"))(x.reshape(1, 3))
    assert batch.tolist() == [[1, 2]]


def test_scipy_ufuncs_mean_what_scipy_means() -> None:
    special = pytest.importorskip("scipy.special")
    p, q = np.array([0.3, 0.6]), np.array([0.5, 0.2])
    t = ut.tensor(p, requires_grad=True)
    kl_div = special.kl_div(t, ut.tensor(q))  # the operation of this name takes logarithms
    np.testing.assert_allclose(kl_div.detach().numpy(), special.kl_div(p, q))
    with pytest.raises(TypeError, match="the ufunc zetac with these arguments has no derivative"):
        special.zetac(t)
    np.testing.assert_allclose(special.zetac(t.detach()).numpy(), special.zetac(p))
    for name in ("erf", "expit", "gammaln", "psi", "logit"):
        result = getattr(special, name)(t)
        assert result.requires_grad
        np.testing.assert_allclose(result.detach().numpy(), getattr(special, name)(p), rtol=1e-12)


def test_a_ufunc_made_by_the_user_is_not_taken_for_an_operation() -> None:
    def sin(x: Any) -> Any:
        return x + 1

    assert np.frompyfunc(sin, 1, 1)(ut.tensor([1.0]))[0] == 2


class Stranger:
    """An array of a library that has rules of its own."""

    __array_ufunc__ = lambda self, ufunc, method, *inputs, **options: "theirs"
    __array_function__ = lambda self, function, types, args, kwargs: "theirs"


def test_other_libraries_get_their_turn() -> None:
    x = ut.ones(2, requires_grad=True)
    assert np.add(x, Stranger()) == "theirs" and np.concatenate([x, Stranger()]) == "theirs"


# ---- writing: the result that a functional form would have, and its gradient

MUTATIONS = """
np.copyto(t, u)  np.copyto(t, u, where=np.arange(4) > 1)  np.put(t, [0, 2], u[:2])  np.put(t, 1, 5.0)
np.place(t, np.arange(4) > 1, u)  np.putmask(t, np.arange(4) > 1, u)  np.put_along_axis(t, np.array([3, 0]), u[:2], 0)
np.fill_diagonal(t.reshape(2, 2), u)  np.fill_diagonal(t.reshape(2, 2), 3.0)  np.add(t, u, out=t)  np.exp(u, out=t)
np.add.at(t, [0, 0, 3], u[:3])  np.multiply.at(t, [1, 1, 2], u[:3])  np.subtract.at(t, np.array([2, 2]), 3.0)
np.negative.at(t, [0, 1])  np.maximum.at(t, [0, 1, 0], u[:3])  np.divide.at(t, ([0, 0],), u[1:3])
np.cumsum(u, out=t)  np.clip(u, -0.5, 0.5, out=t)  np.add(u, 1, out=t, where=np.arange(4) > 1)
"""


@pytest.mark.parametrize("statement", expressions(MUTATIONS))
def test_writing_into_a_tensor_is_recorded(statement: str) -> None:
    def program(start: Any, u: Any) -> Any:
        t = start * 2.0
        eval(statement, {"np": np, "t": t, "u": u})
        return t

    start, values = ARRAYS["V"], ARRAYS["X"]
    leaves = [ut.tensor(a, requires_grad=True) for a in (start, values)]
    got, expected = program(*leaves), program(start, values)
    np.testing.assert_allclose(got.detach().numpy(), expected)
    assert got._version > 0
    found = ut.autograd.grad((got * got).sum(), leaves, allow_unused=True)
    for k, gradient in enumerate(found):
        gradient = np.zeros(4) if gradient is None else gradient.numpy()
        for place in range(4):
            ends = []
            for step in (1e-6, -1e-6):
                arrays = [start.copy(), values.copy()]
                arrays[k][place] += step
                ends.append((program(*arrays) ** 2).sum())
            np.testing.assert_allclose(gradient[place], (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-7)


def test_out_writes_into_a_tensor_and_counts_a_version() -> None:
    x, out = ut.ones(2), ut.zeros(2)
    assert np.add(x, 1, out=out) is out and out.tolist() == [2, 2] and out._version == 1
    assert np.sum(x, axis=0, out=ut.zeros(())).item() == 2
    array = np.zeros(2)
    array += x
    assert type(array) is np.ndarray and array.tolist() == [1, 1]


def test_writing_into_a_leaf_is_refused() -> None:
    x = ut.ones(2, requires_grad=True)
    calls = [
        lambda: np.add(1, 1, out=x),
        lambda: np.put(x, [0], 1),
        lambda: np.add.at(x, [0], 1),
        lambda: np.copyto(x, 1),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            call()
    assert x.tolist() == [1, 1]


def test_an_out_of_a_lesser_dtype_is_refused() -> None:
    x = ut.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match="same_kind"):
        np.add(x, 1, out=ut.zeros(2, dtype=ut.int64))


def test_where_keeps_undefined_values_out_of_the_gradient() -> None:
    x = ut.tensor([4.0, 0.0, -1.0], requires_grad=True)
    np.sum(np.sqrt(x, where=np.array([True, False, False]), out=ut.zeros(3))).backward()
    assert x.grad.tolist() == [0.25, 0, 0]


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


def test_arrays_of_another_dtype_are_promoted_as_numpy_does() -> None:
    x, a = ut.ones(2, 2, requires_grad=True), np.array([[2.0, 1.0], [0.0, 1.0]])
    for result in (
        np.linalg.multi_dot([a, x, a]),
        np.linalg.solve(a, x),
        np.linalg.lstsq(a, x, rcond=None)[0],
        np.polyfit(np.arange(2.0), x[0], 1),
        np.polyfit(x[0].cumsum(0), np.arange(2.0), 1),
    ):
        assert result.dtype == ut.float64
        (grad,) = ut.autograd.grad(result.sum(), x)
        assert grad.dtype == ut.float32 and bool(grad.isfinite().all())

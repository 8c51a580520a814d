"""Functions on arrays that the compiled core has a twin of: both give the same, or the twin leaves it to Python."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np
import pytest

from tests.rows import rows
from undertow.backend import cpu
from undertow.backend.cpu import broadcast_to, sum_to
from undertow.compiled import core
from undertow.ops.linalg.matmul import multiply_matrices
from undertow.ops.network.cross_entropy import (
    cross_entropy_forward,
    nll_forward,
    scores_from_classes,
    softmax_minus_target,
    target_coefficients,
)
from undertow.ops.network.softmax import (
    log_softmax_gradient,
    logs_of_softmax,
    normalized_exponentials,
    softmax_gradient,
)
from undertow.ops.pointwise.activations import positive_part, threshold_gradient
from undertow.ops.shape.joining import join, pile
from undertow.ops.views.dimensions import transpose_matrix
from undertow.optim.sgd import descend

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)

rng = np.random.default_rng(3)
nan, inf = np.nan, np.inf


def both(function: Any, *arguments: Any, tolerance: float = 0) -> Any:
    """What the twin gives, compared with what Python gives; their errors are compared too."""
    results = []
    for form in (function, function.__wrapped__):
        copies = [a.copy() if isinstance(a, np.ndarray) and a.flags.owndata else a for a in arguments]
        try:
            results.append((form(*copies), copies))
        except Exception as error:
            results.append((error, copies))
    (found, changed), (expected, changed_too) = results
    if isinstance(expected, Exception):
        assert (type(found), str(found)) == (type(expected), str(expected))
        return found
    for a, b in ((found, expected), *zip(changed, changed_too, strict=True)):
        if isinstance(b, np.ndarray | np.generic):
            assert np.asarray(a).dtype == b.dtype
            assert np.shape(a) == b.shape
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return found


DTYPES = [np.float32, np.float64]


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (1, 1), (0, 3), (3,), (), (2, 3, 4)])
def test_transpose_matrix(shape: Any) -> None:
    found = both(transpose_matrix, cpu, array := rng.normal(size=shape))
    if len(shape) <= 2:
        assert np.shares_memory(transpose_matrix(cpu, array), array) or not array.size
        assert found.flags.writeable


@pytest.mark.parametrize("dtype", [*DTYPES, np.int64, np.complex64, bool])
@pytest.mark.parametrize(
    ("shape", "wanted"),
    [((), (2, 3)), ((3,), (2, 3)), ((2, 1), (2, 3)), ((2, 3), (2, 3)), ((1,), (0,)), ((0,), (2, 0)), ((2,), (3,)),
     ((2, 3), (3,)), ((3,), (2, -1)), ((1, 1), (4, 1, 5))],
)  # fmt: skip
def test_broadcast_to(shape: Any, wanted: Any, dtype: Any) -> None:
    array = rng.normal(size=shape).astype(dtype)
    found = both(broadcast_to, array, wanted)
    if isinstance(found, np.ndarray):
        assert not found.flags.writeable
        assert broadcast_to(array, wanted).base is array
        both(broadcast_to, array[::-1] if array.ndim else array, wanted)


@pytest.mark.parametrize("dtype", [*DTYPES, np.float16, np.int32, np.complex64])
@pytest.mark.parametrize("rows", [0, 1, 5, 64, 65, 300])
def test_sum_to(rows: int, dtype: Any) -> None:
    array = (rng.normal(size=(rows, 7)) * 10).astype(dtype)
    tolerance = {np.float32: 2e-5, np.float64: 1e-13, np.float16: 1e-1, np.complex64: 2e-5}.get(dtype, 0)
    for x, shape in (
        (array, (7,)),
        (array, (1, 7)),
        (array, (1,)),
        (array, ()),
        (array.T, (rows,)),
        (array[:, ::2], (4,)),
    ):
        both(sum_to, x, shape, tolerance=tolerance)


def test_the_sum_of_many_rows_is_as_exact_as_numpys() -> None:
    array = rng.uniform(size=(100_000, 3)).astype(np.float32)
    exact = array.astype(np.float64).sum(0)
    error = np.abs(sum_to(array, (3,)) - exact).max()
    assert error <= np.abs(array.sum(0) - exact).max()


@pytest.mark.parametrize("dtype", [*DTYPES, np.complex128, np.int64, np.float16])
@pytest.mark.parametrize(("left", "right"), [((2, 3), (3, 4)), ((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (2, 3)),
                                             ((2,), (2, 3)), ((70, 70), (70, 70))])  # fmt: skip
def test_multiply_matrices(left: Any, right: Any, dtype: Any) -> None:
    a, b = (rng.normal(size=s).astype(dtype) for s in (left, right))
    # small products are summed in another order than a BLAS's
    rounding = 1e-6 if a.real.dtype == np.float32 else 1e-14
    both(multiply_matrices, cpu, a, b, tolerance=rounding)
    both(multiply_matrices, cpu, a, b.real.astype(np.float32), tolerance=rounding)
    both(multiply_matrices, cpu, a[::-1], b[:, ::-1] if b.ndim == 2 else b, tolerance=1e-4)
    both(multiply_matrices, cpu, a, np.asfortranarray(b), tolerance=rounding)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (8, 8, 8), (4, 3, 8), (7, 5, 19), (1, 40, 9), (33, 2, 1), (16, 16, 16),
                                   (17, 16, 16)])  # fmt: skip
def test_products_of_small_matrices(sizes: tuple[int, int, int], dtype: Any) -> None:
    rows, inner, columns = sizes
    normal = np.random.default_rng(1).normal
    a, b = normal(size=(rows, inner)).astype(dtype), normal(size=(inner, columns)).astype(dtype)
    tolerance = 1e-5 if dtype is np.float32 else 1e-13
    wide = np.repeat(np.repeat(b, 2, 0), 3, 1)
    for left in (a, np.asfortranarray(a), a[::-1, ::-1], np.broadcast_to(a[:1], a.shape)):
        for right in (b, np.asfortranarray(b), wide[::2, ::3], b[:, ::-1], np.broadcast_to(b[:, :1], b.shape)):
            both(multiply_matrices, cpu, left, right, tolerance=tolerance)


def test_products_of_small_matrices_that_are_not_finite_are_silent() -> None:
    a = np.array([[1e38, inf], [nan, 0]], np.float32)
    shifted = np.frombuffer(b"0" + a.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 2)  # not aligned
    with np.errstate(all="ignore"):
        both(multiply_matrices, cpu, a, a)
        both(multiply_matrices, cpu, shifted, a)
    with np.errstate(all="raise"):
        multiply_matrices(cpu, a, a)


@pytest.mark.parametrize("dtype", [*DTYPES, np.float16, np.int64])
@pytest.mark.parametrize("threshold", [0, 0.5, -1.0, 0.1, True])
def test_threshold_gradient(threshold: Any, dtype: Any) -> None:
    x = np.array([[-1, 0, 0.1, 0.5, 2, 0.25], [1, -0.0, 3, -5, 0.5, 0]])
    values = x if dtype is np.int64 else np.where(x == 3, nan, x)
    g = np.where(x == 2, 7, x + 1)
    grads = g if dtype is np.int64 else np.where(x == -5, nan, np.where(x == 1, inf, g))
    both(threshold_gradient, cpu, grads.astype(dtype), values.astype(dtype), threshold)
    both(threshold_gradient, cpu, grads.astype(dtype).T, values.astype(dtype).T, threshold)
    both(threshold_gradient, cpu, np.array(1.0, dtype), np.array(2, dtype), threshold)


@pytest.mark.parametrize("dtype", [*DTYPES, np.float16, np.int64, np.complex64, bool])
@pytest.mark.parametrize("shape", [(5, 7), (40, 1000), (1,), (), (0, 3)])
def test_positive_part(shape: Any, dtype: Any) -> None:
    x = np.where((x := rng.normal(size=shape)) > 1, nan if np.dtype(dtype).kind == "f" else 1, x).astype(dtype)
    both(positive_part, cpu, x)
    both(positive_part, cpu, x.T)
    assert not np.signbit(positive_part(cpu, np.array([-0.0, -1.0]))).any()


LABELS = [np.array([0, 2, 1, 2]), np.array([0, -100, 1, 2]), np.array([0, 3, 1, 2]), np.array([-1, 0, 0, 0]),
          np.array([0, 2, 1, 2], np.int32), np.array([0, 9, 2, 9, 1, 9, 2, 9])[::2], np.array([0, 1])]  # fmt: skip


@rows("reduction", ["mean", "sum", "none", "most"])
@rows("label", range(len(LABELS)))
@rows("dtype", [*DTYPES, np.float16, np.int64])
def test_cross_entropy(dtype: Any, label: int, reduction: str) -> None:
    x, target = (rng.normal(size=(4, 3)) * 3).astype(dtype), LABELS[label]
    tolerance = {np.float32: 1e-6, np.float64: 1e-14, np.float16: 1e-2}.get(dtype, 0)
    for ignored in (-100, 2):
        for weight in (None, np.ones(3, dtype)):
            both(cross_entropy_forward, cpu, x, target, weight, ignored, reduction, tolerance=tolerance)
            both(nll_forward, cpu, x, target, weight, ignored, reduction, tolerance=tolerance)
            if reduction != "most":
                both(target_coefficients, cpu, target, weight, 3, ignored, reduction, x.dtype, tolerance=tolerance)
        g = rng.normal(size=target.shape).astype(dtype)
        both(scores_from_classes, cpu, g, target, 3, ignored)
        if dtype is not np.int64 and target.size == 4:
            both(softmax_minus_target, cpu, g, target, x, ignored, tolerance=tolerance)


@pytest.mark.parametrize("special", [[1000, 0, -1000], [inf, 0, 0], [-inf, 0, 1], [nan, 0, 0], [0, 0, nan], [-inf] * 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_of_extreme_scores(dtype: Any, special: Any) -> None:
    x = np.array([special, [0, 1, 2]], dtype)
    with np.errstate(all="ignore"):
        for label in range(3):
            target = np.array([label, 1])
            both(cross_entropy_forward, cpu, x, target, None, -100, "none", tolerance=1e-6)
            both(softmax_minus_target, cpu, np.ones(2, dtype), target, x, -100, tolerance=1e-6)
            both(nll_forward, cpu, x, target, None, -100, "mean", tolerance=1e-6)


def test_large_and_empty_losses_are_left_to_python() -> None:
    x, target = rng.normal(size=(100, 100)), rng.integers(0, 100, 100)
    assert both(cross_entropy_forward, cpu, x, target, None, -100, "mean") > 0
    both(cross_entropy_forward, cpu, x[:0], target[:0], None, -100, "mean")
    both(target_coefficients, cpu, target[:0], None, 100, -100, "mean", x.dtype)


@rows("dtype", [*DTYPES, np.int64, np.complex64])
@rows("shape", [(2, 3), (4,), (), (0,), (0, 2), (2, 1, 3)])
@rows("dim", [0, 1, -1, 5])
def test_joining(dim: int, shape: Any, dtype: Any) -> None:
    arrays = [rng.normal(size=shape).astype(dtype) for _ in range(3)]
    for function in (join, pile):
        both(function, cpu, arrays, dim)
        both(function, cpu, arrays[:1], dim)
        both(function, cpu, [a[::-1] if a.ndim else a for a in arrays], dim)
        both(function, cpu, [*arrays, np.ones((1, 3), dtype)], dim)
        both(function, cpu, [*arrays, arrays[0].T], dim)


@rows("dtype", [*DTYPES, np.float16, np.int64])
@rows("shape", [(2, 3), (4,), (), (0,), (2, 0), (2, 1, 3), (3, 40)])
@rows("dim", [0, 1, -1, 5])
def test_softmax(dim: int, shape: Any, dtype: Any) -> None:
    numbers = np.random.default_rng([dim + 1, *shape])  # the same in every order of tests
    x, g = ((numbers.normal(size=shape) * 4).astype(dtype) for _ in range(2))
    tolerance = {np.float32: 2e-6, np.float64: 1e-14, np.float16: 2e-2}.get(dtype, 0)
    for function in (normalized_exponentials, logs_of_softmax):
        both(function, cpu, x, dim, None, tolerance=tolerance)
        both(function, cpu, x, dim, np.dtype(np.float64), tolerance=1e-14)
        both(function, cpu, x.T, dim, None, tolerance=tolerance)
    for function in (softmax_gradient, log_softmax_gradient):
        both(function, cpu, g, x / 8, dim, tolerance=tolerance)
        both(function, cpu, g.T, (x / 8).T, dim, tolerance=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", [[1000, 0, -1000], [inf, 0, 0], [-inf, 0, 1], [nan, 0, 0], [0, 0, nan], [-inf] * 3])
def test_softmax_of_extreme_scores(special: Any, dtype: Any) -> None:
    x = np.array([special, [0, 1, 2]], dtype)
    with np.errstate(all="ignore"):
        both(normalized_exponentials, cpu, x, 1, None, tolerance=1e-6)
        both(logs_of_softmax, cpu, x, 1, None, tolerance=1e-6)


@pytest.mark.parametrize("dtype", [*DTYPES, np.float16, np.complex64])
def test_descend(dtype: Any) -> None:
    p, g = (rng.normal(size=(3, 5)).astype(dtype) for _ in range(2))
    rate = np.asarray(0.1, dtype)
    both(descend, cpu, p, g, rate)
    both(descend, cpu, p, g.T.copy().T, rate)
    both(descend, cpu, p[0, 0:1].copy(), g[0, 0:1].copy(), rate)
    p.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        descend(cpu, p, g, rate)


def test_a_twin_passes_for_its_function() -> None:
    assert list(inspect.signature(multiply_matrices).parameters) == ["xp", "input", "mat2"]
    assert multiply_matrices.__name__ == "multiply_matrices"
    assert multiply_matrices(xp=cpu, input=np.eye(2), mat2=np.eye(2)).tolist() == [[1, 0], [0, 1]]
    with pytest.raises(TypeError):
        multiply_matrices(cpu, np.eye(2))
    with pytest.raises(ValueError, match="has no no_such_kernel"):

        @core.Twin
        def no_such_kernel() -> None: ...


def test_nothing_is_left_behind() -> None:
    x, target, g = rng.normal(size=(4, 3)), LABELS[0], np.ones(4)
    calls = [
        lambda: broadcast_to(x, (2, 4, 3)), lambda: sum_to(x, (3,)), lambda: multiply_matrices(cpu, x, x.T),
        lambda: threshold_gradient(cpu, x, x, 0), lambda: softmax_minus_target(cpu, g, target, x, -100),
        lambda: positive_part(cpu, x),
        lambda: cross_entropy_forward(cpu, x, target, None, -100, "mean"), lambda: transpose_matrix(cpu, x),
        lambda: target_coefficients(cpu, target, None, 3, -100, "sum", x.dtype),
        lambda: nll_forward(cpu, x, target, None, -100, "mean"),
        lambda: nll_forward(cpu, x, target, None, -100, "none"),
        lambda: scores_from_classes(cpu, g, target, 3, -100),
    ]  # fmt: skip
    for call in calls:
        call()
        before = [sys.getrefcount(v) for v in (x, target, g)]
        of_dtype = sys.getrefcount(x.dtype)
        for _ in range(100):
            call()
        assert [sys.getrefcount(v) for v in (x, target, g)] == before
        leaked = sys.getrefcount(x.dtype) - of_dtype
        assert leaked == 0 or (leaked == 100 and leaked_by_numpy(lambda: x.dot(x.T)) == 100)


def leaked_by_numpy(call: Any) -> int:
    """References to the dtype that NumPy's own function leaves behind in 100 calls (`dot` of NumPy 2.5 does)."""
    dtype = np.dtype(np.float64)
    before = sys.getrefcount(dtype)
    for _ in range(100):
        call()
    return sys.getrefcount(dtype) - before

"""Sparse Jacobians and Hessians against the dense ones; colours; wrong patterns are errors."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import undertow as ut
from undertow.autograd import functional
from undertow.autograd.functional.sparse.colouring import colour_lines, lines_of, star_colours
from undertow.autograd.functional.sparse.jacobians import plan_rows_or_columns, plan_symmetric
from undertow.autograd.functional.sparse.patterns import read_pattern

scipy_sparse = pytest.importorskip("scipy.sparse")

RNG = np.random.default_rng(0)
MODES = [None, "forward-mode", "reverse-mode"]


def band(n: int, width: int) -> Any:
    return np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= width


def arrow(n: int) -> Any:
    pattern = np.eye(n, dtype=bool)
    pattern[0] = pattern[:, 0] = True
    return pattern


PATTERNS = {
    "band": band(9, 1),
    "wide band": band(12, 3),
    "arrow": arrow(6),
    "blocks": np.kron(np.eye(4, dtype=bool), np.ones((2, 3), dtype=bool)),
    "dense column": np.hstack([np.ones((7, 1), dtype=bool), np.eye(7, dtype=bool)]),
    "dense row": np.vstack([np.ones((1, 7), dtype=bool), np.eye(7, dtype=bool)]),
    "random": RNG.random((8, 11)) < 0.2,
    "empty": np.zeros((3, 4), dtype=bool),
    "full": np.ones((3, 4), dtype=bool),
}


def function_with(pattern: Any) -> Any:
    """A nonlinear function whose Jacobian has exactly this pattern.

    Its entries are sums of positive numbers: where terms cancel, their rounding is all that a relative error shows.
    """
    weights = ut.tensor(pattern * RNG.uniform(0.5, 1.5, pattern.shape))
    return lambda x: (weights @ (x * x + x)).tanh().exp() + (weights @ x)


def point(pattern: Any) -> Any:
    return ut.tensor(RNG.uniform(0.1, 0.4, pattern.shape[1]))


# ---- against the dense Jacobian


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("strategy", MODES)
@pytest.mark.parametrize("name", PATTERNS)
def test_sparse_is_dense(name: str, strategy: str | None, vectorize: bool) -> None:
    pattern = PATTERNS[name]
    f, x = function_with(pattern), point(pattern)
    found = functional.jacobian(f, x, vectorize=vectorize, strategy=strategy, sparsity=pattern)
    assert isinstance(found, scipy_sparse.csr_array) and found.nnz == pattern.sum()
    np.testing.assert_allclose(found.toarray(), functional.jacobian(f, x).numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_pattern_is_found(name: str) -> None:
    pattern = PATTERNS[name]
    f, x = function_with(pattern), ut.zeros(pattern.shape[1], dtype=ut.float64)
    for chunk_size in (3, 100):
        found = functional.sparsity_pattern(f, x, chunk_size=chunk_size)
        assert np.array_equal(np.argwhere(pattern), np.transpose([found.rows, found.cols]))
    detected = functional.jacobian(f, x, sparsity="detect")
    np.testing.assert_allclose(detected.toarray(), functional.jacobian(f, x).numpy(), rtol=1e-12)


def test_a_pattern_is_found_where_derivatives_vanish() -> None:
    found = functional.sparsity_pattern(lambda x: x**2, ut.zeros(2))
    assert found.rows.tolist() == found.cols.tolist() == [0, 1]
    assert functional.sparsity_pattern(lambda x: x**2, ut.zeros(2), samples=0).rows.tolist() == []


@pytest.mark.parametrize(
    "given_as",
    [
        lambda p: p,
        lambda p: p.tolist(),
        lambda p: ut.tensor(p),
        lambda p: p.astype(float),
        scipy_sparse.csc_array,
        scipy_sparse.coo_matrix,
        np.nonzero,
        lambda p: tuple(ut.tensor(part) for part in np.nonzero(p)),
        lambda p: tuple(np.tile(part[::-1], 2) for part in np.nonzero(p)),
    ],
)
def test_ways_to_give_a_pattern(given_as: Any) -> None:
    pattern = PATTERNS["random"]
    found = read_pattern(given_as(pattern), pattern.shape)
    assert np.array_equal(np.transpose([found.rows, found.cols]), np.argwhere(pattern))


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_random_patterns(rows: int, cols: int, density: float, seed: int) -> None:
    pattern = np.random.default_rng(seed).random((rows, cols)) < density
    f, x = function_with(pattern), point(pattern)
    dense = functional.jacobian(f, x).numpy()
    for strategy in MODES:
        found = functional.jacobian(f, x, strategy=strategy, vectorize=True, sparsity=pattern)
        np.testing.assert_allclose(found.toarray(), dense, rtol=1e-12)


def test_several_inputs_and_outputs_are_blocks() -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y[:2].reshape(2, 1), y**2

    inputs = ut.tensor(RNG.random((2, 3))), ut.tensor(RNG.random(4), dtype=ut.float32)
    dense = functional.jacobian(f, inputs)
    for strategy in MODES:
        found = functional.jacobian(f, inputs, strategy=strategy, sparsity="detect")
        for row, wanted_row in zip(found, dense, strict=True):
            for got, wanted in zip(row, wanted_row, strict=True):
                np.testing.assert_allclose(got.toarray(), wanted.numpy().reshape(got.shape), rtol=1e-6)
        assert [block.shape for row in found for block in row] == [(6, 6), (6, 4), (4, 6), (4, 4)]
        assert [len(block.data) for row in found for block in row] == [6, 6, 0, 4]
    assert [block.dtype for block in functional.jacobian(f, inputs, strategy="reverse-mode", sparsity="detect")[1]] == [
        np.float64,
        np.float32,
    ]


def test_complex_and_empty() -> None:
    z = ut.tensor(RNG.random(4) + 1j * RNG.random(4))
    f = lambda z: z[1:] * z[:-1] ** 2
    found = functional.jacobian(f, z, sparsity="detect")
    np.testing.assert_allclose(found.toarray(), functional.jacobian(f, z).numpy())
    for x in (ut.zeros(0), ut.zeros(3)):
        assert functional.jacobian(lambda x: x[:0], x, sparsity="detect").shape == (0, x.shape[0])


# ---- Hessians


HESSIANS: dict[str, Any] = {
    "chain": lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum(),
    "arrow": lambda x: (x[0] * x).exp().sum() + (x**3).sum(),
    "separate": lambda x: (x**4).sum(),
    "dense": lambda x: x.sum() ** 3,
    "grid": lambda x: ((x.reshape(2, 3)[1:] * x.reshape(2, 3)[:-1]) ** 2).sum() + (x[1:] * x[:-1]).sin().sum(),
}


@pytest.mark.parametrize("strategy", ["forward-mode", "reverse-mode"])
@pytest.mark.parametrize("name", HESSIANS)
def test_sparse_hessians(name: str, strategy: str) -> None:
    f, x = HESSIANS[name], ut.tensor(RNG.random(6))
    dense = functional.hessian(f, x).numpy()
    for vectorize in (False, True):
        found = functional.hessian(f, x, False, False, vectorize, strategy, sparsity="detect")
        np.testing.assert_allclose(found.toarray(), dense, rtol=1e-10, atol=1e-12)
    upper = functional.hessian(f, x, sparsity=np.triu(dense != 0))
    np.testing.assert_allclose(upper.toarray(), dense, rtol=1e-10, atol=1e-12)


def test_a_hessian_of_two_inputs() -> None:
    inputs = ut.tensor(RNG.random(2)), ut.tensor(RNG.random(3))
    f = lambda x, y: (x[0] * y).sum() ** 2 + (x**3).sum()
    found, dense = functional.hessian(f, inputs, sparsity="detect"), functional.hessian(f, inputs)
    for i in range(2):
        for j in range(2):
            np.testing.assert_allclose(found[i][j].toarray(), dense[i][j].numpy())


@given(st.integers(1, 12), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_every_entry_of_a_symmetric_matrix_can_be_read(n: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    half = np.triu(rng.random((n, n)) < density)
    pattern = half | half.T
    matrix = np.where(pattern, rng.random((n, n)), 0)
    matrix = matrix + matrix.T
    plan = plan_symmetric(read_pattern(pattern, (n, n)), None)
    products = np.zeros((plan.passes, n))
    np.add.at(products, plan.colours, matrix)
    assert np.array_equal(products[plan.read], matrix[pattern])


# ---- colours


def passes(pattern: Any, strategy: str | None = None) -> int:
    return plan_rows_or_columns(read_pattern(pattern, pattern.shape), strategy).passes


def test_as_few_passes_as_bands_and_blocks_need() -> None:
    assert passes(band(50, 1)) == 3 and passes(band(50, 4)) == 9
    assert passes(np.eye(20)) == 1
    assert passes(PATTERNS["blocks"]) == 2  # by rows; by columns it would take three
    assert passes(PATTERNS["blocks"], "forward-mode") == 3
    assert passes(PATTERNS["dense column"]) == passes(PATTERNS["dense row"]) == 2
    assert passes(arrow(9)) == 9


def test_symmetry_saves_passes() -> None:
    pattern = read_pattern(arrow(9), (9, 9))
    assert plan_symmetric(pattern, None).passes == 2
    assert plan_symmetric(read_pattern(band(50, 1), (50, 50)), None).passes == 3


@given(st.integers(0, 9), st.integers(1, 9), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_lines_of_a_colour_share_no_place(lines: int, places: int, density: float, seed: int) -> None:
    pattern = np.random.default_rng(seed).random((lines, places)) < density
    rows, cols = np.nonzero(pattern)
    colours = np.array(colour_lines(lines_of(rows, cols, lines), places), int)
    for colour in set(colours):
        assert pattern[colours == colour].sum(0).max() <= 1
    assert set(colours) == set(range(len(set(colours))))


def test_a_star_has_two_colours() -> None:
    assert star_colours([[1, 2, 3], [0], [0], [0]]) == [0, 1, 1, 1]
    assert len(set(star_colours([[1], [0, 2], [1, 3], [2]]))) == 3  # a path of four


def test_a_pattern_is_coloured_once() -> None:
    x = ut.tensor(RNG.random(5))
    f = HESSIANS["chain"]
    pattern = functional.sparsity_pattern(ut.func.grad(f), x)
    assert repr(pattern) == "SparsityPattern(shape=(5, 5), entries=13)"
    first = functional.hessian(f, x, sparsity=pattern)
    kept = dict(pattern.plans["mirrored"].plans)
    np.testing.assert_allclose(functional.hessian(f, x, sparsity=pattern).toarray(), first.toarray())
    assert pattern.plans["mirrored"].plans == kept and len(kept) == 1


# ---- what can be wrong


@pytest.mark.parametrize("strategy", MODES)
@pytest.mark.parametrize("name", [n for n in PATTERNS if n != "empty"])
def test_every_missing_entry_is_noticed(name: str, strategy: str | None) -> None:
    pattern = PATTERNS[name]
    f, x = function_with(pattern), point(pattern)
    for row, col in np.argwhere(pattern)[::3]:
        wrong = pattern.copy()
        wrong[row, col] = False
        with pytest.raises(functional.SparsityError, match="the sparsity pattern is wrong"):
            functional.jacobian(f, x, strategy=strategy, sparsity=wrong)


def test_a_missing_entry_of_a_hessian_is_noticed() -> None:
    with pytest.raises(functional.SparsityError, match="entries outside of it in 4 columns, the first of them 0"):
        functional.hessian(lambda x: x.sum() ** 3, ut.ones(4), sparsity=np.eye(4))


def test_without_verify_a_wrong_pattern_is_believed() -> None:
    f = lambda x: x * x.sum()
    assert functional.jacobian(f, ut.ones(2), sparsity=np.eye(2), verify=False).nnz == 2


def test_derivatives_that_are_not_numbers_stay_where_they_are() -> None:
    found = functional.jacobian(lambda x: x.sqrt(), ut.tensor([0.0, 4.0]), sparsity=np.eye(2))
    assert np.array_equal(found.toarray(), [[np.inf, 0], [0, 0.25]])


@pytest.mark.parametrize(
    ("sparsity", "error", "text"),
    [
        (np.eye(3), ValueError, r"sparsity has shape \(3, 3\), but the Jacobian has \(2, 2\)"),
        (np.ones(2), ValueError, "expected a matrix, a SciPy sparse array, a pair"),
        ("guess", ValueError, "expected a pattern or 'detect', got 'guess'"),
        (([0, 2], [0, 1]), IndexError, "the rows must be whole numbers from 0 to 1"),
        (([0, 1], [0, -1]), IndexError, "the columns must be whole numbers from 0 to 1"),
        (([0, 1], [0.5, 1]), IndexError, "the columns must be whole numbers"),
        (([0, 1], [0]), ValueError, "2 rows and 1 columns were given"),
    ],
)
def test_patterns_that_make_no_sense(sparsity: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        functional.jacobian(lambda x: x * 2, ut.ones(2), sparsity=sparsity)


def test_arguments_that_exclude_each_other() -> None:
    with pytest.raises(RuntimeError, match="`strict=True` and `sparsity` are not supported together"):
        functional.jacobian(lambda x: x, ut.ones(2), strict=True, sparsity=np.eye(2))
    with pytest.raises(RuntimeError, match="a sparse array cannot be differentiated"):
        functional.jacobian(lambda x: x, ut.ones(2), create_graph=True, sparsity=np.eye(2))


# ---- results as tensors


@pytest.mark.parametrize("strategy", MODES)
def test_triplets_can_be_differentiated(strategy: str | None) -> None:
    x = ut.tensor([1.0, 2.0, 3.0], requires_grad=True)
    found = functional.jacobian(
        lambda x: x[1:] * x[:-1] ** 2, x, create_graph=True, strategy=strategy, sparsity="detect", triplets=True
    )
    rows, cols, values = found
    assert rows.tolist() == [0, 0, 1, 1] and cols.tolist() == [0, 1, 1, 2]
    assert values.tolist() == [4, 1, 12, 4]
    (second,) = ut.autograd.grad(values.sum(), x)
    assert second.tolist() == [2 * 2 + 2, 2 * 3 + 2 + 2 * 2, 2 * 2]


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.split(".")[0] == "scipy"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ImportError, match=r"pip install 'undertow\[special\]'.*triplets=True"):
        functional.jacobian(lambda x: x * 2, ut.ones(2), sparsity=np.eye(2))
    rows, cols, values = functional.jacobian(lambda x: x * 2, ut.ones(2), sparsity=np.eye(2), triplets=True)
    assert (rows.tolist(), cols.tolist(), values.tolist()) == ([0, 1], [0, 1], [2, 2])

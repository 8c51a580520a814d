"""Sparse tensors by compressed rows and columns: what they are, how they convert, and what they refuse."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import undertow as ut
from undertow.autograd.gradcheck import gradcheck

LAYOUTS = [ut.sparse_csr, ut.sparse_csc, ut.sparse_bsr, ut.sparse_bsc]
each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=str)
ROWS, COLS, VALUES, SIZE = [0, 1, 3], [1, 0, 2], [1.0, 2.0, 3.0], (2, 3)
MATRIX = [[1.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 3.0], [0.0, 4.0, 0.0, 0.0], [5.0, 0.0, 0.0, 6.0]]


def example(layout: Any, dtype: Any = ut.float64) -> Any:
    return convert(ut.tensor(MATRIX, dtype=dtype), layout)


def convert(tensor: Any, layout: Any, blocksize: Any = (2, 2)) -> Any:
    blocks = {"blocksize": blocksize} if layout in (ut.sparse_bsr, ut.sparse_bsc) else {}
    return tensor.to_sparse(layout=layout, **blocks)


# ---- against PyTorch

FACTS = {
    "csr": lambda m: m.sparse_csr_tensor(m.tensor(ROWS), m.tensor(COLS), m.tensor(VALUES), SIZE),
    "lists": lambda m: m.sparse_csr_tensor(ROWS, COLS, VALUES, SIZE),
    "inferred": lambda m: m.sparse_csr_tensor(ROWS, COLS, VALUES),
    "leaf": lambda m: m.sparse_csr_tensor(ROWS, COLS, VALUES, SIZE, requires_grad=True),
    "recorded": lambda m: m.sparse_csr_tensor(ROWS, COLS, m.tensor(VALUES, requires_grad=True), SIZE),
    "csc": lambda m: m.sparse_csc_tensor([0, 1, 2, 2], [1, 0], [1.0, 2.0], (2, 3)),
    "csc inferred": lambda m: m.sparse_csc_tensor([0, 1, 2, 2], [1, 0], [1.0, 2.0]),
    "bsr": lambda m: m.sparse_bsr_tensor([0, 1, 2], [0, 1], m.ones(2, 2, 3), (4, 6)),
    "bsr inferred": lambda m: m.sparse_bsr_tensor([0, 1, 2], [0, 1], m.ones(2, 2, 3)),
    "bsc": lambda m: m.sparse_bsc_tensor([0, 1, 2], [0, 1], m.ones(2, 2, 3), (4, 6)),
    "by layout": lambda m: m.sparse_compressed_tensor(ROWS, COLS, VALUES, SIZE, layout=m.sparse_csr, dtype=m.float64),
    "dense dimension": lambda m: m.sparse_csr_tensor(ROWS, COLS, m.ones(3, 2), (2, 3, 2)),
    "batch": lambda m: m.sparse_csr_tensor([[0, 1, 1], [0, 0, 1]], [[1], [2]], [[1.0], [2.0]], (2, 2, 3)),
    "empty": lambda m: m.sparse_csr_tensor([0, 0, 0], m.zeros(0, dtype=m.int64), m.zeros(0), (2, 3)),
    "integers": lambda m: m.sparse_csr_tensor(ROWS, COLS, [1, 2, 3], SIZE),
    "int32 places": lambda m: m.sparse_csr_tensor(
        m.tensor(ROWS, dtype=m.int32), m.tensor(COLS, dtype=m.int32), VALUES, SIZE
    ),
    "from dense": lambda m: m.tensor(MATRIX).to_sparse_csr(),
    "from dense csc": lambda m: m.tensor(MATRIX).to_sparse_csc(),
    "from dense bsr": lambda m: m.tensor(MATRIX).to_sparse_bsr((2, 1)),
    "from dense bsc": lambda m: m.tensor(MATRIX).to_sparse_bsc((1, 2)),
    "one number for both sides": lambda m: m.tensor(MATRIX).to_sparse_bsr(2),
    "from coo": lambda m: m.tensor(MATRIX).to_sparse().to_sparse_csr(),
    "rows stay dense": lambda m: m.tensor(MATRIX).reshape(4, 2, 2).to_sparse_csr(dense_dim=1),
    "batches of dense": lambda m: m.tensor(MATRIX).reshape(2, 2, 4).to_sparse_csc(),
    "csr to csc": lambda m: m.tensor(MATRIX).to_sparse_csr().to_sparse_csc(),
    "bsr to bsc": lambda m: m.tensor(MATRIX).to_sparse_bsr((2, 2)).to_sparse_bsc((2, 2)),
    "transposed": lambda m: m.tensor(MATRIX).to_sparse_csr().t(),
    "transposed blocks": lambda m: m.tensor(MATRIX).to_sparse_bsr((2, 1)).t(),
    "zeros_like": lambda m: m.zeros_like(m.tensor(MATRIX).to_sparse_csr()),
    "double": lambda m: m.tensor(MATRIX).to_sparse_csr().double(),
    "sum of equal places": lambda m: m.tensor(MATRIX).to_sparse_csr() + m.tensor(MATRIX).to_sparse_csr(),
    "sum with other places": lambda m: m.tensor(MATRIX).to_sparse_csr() + m.tensor(MATRIX).t().to_sparse_csr(),
    "kept dimension": lambda m: m.tensor(MATRIX).to_sparse_csr().sum(0, keepdim=True),
}


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS)
def test_a_compressed_tensor_is_what_torch_says(fact: Any) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, got = fact(torch), fact(ut)
    # our name is longer, so that lines may break elsewhere
    assert repr(got).split() == repr(expected).replace("torch", "undertow").split()
    for name in ("sparse_dim", "dense_dim", "_nnz", "numel", "dim"):
        assert getattr(got, name)() == getattr(expected, name)(), name
    for name in ("is_leaf", "is_sparse", "is_sparse_csr"):
        assert getattr(got, name) == getattr(expected, name), name
    assert str(got.layout) == str(expected.layout).replace("torch", "undertow")
    np.testing.assert_array_equal(got.to_dense().detach().numpy(), expected.to_dense().detach().numpy())


WRONG = {
    "column beyond the size": lambda m: m.sparse_csr_tensor(ROWS, COLS, VALUES, (2, 2)),
    "wrong end": lambda m: m.sparse_csr_tensor([0, 1, 4], COLS, VALUES, SIZE),
    "wrong start": lambda m: m.sparse_csr_tensor([1, 1, 3], COLS, VALUES, SIZE),
    "unsorted": lambda m: m.sparse_csr_tensor(ROWS, [1, 2, 0], VALUES, SIZE),
    "too few columns": lambda m: m.sparse_csr_tensor(ROWS, [1, 0], VALUES, SIZE),
    "too few values": lambda m: m.sparse_csr_tensor(ROWS, COLS, [1.0, 2.0], SIZE),
    "too few rows": lambda m: m.sparse_csr_tensor([0, 3], COLS, VALUES, SIZE),
    "negative": lambda m: m.sparse_csr_tensor(ROWS, [1, -1, 2], VALUES, SIZE),
    "one dimension": lambda m: m.sparse_csr_tensor(ROWS, COLS, VALUES, (3,)),
    "float places": lambda m: m.sparse_csr_tensor([0.0, 1.0, 3.0], COLS, VALUES, SIZE),
    "batched places": lambda m: m.sparse_csr_tensor([ROWS], COLS, VALUES, SIZE),
    "no layout": lambda m: m.sparse_compressed_tensor(ROWS, COLS, VALUES, SIZE),
    "other layout": lambda m: m.sparse_compressed_tensor(ROWS, COLS, VALUES, SIZE, layout=m.sparse_coo),
    "no blocks": lambda m: m.sparse_bsr_tensor(ROWS, COLS, VALUES, SIZE),
    "blocks that do not fit": lambda m: m.sparse_bsr_tensor([0, 1, 2], [0, 1], m.ones(2, 2, 2), (5, 4)),
    "blocksize that does not fit": lambda m: m.ones(4, 4).to_sparse_bsr((3, 2)),
    "no blocksize": lambda m: m.ones(4, 4).to_sparse(layout=m.sparse_bsr),
    "needless blocksize": lambda m: m.ones(4, 4).to_sparse(layout=m.sparse_csr, blocksize=(2, 2)),
    "half a blocksize": lambda m: m.ones(4, 4).to_sparse_bsr((2,)),
    "unequal batches": lambda m: m.tensor([[[1.0, 1.0]], [[0.0, 1.0]]]).to_sparse_csr(),
    "three sparse dimensions": lambda m: m.ones(2, 2, 2).to_sparse().to_sparse_csr(),
    "parts of a dense tensor": lambda m: m.ones(2, 2).crow_indices(),
    "rows of columns": lambda m: m.ones(2, 2).to_sparse_csc().crow_indices(),
    "columns of rows": lambda m: m.ones(2, 2).to_sparse_csr().row_indices(),
    "indices": lambda m: m.ones(2, 2).to_sparse_csr().indices(),
    "coalesce": lambda m: m.ones(2, 2).to_sparse_csr().coalesce(),
    "numpy": lambda m: m.ones(2, 2).to_sparse_csr().numpy(),
    "sum without the dimension": lambda m: m.ones(2, 2).to_sparse_csr().sum(0),
    "one sparse dimension": lambda m: m.ones(2, 2).to_sparse_csr().to_sparse(1),
    "data of another layout": lambda m: setattr(m.ones(2, 2).to_sparse_csr(), "data", m.ones(2, 2)),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_errors_are_of_the_types_torch_raises(wrong: Any) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(True):
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as expected:
            wrong(torch)
    with pytest.raises(type(expected.value)):
        wrong(ut)


@pytest.mark.parametrize(
    "name, message",
    [
        ("column beyond the size", "0 <= col_indices < ncols"),
        ("wrong end", r"crow_indices\[..., -1\] == nnz"),
        ("unsorted", "sorted and distinct"),
        ("too few columns", r"col_indices.shape\[-1\] must be equal to nnz"),
        ("float places", "must have the same dtype"),
        ("unequal batches", "Expect the same number of specified elements per batch"),
        ("blocksize that does not fit", "must be divisible by given blocksize"),
        ("no blocksize", "without blocksize argument given"),
        ("rows of columns", "expected sparse row compressed tensor layout but got SparseCsc"),
    ],
)
def test_messages_say_what_is_wrong(name: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        WRONG[name](ut)


def test_arguments_have_names_and_are_needed() -> None:
    made = ut.sparse_csr_tensor(crow_indices=ROWS, col_indices=COLS, values=VALUES, size=SIZE)
    assert made.to_dense().tolist() == [[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]]
    with pytest.raises(TypeError, match="takes ccol_indices, row_indices, values"):
        ut.sparse_csc_tensor(ROWS, COLS)


def test_places_are_checked_unless_that_is_switched_off() -> None:
    made = ut.sparse_csr_tensor(ROWS, [1, 2, 0], VALUES, SIZE, check_invariants=False)
    assert made.to_dense().tolist() == [[0.0, 1.0, 0.0], [3.0, 0.0, 2.0]]


# ---- memory and history


@each_layout
def test_parts_cannot_be_changed(layout: Any) -> None:
    sparse = example(layout)
    names = (
        ("crow_indices", "col_indices") if layout in (ut.sparse_csr, ut.sparse_bsr) else ("ccol_indices", "row_indices")
    )
    for name in (*names, "values"):
        with pytest.raises((ValueError, RuntimeError)):
            getattr(sparse, name)().zero_()


def test_values_without_history_are_shared_and_watched() -> None:
    values = ut.tensor(VALUES)
    sparse = ut.sparse_csr_tensor(ROWS, COLS, values, SIZE)
    values[0] = 7.0
    assert sparse.to_dense()[0, 1] == 7.0
    assert sparse._version == values._version


def test_values_with_history_are_copied() -> None:
    values = ut.tensor(VALUES, requires_grad=True)
    sparse = ut.sparse_csr_tensor(ROWS, COLS, values, SIZE)
    with ut.no_grad():
        values[0] = 7.0
    assert sparse.to_dense()[0, 1] == 1.0


@each_layout
def test_detach_clone_copy_and_pickle(layout: Any) -> None:
    sparse = example(layout).requires_grad_()
    for other in (sparse.detach(), sparse.clone(), copy.copy(sparse), copy.deepcopy(sparse)):
        assert other.layout is layout
        np.testing.assert_array_equal(other.to_dense().detach().numpy(), MATRIX)
    again = pickle.loads(pickle.dumps(sparse))
    assert again.requires_grad and repr(again) == repr(sparse)
    assert sparse.to(ut.float32).dtype == ut.float32


@each_layout
def test_in_place_changes(layout: Any) -> None:
    sparse = example(layout)
    sparse.mul_(2).neg_().add_(example(layout))
    np.testing.assert_array_equal(sparse.to_dense().numpy(), -np.array(MATRIX))
    sparse.copy_(example(layout))
    np.testing.assert_array_equal(sparse.to_dense().numpy(), MATRIX)
    sparse.zero_()
    assert sparse._nnz() == 0 and not sparse.to_dense().any()
    with pytest.raises(RuntimeError, match="copy_"):
        sparse.copy_(ut.tensor(MATRIX, dtype=ut.float64))
    with pytest.raises((TypeError, RuntimeError)):
        sparse.add_(ut.tensor(MATRIX, dtype=ut.float64))


def test_what_would_fill_every_element_is_refused() -> None:
    for call in (ut.ones_like, lambda s: s.fill_(2.0), lambda s: s + 1, lambda s: s.cos(), lambda s: s.exp()):
        with pytest.raises((NotImplementedError, RuntimeError)):
            call(example(ut.sparse_csr))


def test_the_transposed_tensor_cannot_be_changed_in_place() -> None:
    with pytest.raises((ValueError, RuntimeError)):
        example(ut.sparse_csr).t().mul_(2)


# ---- gradients


@each_layout
def test_gradients_have_the_layout_and_are_summed(layout: Any) -> None:
    sparse = example(layout).requires_grad_()
    (sparse.to_dense() ** 2).sum().backward()
    ut.sparse.mm(sparse, ut.ones(4, 3, dtype=ut.float64)).sum().backward()
    (sparse * 3).to_dense().sum().backward()
    assert sparse.grad.layout is layout
    there = example(layout).values() != 0
    np.testing.assert_array_equal(
        sparse.grad.values().numpy()[there.numpy()], (2 * example(layout).values() + 6).numpy()[there.numpy()]
    )


@each_layout
def test_a_dense_gradient_makes_the_sum_dense(layout: Any) -> None:
    sparse = example(layout).requires_grad_()
    (sparse.to_dense().sum() + sparse.sum() + (sparse * 2).to_dense().sum() + sparse.to_dense().sum()).backward()
    assert sparse.grad.layout is ut.strided
    places = ut.ones(4, 4, dtype=ut.float64).sparse_mask(example(layout)).to_dense()
    np.testing.assert_array_equal(sparse.grad.numpy(), (1 + 4 * places).numpy())


@each_layout
@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("dtype", [ut.float64, ut.complex128], ids=str)
def test_gradcheck(layout: Any, fast_mode: bool, dtype: Any) -> None:
    other = ut.tensor(np.arange(12.0).reshape(4, 3), dtype=dtype)
    checks = {
        True: (
            lambda s: s.to_dense(),
            lambda s: ut.sparse.mm(s, other),
            lambda s: s.values(),
            lambda s: (s * s).to_dense(),
        ),
        False: (lambda s: s.to_dense(masked_grad=False), lambda s: s @ other, lambda s: s.sum()),
    }
    for masked, functions in checks.items():
        for function in functions:
            sparse = example(layout, dtype).requires_grad_()
            assert gradcheck(function, (sparse,), masked=masked, fast_mode=fast_mode)


def test_gradcheck_tells_the_two_kinds_apart() -> None:
    sparse = example(ut.sparse_csr).requires_grad_()
    assert not gradcheck(lambda s: s.to_dense(), (sparse,), masked=False, raise_exception=False)
    assert not gradcheck(lambda s: s.sum(), (sparse,), masked=True, raise_exception=False)
    with pytest.raises(ValueError, match="Sparse output is not supported at gradcheck yet"):
        gradcheck(lambda s: s * 2, (sparse,))


def test_vmap_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="vmap over sparse tensors"):
        ut.vmap(lambda v: ut.sparse_csr_tensor(ROWS, COLS, v, SIZE).to_dense())(ut.ones(2, 3))


# ---- places


def test_rows_from_compressed_rows() -> None:
    to_coo, to_csr = ut._convert_indices_from_csr_to_coo, ut._convert_indices_from_coo_to_csr
    torch = pytest.importorskip("torch")
    rows, cols, batch = [0, 1, 1, 4], [1, 0, 2, 3], [[0, 1, 2], [0, 0, 2]]
    for options in ({}, {"transpose": True}, {"out_int32": True}):
        for crow, col in ((rows, cols), (batch, [[1, 0], [0, 2]])):
            got = to_coo(ut.tensor(crow), ut.tensor(col), **options)
            expected = torch._convert_indices_from_csr_to_coo(torch.tensor(crow), torch.tensor(col), **options)
            np.testing.assert_array_equal(got.numpy(), expected.numpy())
            assert got.numpy().dtype == expected.numpy().dtype
    assert to_csr(ut.tensor([0, 2, 2, 2]), 3).tolist() == rows


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_way_between_layouts_keeps_the_elements(data: Any) -> None:
    rows, cols = (data.draw(st.integers(0, 3), label=name) * 2 for name in ("rows", "cols"))
    chosen = data.draw(st.lists(st.sampled_from([0.0, 0.0, 1.5, -2.0]), min_size=rows * cols, max_size=rows * cols))
    array = np.array(chosen).reshape(rows, cols)
    tensor = ut.tensor(array)
    for layout in data.draw(st.lists(st.sampled_from([ut.sparse_coo, *LAYOUTS]), min_size=1, max_size=4)):
        block = data.draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2)]))
        tensor = convert(tensor, layout, block)
        assert tensor.layout is layout
        np.testing.assert_array_equal(tensor.to_dense().numpy(), array)
    np.testing.assert_array_equal((tensor @ ut.ones(cols, 2, dtype=ut.float64)).numpy(), array @ np.ones((cols, 2)))
    np.testing.assert_array_equal(tensor.t().to_dense().numpy(), array.T)


@st.composite
def matrices(draw: Any) -> tuple[Any, Any, Any]:
    """Two 4 x 6 matrices with the same or other places, some of them with an explicit zero, and a dense one."""
    numbers = st.lists(st.sampled_from([0.0, 0.0, 0.0, 1.5, -2.0, 0.25]), min_size=24, max_size=24)
    first, second = (np.array(draw(numbers)).reshape(4, 6) for _ in range(2))
    if draw(st.booleans()):
        second = np.where(first != 0, first * 3 + 1, 0.0)
    layouts = [draw(st.sampled_from([ut.strided, ut.sparse_coo, *LAYOUTS])) for _ in range(2)]
    layouts[0] = draw(st.sampled_from(LAYOUTS))
    made = [
        ut.tensor(a) if k is ut.strided else convert(ut.tensor(a), k)
        for a, k in zip((first, second), layouts, strict=True)
    ]
    return (made[0], first), (made[1], second), draw(st.sampled_from(sorted(ARITHMETIC)))


ARITHMETIC = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "reversed add": lambda a, b: b + a,
    "reversed sub": lambda a, b: b - a,
    "reversed mul": lambda a, b: b * a,
    "scaled": lambda a, b: 2 * a - b / 4,
    "negated": lambda a, b: -a,
    "product": lambda a, b: a @ b.T,
    "reversed product": lambda a, b: b @ a.T,
    "transposed sum": lambda a, b: a.T + b.T,
    "tanh": lambda a, b: (ut.tanh if isinstance(a, ut.Tensor) else np.tanh)(a),
    "one row": lambda a, b: a[1],
}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(found=matrices())
def test_arithmetic_is_that_of_dense_arrays(found: Any) -> None:
    (a, dense_a), (b, dense_b), name = found
    result = ARITHMETIC[name](a, b)
    np.testing.assert_allclose(result.to_dense().numpy(), ARITHMETIC[name](dense_a, dense_b), rtol=1e-12, atol=1e-12)


def at_places(tensor: Any, other: Any) -> Any:
    """A tensor with zeros where a sparse one has no place."""
    if other.layout is ut.strided:
        return tensor
    return tensor.sparse_mask(other.coalesce() if other.is_sparse else other).to_dense()


@settings(max_examples=60, deadline=None)
@given(found=matrices())
def test_gradients_are_those_of_dense_tensors(found: Any) -> None:
    (a, dense_a), (b, dense_b), name = found
    if name in ("one row", "tanh"):  # of which the backward pass needs more than sparse tensors can do
        name = "mul"
    leaves, twins = (
        [x.detach().requires_grad_() for x in (a, b)],
        [ut.tensor(x, requires_grad=True) for x in (dense_a, dense_b)],
    )
    for tensors in (leaves, twins):
        result = ARITHMETIC[name](*tensors)
        result = result if result.layout is ut.strided else result.to_dense(masked_grad=False)
        (result * ut.arange(result.numel(), dtype=ut.float64).reshape(tuple(result.shape))).sum().backward()
    for leaf, twin in zip(leaves, twins, strict=True):
        assert (leaf.grad is None) == (twin.grad is None)
        if leaf.grad is not None:
            wanted = at_places(twin.grad, leaf.grad)
            np.testing.assert_allclose(leaf.grad.to_dense().numpy(), wanted.numpy(), rtol=1e-12, atol=1e-12)

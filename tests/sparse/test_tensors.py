"""What a sparse tensor is and says: construction, parts, printing, in-place changes, and everything it refuses."""

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

PLACES, VALUES, SIZE = [[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3)


def example(**options: Any) -> Any:
    return ut.sparse_coo_tensor(PLACES, VALUES, SIZE, **options)


# ---- against PyTorch: what it prints, and what it says about itself

FACTS = {
    "plain": lambda m: m.sparse_coo_tensor(PLACES, VALUES, SIZE),
    "leaf": lambda m: m.sparse_coo_tensor(PLACES, VALUES, SIZE, requires_grad=True),
    "recorded": lambda m: m.sparse_coo_tensor(PLACES, m.tensor(VALUES, requires_grad=True), SIZE),
    "hybrid": lambda m: m.sparse_coo_tensor([[0, 1]], m.ones(2, 3, 2), (4, 3, 2)),
    "size": lambda m: m.sparse_coo_tensor(size=SIZE),
    "inferred": lambda m: m.sparse_coo_tensor(PLACES, VALUES),
    "dtype": lambda m: m.sparse_coo_tensor([[0, 1]], [1, 2], (3,), dtype=m.float64),
    "integers": lambda m: m.sparse_coo_tensor([[0, 1]], [1, 2], (3,)),
    "complex": lambda m: m.sparse_coo_tensor([[0, 1]], [1, 2], (3,), dtype=m.complex64),
    "large": lambda m: m.sparse_coo_tensor(m.arange(2000)[None], m.ones(2000, 8), (3000, 8)),
    "scalar": lambda m: m.sparse_coo_tensor(m.zeros(0, 1, dtype=m.int64), m.tensor([5.0]), ()),
    "float indices": lambda m: m.sparse_coo_tensor(m.tensor([[0.0, 1.0]]), [1.0, 2.0], (3,)),
    "coalesced": lambda m: m.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, 3.0], (3,)).coalesce(),
    "zeros_like": lambda m: m.zeros_like(m.sparse_coo_tensor(PLACES, VALUES, SIZE)),
    "from dense": lambda m: m.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse(),
    "rows of dense": lambda m: m.tensor([[0.0, 0.0], [2.0, 0.0]]).to_sparse(1),
    "double": lambda m: m.sparse_coo_tensor(PLACES, VALUES, SIZE).double(),
    "transposed": lambda m: m.sparse_coo_tensor(PLACES, VALUES, SIZE).t(),
    "summed": lambda m: m.sparse_coo_tensor(PLACES, VALUES, SIZE).sum(0),
    "absolute": lambda m: m.sparse_coo_tensor([[0, 1]], [-1.0, 2.0], (3,)).abs(),
}


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS)
def test_a_sparse_tensor_is_what_torch_says(fact: Any) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, got = fact(torch), fact(ut)
    assert repr(got) == repr(expected).replace("torch", "undertow")
    for name in ("sparse_dim", "dense_dim", "_nnz", "is_coalesced", "numel", "dim", "stride", "is_contiguous"):
        assert getattr(got, name)() == getattr(expected, name)(), name
    assert tuple(got.shape) == tuple(expected.shape)
    assert got._indices().tolist() == expected._indices().tolist()
    assert got.is_leaf == expected.is_leaf
    np.testing.assert_array_equal(got.to_dense().detach().numpy(), expected.to_dense().detach().numpy())


def test_the_only_sparse_dimension_cannot_be_left_out() -> None:
    with pytest.raises(NotImplementedError, match="to_dense"):
        ut.ones(3).to_sparse()[0]
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        example()[5]
    with pytest.raises(NotImplementedError, match="to_dense"):
        example()[ut.tensor([0, 1])]


def test_layouts() -> None:
    assert example().layout is ut.sparse_coo
    assert ut.ones(2).layout is ut.strided
    assert repr(ut.sparse_coo) == "undertow.sparse_coo"
    assert pickle.loads(pickle.dumps(ut.sparse_coo)) is ut.sparse_coo
    assert example().is_sparse
    assert not ut.ones(2).is_sparse
    assert (ut.ones(2, 3).sparse_dim(), ut.ones(2, 3).dense_dim()) == (0, 2)


ERRORS = {
    "a negative index": lambda m: m.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,), check_invariants=True),
    "an index outside": lambda m: m.sparse_coo_tensor(PLACES, VALUES, (1, 3), check_invariants=True),
    "too many dimensions": lambda m: m.sparse_coo_tensor(PLACES, VALUES, (2, 3, 4)),
    "wrong blocks": lambda m: m.sparse_coo_tensor(PLACES, m.ones(3, 2), (2, 3, 4)),
    "too few values": lambda m: m.sparse_coo_tensor(PLACES, [1.0, 2.0], SIZE),
    "not coalesced": lambda m: m.sparse_coo_tensor(
        [[1, 0]], [1.0, 2.0], (2,), is_coalesced=True, check_invariants=True
    ),
    "integers that require grad": lambda m: m.sparse_coo_tensor([[0]], [1], (2,), requires_grad=True),
    "indices of uncoalesced": lambda m: m.sparse_coo_tensor(PLACES, VALUES, SIZE).indices(),
    "values of uncoalesced": lambda m: m.sparse_coo_tensor(PLACES, VALUES, SIZE).values(),
    "indices of dense": lambda m: m.ones(2).indices(),
    "values of dense": lambda m: m.ones(2).values(),
    "coalesce of dense": lambda m: m.ones(2).coalesce(),
    "is_coalesced of dense": lambda m: m.ones(2).is_coalesced(),
    "sparse_dim too large": lambda m: m.ones(2, 2).to_sparse(5),
    "sparse_dim zero": lambda m: m.ones(2, 2).to_sparse(0),
    "mask of another size": lambda m: m.ones(2, 3).sparse_mask(m.ones(3, 3).to_sparse()),
    "sum with a number": lambda m: m.ones(2).to_sparse() + 1,
    "division by sparse": lambda m: m.ones(2).to_sparse() / m.ones(2).to_sparse(),
    "division by dense": lambda m: m.ones(2).to_sparse() / m.ones(2),
    "sums of other sizes": lambda m: m.ones(2).to_sparse() + m.ones(3).to_sparse(),
    "sum in place with dense": lambda m: m.ones(2).to_sparse().add_(m.ones(2)),
    "exp": lambda m: m.ones(2).to_sparse().exp(),
    "comparison": lambda m: m.ones(2).to_sparse() > 0,
    "reshape": lambda m: m.ones(2, 2).to_sparse().reshape(4),
    "expand": lambda m: m.ones(2, 2).to_sparse().expand(3, 2, 2),
    "fill_": lambda m: m.ones(2).to_sparse().fill_(1.0),
    "ones_like": lambda m: m.ones_like(m.ones(2).to_sparse()),
    "copy_ into dense": lambda m: m.ones(2).copy_(m.ones(2).to_sparse()),
    "numpy": lambda m: m.ones(2).to_sparse().numpy(),
    "data_ptr": lambda m: m.ones(2).to_sparse().data_ptr(),
    "tolist": lambda m: m.ones(2).to_sparse().tolist(),
    "data": lambda m: setattr(m.ones(2), "data", m.ones(2).to_sparse()),
    "mm of other sizes": lambda m: m.ones(2, 3).to_sparse() @ m.ones(2, 3),
    "sparse.mm of vectors": lambda m: m.sparse.mm(m.ones(2, 3).to_sparse(), m.ones(3)),
    "sparse.mm of dtypes": lambda m: m.sparse.mm(m.ones(2, 2).to_sparse(), m.ones(2, 2, dtype=m.float64)),
    "sparse.sum of a dimension there is not": lambda m: m.sparse.sum(m.ones(2, 2).to_sparse(), 5),
    "sparse.sum twice": lambda m: m.sparse.sum(m.ones(2, 2).to_sparse(), (0, 0)),
}


@pytest.mark.parametrize("wrong", ERRORS.values(), ids=ERRORS)
def test_errors_are_of_the_types_torch_raises(wrong: Any) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as expected:
            wrong(torch)
        with pytest.raises(expected.type):
            wrong(ut)


MESSAGES = {
    "a negative index": "found negative index -1 for dim 0",
    "an index outside": "size is inconsistent with indices: for dim 0, size is 1 but found index 1",
    "too few values": "indices and values must have same nnz, but got nnz from indices: 3, nnz from values: 2",
    "not coalesced": "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor",
    "indices of uncoalesced": "Cannot get indices on an uncoalesced tensor, please call .coalesce",
    "coalesce of dense": "coalesce expected sparse coordinate tensor layout but got Strided",
    "values of dense": "values expected sparse tensor layout but got Strided",
    "sum with a number": r"add\(sparse, dense\) is not supported. Use add\(dense, sparse\) instead",
    "division by dense": r"Sparse division requires a scalar or zero-dim dense tensor divisor \(got shape \[2\]",
    "sums of other sizes": "expected sizes of 'self' and 'other' to match",
    "exp": "Could not run 'exp' with arguments from the 'SparseCPU' backend",
    "expand": "expand is unsupported for Sparse tensors",
    "numpy": "can't convert Sparse layout tensor to numpy",
    "data": "incompatible tensor type",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_say_what_is_wrong(name: str) -> None:
    with pytest.raises(Exception, match=MESSAGES[name]):
        ERRORS[name](ut)


def test_indices_are_checked_unless_that_is_switched_off() -> None:
    with pytest.raises(RuntimeError, match="size is inconsistent"):
        ut.sparse_coo_tensor([[5]], [1.0], (3,))
    assert ut.sparse_coo_tensor([[5]], [1.0], (3,), check_invariants=False)._nnz() == 1


def test_other_devices_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="sparse tensors live on the CPU and on GPUs"):
        ut.sparse_coo_tensor([[0]], ut.ones(1, device="sim:0"), (3,))
    with pytest.raises(NotImplementedError, match="sparse tensors live on the CPU and on GPUs"):
        ut.ones(2, device="sim:0").to_sparse()


def test_batches_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="vmap over sparse tensors is not supported"):
        ut.vmap(lambda x: x.to_sparse().to_dense())(ut.ones(3, 2, 2))
    table = ut.ones(4, 2, requires_grad=True)
    out = ut.embedding(table, ut.tensor([1, 3]), sparse=True)
    with pytest.raises(NotImplementedError, match="leave out sparse=True"):
        ut.autograd.grad(out, table, ut.ones(3, 2, 2), is_grads_batched=True)


# ---- memory


def test_values_without_history_are_shared_and_watched() -> None:
    values = ut.tensor(VALUES)
    tensor = ut.sparse_coo_tensor(PLACES, values, SIZE)
    dense = ut.ones(3, 2, requires_grad=True)
    out = tensor @ dense
    values.add_(1.0)
    assert tensor._values().tolist() == [4.0, 5.0, 6.0]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_values_with_history_are_copied() -> None:
    leaf = ut.tensor(VALUES, requires_grad=True)
    values = leaf * 1
    tensor = ut.sparse_coo_tensor(PLACES, values, SIZE)
    values.mul_(100.0)
    assert tensor.coalesce().values().tolist() == VALUES
    tensor.to_dense().sum().backward()
    assert leaf.grad.tolist() == [1.0, 1.0, 1.0]


def test_changing_values_is_noticed() -> None:
    tensor = example()
    dense = ut.ones(3, 2, requires_grad=True)
    out = tensor @ dense
    tensor._values().mul_(2.0)
    assert tensor.to_dense().sum().item() == 24.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_changing_a_sparse_tensor_is_noticed() -> None:
    for change in (lambda t: t.mul_(2.0), lambda t: t.add_(example()), lambda t: t.zero_(), lambda t: t.neg_()):
        tensor = example()
        dense = ut.ones(3, 2, requires_grad=True)
        out = tensor @ dense
        change(tensor)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_what_values_gives_is_read_only() -> None:
    tensor = example().coalesce()
    with pytest.raises(RuntimeError, match="read-only"):
        tensor.values().mul_(2.0)
    with pytest.raises(RuntimeError, match="read-only"):
        tensor._indices().add_(1)


def test_in_place_changes() -> None:
    tensor = example()
    same = tensor
    tensor += example()
    tensor *= 2
    tensor /= 4.0
    assert tensor is same
    assert tensor.to_dense().tolist() == [[0.0, 0.0, 3.0], [4.0, 0.0, 5.0]]
    tensor.copy_(example() * 2)
    assert tensor.to_dense().sum().item() == 24.0
    dense = ut.ones(2, 3)
    dense += example()
    dense.sub_(example(), alpha=2)
    assert dense.tolist() == [[1.0, 1.0, -2.0], [-3.0, 1.0, -4.0]]


def test_a_transposed_tensor_cannot_be_changed_in_place() -> None:
    tensor = example()
    with pytest.raises(RuntimeError, match="clone"):
        tensor.t().mul_(2.0)
    assert tensor.t().clone().mul_(2.0).to_dense().sum().item() == 24.0


def test_recorded_in_place_changes() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for m in (torch, ut):
        values = m.tensor(VALUES, requires_grad=True)
        tensor = m.sparse_coo_tensor(m.tensor(PLACES), values, SIZE) * 1
        tensor.mul_(3.0)
        tensor.add_(m.sparse_coo_tensor(m.tensor(PLACES), values, SIZE))
        (tensor.to_dense() ** 2).sum().backward()
        found.append(values.grad.tolist())
    assert found[0] == found[1]


def test_detach_clone_copy_and_pickle() -> None:
    tensor = ut.sparse_coo_tensor(PLACES, ut.tensor(VALUES, requires_grad=True), SIZE)
    assert tensor.detach().is_leaf
    assert tensor.clone().requires_grad
    for twin in (copy.deepcopy(tensor.detach()), pickle.loads(pickle.dumps(tensor.detach()))):
        assert twin.is_sparse
        assert repr(twin) == repr(tensor.detach())


def test_types_mix_as_those_of_dense_tensors() -> None:
    assert (ut.ones(2, dtype=ut.float64) + ut.ones(2).to_sparse()).dtype == ut.float64
    assert (ut.ones(2).to_sparse() + ut.ones(2, dtype=ut.float64).to_sparse()).dtype == ut.float64
    assert (ut.ones(2).to_sparse() * ut.ones(2, dtype=ut.float64)).dtype == ut.float64
    assert (ut.ones(2, dtype=ut.int64).to_sparse() * 0.5).dtype == ut.float32


# ---- gradcheck with sparse inputs

HALF = [[1.0, 0.0], [2.0, 3.0]]


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(
    "function, masked",
    [
        (lambda x: x.to_dense(), True),
        (lambda x: x.to_dense(masked_grad=False), False),
        (lambda x: ut.sparse.mm(x, ut.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=x.dtype)), True),
        (lambda x: x @ ut.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=x.dtype), False),
        (lambda x: ut.sparse.sum(x, 0).to_dense(), True),
        (lambda x: x.sum(), False),
        (lambda x: (x * x).to_dense(), True),
    ],
    ids=["to_dense", "unmasked", "sparse.mm", "mm", "sparse.sum", "sum", "square"],
)
def test_gradcheck_moves_what_the_mask_allows(function: Any, masked: bool, fast_mode: bool) -> None:
    for make in (lambda: ut.tensor(HALF, dtype=ut.float64), lambda: ut.tensor(HALF, dtype=ut.complex128) * (1 + 2j)):
        sparse = make().to_sparse().requires_grad_()
        assert gradcheck(function, (sparse,), masked=masked, fast_mode=fast_mode)


@pytest.mark.parametrize(
    "function, masked", [(lambda x: x.to_dense(), False), (lambda x: x.sum(), True)], ids=["to_dense", "sum"]
)
def test_gradcheck_tells_the_two_kinds_apart(function: Any, masked: bool) -> None:
    sparse = ut.tensor(HALF, dtype=ut.float64).to_sparse().requires_grad_()
    assert not gradcheck(function, (sparse,), masked=masked, raise_exception=False)


def test_gradcheck_refuses_sparse_outputs() -> None:
    sparse = ut.tensor(HALF, dtype=ut.float64).to_sparse().requires_grad_()
    with pytest.raises(ValueError, match="Sparse output is not supported at gradcheck yet"):
        gradcheck(lambda x: x * 2, (sparse,))


# ---- any pattern at all


@st.composite
def patterns(draw: Any, sizes: tuple[int, ...], sparse_dim: int) -> Any:
    """A sparse tensor on any places, and its dense twin."""
    nnz = draw(st.integers(0, 6)) if all(sizes[:sparse_dim]) else 0
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    indices = np.stack([rng.integers(0, n, nnz) for n in sizes[:sparse_dim]]) if sparse_dim else np.zeros((0, nnz))
    values = rng.integers(-4, 5, (nnz, *sizes[sparse_dim:])).astype(float)
    dense = np.zeros(sizes)
    for k in range(nnz):
        dense[tuple(indices[:, k].astype(int))] += values[k]
    return ut.sparse_coo_tensor(ut.tensor(indices.astype(np.int64)), ut.tensor(values), sizes), dense


@st.composite
def pairs(draw: Any) -> Any:
    sizes = tuple(draw(st.lists(st.integers(0, 4), min_size=2, max_size=2)))
    first, second = (draw(patterns(sizes, draw(st.integers(1, 2)))) for _ in range(2))
    return first, second, draw(patterns((sizes[1], 3), 2))


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(pairs())
def test_arithmetic_is_that_of_dense_arrays(found: Any) -> None:
    (a, x), (b, y), (c, z) = found
    results = {
        "to_dense": (a, x), "coalesce": (a.coalesce(), x), "add": (a + b, x + y), "sub": (a - b, x - y),
        "dense + sparse": (ut.tensor(x) + b, x + y), "sparse + dense": (a + ut.tensor(y), x + y),
        "mul": (a * b, x * y), "mul dense": (a * ut.tensor(y), x * y), "scale": (a * 3, x * 3), "div": (a / 2, x / 2),
        "neg": (-a, -x), "abs": (a.abs(), abs(x)), "t": (a.t(), x.T), "sum": (a.sum(), x.sum()),
        "sum 0": (a.sum(0), x.sum(0)), "sum 1": (a.sum(1, keepdim=True), x.sum(1, keepdims=True)),
        "mm": (a @ ut.tensor(z), x @ z), "dense @ sparse": (ut.tensor(x) @ c, x @ z), "both": (a @ c, x @ z),
        "mv": (a @ ut.ones(x.shape[1], dtype=ut.float64), x.sum(1)), "to_sparse": (ut.tensor(x).to_sparse(1), x),
        "mask": (ut.tensor(y).sparse_mask(a.coalesce()), y * mask_of(a, x.shape)),
        "cat": (ut.cat([a, b]), np.concatenate([x, y])), "cat 1": (ut.cat([a, b], 1), np.concatenate([x, y], 1)),
        "stack": (ut.stack([a, b], 1), np.stack([x, y], 1)), "unsqueeze": (a.unsqueeze(-1), x[..., None]),
        "slice": (a[1:, :2], x[1:, :2]), "none": (a[None, :, 1:], x[None, :, 1:]),
        "clone": (a.clone(), x), "sparse.sum": (ut.sparse.sum(a, 0), x.sum(0)), "zeros": (ut.zeros_like(a), 0 * x),
    }  # fmt: skip
    for name, (got, expected) in results.items():
        np.testing.assert_array_equal(got.to_dense().numpy(), expected, err_msg=name)


def mask_of(tensor: Any, shape: tuple[int, ...]) -> Any:
    """Ones at the places of a sparse tensor."""
    mask = np.zeros(shape)
    mask[tuple(tensor._indices().numpy())] = 1
    return mask


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_hybrid_tensors_sum_as_dense_arrays(data: Any) -> None:
    sizes = (3, 2, 2)
    tensor, dense = data.draw(patterns(sizes, data.draw(st.integers(0, 3))))
    other, twin = data.draw(patterns(sizes, data.draw(st.integers(0, 3))))
    np.testing.assert_array_equal((tensor + other).to_dense().numpy(), dense + twin)
    np.testing.assert_array_equal((tensor * other).to_dense().numpy(), dense * twin)
    for dim in (0, 1, 2, (0, 1), (1, 2), (0, 2), (0, 1, 2)):
        np.testing.assert_array_equal(ut.sparse.sum(tensor, dim).to_dense().numpy(), dense.sum(dim))
    np.testing.assert_array_equal(tensor.permute(2, 0, 1).to_dense().numpy(), dense.transpose(2, 0, 1))
    for dim in range(3):
        joined = ut.cat([tensor, other], dim), ut.stack([tensor, other], dim)
        np.testing.assert_array_equal(joined[0].to_dense().numpy(), np.concatenate([dense, twin], dim))
        np.testing.assert_array_equal(joined[1].to_dense().numpy(), np.stack([dense, twin], dim))
        if tensor.sparse_dim() > (dim < tensor.sparse_dim()):
            np.testing.assert_array_equal(tensor.select(dim, -1).to_dense().numpy(), dense.take(-1, dim))


@pytest.mark.parametrize("places", [1, 7, 90, 2000])
def test_values_at_equal_places_are_added_up(places: int) -> None:
    """Few long runs and many short ones are added up in different ways."""
    rng = np.random.default_rng(places)
    indices, values = rng.integers(0, places, 700), rng.integers(-9, 9, (700, 3)).astype(float)
    expected = np.zeros((places, 3))
    np.add.at(expected, indices, values)
    tensor = ut.sparse_coo_tensor(ut.tensor(indices[None]), ut.tensor(values), (places, 3)).coalesce()
    assert tensor.indices().tolist() == [np.unique(indices).tolist()]
    np.testing.assert_array_equal(tensor.to_dense().numpy(), expected)


def test_the_old_constructors_make_sparse_tensors() -> None:
    made = ut.sparse.FloatTensor(ut.tensor([[0, 1], [2, 0]]), ut.tensor([1.0, 2.0]), ut.Size((2, 3)))
    assert made.to_dense().tolist() == [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]] and made.dtype is ut.float32
    assert isinstance(made, ut.sparse.FloatTensor) and not isinstance(ut.ones(2), ut.sparse.FloatTensor)
    assert ut.sparse.LongTensor(2, 3).shape == (2, 3)
    assert ut.dsmm(made, ut.ones(3, 1)).tolist() == [[1.0], [2.0]]
    assert ut.ones(2, dtype=ut.float64).type(ut.Tensor).dtype is ut.float32

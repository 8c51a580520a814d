"""`x[index]` and `x[index] = value` against PyTorch: values, nodes, memory, gradients, errors."""

from __future__ import annotations

import itertools
import warnings
from functools import partial
from types import EllipsisType, ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.autograd.gradcheck import gradcheck, gradgradcheck
from undertow.graph.saved import SavedTensor
from undertow.ops.index import index_arrays
from undertow.ops.index.index_arrays import ALL


class Index:
    """`at[1:, None]` is that index."""

    def __getitem__(self, index: Any) -> Any:
        return index


class T:
    """Stands in an index for a tensor of either library."""

    def __init__(self, data: Any, dtype: str = "int64") -> None:
        self.array = np.array(data, dtype)


at = Index()
MASK4 = T([True, False, True, True], "bool")
MASK45 = T(np.arange(20).reshape(4, 5) % 3 == 0, "bool")

BASIC = [
    at[0], at[-1], at[3], at[0, 1], at[0, 1, 2], at[...], at[:], at[:, :], at[()], at[1:3], at[:3], at[1:],
    at[::2], at[1:4:2], at[-3:-1], at[2:1], at[10:], at[-10:2], at[0:4], at[0:4, 0], at[:, 1], at[:, :, 2],
    at[..., 0], at[0, ..., 0], at[..., 1:3, 0], at[None], at[None, 0], at[:, None], at[..., None],
    at[None, ..., None], at[0, None], at[1:, None, 2], at[..., ...], at[np.int64(1)], at[np.array(1)],
    at[T(2)], at[T(1, "int8")], at[T(1), T(2)], at[T(1):], at[: T(2), np.int32(0)],
]  # fmt: skip

ADVANCED = [
    at[[0, 2]], at[[0, 2],], at[[]], at[[-1, 0]], at[[1, 1, 1]], at[range(2)], at[(0, 1), (1, 2)],
    at[T([0, 2])], at[T([1, 1, 3, 1])], at[T([[0, 1], [1, 1]])], at[T([0, 3], "int32")], at[T([])],
    at[np.array([0, 3, 3])], at[np.array([1, 2], "int16")], at[True], at[False], at[T(True, "bool")],
    at[np.array(False)], at[:, True], at[True, [0, 1]], at[[0, 1], True], at[:, [0, 0, 4]],
    at[:, :, [3, 0]], at[..., [1, 1]], at[[0, 1], [1, 2]], at[[0, 0], [1, 1]], at[:, [0, 1], [1, 2]],
    at[[0, 1], :, [1, 2]], at[[0, 0], :, [1, 1]], at[T([[0], [1]]), T([[1, 2, 2]])],
    at[[0, 1], [1, 2], [0, 3]], at[0, [1, 2]], at[[1, 2], 0], at[[1, 2], 0, [1, 1]], at[1:, [0, 1]],
    at[[0, 1], 1:3], at[[0, 1], None], at[None, [0, 1]], at[None, [0, 1], None], at[:, None, [1, 2]],
    at[[0, 1], None, [1, 2]], at[[0, 1], ..., [1, 2]], at[..., [0, 1], 0], at[0, ..., [1, 1]],
    at[T(1), T([1, 2])], at[MASK4], at[MASK4, 0], at[MASK4, 1:3], at[MASK4, :, [1, 2, 3]], at[MASK4, None],
    at[MASK45], at[MASK45, 0], at[MASK45, [1]], at[None, MASK45], at[[True, False, False, True]],
    at[np.array([True, False, True, False])], at[:, T([True, False, True, False, True], "bool")],
    at[..., T([True, False, False, True], "bool")], at[0, T([True, False, True, False, True], "bool")],
    at[T(np.zeros((4, 5, 4)), "bool")], at[T(np.ones((4, 5, 4)), "bool")], at[T([False] * 4, "bool")],
    at[MASK4, T([0, 1, 1])], at[[[0, 1], [1, 2]],], at[1:3, [1, 1], :2], at[::2, [0, 4], 1::2],
]  # fmt: skip

SHAPE = (4, 5, 4)


def show(index: Any) -> str:
    """A short name for an index."""
    if isinstance(index, tuple):
        return "(" + ",".join(show(i) for i in index) + ")"
    if isinstance(index, slice):
        return ":".join("" if p is None else show(p) for p in (index.start, index.stop, index.step)).rstrip(":") or ":"
    if isinstance(index, T):
        return f"T{index.array.dtype.kind}{'x'.join(map(str, index.array.shape))}"
    if isinstance(index, EllipsisType):
        return "..."
    return str(index).replace(" ", "") if not isinstance(index, np.ndarray) else f"np{index.tolist()}"


def made(index: Any, make: Any) -> Any:
    """The index with every T replaced by a tensor."""
    if isinstance(index, T):
        return make(index.array.copy())
    if isinstance(index, tuple):
        return tuple(made(i, make) for i in index)
    if isinstance(index, slice):
        return slice(made(index.start, make), made(index.stop, make), made(index.step, make))
    return index


def ut_index(index: Any) -> Any:
    return made(index, ut.tensor)


def torch_index(torch: ModuleType, index: Any) -> Any:
    return made(index, torch.from_numpy)


def every(indices: list[Any]) -> Any:
    return rows("index", indices, ids=[f"{k}-{show(i)}" for k, i in enumerate(indices)])


def source(shape: tuple[int, ...] = SHAPE, complex_: bool = False) -> Any:
    values = np.random.default_rng(3).standard_normal(shape)
    return values + 1j * values[::-1] if complex_ else values


def leaf(array: Any) -> Any:
    return ut.tensor(array, requires_grad=True)


def chain(tensor: Any) -> list[str]:
    """The names of the nodes behind a tensor, following first inputs."""
    names, node = [], tensor.grad_fn
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return names


def same(got: Any, wanted: Any) -> None:
    got, wanted = got.detach().numpy(), wanted.detach().resolve_conj().numpy()
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, 1e-12, 1e-12)


# ---- reading


@every(BASIC + ADVANCED)
def test_values_and_nodes(torch: ModuleType, index: Any) -> None:
    mine, its = leaf(source()), torch.tensor(source(), requires_grad=True)
    got, wanted = mine[ut_index(index)], its[torch_index(torch, index)]
    same(got, wanted)
    assert chain(got)[:-1] == [name.split("::")[-1] for name in chain(wanted)][:-1]


@every(BASIC + ADVANCED)
@pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])
def test_gradients(torch: ModuleType, index: Any, complex_: bool) -> None:
    array = source(complex_=complex_)
    results = []
    for x, key, weight in (
        (leaf(array), ut_index(index), lambda y: ut.tensor(weights(y.shape))),
        (
            torch.tensor(array, requires_grad=True),
            torch_index(torch, index),
            lambda y: torch.tensor(weights(y.shape)),
        ),
    ):
        y = x[key]
        loss = (y * y * y * weight(y)).abs().sum() if complex_ else (y * y * y * weight(y)).sum()
        library = ut if isinstance(x, ut.Tensor) else torch
        (first,) = library.autograd.grad(loss, x, create_graph=True)
        (second,) = library.autograd.grad((first * first).abs().sum(), x)
        results.append((first, second))
    for got, wanted in zip(*results, strict=True):
        same(got, wanted)


def weights(shape: Any) -> Any:
    return np.random.default_rng(4).standard_normal(tuple(shape))


@pytest.mark.long
@every(ADVANCED)
def test_gradient_against_differences(index: Any) -> None:
    x = leaf(source())
    assert gradcheck(lambda x: x[ut_index(index)], (x,), check_forward_ad=False)
    assert gradgradcheck(lambda x: x[ut_index(index)], (x,))


@every(BASIC)
def test_basic_indexing_shows_the_same_memory(index: Any) -> None:
    x = ut.tensor(source())
    view = x[ut_index(index)]
    assert view._is_view() and view._base is x
    if view.numel():
        before = x.clone()
        view.add_(100.0)
        assert (x != before).sum().item() == view.numel()


@every(ADVANCED)
def test_advanced_indexing_copies(index: Any) -> None:
    x = ut.tensor(source())
    found = x[ut_index(index)]
    assert not np.shares_memory(found.numpy(), x.numpy())
    assert found.numpy().flags.c_contiguous


@every([at[0], at[...], at[None], at[1:, 0], at[[0, 1]], at[:, [1, 1]], at[MASK4], at[T(1)]])
def test_other_dtypes(torch: ModuleType, index: Any) -> None:
    for dtype in ("bool", "uint8", "int32", "int64", "float16", "float32", "complex64"):
        array = (source() * 10).astype(dtype)
        same(ut.tensor(array)[ut_index(index)], torch.tensor(array)[torch_index(torch, index)])


@pytest.mark.parametrize("index", [at[...], at[()], at[None], at[True], at[False], at[None, ..., None]], ids=show)
def test_zero_dimensions(torch: ModuleType, index: Any) -> None:
    mine, its = leaf(2.5), torch.tensor(2.5, requires_grad=True)
    same(mine[index], its[index])
    mine[index].sum().backward()
    its[index].sum().backward()
    same(mine.grad, its.grad)


def test_layout_of_the_source_does_not_matter(torch: ModuleType) -> None:
    for index in ADVANCED:
        array = source((4, 5, 4)).transpose(2, 1, 0)
        mine, its = leaf(array).permute(0, 1, 2), torch.tensor(array)
        same(mine[ut_index(index)], its[torch_index(torch, index)])


# ---- what is kept


def test_index_saves_indices_and_sizes_only() -> None:
    x, i = leaf(source()), ut.tensor([0, 1])
    node = x[:, i].grad_fn
    assert node._saved_indices[0] is None and node._saved_indices[1] is i
    assert node._saved_self_sym_sizes == SHAPE
    assert all(s is i or isinstance(s, int) for s in node.saved)
    assert node._raw_saved_indices[1] is node._raw_saved_indices[1]
    assert all(isinstance(saved, SavedTensor) for saved in node._raw_saved_indices)
    with pytest.raises(RuntimeError, match="None is forbidden"):
        node._raw_saved_indices[0].register_hooks(lambda x: x, lambda x: x)


def test_saved_indices_die_with_the_graph() -> None:
    x = leaf(source())
    y = x[[0, 1]]
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        y.grad_fn._saved_indices
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_a_changed_index_is_noticed() -> None:
    x, i = leaf(source()), ut.tensor([0, 1])
    y = x[i]
    i.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_changed_array_does_no_harm() -> None:
    x, i = leaf(source()), np.array([0, 1])
    y = x[i]
    i += 1
    y.sum().backward()
    assert x.grad[0].sum().item() == 20 and x.grad[2].sum().item() == 0


# ---- errors


ERRORS = [
    (at[4], IndexError, "index 4 is out of bounds for dimension 0 with size 4"),
    (at[-5], IndexError, "index -5 is out of bounds for dimension 0 with size 4"),
    (at[0, 9], IndexError, "index 9 is out of bounds for dimension 1 with size 5"),
    (at[:, 0, 9], IndexError, "index 9 is out of bounds for dimension 2 with size 4"),
    (at[T(7)], IndexError, "index 7 is out of bounds for dimension 0 with size 4"),
    (at[0, 0, 0, 0], IndexError, "too many indices for tensor of dimension 3"),
    (at[[0], [0], [0], [0]], IndexError, "too many indices for tensor of dimension 3"),
    (at[[0, 9]], IndexError, "index 9 is out of bounds for dimension 0 with size 4"),
    (at[[-5]], IndexError, "index -5 is out of bounds for dimension 0 with size 4"),
    (at[[0, 1], [0, 1, 2]], IndexError,
     r"shape mismatch: indexing tensors could not be broadcast together with shapes \[2\], \[3\]"),
    (at[T([True, False, True], "bool")], IndexError,
     r"mask \[3\] at index 0 does not match the shape of the indexed tensor \[4, 5, 4\] at index 0"),
    (at[:, T([True] * 4, "bool")], IndexError,
     r"mask \[4\] at index 0 does not match the shape of the indexed tensor \[4, 5, 4\] at index 1"),
    (at[T(np.ones((4, 4)), "bool")], IndexError,
     r"mask \[4, 4\] at index 1 does not match the shape of the indexed tensor \[4, 5, 4\] at index 1"),
    (at[::0], ValueError, "slice step cannot be zero"),
    (at[1.5], IndexError, "only integers, slices .* are valid indices"),
    (at[{}], IndexError, "only integers, slices .* are valid indices"),
    (at[1:"a"], TypeError, "slice indices must be integers or None or have an __index__ method"),
    (at[T([1.5], "float32")], IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
]  # fmt: skip


@pytest.mark.parametrize(("index", "error", "message"), ERRORS, ids=[show(e[0]) for e in ERRORS])
def test_errors(torch: ModuleType, index: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ut.tensor(source())[ut_index(index)]
    with pytest.raises(error, match=message):
        torch.tensor(source())[torch_index(torch, index)]


# ---- backwards, which PyTorch refuses


def test_slices_backwards_are_those_of_numpy() -> None:
    array = np.arange(7.0)
    places = [None, 0, 1, 3, 6, 7, 9, -1, -3, -7, -8, -20]
    for start, stop, step in itertools.product(places, places, [-1, -2, -3, -10]):
        assert ut.tensor(array)[start:stop:step].tolist() == array[start:stop:step].tolist()


BACKWARDS = [at[::-1], at[:, ::-1], at[..., ::-2], at[1, ::-1, ::-1], at[::-1, None, 1], at[::-1, [0, 2]],
             at[[1, 0], ::-1], at[:, ::-1, [0, 1]], at[:: np.int64(-1)], at[3:3:-1]]  # fmt: skip


@pytest.mark.parametrize("index", BACKWARDS, ids=map(show, BACKWARDS))
def test_backwards_in_an_index(index: Any) -> None:
    array = np.arange(24.0).reshape(4, 3, 2)
    tensor = ut.tensor(array)
    assert np.array_equal(tensor[index].numpy(), array[index])
    tensor[index] = 5 * ut.ones_like(tensor[index])
    array[index] = 5
    assert np.array_equal(tensor.numpy(), array)


def test_a_slice_backwards_is_a_view() -> None:
    x = ut.arange(5.0)
    back = x[::-1]
    assert back._base is x
    assert back.stride() == (-1,)
    back[0] = 9
    x[0] = 7
    assert x.tolist() == [7, 1, 2, 3, 9]
    assert back.tolist() == [9, 3, 2, 1, 7]
    assert back._version == x._version == 2


def test_gradients_of_slices_backwards() -> None:
    def f(t: Any) -> Any:
        u = t * 1
        u[::-1][1:] *= t[:-1]
        back = u[::-1]
        u.mul_(2)
        return (back * u).sin() + t[1::-1].sum() * t[::-2].sum()

    t = ut.tensor([0.3, 0.5, 0.7], dtype=ut.float64, requires_grad=True)
    assert ut.autograd.gradcheck(f, t, check_forward_ad=True, check_batched_grad=True)
    assert ut.autograd.gradgradcheck(f, t, check_fwd_over_rev=True)
    rows = ut.rand(2, 3)
    assert ut.vmap(f)(rows).tolist() == ut.stack([f(r) for r in rows]).tolist()


@pytest.mark.parametrize(("index", "error"), [(at[::-1.5], TypeError), (at[:"a":-1], TypeError), (at[::0], ValueError)])
def test_steps_that_are_none(index: Any, error: Any) -> None:
    with pytest.raises(error, match="slice"):
        ut.ones(3)[index]
    with pytest.raises(IndexError, match="0-dim"):
        ut.tensor(1.0)[::-1]


def test_a_real_dimension_is_named(torch: ModuleType) -> None:
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 1 with size 5"):
        ut.tensor(source())[:, [9]]


def test_numbers_that_are_not_whole_are_refused() -> None:
    with pytest.raises(IndexError, match="tensors used as indices must be"):
        ut.tensor(source())[[1.5]]
    with pytest.raises(TypeError, match="str"):
        ut.tensor(source())["a"]


def test_errors_of_a_number() -> None:
    x = ut.tensor(1.0)
    with pytest.raises(IndexError, match="invalid index of a 0-dim tensor"):
        x[0]
    with pytest.raises(IndexError, match=r"slice\(\) cannot be applied to a 0-dim tensor"):
        x[:]
    with pytest.raises(IndexError, match="too many indices for tensor of dimension 0"):
        x[[]]


def test_lists_that_pytorch_takes_for_tuples(torch: ModuleType) -> None:
    for index in ([[0, 1], [1, 2]], [slice(0, 2), [1, 2]], [None, 0], [slice(1, 2)]):
        with pytest.warns(UserWarning, match="non-tuple sequence for multidimensional indexing"):
            got = ut.tensor(source())[index]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same(got, torch.tensor(source())[index])


def test_bytes_are_a_mask() -> None:
    x = ut.tensor(source())
    for mask in (ut.tensor([1, 0, 1, 0], dtype=ut.uint8), np.array([1, 0, 1, 0], "uint8")):
        with pytest.warns(UserWarning, match="uint8 is now deprecated"):
            assert tuple(x[mask].shape) == (2, 5, 4)


# ---- writing


def values_for(shape: tuple[int, ...]) -> list[Any]:
    """Values that broadcast to `shape`."""
    full = np.random.default_rng(5).standard_normal(shape)
    found = [np.float64(7.0), full, full[None]]
    return found if not shape else [*found, full[..., :1], full[:1]]


@every(BASIC + [i for i in ADVANCED if not isinstance(i, bool)])
def test_setitem(torch: ModuleType, index: Any) -> None:
    if has_duplicates(torch, index):
        return
    shape = tuple(torch.tensor(source())[torch_index(torch, index)].shape)
    for value in values_for(shape):
        results = []
        for library, key in ((ut, ut_index(index)), (torch, torch_index(torch, index))):
            x = library.tensor(source(), requires_grad=True)
            v = library.tensor(np.asarray(value), requires_grad=True)
            y = x * 2
            y[key] = v
            loss = (y * y * y).sum()
            first = library.autograd.grad(loss, (x, v), create_graph=True)
            second = library.autograd.grad((first[0] ** 2).sum() + (first[1] ** 2).sum(), (x, v))
            results.append([y, *first, *second])
        for got, wanted in zip(*results, strict=True):
            same(got, wanted)


def has_duplicates(torch: ModuleType, index: Any) -> bool:
    chosen = torch.arange(4 * 5 * 4).reshape(SHAPE)[torch_index(torch, index)]
    return int(chosen.numel()) != int(chosen.unique().numel())


@every(BASIC + [i for i in ADVANCED if not isinstance(i, bool)])
def test_setitem_without_gradients(torch: ModuleType, index: Any) -> None:
    if has_duplicates(torch, index):
        return
    mine, its = ut.tensor(source()), torch.tensor(source())
    before = mine._version
    mine[ut_index(index)] = 5
    its[torch_index(torch, index)] = 5
    same(mine, its)
    assert mine._version == before + 1


def test_of_several_writes_the_last_remains_and_has_the_gradient() -> None:
    x, v = leaf(np.zeros(3)), leaf(np.array([1.0, 2.0, 3.0]))
    y = x * 1
    y[[0, 2, 0]] = v
    assert y.tolist() == [3.0, 0.0, 2.0]
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]
    assert v.grad.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_last_write_in_any_layout(order: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        i, j = (np.asarray(rng.integers(-3, 3, (4, 5)), order=order) for _ in range(2))
        v = leaf(np.asarray(rng.standard_normal((4, 5)), order=order))
        x = leaf(rng.standard_normal((3, 3)))
        put = partial(put_at, (ut.tensor(i), ut.tensor(j)))
        assert gradcheck(put, (x, v), check_forward_ad=False)
        assert gradgradcheck(put, (x, v))


def put_at(indices: Any, x: Any, v: Any) -> Any:
    return ut.index_put(x, indices, v)


def test_setitem_errors(torch: ModuleType) -> None:
    for library in (ut, torch):
        x = library.zeros(3, 4)
        with pytest.raises(RuntimeError, match=r"shape mismatch: value tensor of shape \[3\] cannot be broadcast"):
            x[library.tensor([0, 1])] = library.ones(3)
        with pytest.raises(RuntimeError, match="Index put requires the source and destination dtypes match"):
            x[library.tensor([0, 1])] = library.ones(4, dtype=library.float64)
        with pytest.raises(RuntimeError, match=r"The expanded size of the tensor \(4\) must match the existing size"):
            x[0] = library.ones(3)
        with pytest.raises(TypeError, match="can't assign a list"):
            x[0] = [1.0, 2.0, 3.0, 4.0]
        with pytest.raises(IndexError, match="index 5 is out of bounds"):
            x[library.tensor([5])] = 1.0
        leaf = library.zeros(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            leaf[0] = 1.0
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            leaf[library.tensor([0])] = 1.0


# ---- kernels


ALONG = [(ALL, [1, -1, 1, 3]), (ALL, [[0, 2], [2, -4]]), (ALL, ALL, [3, 3, 0]), (ALL, []), (ALL, 2), (ALL, ALL, [])]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex64"])
@pytest.mark.parametrize("key", ALONG, ids=str)
def test_add_at_along_a_dimension_behind_others(key: Any, dtype: str) -> None:
    rng, key = np.random.default_rng(3), tuple([item if item is ALL else np.array(item, np.int64) for item in key])
    for own in (True, False):
        expected = np.ones(SHAPE, dtype)
        places = tuple([slice(None) if item is ALL else item for item in key])
        values = (rng.normal(size=expected[places].shape if own else (1,)) * 5).astype(dtype)
        found = index_arrays.add_at(ut.backend.cpu, expected.copy(), key, values)
        np.add.at(expected, places, values)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 5, 300])
@pytest.mark.parametrize("width", [1, 3, 64, 200])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int64"])
def test_add_at_repeated_positions(rows: int, width: int, dtype: str) -> None:
    rng = np.random.default_rng(rows * width)
    index = rng.integers(-7, 7, rows)
    values = (rng.standard_normal((rows, width)) * 9).astype(dtype)
    start = (rng.standard_normal((7, width)) * 9).astype(dtype)
    wanted = start.copy()
    np.add.at(wanted, index, values)
    got = index_arrays.add_at(ut.backend.cpu, start.copy(), (index,), values)
    np.testing.assert_allclose(
        got, wanted, 1e-4 if dtype == "float32" else 1e-12, 1e-4 if dtype == "float32" else 1e-12
    )


PLAIN = [
    ([0, 2, 2],), (ALL, [4, 0]), (ALL, ALL, [1, -1]), ([[0, 1], [-1, 1]],), ([0, 1], [1, -2]),
    (ALL, [0, 1], [1, 2]), ([0, 1], ALL, [1, 2]), ([[0], [1]], [[1, 2, 2]]), ([0, 1], [1, 2], [0, 3]),
    ([],), (MASK4.array,), (MASK45.array, [1]), (MASK4.array, ALL, [1, 2, 3]),
    (ALL, np.array([True, False, True, True, False])),
]  # fmt: skip


def test_flat_positions_are_where_indexing_reads() -> None:
    numbered = np.arange(80).reshape(SHAPE)
    for items in PLAIN:
        key = tuple(i if isinstance(i, (slice, np.ndarray)) else np.array(i, "int64") for i in items)
        found = index_arrays.flat_positions(ut.backend.cpu, SHAPE, key)
        np.testing.assert_array_equal(np.broadcast_to(found, numbered[key].shape), numbered[key])


# ---- embedding, scatter_reduce: what no row can say


@pytest.mark.parametrize("options", [{"padding_idx": 1}, {"scale_grad_by_freq": True}], ids=["padding", "frequency"])
def test_embedding_gradient(torch: ModuleType, options: dict[str, Any]) -> None:
    indices, weight = np.array([[0, 1, 1], [2, 0, 0]]), source((4, 70))
    results = []
    for library in (ut, torch):
        w = library.tensor(weight, requires_grad=True)
        out = library.embedding(w, library.tensor(indices), **options)
        (out * library.tensor(weights(out.shape))).sum().backward()
        results.append((out, w.grad))
    for got, wanted in zip(*results, strict=True):
        same(got, wanted)


def test_second_derivatives_of_products_with_two_zeros_are_refused(torch: ModuleType) -> None:
    for library in (ut, torch):
        x = library.ones(2, dtype=library.float64, requires_grad=True)
        src = library.tensor([0.0, 0.0, 2.0], dtype=library.float64, requires_grad=True)
        out = library.scatter_reduce(x, 0, library.tensor([0, 0, 1]), src, "prod")
        (first,) = library.autograd.grad(out.sum(), src, create_graph=True)
        assert first.tolist() == [0.0, 0.0, 1.0]
        with pytest.raises(RuntimeError, match="Double backward is unsupported for"):
            library.autograd.grad(first.sum(), src)


def test_an_excluded_self_takes_no_share() -> None:
    x, src = leaf(np.array([3.0, 1.0])), leaf(np.array([3.0, 2.0]))
    out = ut.scatter_reduce(x, 0, ut.tensor([0, 0]), src, "amax", include_self=False)
    out.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]
    assert src.grad.tolist() == [1.0, 0.0]


INTEGER_REDUCTIONS = [(r, s) for r in ("sum", "prod", "mean", "amax", "amin") for s in (True, False)]


@pytest.mark.parametrize(("reduce", "include_self"), INTEGER_REDUCTIONS)
def test_scatter_reduce_of_integers(torch: ModuleType, reduce: str, include_self: bool) -> None:
    rng = np.random.default_rng(1)
    x, index, src = rng.integers(-9, 9, (4, 3)), rng.integers(0, 4, (5, 3)), rng.integers(-9, 9, (5, 3))
    got, wanted = (
        lib.scatter_reduce(*(lib.tensor(x), 0, lib.tensor(index), lib.tensor(src), reduce), include_self=include_self)
        for lib in (ut, torch)
    )
    same(got, wanted)


CALLS: list[tuple[str, Any, type[Exception], str]] = [
    (
        "gather",
        lambda m, x: m.gather(x, 1, m.tensor([[4, 0]])),
        RuntimeError,
        "index 4 is out of bounds for dimension 1 with size 4",
    ),
    (
        "gather negative",
        lambda m, x: m.gather(x, 0, m.tensor([[-1]])),
        RuntimeError,
        "index -1 is out of bounds for dimension 0",
    ),
    (
        "gather float",
        lambda m, x: m.gather(x, 0, m.tensor([[0.0]])),
        RuntimeError,
        r"gather\(\): Expected dtype int32/int64 for index",
    ),
    (
        "gather dims",
        lambda m, x: m.gather(x, 0, m.tensor([0])),
        RuntimeError,
        "Index tensor must have the same number of dimensions as input tensor",
    ),
    (
        "gather size",
        lambda m, x: m.gather(x, 0, m.zeros(2, 5, dtype=m.int64)),
        RuntimeError,
        r"Size does not match at dimension 1 expected index \[2, 5\]",
    ),
    (
        "gather dim",
        lambda m, x: m.gather(x, 2, m.tensor([[0]])),
        IndexError,
        r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)",
    ),
    (
        "scatter",
        lambda m, x: m.scatter(x, 0, m.tensor([[3]]), 1.0),
        RuntimeError,
        "index 3 is out of bounds for dimension 0 with size 3",
    ),
    (
        "scatter src",
        lambda m, x: m.scatter(x, 0, m.tensor([[0, 1]]), m.ones(1, 1)),
        RuntimeError,
        r"Expected index \[1, 2\] to be no larger than self",
    ),
    (
        "scatter dtype",
        lambda m, x: m.scatter(x, 0, m.tensor([[0]]), m.ones(1, 1, dtype=m.float64)),
        RuntimeError,
        r"Expected self.dtype to be equal to src.dtype",
    ),
    (
        "scatter dims",
        lambda m, x: m.scatter(x, 0, m.tensor([[0]]), m.tensor(1.0)),
        RuntimeError,
        "Index tensor must have the same number of dimensions as src tensor",
    ),
    (
        "scatter complex",
        lambda m, x: m.scatter(x, 0, m.tensor([[0]]), 1j),
        RuntimeError,
        "value cannot be converted to type",
    ),
    (
        "scatter reduce",
        lambda m, x: m.scatter(x, 0, m.tensor([[0]]), 1.0, reduce="foo"),
        RuntimeError,
        "reduce argument must be either add or multiply.",
    ),
    (
        "scatter_add number",
        lambda m, x: m.scatter_add(x, 0, m.tensor([[0]]), 1.0),
        TypeError,
        "argument 'src' .*must be Tensor, not float",
    ),
    (
        "scatter_reduce",
        lambda m, x: m.scatter_reduce(x, 0, m.tensor([[0]]), x, "foo"),
        RuntimeError,
        "reduce argument must be either sum, prod, mean, amax or amin",
    ),
    (
        "index_reduce",
        lambda m, x: m.index_reduce(x, 0, m.tensor([0]), x[:1], "sum"),
        RuntimeError,
        "Expected reduce to be one of prod, mean, amax or amin but got sum",
    ),
    (
        "index_select",
        lambda m, x: m.index_select(x, 0, m.tensor([3])),
        IndexError,
        "index out of range in self",
    ),
    (
        "index_select matrix",
        lambda m, x: m.index_select(x, 0, m.tensor([[0]])),
        IndexError,
        "Index is supposed to be a vector",
    ),
    (
        "index_select dtype",
        lambda m, x: m.index_select(x, 0, m.tensor([0.0])),
        RuntimeError,
        "Expected dtype int32 or int64 for index",
    ),
    (
        "index_add",
        lambda m, x: m.index_add(x, 0, m.tensor([3]), x[:1]),
        (RuntimeError, IndexError),
        "index 3 is out of bounds|index out of range",
    ),
    (
        "index_add count",
        lambda m, x: m.index_add(x, 0, m.tensor([0]), x),
        RuntimeError,
        r"Number of indices \(1\) should be equal to source.size\(dim\)",
    ),
    (
        "index_add shape",
        lambda m, x: m.index_add(x, 0, m.tensor([0]), x[:1, :2]),
        RuntimeError,
        "source tensor shape must match self tensor shape, excluding the specified dimension",
    ),
    (
        "index_add dtype",
        lambda m, x: m.index_add(x, 0, m.tensor([0]), m.ones(1, 4, dtype=m.float64)),
        RuntimeError,
        "must have the same scalar type",
    ),
    (
        "index_copy",
        lambda m, x: m.index_copy(x, 0, m.tensor([3]), x[:1]),
        IndexError,
        r"index_copy_\(\): index 3 is out of bounds for dimension 0 with size 3",
    ),
    (
        "index_copy count",
        lambda m, x: m.index_copy(x, 0, m.tensor([0]), x),
        IndexError,
        r"Number of indices \(1\) should be equal to source.size\(dim\)",
    ),
    (
        "index_fill",
        lambda m, x: m.index_fill(x, 0, m.tensor([3]), 1.0),
        IndexError,
        "index 3 is out of bounds for dimension 0 with size 3",
    ),
    (
        "index_fill vector",
        lambda m, x: m.index_fill(x, 0, m.tensor([0]), m.ones(1)),
        RuntimeError,
        "only supports a 0-dimensional value tensor, but got tensor with 1 dimension",
    ),
    (
        "masked_fill",
        lambda m, x: m.masked_fill(x, x, 1.0),
        RuntimeError,
        "masked_fill_ only supports boolean masks, but got mask with dtype",
    ),
    (
        "masked_fill vector",
        lambda m, x: m.masked_fill(x, x > 0, m.ones(1)),
        RuntimeError,
        "only supports a 0-dimensional value tensor",
    ),
    (
        "masked_fill shape",
        lambda m, x: m.masked_fill(x, x[:2] > 0, 1.0),
        RuntimeError,
        r"The size of tensor a \(2\) must match the size of tensor b \(3\) at non-singleton dimension 0",
    ),
    (
        "masked_select",
        lambda m, x: m.masked_select(x, m.tensor([1, 0, 1, 0])),
        RuntimeError,
        "masked_select: expected BoolTensor for mask",
    ),
    (
        "masked_scatter",
        lambda m, x: m.masked_scatter(x, x < 99, m.ones(2)),
        RuntimeError,
        "Number of elements of source < number of ones in mask",
    ),
    (
        "take",
        lambda m, x: m.take(x, m.tensor([12])),
        IndexError,
        "out of range: tried to access index 12 on a tensor of 12 elements.",
    ),
    (
        "put",
        lambda m, x: m.Tensor.put(x, m.tensor([0, 1]), m.ones(3)),
        IndexError,
        "Expected source and index to have the same number of elements",
    ),
    ("embedding", lambda m, x: m.embedding(x, m.tensor([3])), IndexError, "index out of range in self"),
    (
        "unravel_index",
        lambda m, x: m.unravel_index(m.tensor([0.0]), (2, 2)),
        TypeError,
        "expected 'indices' to be integer dtype",
    ),
    ("tril_indices", lambda m, x: m.tril_indices(-1, 2), RuntimeError, "row must be non-negative"),
    (
        "take_along_dim",
        lambda m, x: m.take_along_dim(x, m.tensor([0]), 0),
        RuntimeError,
        "input and indices should have the same number of dimensions",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_errors_of_functions(torch: ModuleType, call: Any, error: Any, message: str) -> None:
    for library in (torch, ut):
        with pytest.raises(error, match=message):
            call(library, library.ones(3, 4))


@pytest.mark.torch
def test_index_add_subtracts_from_bytes(torch: ModuleType) -> None:
    def call(L: Any) -> Any:
        x = L.tensor([5, 6, 7], dtype=L.uint8)
        return x.index_add(0, L.tensor([0, 0]), x[:2], alpha=-1).tolist()

    assert call(ut) == call(torch) == [250, 6, 7]

"""Views: what they share, what they remember of their base, and what is no view."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import rows
from undertow import ops
from undertow.autograd.backward import grad
from undertow.backend import cpu, dtypes
from undertow.backend.large_arrays import is_viewable
from undertow.errors import IncompatibleViewError
from undertow.ops.inplace.forms import in_place
from undertow.ops.views.as_strided import geometry_of, layout_of
from undertow.tensor import LEAF, Tensor
from undertow.tensor.memory_formats import channels_last

mul_ = in_place("mul", ops.mul)


def tensor(array: Any, requires_grad: bool = False) -> Tensor:
    return Tensor(np.asarray(array), cpu, LEAF if requires_grad else None)


def counting(*shape: int, requires_grad: bool = False) -> Tensor:
    return tensor(np.arange(float(np.prod(shape))).reshape(shape), requires_grad)


def shares(a: Tensor, b: Tensor) -> bool:
    return np.shares_memory(a._array, b._array)


def gradient(function: Callable[[Tensor], Tensor], x: Tensor, create_graph: bool = False) -> Any:
    out = function(x)
    seed = tensor(np.arange(1.0, out._array.size + 1).reshape(out.shape).astype(out.dtype))
    (found,) = grad(out, x, seed, create_graph=create_graph)
    return found._array


def node_names(out: Tensor) -> list[str]:
    """From the output down the first edges, without the leaf."""
    names, edge = [], out._edge
    while edge[0].next_edges:
        names.append(edge[0].name())
        edge = edge[0].next_edges[0]
    return names


ONE = {
    "alias": lambda x: ops.alias(x),
    "as_strided": lambda x: ops.as_strided(x, (2, 3), (5, 2), 1),
    "diagonal": lambda x: ops.diagonal(x, 1, 2, 0),
    "expand": lambda x: ops.expand(ops.narrow(x, 0, 0, 1), 5, -1, -1),
    "expand_dims": lambda x: ops.expand_dims(x, (0, 2)),
    "flatten": lambda x: ops.flatten(x, 1),
    "movedim": lambda x: ops.movedim(x, 0, 2),
    "narrow": lambda x: ops.narrow(x, 1, 1, 2),
    "numpy_T": lambda x: ops.numpy_T(ops.select(x, 0, 1)),
    "permute": lambda x: ops.permute(x, 2, 0, 1),
    "ravel": lambda x: ops.ravel(x),
    "reshape": lambda x: ops.reshape(x, 6, 4),
    "reshape_transposed": lambda x: ops.reshape(ops.transpose(x, 0, 1), (3, 2, 2, 2)),
    "select": lambda x: ops.select(x, 1, -1),
    "select_scalar": lambda x: ops.select(ops.select(ops.select(x, 0, 1), 0, 2), 0, 3),
    "slice": lambda x: ops.slice(x, 2, 1, None, 2),
    "squeeze": lambda x: ops.squeeze(ops.narrow(x, 1, 1, 1)),
    "squeeze_dim": lambda x: ops.squeeze(ops.narrow(x, 1, 1, 1), 1),
    "squeeze_dims": lambda x: ops.squeeze(ops.narrow(x, 1, 1, 1), (0, 1)),
    "swapaxes": lambda x: ops.swapaxes(x, 0, 1),
    "t": lambda x: ops.t(ops.select(x, 0, 1)),
    "transpose": lambda x: ops.transpose(x, 0, -1),
    "unflatten": lambda x: ops.unflatten(x, 2, (2, 2)),
    "unfold": lambda x: ops.unfold(x, 2, 2, 1),
    "unsqueeze": lambda x: ops.unsqueeze(x, -1),
    "view": lambda x: ops.view(x, -1, 2),
    "view_as": lambda x: ops.view_as(x, counting(4, 6)),
}

SEVERAL = {
    "chunk": lambda x: ops.chunk(x, 2, 2),
    "hsplit": lambda x: ops.hsplit(x, 3),
    "split": lambda x: ops.split(x, 2, 1),
    "split_list": lambda x: ops.split(x, [1, 3], 2),
    "split_with_sizes": lambda x: ops.split_with_sizes(x, [1, 1]),
    "tensor_split": lambda x: ops.tensor_split(x, [1, 2], 1),
    "unbind": lambda x: ops.unbind(x, 1),
}

VIEWS = ONE | {f"{name}[{k}]": lambda x, f=f, k=k: f(x)[k] for name, f in SEVERAL.items() for k in (0, 1)}


def every(views: dict[str, Any]) -> Any:
    return rows("make", list(views.values()), ids=list(views))


# ---- what a view shares and remembers


@every(VIEWS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_view_shares_memory_and_knows_its_base(make: Any, requires_grad: bool) -> None:
    base = counting(2, 3, 4, requires_grad=requires_grad)
    view = make(base)
    assert shares(view, base)
    assert view._extra.view.base is base
    assert type(view._array) is np.ndarray


@every(VIEWS)
def test_a_view_can_be_taken_again(make: Any) -> None:
    base = counting(2, 3, 4)
    view = make(base)
    twin = ops.clone(base)
    again = view._extra.view.replay(twin)
    assert shares(again, twin) and not shares(again, base)
    np.testing.assert_array_equal(again._array, view._array)


@every(VIEWS)
def test_a_chain_of_views_has_one_base(make: Any) -> None:
    base = counting(2, 24)
    row = ops.select(base, 0, 1)
    view = make(ops.view(row, 2, 3, 4))
    assert view._extra.view.base is base and shares(view, base)
    twin = ops.clone(base)
    again = view._extra.view.replay(twin)
    assert shares(again, twin)
    np.testing.assert_array_equal(again._array, view._array)
    twin._array += 1
    assert not np.array_equal(again._array, view._array)


def test_each_of_several_views_replays_its_own() -> None:
    base = counting(2, 3)
    for k, view in enumerate(ops.unbind(base, 1)):
        np.testing.assert_array_equal(view._extra.view.replay(ops.clone(base))._array, base._array[:, k])
        part = ops.narrow(view, 0, 1, 1)
        np.testing.assert_array_equal(part._extra.view.replay(ops.clone(base))._array, base._array[1:, k])


def test_writing_through_a_view_reaches_the_base() -> None:
    x = counting(3, 3, requires_grad=True)
    base = ops.mul(x, 1.0)
    for make in (
        lambda b: ops.diagonal(b),
        lambda b: ops.select(ops.select(b, 0, 0), 0, 1),
        lambda b: ops.t(b),
    ):
        mul_(make(base), 2.0)
    expected = np.full((3, 3), 2.0)
    expected[np.arange(3), np.arange(3)] *= 2
    expected[0, 1] *= 2
    np.testing.assert_array_equal(base._array, x._array * expected)
    (found,) = grad(ops.sum(base), x)
    np.testing.assert_array_equal(found._array, expected)


# ---- what may not be written to


@pytest.mark.parametrize(
    "make",
    [
        lambda x: ops.expand(ops.select(x, 0, 0), 2, 3, 4),
        lambda x: ops.unfold(x, 2, 2, 1),
        lambda x: ops.as_strided(x, (3, 3), (1, 1)),
        lambda x: ops.as_strided(x, (3, 3), (0, 1)),
    ],
    ids=["expand", "unfold", "as_strided", "as_strided_zero"],
)
def test_a_view_that_shows_an_element_twice_is_read_only(make: Any) -> None:
    base = counting(2, 3, 4)
    view = make(base)
    assert not view._array.flags.writeable
    with pytest.raises(RuntimeError, match="unsupported operation"):
        mul_(view, 2.0)
    np.testing.assert_array_equal(base._array, counting(2, 3, 4)._array)


def test_a_view_that_shows_every_element_once_is_writable() -> None:
    base = counting(2, 3, 4)
    for view in (
        ops.expand(base, 1, 2, -1, 4),
        ops.unfold(base, 2, 2, 2),
        ops.as_strided(base, (3, 2), (2, 3)),
        ops.diagonal(base),
    ):
        assert view._array.flags.writeable and shares(view, base)


# ---- what is no view


@pytest.mark.parametrize(
    "make",
    [
        lambda x: ops.cat([x]),
        lambda x: ops.clone(x),
        lambda x: ops.contiguous(ops.t(x)),
        lambda x: ops.diag(x),
        lambda x: ops.flip(x, 0),
        lambda x: ops.flip(x, ()),
        lambda x: ops.pad(x, (0, 0)),
        lambda x: ops.pad(x, (0, 0), "reflect"),
        lambda x: ops.repeat(x, 1, 1),
        lambda x: ops.repeat_interleave(x, 1),
        lambda x: ops.reshape(ops.t(x), 9),
        lambda x: ops.roll(x, 0),
        lambda x: ops.rot90(x, 0),
        lambda x: ops.tril(x, 5),
        lambda x: ops.unsafe_chunk(x, 1)[0],
        lambda x: ops.unsafe_split(x, 3)[0],
        lambda x: ops.unsafe_split_with_sizes(x, [3])[0],
    ],
)
def test_a_copy_has_memory_of_its_own(make: Any) -> None:
    base = counting(3, 3)
    copy = make(base)
    assert not shares(copy, base)
    assert copy._array.flags.writeable


def test_what_is_already_as_wanted_comes_back_itself() -> None:
    x = counting(2, 3)
    assert ops.contiguous(x) is x
    assert ops.to_dtype(x, dtypes.float64) is x
    assert ops.flatten(counting(3)).shape == (3,)
    vector = counting(3)
    assert ops.flatten(vector) is vector and ops.atleast_1d(vector) is vector
    assert ops.broadcast_tensors(x, counting(3))[0] is x


def test_a_parts_copy_may_be_changed_in_place() -> None:
    x = counting(2, 3, requires_grad=True)
    first, second = ops.unsafe_split(ops.mul(x, 1.0), 1)
    mul_(first, second)
    (found,) = grad(ops.sum(first), x)
    np.testing.assert_array_equal(found._array, [[3, 4, 5], [0, 1, 2]])


# ---- reshape


def test_reshape_is_a_view_where_it_can_be() -> None:
    x = counting(3, 4, requires_grad=True)
    assert node_names(ops.reshape(x, 12)) == ["ViewBackward0"]
    assert node_names(ops.reshape(ops.t(x), 12)) == ["UnsafeViewBackward0", "CloneBackward0", "TBackward0"]
    assert node_names(ops.ravel(ops.t(x))) == ["ViewBackward0", "CloneBackward0", "TBackward0"]
    assert ops.reshape(ops.t(x), 12)._extra is None


def test_an_incompatible_view_says_what_to_do() -> None:
    with pytest.raises(IncompatibleViewError, match=r"view size is not compatible .* Use .reshape") as caught:
        ops.view(ops.t(counting(3, 4)), 12)
    assert (caught.value.shape, caught.value.size) == ((4, 3), (12,))


@given(st.data())
def test_views_are_possible_where_numpy_needs_no_copy(data: Any) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), max_size=4))
    array = np.zeros(shape).transpose(data.draw(st.permutations(range(len(shape)))))
    steps = data.draw(st.lists(st.sampled_from([1, 1, 2, -1]), min_size=array.ndim, max_size=array.ndim))
    array = array[tuple(slice(None, None, s) for s in steps)]
    sizes = data.draw(st.permutations([2] * 2 + [3] + [1]))
    sizes = data.draw(st.sampled_from([tuple(sizes), (array.size,), array.shape, array.shape[::-1]]))
    if np.prod(sizes, dtype=int) != array.size:
        sizes = (1, array.size)
    try:
        array.reshape(sizes, copy=False)
        possible = True
    except ValueError:
        possible = False
    assert is_viewable(array.shape, array.strides, tuple(sizes)) == possible


# ---- as_strided


def test_as_strided_may_not_leave_its_memory() -> None:
    x = counting(3, 4)
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 96"):
        ops.as_strided(x, (5, 5), (5, 1))
    row = ops.select(x, 0, 2)
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        ops.as_strided(row, (2,), (4,))
    np.testing.assert_array_equal(ops.as_strided(row, (3,), (4,), 0)._array, [0, 4, 8])


@pytest.mark.parametrize("create_graph", [False, True])
def test_as_strided_finds_memory_through_any_layout(create_graph: bool) -> None:
    array = np.arange(24.0).reshape(4, 6)
    for part in (array, array.T, array[1:, ::2], array[::-1, 1:3]):
        x = tensor(part, requires_grad=True)
        place = geometry_of(cpu, part).offset
        found = gradient(lambda x, p=place: ops.as_strided(x, (2,), (0,), p), x, create_graph)
        expected = np.zeros_like(part)
        expected[0, 0] = 3  # both elements of the view show this one
        np.testing.assert_array_equal(found, expected)


def test_as_strided_beyond_a_view_reaches_its_base() -> None:
    x = counting(3, 4, requires_grad=True)
    out = ops.as_strided(ops.select(x, 0, 1), (3,), (4,), 2)
    assert out._extra.view.base is x
    np.testing.assert_array_equal(out._array, [2, 6, 10])
    np.testing.assert_array_equal(grad(ops.sum(out), x)[0]._array[:, 2], [1, 1, 1])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(12.0).reshape(4, 3).T,
        np.arange(48.0).reshape(6, 8)[1::2, 1::2],
        np.arange(12.0).reshape(3, 4)[::-1],
    ],
    ids=["row_major", "column_major", "apart", "reversed"],
)
def test_every_view_can_be_taken_again_of_a_copy_in_the_same_layout(array: Any) -> None:
    base = tensor(array)
    place = geometry_of(cpu, array).offset
    twin = ops._clone_as(base, layout_of(base))
    assert not shares(twin, base) and twin._array.strides == array.strides
    np.testing.assert_array_equal(twin._array, array)
    for view in (
        ops.t(ops.narrow(base, 1, 1, 2)),
        ops.as_strided(base, (1,), (1,), place),
        ops.unfold(base, 0, 2, 1),
    ):
        again = view._extra.view.replay(twin)
        assert shares(again, twin)
        np.testing.assert_array_equal(again._array, view._array)


def test_as_strided_of_another_layout_is_a_copy_that_cannot_be_changed() -> None:
    base = counting(3, 4)
    view = ops.as_strided(base, (2, 2), (5, 1), 1)
    other = tensor(np.asfortranarray(base._array))
    again = view._extra.view.replay(other)
    np.testing.assert_array_equal(again._array, view._array)
    assert not again._array.flags.writeable


# ---- gradients


@pytest.mark.parametrize("create_graph", [False, True])
def test_outputs_that_are_not_used_count_as_zero(create_graph: bool) -> None:
    x = counting(3, 4, requires_grad=True)
    cases: list[tuple[Callable[[Tensor], Tensor], Any]] = [
        (lambda x: ops.unbind(x)[1], np.s_[1]),
        (lambda x: ops.unbind(x, -1)[2], np.s_[:, 2]),
        (lambda x: ops.split(x, 3, 1)[1], np.s_[:, 3:]),
        (lambda x: ops.split(x, [1, 2])[0], np.s_[:1]),
        (lambda x: ops.unsafe_chunk(x, 2, 1)[1], np.s_[:, 2:]),
    ]
    for function, where in cases:
        expected = np.zeros((3, 4))
        expected[where] = np.arange(1.0, expected[where].size + 1).reshape(expected[where].shape)
        np.testing.assert_array_equal(gradient(function, x, create_graph), expected)


def test_sizes_given_as_a_list_are_kept_as_they_were() -> None:
    x = counting(3, 4, requires_grad=True)
    sizes, dims = [1, 2], [0, 1]
    part, turned = ops.split_with_sizes(x, sizes)[1], ops.rot90(x, 1, dims)
    sizes.reverse()
    dims.reverse()
    np.testing.assert_array_equal(grad(ops.sum(part), x)[0]._array[0], np.zeros(4))
    weights = tensor(np.arange(12.0).reshape(4, 3))
    np.testing.assert_array_equal(grad(turned, x, weights)[0]._array, np.rot90(weights._array, -1))


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_cast_gives_the_gradient_back_in_the_inputs_dtype(create_graph: bool) -> None:
    x = tensor(np.ones(2, np.float32), requires_grad=True)
    for dtype in (dtypes.float64, dtypes.float16, dtypes.complex128):
        found = gradient(lambda x, d=dtype: ops.to_dtype(x, d), x, create_graph)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, [1, 2])
    assert ops.to_dtype(x, dtypes.int64)._edge is None


# ---- errors

x, y3, scalar = counting(3, 4), counting(2, 3, 4), counting()

ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: ops.view(x, 5), RuntimeError, r"shape '\[5\]' is invalid for input of size 12"),
    (lambda: ops.view(x, -1, -1), RuntimeError, "only one dimension can be inferred"),
    (lambda: ops.view(x, -2, 6), RuntimeError, "invalid shape dimension -2"),
    (lambda: ops.reshape(counting(0, 3), (0, -1)), RuntimeError, "cannot reshape tensor of 0 elements"),
    (lambda: ops.view(x, dtypes.complex128, 3), TypeError, "cannot be interpreted as an integer"),
    (
        lambda: ops.view(scalar, dtypes.float32),
        RuntimeError,
        r"self.dim\(\) cannot be 0 to view Double as Float",
    ),
    (
        lambda: ops.transpose(x, 0, 3),
        IndexError,
        r"Dimension out of range \(expected .* \[-2, 1\], but got 3\)",
    ),
    (lambda: ops.t(y3), RuntimeError, r"t\(\) expects a tensor with <= 2 dimensions, but self is 3D"),
    (lambda: ops.permute(x, 0), RuntimeError, r"input.dim\(\) = 2 is not equal to len\(dims\) = 1"),
    (lambda: ops.permute(x, 0, -2), RuntimeError, r"permute\(\): duplicate dims are not allowed"),
    (lambda: ops.movedim(x, (0, 0), (0, 1)), RuntimeError, "movedim: repeated dim in `source`"),
    (
        lambda: ops.expand(x, 2, 4),
        RuntimeError,
        r"The expanded size of the tensor \(2\) must match the existing",
    ),
    (lambda: ops.expand(x, 4), RuntimeError, r"the number of sizes provided \(1\) must be greater or equal"),
    (lambda: ops.expand(x, -1, 3, 4), RuntimeError, "isn't allowed in a leading, non-existing dimension 0"),
    (
        lambda: ops.broadcast_tensors(x, counting(3)),
        RuntimeError,
        r"The size of tensor a \(4\) must match the size",
    ),
    (
        lambda: ops.narrow(x, 0, 1, 5),
        RuntimeError,
        r"start \(1\) \+ length \(5\) exceeds dimension size \(3\)",
    ),
    (lambda: ops.narrow(x, 0, 5, 1), IndexError, "start out of range"),
    (
        lambda: ops.select(x, 0, 7),
        IndexError,
        r"index 7 out of range for tensor of size \[3, 4\] at dimension 0",
    ),
    (lambda: ops.select(scalar, 0, 0), IndexError, r"select\(\) cannot be applied to a 0-dim tensor"),
    (lambda: ops.slice(x, 0, 0, 1, 0), RuntimeError, "slice step must be positive"),
    (lambda: ops.diagonal(x, 0, 1, -1), RuntimeError, "diagonal dimensions cannot be identical 1, -1"),
    (
        lambda: ops.unfold(x, 0, 5, 1),
        RuntimeError,
        "maximum size for tensor at dimension 0 is 3 but size is 5",
    ),
    (lambda: ops.unfold(x, 0, 2, 0), RuntimeError, "step is 0 but must be > 0"),
    (lambda: ops.as_strided(x, (2, 2), (1,)), RuntimeError, "mismatch in length of strides and shape"),
    (lambda: ops.as_strided(x, (2,), (-1,)), RuntimeError, "Negative strides are not supported"),
    (lambda: ops.as_strided(x, (2,), (1,), -1), RuntimeError, "invalid storage offset -1"),
    (lambda: ops.unbind(scalar), IndexError, "Dimension specified as 0 but tensor has no dimensions"),
    (lambda: ops.split(x, 0), RuntimeError, "split_size can only be 0 if dimension size is 0"),
    (lambda: ops.split(x, [1, 1]), RuntimeError, "split_with_sizes expects split_sizes to sum exactly to 3"),
    (lambda: ops.chunk(x, 0), RuntimeError, "chunk expects `chunks` to be greater than 0, got: 0"),
    (lambda: ops.tensor_split(x, 0), RuntimeError, "number of sections must be larger than 0, got 0"),
    (
        lambda: ops.hsplit(x, 3),
        RuntimeError,
        "the size of the dimension 4 is not divisible by the split_size 3",
    ),
    (lambda: ops.cat([]), ValueError, "expected a non-empty list of Tensors"),
    (
        lambda: ops.cat([scalar]),
        RuntimeError,
        r"zero-dimensional tensor \(at position 0\) cannot be concatenated",
    ),
    (lambda: ops.cat([x, counting(3, 2)]), RuntimeError, "Sizes of tensors must match except in dimension 0"),
    (lambda: ops.cat([x, y3]), RuntimeError, "Tensors must have same number of dimensions: got 2 and 3"),
    (lambda: ops.stack([x, counting(4)]), RuntimeError, "stack expects each tensor to be equal size"),
    (lambda: ops.stack([]), RuntimeError, "stack expects a non-empty TensorList"),
    (lambda: ops.repeat(x, 2), RuntimeError, "Number of dimensions of repeat dims can not be smaller"),
    (lambda: ops.repeat_interleave(x, -1), RuntimeError, "Repeats must be non-negative"),
    (lambda: ops.roll(x, (1, 2), 0), RuntimeError, "shifts and dimensions must align. shifts: 2, dims:1"),
    (lambda: ops.flip(x, 0, 0), RuntimeError, "dim 0 appears multiple times in the list of dims"),
    (lambda: ops.fliplr(counting(3)), RuntimeError, "Input must be >= 2-d"),
    (lambda: ops.rot90(x, 1, (0, 0)), RuntimeError, "expected rotation dims to be different"),
    (lambda: ops.tril(counting(3)), RuntimeError, "tril: input tensor must have at least 2 dimensions"),
    (lambda: ops.diag(y3), RuntimeError, r"diag\(\): Supports 1D or 2D tensors. Got 3D"),
    (lambda: ops.block_diag(y3), RuntimeError, "Input tensors must have 2 or fewer dimensions"),
    (lambda: ops.meshgrid(x), RuntimeError, "Expected 0D or 1D tensor in the tensor list"),
    (lambda: ops.pad(x, (1,)), RuntimeError, "Padding length must be divisible by 2"),
    (
        lambda: ops.pad(x, (4, 0), "reflect"),
        RuntimeError,
        "Padding size should be less than the corresponding input",
    ),
    (
        lambda: ops.pad(x, (5, 0), "circular"),
        RuntimeError,
        "Padding value causes wrapping around more than once",
    ),
    (lambda: ops.pad(x, (1, 1), "mirror"), NotImplementedError, "Unrecognised padding mode mirror"),
    (lambda: ops.pad(x, (-3, -3)), RuntimeError, "negative output size"),
    (
        lambda: ops.unflatten(x, 1, (3, 2)),
        RuntimeError,
        r"Provided sizes \[3, 2\] don't multiply up to the size",
    ),
    (lambda: ops.flatten(x, 1, 0), RuntimeError, "start_dim cannot come after end_dim"),
    (lambda: ops.matrix_H(y3), RuntimeError, r"tensor.H is only supported on matrices \(2-D tensors\)"),
    (
        lambda: ops.clone(x, memory_format=channels_last),
        RuntimeError,
        "required rank 4 tensor to use channels_last format",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS, ids=[m for _, _, m in ERRORS])
def test_errors(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("shapes", [(), ((),), ((2, 1), (3,)), ((1,), 3, (4, 1)), ((0, 1), (1, 3)), ((2, 3),)])
def test_broadcast_shapes(L: Any, shapes: Any) -> None:
    found = L.broadcast_shapes(*shapes)
    assert tuple(found) == tuple(np.broadcast_shapes(*shapes)) and type(found) is L.Size


def test_broadcast_shapes_refuses(L: Any) -> None:
    with pytest.raises(RuntimeError):
        L.broadcast_shapes((2,), (3,))
    with pytest.raises((RuntimeError, ValueError)):
        L.broadcast_shapes((-1,), (3,))


def test_resize_to_more_than_there_can_be() -> None:
    x = ops.zeros(2)
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        x.resize_(2**31, 2**31)
    assert x.tolist() == [0, 0]


def test_split_takes_the_name_of_pytorchs_method() -> None:
    whole: Any = ops.ones(5)
    assert [len(part) for part in whole.split(split_size=2)] == [2, 2, 1]
    assert [len(part) for part in whole.split(split_size=[1, 4], dim=0)] == [1, 4]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        whole.split()


def test_splits_take_their_places_by_each_of_their_names(L: ModuleType) -> None:
    x = L.arange(6)
    assert (
        [len(part) for part in x.tensor_split(indices=(2,))] == [len(part) for part in x.hsplit(indices=[2])] == [2, 4]
    )
    assert [len(part) for part in L.tensor_split(x, sections=4)] == [2, 2, 1, 1]
    assert len(L.tensor_split(x, tensor_indices_or_sections=L.tensor(3))) == 3

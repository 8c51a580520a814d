"""Memory of every kind: strided, transposed, shared, overlapping, of size zero, of no dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut

BASES: dict[str, Callable[[Any], Any]] = {
    "rows": lambda L: L.arange(24.0).reshape(4, 6),
    "columns": lambda L: L.arange(24.0).reshape(6, 4).t(),
    "every second": lambda L: L.arange(96.0).reshape(8, 12)[::2, ::2],
    "a NumPy array": lambda L: L.from_numpy(np.arange(24.0).reshape(4, 6)),
    "part of a NumPy array": lambda L: L.from_numpy(np.arange(48.0).reshape(8, 6)[::2]),
}

CHANGES: dict[str, Callable[[Any], Any]] = {
    "all": lambda x: x.mul_(3),
    "a row": lambda x: x[1].mul_(3),
    "a column": lambda x: x[:, 2].add_(x[:, 3]),
    "steps": lambda x: x[::2, 1::2].neg_(),
    "the transpose": lambda x: x.t()[2:4].exp_(),
    "the diagonal": lambda x: x.diagonal().mul_(2),
    "a row broadcast": lambda x: x.__setitem__(slice(1, 3), x[0].clone()),
    "chosen rows": lambda x: x.__setitem__([0, 2], x[[1, 3]] * 2),
    "a mask": lambda x: x.masked_fill_(x.detach() > 10, 0.5),
    "by strides": lambda x: x.as_strided((2, 2), (x.stride(0), x.stride(1)), x.storage_offset()).mul_(7),
}


@pytest.mark.torch
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("change", CHANGES)
def test_layouts(torch: Any, base: str, change: str) -> None:
    def run(L: Any) -> tuple[Any, Any]:
        leaf = (BASES[base](L).double() / 12).requires_grad_()
        x = leaf * 1
        CHANGES[change](x)
        (x * x).sum().backward()
        return x.detach().numpy(), leaf.grad.numpy()

    for mine, theirs in zip(run(ut), run(torch), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize("base", BASES)
def test_no_memory_is_allocated_for_the_result(L: Any, base: str) -> None:
    x = BASES[base](L)
    memory = x.data_ptr()
    x.add_(1).mul_(2).sub_(x * 0.5)
    assert x.data_ptr() == memory


def test_arrays_and_tensors_share_memory(L: Any) -> None:
    array = np.zeros(3)
    x = L.from_numpy(array)
    x[0] = 1.0
    x[1:].add_(2)
    assert array.tolist() == [1, 2, 2]
    array[0] = 9
    assert x.tolist() == [9, 2, 2]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_nothing_can_be_changed_in_place_too(L: Any, shape: tuple[int, ...]) -> None:
    leaf = L.ones(*shape, requires_grad=True)
    x = leaf * 1
    x.mul_(2)
    x[...] = 5.0
    x.view(-1).add_(1)
    x.sum().backward()
    assert tuple(leaf.grad.shape) == shape and x._version == 3


def test_tensors_of_no_dimensions(L: Any) -> None:
    leaf = L.tensor(2.0, requires_grad=True)
    x = leaf * 1
    v = x.view(1)
    v.mul_(3)
    x[()] += 1.0
    x.exp_()
    x.backward()
    assert abs(float(leaf.grad) - 3 * np.exp(7)) < 1e-2


def test_an_expanded_tensor_without_repetition_can_be_changed(L: Any) -> None:
    leaf = L.ones(1, 3, requires_grad=True)
    x = leaf * 1
    x.expand(1, 3).mul_(5)
    x.sum().backward()
    assert leaf.grad.tolist() == [[5, 5, 5]]


OVERLAPS: dict[str, Callable[[Any], Any]] = {
    "a column for all": lambda x: x.mul_(x[:, :1]),
    "reversed": lambda x: x.copy_(x.flip(0)),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_operands_that_overlap_what_is_written_count_as_they_were(name: str) -> None:
    """Those that PyTorch does not refuse (test_overlap.py)."""
    start = np.arange(9.0).reshape(3, 3)
    x = ut.from_numpy(start.copy())
    OVERLAPS[name](x)
    y = start.copy()
    expected = {
        "a column for all": lambda: y * y[:, :1],
        "reversed": lambda: y[::-1],
    }[name]()
    np.testing.assert_array_equal(x.numpy(), expected)


def test_a_copy_of_a_part_with_gaps_has_the_right_gradient() -> None:
    w = ut.ones(4, requires_grad=True)
    x = w * ut.tensor([1.0, 2.0, 3.0, 4.0])
    x[::2].copy_(x[:2])
    (x * ut.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    assert w.grad.tolist() == [1, 220, 0, 4000]


def test_rows_filled_one_by_one(L: Any) -> None:
    rows = [L.full((3,), float(k), requires_grad=True) for k in range(50)]
    x = L.zeros(50, 3)
    for k, row in enumerate(rows):
        x[k] = row * row
    x.sum().backward()
    assert [r.grad.tolist()[0] for r in rows] == [2.0 * k for k in range(50)]


def test_gradients_keep_the_layout_of_the_leaf(L: Any) -> None:
    leaf = L.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1).clone().requires_grad_()
    x = leaf * 1
    x[0].mul_(2)
    x.sum().backward()
    assert leaf.grad.stride() == leaf.stride()


def test_channels_last(L: Any) -> None:
    x = L.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=L.channels_last)
    assert x.stride() == (24, 1, 8, 2) and x.is_contiguous(memory_format=L.channels_last) and not x.is_contiguous()
    assert x.tolist() == L.arange(24.0).reshape(1, 2, 3, 4).tolist()
    assert x.to(memory_format=L.contiguous_format).is_contiguous()
    assert x.clone().stride() == x.stride() and x.clone(memory_format=L.contiguous_format).is_contiguous()
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        L.ones(2, 2).contiguous(memory_format=L.channels_last)


@pytest.mark.parametrize("on", [True, False])
def test_the_layout_of_gradients_can_be_left_as_it_comes(on: bool) -> None:
    leaf = ut.ones(2, 3, 4, 5).contiguous(memory_format=ut.channels_last).requires_grad_()

    class Rows(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.sum()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return ut.ones(2, 3, 4, 5)

    with ut.autograd.enforce_grad_layout_policy(on):
        Rows.apply(leaf).backward()
    assert leaf.grad.is_contiguous() != on and (leaf.grad.stride() == leaf.stride()) == on


# ---- parts of windows, which overlap as a whole

WINDOWS: dict[str, Callable[[Any], Any]] = {
    "unfold": lambda x: x.unfold(0, 3, 2),
    "as_strided": lambda x: x.as_strided((3, 3), (1, 1), 2),
}


def change_part(v: Any, w: Any) -> None:
    v[2].mul_(3)


def write_part(v: Any, w: Any) -> None:
    v[1, 0] = 0.0
    v[2, 1] = w[0] * 2


def write_mask(v: Any, w: Any) -> None:
    v[:, 0][v[:, 0] > 0] = 0.5


def fill_parts(v: Any, w: Any) -> None:
    for k in range(3):
        v[k, :1] = w[k : k + 1] * (k + 2)
    v[1, :1].exp_()


PART_CHANGES = {"in place": change_part, "assigned": write_part, "mask": write_mask, "filled": fill_parts}


@pytest.mark.torch
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("change", PART_CHANGES)
@pytest.mark.parametrize("name", WINDOWS)
def test_a_part_of_windows_that_does_not_overlap_can_be_changed(
    torch: Any, name: str, change: str, recorded: bool
) -> None:
    def run(L: Any) -> list[Any]:
        w = L.arange(1.0, 9.0, dtype=L.float64).requires_grad_(recorded)
        x = w * 1
        v = WINDOWS[name](x)
        PART_CHANGES[change](v, w)
        found = [x.tolist()]
        if recorded:
            (first,) = L.autograd.grad((x**3).sum() + (v**2).sum(), w, create_graph=True)
            (second,) = L.autograd.grad((first**2).sum(), w)
            found += [first.tolist(), second.tolist()]
        return found

    for mine, theirs in zip(run(ut), run(torch), strict=True):
        np.testing.assert_allclose(mine, theirs)


def test_windows_as_a_whole_cannot_be_changed() -> None:
    x = ut.ones(8)
    with pytest.raises(RuntimeError, match="more than one element"):
        x.unfold(0, 3, 2).mul_(2)
    assert x.tolist() == [1] * 8


@pytest.mark.parametrize(
    "make", [lambda x: x.expand(2, 3), lambda x: x.expand(2, 2, 3).transpose(0, 2), lambda x: x[1:]]
)
def test_one_number_can_be_written_to_every_element_of_an_expanded_tensor(L: Any, make: Any) -> None:
    x = L.arange(3.0)
    view = make(x)
    assert view.fill_(-7).eq(-7).all()
    assert view.zero_().eq(0).all()
    assert x._version == 2
    assert x.sum().item() == 0


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "dual_level"])
def test_one_number_is_written_to_an_expanded_tensor_in_every_mode(L: Any, mode: str) -> None:
    x = L.ones(3)
    with getattr(L, mode, L.autograd.forward_ad.dual_level)():
        assert x.expand(2, 3).fill_(4).sum().item() == 24
        assert x.expand(2, 3).zero_().sum().item() == x.sum().item() == 0


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # PyTorch compiles what it decomposes
def test_the_tangent_of_an_expanded_tensor_is_overwritten_with_it(L: Any) -> None:
    forward_ad = L.autograd.forward_ad
    with forward_ad.dual_level():
        x = forward_ad.make_dual(L.ones(3), L.ones(3))
        x.expand(2, 3).fill_(4)
        assert x.sum().item() == 12 and forward_ad.unpack_dual(x).tangent.sum().item() == 0


def test_numbers_are_not_written_to_overlapping_windows() -> None:
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        ut.arange(3.0).unfold(0, 2, 1).zero_()


def test_the_parts_of_a_single_complex_number_know_their_place(L: Any) -> None:
    z = L.tensor(1 + 2j)
    parts = L.view_as_real(z)
    assert (parts.storage_offset(), parts[1].storage_offset(), z.imag.storage_offset()) == (0, 1, 1)
    parts.as_strided((1,), (1,), 1).mul_(10)
    assert z.item() == 1 + 20j


IN_PLACE = "neg abs sin exp tanh sqrt square floor reciprocal sigmoid round trunc ceil erf log1p".split()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "complex64"])
@pytest.mark.parametrize("recorded", [False, True])
def test_what_lies_in_steps_of_any_length(dtype: str, recorded: bool) -> None:
    """NumPy 2.4 negates wrongly, where they lie, elements of four bytes that are four apart, and eights eight apart."""
    for step in range(1, 18):
        for name in IN_PLACE if "int" not in dtype else ["neg", "abs", "square", "sgn"]:
            if not hasattr(ut.Tensor, name + "_") or (
                dtype == "complex64" and name in "abs floor round trunc ceil erf"
            ):
                continue
            values = ut.arange(1, 5 * step + 1).remainder(7).to(getattr(ut, dtype))
            wanted = values.clone()
            wanted[::step] = getattr(values[::step].clone(), name)()
            memory = values.clone().requires_grad_(recorded and values.is_floating_point()) * 1
            getattr(memory[::step], name + "_")()
            np.testing.assert_allclose(memory.detach().numpy(), wanted.numpy(), rtol=1e-6, err_msg=f"{name}, {step}")

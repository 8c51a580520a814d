"""Where the elements of results lie: every sample row, in several layouts, has PyTorch's strides; and rule by rule.

Strides along dimensions of size 1 mean nothing, and those of tensors without elements neither: they are not compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, as_array, cases, every, leaf
from tests.rows import rows
from undertow.backend.memory_order import inverse, is_channels_last, nesting
from undertow.modes import no_grad

# ---- layouts: the same values, lying elsewhere


def nested(array: Any, dims: Sequence[int]) -> Any:
    """The array with its dimensions nested in this order, from the outermost."""
    return np.array(array.transpose(dims), order="C").transpose(inverse(list(dims)))


def by_rows(array: Any, place: int) -> Any:
    return np.array(array, order="C")


def transposed(array: Any, place: int) -> Any:
    return nested(array, range(array.ndim)[::-1])


def first_transposed(array: Any, place: int) -> Any:
    return array if place else transposed(array, place)


def channels_last(array: Any, place: int) -> Any:
    return nested(array, (0, *range(2, array.ndim), 1)) if array.ndim > 2 else by_rows(array, place)


def spaced(array: Any, place: int) -> Any:
    """Every second element of a larger array, in its last dimension and its first."""
    if array.ndim < 2:
        return np.repeat(array, 2)[::2] if array.ndim else array
    return np.repeat(np.repeat(array, 2, -1), 2, 0)[::2, ..., ::2]


LAYOUTS = (by_rows, transposed, first_transposed, channels_last, spaced)


# ---- every row

#: operations and rows that are left out, and why: docs/memory-order.md names those where the strides are others
OTHERWISE = {
    "_clone_as": "an operation of ours, which lies as it is told",
    "adjoint-complex": "PyTorch's conjugate is a view that remembers to conjugate",
    "as_strided_scatter": "PyTorch copies the whole memory, gaps and all",
    "conj": "as adjoint",
    "einsum-broadcast": "PyTorch lets the strides of dimensions of size 1 decide",
    "histogramdd": "PyTorch returns the tensors of edges that it was given",
    "matrix_H-complex": "as adjoint",
    "pca_lowrank": "the rows compare a product of its results",
    "pow-number_base": "PyTorch's result of a number to the power of a tensor lies by rows",
    "pow-number_base-complex": "the same",
    "pow-zero_base": "the same",
    "svd_lowrank": "as pca_lowrank",
}


def comparable(results: Sequence[Any]) -> Iterator[Any]:
    """The strides that mean something, of each result that is a strided tensor."""
    for result in results:
        if hasattr(result, "stride") and "sparse" not in str(result.layout):
            sizes, strides = tuple(result.shape), result.stride()
            yield sizes, () if 0 in sizes else tuple([s for n, s in zip(sizes, strides, strict=True) if n > 1])


@every([c for c in cases() if c.specs and c.sample.reference is not False and not {c.id, c.sample.op} & {*OTHERWISE}])
def test_strides(torch: ModuleType, case: Case) -> None:
    for layout in LAYOUTS:
        given = [[layout(a, place) for place, a in enumerate(case.arrays)] for _ in range(2)]
        try:
            wanted = case.torch_call(torch, [torch.from_numpy(a) for a in given[0]])
        except RuntimeError:  # a view that needs another layout
            continue
        with no_grad(), np.errstate(all="ignore"):
            got = case.call([leaf(a, False) for a in given[1]])
        assert list(comparable(got)) == list(comparable(wanted)), layout.__name__


# ---- one rule after the other, each with PyTorch as its witness


def strides_of(L: ModuleType, expression: str) -> Any:
    names = {"L": L, "F": L.nn.functional, "x": L.arange(24.0).reshape(2, 3, 4), "m": L.arange(6.0).reshape(2, 3)}
    return eval(expression, names).stride()


ELEMENTWISE = [
    "m.t() + L.ones(3, 2)", "L.ones(3, 2) + m.t()", "m.t() * 2", "2 - m.t()", "L.ones(2) + m.t()",
    "m.t() + L.ones(3, 1)", "L.ones(3, 1) + L.ones(1, 2)", "x.permute(2, 0, 1) + L.ones(4, 1, 3)",
    "L.ones(1, 3).expand(2, 3) + L.ones(3, 2).t()", "L.ones(3, 1).expand(3, 2).exp()", "F.gelu(m.t())",
    "L.where(m.t() > 2, m.t(), L.zeros(3, 2))", "m.t().double() + m.t()", "x[:, ::2].permute(2, 1, 0).sin()",
    "m.t().expand(2, 3, 2) + L.ones(3, 2, dtype=L.int32)", "L.lerp(m.t(), L.ones(3, 2), 0.5)",
    "F.mse_loss(m.t(), L.ones(3, 2), reduction='none')", "m.t().clone()", "L.zeros_like(m.t())",
]  # fmt: skip
BY_ROWS = [
    "m.t().softmax(0)", "m.t().log_softmax(0)", "F.layer_norm(x.transpose(0, 1), (4,))", "x.permute(2, 0, 1).sum(0)",
    "x.permute(2, 1, 0).amax(1)", "m.t().cumsum(0)", "x.permute(2, 0, 1).var(1, keepdim=True)", "m.t() @ m",
    "L.einsum('bqd,bkd->bqk', x, x)", "L.tensordot(m.t(), m.t(), dims=([1], [1]))", "L.inner(m.t(), m.t())",
    "m.t().masked_fill(m.t() > 2, 0.0)", "F.logsigmoid(m.t())", "L.cat([m.t(), m.t()], 1)", "L.tril(m.t())",
]  # fmt: skip
LIKE_THE_FIRST = [
    "m.t().flip(0)",
    "x.permute(2, 0, 1).sort(0)[0]",
    "L.rot90(m)",
    "m.t().index_fill(0, L.tensor(1), 0.0)",
]
INDICES = [
    "x.permute(2, 1, 0)[[0, 1]]", "x.permute(2, 1, 0)[:, [0, 1]]", "x.permute(2, 1, 0)[..., [0, 1]]",
    "x.permute(2, 1, 0)[[0, 1], :, [1, 0]]", "x.permute(2, 1, 0)[:, L.tensor([[0, 1], [1, 2]]).t()]",
    "x.permute(2, 1, 0)[L.ones(4, 3).bool()]", "L.nonzero(x)", "x.permute(2, 1, 0)[L.tensor(1)]",
]  # fmt: skip
PRODUCTS = ["L.einsum('bij,bkj->kbi', x, x)", "L.einsum('ij,jk->ki', m, m.t())", "L.einsum('ij,kl->ljik', m, m)"]
MATRICES = [
    "L.linalg.inv(L.eye(3).expand(2, 3, 3))", "L.linalg.svd(x)[0]", "L.linalg.svd(x)[1]", "L.linalg.svd(x)[2]",
    "L.linalg.qr(x)[1]", "L.linalg.cholesky(L.eye(3), upper=True)", "L.linalg.eigh(L.eye(3))[1]",
    "L.linalg.solve(L.eye(3), m.t())", "L.linalg.solve(L.eye(3), m, left=False)",
    "L.linalg.solve_triangular(L.eye(3), m.t(), upper=False)", "L.linalg.lu_factor(L.eye(3))[0]", "L.linalg.lu(m)[1]",
    "L.linalg.lstsq(m.t(), L.ones(3, 2))[0]", "L.linalg.pinv(m)", "L.linalg.matrix_power(L.eye(3), -1)",
]  # fmt: skip
SPECTRA = ["L.fft.fft(x, dim=1)", "L.fft.rfft2(x, dim=(2, 0))", "L.fft.irfft(L.fft.rfft(x, dim=1), dim=0)"]


@rows("expression", [*ELEMENTWISE, *BY_ROWS, *LIKE_THE_FIRST, *INDICES, *PRODUCTS, *MATRICES, *SPECTRA])
def test_strides_of(torch: ModuleType, expression: str) -> None:
    assert strides_of(ut, expression) == strides_of(torch, expression)


def test_the_first_operand_that_tells_decides(torch: ModuleType) -> None:
    """Every order of three dimensions in either operand, each also with one dimension broadcast, or expanded."""

    def operands(L: ModuleType) -> Iterator[Any]:
        for dims in itertools.permutations(range(3)):
            x = L.ones(2, 3, 4).permute(*dims).contiguous().permute(*np.argsort(dims).tolist())
            yield from (x, x[:, :1], x[:, :1].expand(2, 3, 4), x[0], x[..., :1])

    pairs = zip(
        itertools.product(operands(ut), operands(ut)), itertools.product(operands(torch), operands(torch)), strict=True
    )
    for (a, b), (c, d) in pairs:
        assert list(comparable([a + b])) == list(comparable([c + d])), (a.stride(), a.shape, b.stride(), b.shape)


def test_sorting_swaps_what_may_not_be_neighbours() -> None:
    # nothing tells dimension 1 from the others; 2 is found to be outside of 0, and takes its place
    assert nesting((2, 3, 4), [(1, 0, 2)]) == [2, 1, 0]
    assert nesting((2, 1, 4), [(1, 5, 2)]) == [1, 2, 0]


IMAGES = [
    "F.conv2d(i, L.ones(2, 3, 2, 2))", "F.conv2d(r, L.ones(2, 3, 2, 2).contiguous(memory_format=L.channels_last))",
    "F.conv_transpose2d(i, L.ones(3, 2, 2, 2))", "F.max_pool2d(i, 2)", "F.avg_pool2d(i, 2)",
    "F.adaptive_avg_pool2d(i, 2)",
    "F.batch_norm(i, None, None, training=True)", "F.batch_norm(i, L.zeros(3), L.ones(3))", "F.group_norm(i, 3)",
    "F.instance_norm(i)", "F.interpolate(i, scale_factor=2)", "F.pad(i, (1, 1))", "L.cat([i, i])", "L.cat([i, r])",
    "F.relu(i)", "F.pixel_shuffle(i.repeat(1, 4, 1, 1), 2)", "i.sum(1, keepdim=True)", "F.dropout2d(i)",
    "i.roll(1, -3)", "(i > 3).roll((1, 1), (1, 2))", "i.roll(1)",
]  # fmt: skip


@pytest.mark.parametrize("expression", IMAGES)
def test_channels_stay_last(torch: ModuleType, expression: str) -> None:
    def result(L: ModuleType) -> Any:
        rows = L.arange(96.0).reshape(2, 3, 4, 4)
        names = {"L": L, "F": L.nn.functional, "r": rows, "i": rows.contiguous(memory_format=L.channels_last)}
        return eval(expression, names)

    assert list(comparable([result(ut)])) == list(comparable([result(torch)]))


def test_what_counts_as_channels_last(torch: ModuleType) -> None:
    """As PyTorch suggests a format, gaps and dimensions of size 1 included."""
    for sizes in itertools.product((1, 2), (1, 3), (1, 4), (1, 5)):
        for dims in itertools.permutations(range(4)):
            array = nested(np.ones(sizes, np.float32), dims)
            for part in (array, array[::2], array[..., ::2]):
                x = torch.from_numpy(part)
                if x.numel() and min(x.shape) > 1:
                    taken = torch.nn.functional.max_pool2d(x, 1).stride()
                    got = ut.max_pool2d(ut.from_numpy(part), 1).stride()
                    assert got == taken, (part.shape, part.strides)
    assert not is_channels_last(np.ones((2, 3, 4)))


DROPPED = [
    "m.t() + L.ones(8, 6)", "m.t().softmax(0)", "F.gelu(m.t())", "L.einsum('ij,kj->ki', m, m)",
    "m.reshape(2, 3, 8).permute(2, 0, 1)[[0, 1, 5]]", "L.linalg.svd(m)[0]",
    "m.reshape(2, 3, 8).permute(2, 1, 0).sum(1)",
]  # fmt: skip


@pytest.mark.parametrize("expression", DROPPED)
def test_dropout_drops_the_same_elements(torch: ModuleType, expression: str) -> None:
    def kept(L: ModuleType) -> Any:
        L.manual_seed(0)
        names = {"L": L, "F": L.nn.functional, "m": L.arange(48.0).reshape(6, 8) / 48 + 0.1}
        return as_array(L.nn.functional.dropout(eval(expression, names), 0.5)) != 0

    assert np.array_equal(kept(ut), kept(torch))


def test_view_works_after_attention_scores(L: ModuleType) -> None:
    q = L.ones(2, 5, 3, 8).transpose(1, 2)
    assert L.einsum("bhqd,bhkd->bhqk", q, q).view(6, 25).shape == (6, 25)
    assert L.nn.functional.layer_norm(q, (8,)).view(-1).shape == (240,)
    with pytest.raises(RuntimeError, match="view"):
        (q + 1).view(-1)


@pytest.mark.parametrize("mask", ["none", "causal", "given"])
def test_attention_lies_as_the_queries(torch: ModuleType, mask: str) -> None:
    """So that `.transpose(1, 2).view(...)` of it works, if heads were made by transposing."""

    def strides(L: ModuleType, dims: Sequence[int], size: int) -> Any:
        x = L.ones(2, 2, 4, 3 * size)[..., :size].permute(dims)
        shape = {
            "none": {},
            "causal": {"is_causal": True},
            "given": {"attn_mask": L.ones(x.shape[-2], x.shape[-2]) > 0},
        }
        attend = L.nn.functional.scaled_dot_product_attention
        return [attend(*x, **shape[mask]).stride() for x in ((x, x, x), (x[0], x[0], x[0]), (x, x, x[..., :1]))]

    for dims in itertools.permutations(range(4)):
        assert strides(ut, dims, 8) == strides(torch, dims, 8), dims


def test_written_results_lie_where_they_are_written(L: ModuleType) -> None:
    m = L.ones(2, 3)
    resized, given = L.empty(0), L.empty(3, 2)
    assert L.add(m.t(), m.t(), out=resized).stride() == (1, 3)
    assert L.add(m.t(), m.t(), out=given).stride() == (2, 1)
    turned = m.t()
    assert turned.add_(L.ones(3, 2)).stride() == (1, 3)


def test_gradients_of_leaves_lie_as_the_leaves(L: ModuleType) -> None:
    leaf = L.ones(2, 3, 4, 4).contiguous(memory_format=L.channels_last).requires_grad_()
    (leaf * L.ones(2, 3, 4, 4)).sum().backward()
    assert leaf.grad.stride() == leaf.stride()


def test_nothing_is_copied_that_shows_memory() -> None:
    x = ut.ones(2, 3).t()
    assert x.view(ut.int32).data_ptr() == x.data_ptr() and x.conj() is x
    assert x.float(memory_format=ut.contiguous_format) is x


TURNED = {
    "flip": lambda x: x.flip(0),
    "fliplr": lambda x: x.fliplr(),
    "cumsum": lambda x: x.cumsum(0),
    "cumsum of integers' kind": lambda x: x.half().cumsum(1),
    "rot90": lambda x: x.rot90(),
    "rot90, three": lambda x: x.rot90(3),
    "rot90, two": lambda x: x.rot90(2),
    "flip of a vector": lambda x: x[0].flip(0),
}


@rows("name", TURNED)
def test_no_gradient_is_read_backwards(L: Any, name: str) -> None:
    """Nor is one that a hook sees: `view`, and those who take its memory, would refuse negative strides."""
    x, seen = L.ones(3, 3, requires_grad=True), []
    y = x * 1
    y.register_hook(lambda g: seen.append(g.view(-1) if g.is_contiguous() else g.t().view(-1)))
    out = TURNED[name](y)
    weights = L.arange(float(out.numel()), dtype=out.dtype).reshape(out.shape)
    (g,) = L.autograd.grad((out * weights).sum(), y, retain_graph=True)
    assert min(g.stride()) > 0
    (out * weights).sum().backward()
    assert len(seen) == 2


# ---- formats that are asked for by name, whose strides are exact also along dimensions of size 1

ASKED: dict[str, Any] = {
    "to": lambda L, x, f: x.to(memory_format=f),
    "to a dtype": lambda L, x, f: x.to(L.float64, memory_format=f),
    "a copy": lambda L, x, f: x.to(L.float32, copy=True, memory_format=f),
    "clone": lambda L, x, f: x.clone(memory_format=f),
    "contiguous": lambda L, x, f: x.contiguous(memory_format=f),
    "empty": lambda L, x, f: L.empty(x.shape, memory_format=f),
    "empty_like": lambda L, x, f: L.empty_like(x, memory_format=f),
    "full_like": lambda L, x, f: L.full_like(x, 2.0, memory_format=f),
    "randn_like": lambda L, x, f: L.randn_like(x, memory_format=f),
    "float": lambda L, x, f: x.float(memory_format=f),
    "double": lambda L, x, f: x.double(memory_format=f),
    "resize_": lambda L, x, f: x.clone().resize_(x.shape[::-1], memory_format=f),
    "resize_as_": lambda L, x, f: L.zeros(x.shape[::-1]).resize_as_(x, memory_format=f),
    "is_contiguous": lambda L, x, f: x.is_contiguous(memory_format=f),
}
FORMATS = ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")
SHAPES = ((2, 3, 4, 5), (3, 2, 1, 1), (3, 1, 4, 5), (1, 2, 1, 1), (1, 1, 1, 1), (3, 2, 1, 1, 1), (2, 1, 3, 1, 1),
          (4, 2, 3), (0, 3, 1, 1), (0, 2, 3))  # fmt: skip
MADE: dict[str, Any] = {
    "by rows": lambda L, s: L.zeros(s),
    "channels last": lambda L, s: L.empty(s, memory_format=L.channels_last).zero_() if len(s) == 4 else L.zeros(s),
    "turned": lambda L, s: L.zeros(s[::-1]).permute(*range(len(s))[::-1]),
    "with gaps": lambda L, s: L.zeros([2 * n for n in s])[tuple([slice(0, n) for n in s])],
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ASKED)
def test_formats_that_are_asked_for(torch: ModuleType, name: str, format: str) -> None:
    def asked(L: Any, made: Any, shape: Any) -> Any:
        try:
            found = ASKED[name](L, made(L, shape), getattr(L, format))
        except RuntimeError:
            return "refused"
        if 0 in shape:
            return None  # but for what is refused
        if isinstance(found, bool):
            return found
        keeps = format == "preserve_format"
        return [None if keeps and found.shape[dim] == 1 else found.stride(dim) for dim in range(found.ndim)]

    for shape, (lies, made) in itertools.product(SHAPES, MADE.items()):
        assert asked(ut, made, shape) == asked(torch, made, shape), (shape, lies)


def test_the_copy_into_a_format_is_recorded() -> None:
    x = ut.randn(3, 2, 1, 1, requires_grad=True)
    y = x.to(memory_format=ut.channels_last)
    assert y.stride() == (2, 1, 2, 2) and y.grad_fn is not None
    assert ut.equal(ut.autograd.grad((y * 2).sum(), x)[0], ut.full((3, 2, 1, 1), 2.0))


@pytest.mark.parametrize("shape", [(2, 1, 3, 3), (1, 4, 1, 1), (2, 3, 1, 1), (1, 1, 1, 1), (2, 3, 4, 5)])
@pytest.mark.parametrize("name", ["empty_like", "zeros_like", "ones_like", "rand_like"])
def test_likenesses_of_images_with_sizes_of_one(name: str, shape: tuple[int, ...]) -> None:
    """Which are in rows and channels last at once: their strides say what was asked for."""
    x = ut.ones(*shape).contiguous(memory_format=ut.channels_last)
    assert getattr(ut, name)(x).stride() == x.stride()
    y = ut.ones(*shape)
    assert getattr(ut, name)(y).stride() == y.stride()

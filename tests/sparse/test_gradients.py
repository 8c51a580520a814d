"""Sparse gradients on their way: how they are summed, kept, hooked and shown. The rules of PyTorch's engine."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.autograd import Function

SIZE = (5, 2)


class Fixed(Function):
    """The identity, with a gradient of its own, whatever arrives."""

    @staticmethod
    def forward(ctx: Any, x: Any, gradient: Any) -> Any:
        ctx.save_for_backward(gradient)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return ctx.saved_tensors[0], None


def row_sparse(seed: int, rows: Any = (0, 3, 3)) -> Any:
    values = np.random.default_rng(seed).standard_normal((len(rows), SIZE[1]))
    return ut.sparse_coo_tensor([list(rows)], ut.tensor(values), SIZE)


def full(seed: int) -> Any:
    return ut.tensor(np.random.default_rng(seed).standard_normal(SIZE))


KINDS = {"sparse": row_sparse, "dense": full}
three_kinds = pytest.mark.parametrize("kinds", list(itertools.product(KINDS, repeat=3)), ids="-".join)


def total(gradients: list[Any]) -> Any:
    return sum(g.to_dense().numpy() for g in gradients)


@three_kinds
def test_a_leaf_gets_the_sum_of_what_one_pass_brings(kinds: tuple[str, ...]) -> None:
    gradients = [KINDS[kind](seed) for seed, kind in enumerate(kinds)]
    before = [g.to_dense().numpy().copy() for g in gradients]
    leaf = ut.ones(SIZE, dtype=ut.float64, requires_grad=True)
    parts = [Fixed.apply(leaf, g) for g in gradients]
    (parts[0] + parts[1] + parts[2]).sum().backward()
    assert leaf.grad.is_sparse == (set(kinds) == {"sparse"})
    np.testing.assert_allclose(leaf.grad.to_dense().numpy(), total(gradients), rtol=1e-12)
    for gradient, values in zip(gradients, before, strict=True):  # nobody's gradient was changed
        np.testing.assert_array_equal(gradient.to_dense().numpy(), values)


@three_kinds
def test_a_node_gets_the_sum_of_what_its_consumers_send(kinds: tuple[str, ...]) -> None:
    gradients = [KINDS[kind](seed) for seed, kind in enumerate(kinds)]
    leaf = ut.ones(SIZE, dtype=ut.float64, requires_grad=True)
    middle = leaf * 3.0
    parts = [Fixed.apply(middle, g) for g in gradients]
    (parts[0] + parts[1] + parts[2]).sum().backward()
    assert leaf.grad.is_sparse == (set(kinds) == {"sparse"})
    np.testing.assert_allclose(leaf.grad.to_dense().numpy(), 3 * total(gradients), rtol=1e-12)


@three_kinds
def test_one_of_several_outputs_gets_the_sum(kinds: tuple[str, ...]) -> None:
    """Through the InputBuffer of a node with several outputs."""
    gradients = [KINDS[kind](seed) for seed, kind in enumerate(kinds)]

    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1, x * 2

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g

    leaf = ut.ones(SIZE, dtype=ut.float64, requires_grad=True)
    first, _ = Two.apply(leaf)
    parts = [Fixed.apply(first, g) for g in gradients]
    (parts[0] + parts[1] + parts[2]).sum().backward()
    assert leaf.grad.is_sparse == (set(kinds) == {"sparse"})
    np.testing.assert_allclose(leaf.grad.to_dense().numpy(), total(gradients), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("create_graph", [False, True])
@three_kinds
def test_passes_one_after_the_other_add_up(kinds: tuple[str, ...], create_graph: bool) -> None:
    gradients = [KINDS[kind](seed) for seed, kind in enumerate(kinds)]
    leaf = ut.ones(SIZE, dtype=ut.float64, requires_grad=True)
    kept = None
    for count, gradient in enumerate(gradients, 1):
        leaf.backward(gradient, create_graph=create_graph)
        same_kind = kinds[0] == "dense" or set(kinds[:count]) == {"sparse"}
        if count > 1 and same_kind:  # added in place, unless the pass is recorded or the sum becomes dense
            assert (leaf.grad is kept) == (not create_graph)
        kept = leaf.grad
        assert leaf.grad.is_sparse == (set(kinds[:count]) == {"sparse"})
        np.testing.assert_allclose(leaf.grad.to_dense().numpy(), total(gradients[:count]), rtol=1e-12)
    leaf.grad = None


def test_torch_keeps_the_same_gradients() -> None:
    torch = pytest.importorskip("torch")
    for kinds in itertools.product(KINDS, repeat=3):
        found = []
        for m in (torch, ut):
            leaf = m.ones(SIZE, dtype=m.float64, requires_grad=True)
            for seed, kind in enumerate(kinds):
                values = KINDS[kind](seed).to_dense().numpy()
                gradient = m.tensor(values)
                leaf.backward(gradient.to_sparse(1) if kind == "sparse" else gradient)
            found.append((leaf.grad.is_sparse, leaf.grad.to_dense().numpy()))
        assert found[0][0] == found[1][0]
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-12)


# ---- whose memory it is


def test_a_gradient_that_nobody_else_holds_is_kept_without_copying() -> None:
    seen: list[int] = []

    class Look(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(g._values().data_ptr())
            return g

    leaf = ut.ones(SIZE, requires_grad=True)
    ut.embedding(Look.apply(leaf), ut.tensor([1, 1, 4]), sparse=True).mul(2.0).sum().backward()
    assert leaf.grad._values().data_ptr() == seen[0]


def test_a_gradient_that_somebody_holds_is_copied() -> None:
    leaf, gradient = ut.ones(SIZE, dtype=ut.float64, requires_grad=True), row_sparse(0)
    leaf.backward(gradient)
    assert leaf.grad._values().data_ptr() != gradient._values().data_ptr()
    values = gradient._values().clone()
    leaf.backward(row_sparse(1))
    assert gradient._values().tolist() == values.tolist()


def test_values_that_somebody_holds_are_copied() -> None:
    held: list[Any] = []

    class Hold(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            held.append(g._values())
            return g

    leaf = ut.ones(SIZE, requires_grad=True)
    ut.embedding(Hold.apply(leaf), ut.tensor([1, 1, 4]), sparse=True).mul(2.0).sum().backward()
    assert leaf.grad._values().data_ptr() != held[0].data_ptr()


def test_accumulated_sparse_gradients_do_not_grow_without_end() -> None:
    leaf = ut.ones(SIZE, dtype=ut.float64, requires_grad=True)
    for seed in range(20):
        leaf.backward(row_sparse(seed))
    assert leaf.grad._nnz() <= 2 * SIZE[0]
    np.testing.assert_allclose(leaf.grad.to_dense().numpy(), total([row_sparse(s) for s in range(20)]))


# ---- hooks, zero_grad, broadcasting, dtypes


def test_hooks_see_and_replace_sparse_gradients() -> None:
    weight, seen = ut.ones(SIZE, requires_grad=True), []

    def hook(gradient: Any) -> Any:
        seen.append(gradient.is_sparse)
        return gradient * 3

    weight.register_hook(hook)
    after: list[Any] = []
    weight.register_post_accumulate_grad_hook(lambda p: after.append(p.grad.is_sparse))
    ut.embedding(weight, ut.tensor([1, 1]), sparse=True).sum().backward()
    assert seen == [True]
    assert after == [True]
    assert weight.grad.to_dense()[1].tolist() == [6.0, 6.0]


def test_a_hook_may_change_the_layout() -> None:
    weight = ut.ones(SIZE, requires_grad=True)
    weight.register_hook(lambda g: g.to_dense())
    ut.embedding(weight, ut.tensor([1]), sparse=True).sum().backward()
    assert not weight.grad.is_sparse


def test_node_hooks_see_sparse_gradients() -> None:
    weight = ut.ones(SIZE, requires_grad=True)
    out = ut.embedding(weight, ut.tensor([1]), sparse=True)
    seen: list[Any] = []
    out.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs[0].is_sparse, outputs[0].is_sparse)))
    out.sum().backward()
    assert seen == [(True, False)]


def test_retain_grad_keeps_a_sparse_gradient() -> None:
    weight = ut.ones(SIZE, requires_grad=True)
    middle = weight * 2
    middle.retain_grad()
    out = ut.embedding(middle, ut.tensor([1]), sparse=True).sum()
    out.backward(retain_graph=True)
    out.backward()
    assert middle.grad.is_sparse
    assert middle.grad.to_dense()[1].tolist() == [2.0, 2.0]


def test_zero_grad_empties_a_sparse_gradient() -> None:
    weight = ut.ones(SIZE, requires_grad=True)
    ut.embedding(weight, ut.tensor([1]), sparse=True).sum().backward()
    weight.grad.detach_()
    weight.grad.zero_()
    assert weight.grad.is_sparse
    assert weight.grad._nnz() == 0
    ut.embedding(weight, ut.tensor([2]), sparse=True).sum().backward()
    assert weight.grad.to_dense().sum().item() == 2.0


def test_a_step_of_gradient_descent_with_a_sparse_gradient() -> None:
    weight = ut.ones(SIZE, requires_grad=True)
    (ut.embedding(weight, ut.tensor([1, 1, 3]), sparse=True) * 2).sum().backward()
    with ut.no_grad():
        weight.add_(weight.grad, alpha=-0.25)
    assert weight.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.5, 0.5], [1.0, 1.0]]


def test_a_sparse_gradient_is_summed_where_its_tensor_was_broadcast() -> None:
    for shape, axes in (((2,), (0,)), ((1, 2), (0,)), ((5, 1), (1,)), ((), (0, 1)), ((1, 1), (0, 1))):
        leaf = ut.ones(shape, dtype=ut.float64, requires_grad=True)

        class Send(Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.expand(SIZE).clone()

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return row_sparse(0)

        Send.apply(leaf).sum().backward()
        expected = row_sparse(0).to_dense().numpy().sum(axes).reshape(shape)
        np.testing.assert_allclose(leaf.grad.to_dense().numpy(), expected)


def test_a_sparse_gradient_is_cast_to_the_dtype_of_its_tensor() -> None:
    leaf = ut.ones(SIZE, dtype=ut.float32, requires_grad=True)
    Fixed.apply(leaf, row_sparse(0)).sum().backward()
    assert leaf.grad.dtype == ut.float32
    assert leaf.grad.is_sparse


def test_a_wrong_shape_is_refused() -> None:
    leaf = ut.ones(4, 4, dtype=ut.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="invalid gradient at index 0"):
        Fixed.apply(leaf, row_sparse(0)).sum().backward()


def test_grad_returns_a_sparse_gradient_that_can_be_differentiated() -> None:
    weight = ut.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    out = (ut.embedding(weight, ut.tensor([1, 1]), sparse=True) ** 3).sum()
    (first,) = ut.autograd.grad(out, weight, create_graph=True)
    assert first.is_sparse
    (second,) = ut.autograd.grad(first.to_dense().sum(), weight)
    assert second.to_dense().tolist() == [[0.0, 0.0], [2 * 6 * 3.0, 2 * 6 * 4.0]]


def test_scale_grad_by_freq_has_no_sparse_gradient() -> None:
    weight = ut.ones(SIZE, requires_grad=True)
    out = ut.embedding(weight, ut.tensor([1]), scale_grad_by_freq=True, sparse=True).sum()
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse gradients"):
        out.backward()


def test_padding_rows_are_left_out() -> None:
    weight = ut.ones(SIZE, requires_grad=True)
    ut.embedding(weight, ut.tensor([[1, 3], [1, 0]]), 3, sparse=True).sum().backward()
    assert weight.grad._indices().tolist() == [[1, 1, 0]]


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag_has_sparse_gradients(mode: str) -> None:
    index, found = ut.tensor([[0, 2], [2, 2]]), []
    for sparse in (False, True):
        weight = ut.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
        (ut.embedding_bag(index, weight, mode=mode, sparse=sparse) ** 2).sum().backward()
        assert weight.grad.is_sparse == sparse
        found.append(weight.grad.to_dense().tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("norm_type", [1.0, 2.0])
def test_embedding_bag_shortens_the_rows_that_it_uses(norm_type: float) -> None:
    torch, found = pytest.importorskip("torch"), []
    for m, bag in ((torch, torch.nn.functional.embedding_bag), (ut, ut.embedding_bag)):
        weight = m.tensor([[3.0, 4.0], [6.0, 8.0], [0.3, 0.4]], requires_grad=True)
        out = bag(m.tensor([[0, 2], [2, 2]]), weight, max_norm=1.0, norm_type=norm_type, mode="sum")
        (out**2).sum().backward()
        found.append([x.detach().numpy() for x in (out, weight, weight.grad)])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_embedding_bag_takes_its_arguments_in_the_old_order() -> None:
    weight, index, starts = ut.ones(3, 2), ut.tensor([0, 2]), ut.tensor([0])
    with pytest.warns(UserWarning, match="Argument order of embedding_bag was changed"):
        old = ut.embedding_bag(weight, index, starts)
    assert old.tolist() == ut.embedding_bag(index, weight, starts).tolist()


def test_anomaly_mode_finds_nan_in_a_sparse_gradient() -> None:
    leaf = ut.ones(SIZE, dtype=ut.float64, requires_grad=True)
    with pytest.warns(UserWarning, match="Anomaly|Error detected"), ut.autograd.detect_anomaly():
        out = Fixed.apply(leaf, row_sparse(0) * float("nan"))
        with pytest.raises(RuntimeError, match="'FixedBackward' returned nan values"):
            out.sum().backward()


@pytest.mark.parametrize("seed", range(3))
def test_devices_with_threads_leave_cpu_gradients_sparse(seed: int) -> None:
    """The pass runs on the buffers that several threads share."""
    weight = ut.ones(SIZE, requires_grad=True)
    other = ut.ones(SIZE, device="sim:0", requires_grad=True)
    looked = ut.embedding(weight, ut.tensor([1, 1]), sparse=True)
    again = ut.embedding(weight, ut.tensor([seed]), sparse=True)
    (looked.sum().to("sim:0") + other.sum()).backward(retain_graph=True)
    assert weight.grad.is_sparse
    weight.grad = None
    (looked.sum().to("sim:0") + again.sum().to("sim:0") + other.sum()).backward()
    assert weight.grad.is_sparse
    assert weight.grad.to_dense().sum().item() == 6.0


def test_programs_without_sparse_tensors_do_not_pay_for_them() -> None:
    """The first sparse array makes `asarray` look for more of its kind; until then it is NumPy's own."""
    program = (
        "import numpy as np, undertow as ut\n"
        "from undertow.backend import cpu\n"
        "x = ut.ones(3, 2, requires_grad=True)\n"
        "ut.embedding(x, ut.tensor([1])).sum().backward()\n"
        "assert cpu.asarray is np.asarray\n"
        "ut.embedding(x, ut.tensor([1]), sparse=True).sum().backward()\n"
        "assert cpu.asarray is not np.asarray\n"
        "assert x.grad.tolist() == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

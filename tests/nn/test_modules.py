"""Every module does what PyTorch's does: outputs, gradients, state, names, repr."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType

import pytest

import undertow as ut
from tests.nn.modules import ROWS, Row
from tests.nn.parity import assert_same, assert_twins, flat, inputs_of, run, tensors, twins
from tests.rows import rows

each_row = rows("row", ROWS, ids=lambda row: row.id)


@each_row
def test_like_pytorch(row: Row, torch: ModuleType) -> None:
    ours, theirs = twins(row, torch)
    arrays = inputs_of(row)
    our_inputs, their_inputs = tensors(ut, arrays), tensors(torch, arrays)
    our_outputs, their_outputs = run(ut, ours, our_inputs), run(torch, theirs, their_inputs)
    assert len(our_outputs) == len(their_outputs)
    for k, (a, b) in enumerate(zip(our_outputs, their_outputs, strict=True)):
        assert_same(a, b, f"output {k}")
    assert_twins(ours, theirs, our_inputs, their_inputs)


@each_row
def test_like_pytorch_in_evaluation_mode(row: Row, torch: ModuleType) -> None:
    ours, theirs = twins(row, torch)
    arrays = inputs_of(row)
    for library, module in ((ut, ours), (torch, theirs)):
        module(*tensors(library, arrays))  # so that there are statistics
        module.eval()
    our_outputs, their_outputs = flat(ours(*tensors(ut, arrays))), flat(theirs(*tensors(torch, arrays)))
    for k, (a, b) in enumerate(zip(our_outputs, their_outputs, strict=True)):
        assert_same(a, b, f"output {k}")


@each_row
def test_looks_like_pytorch(row: Row, torch: ModuleType) -> None:
    ours, theirs = twins(row, torch)
    assert repr(ours) == repr(theirs)
    assert [name for name, _ in ours.named_buffers()] == [name for name, _ in theirs.named_buffers()]


@each_row
def test_copies_do_the_same(row: Row) -> None:
    module = getattr(ut.nn, row.name)(*row.args, **row.options).double().eval()
    arrays = inputs_of(row)
    expected = flat(module(*tensors(ut, arrays)))
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), copy.copy(module)):
        assert repr(copied) == repr(module)
        assert list(copied.state_dict()) == list(module.state_dict())
        for a, b in zip(flat(copied(*tensors(ut, arrays))), expected, strict=True):
            assert_same(a, b, "output")


@each_row
def test_gradients_are_those_of_differences(row: Row) -> None:
    """Against finite differences, so that it is shown where PyTorch is not installed."""
    module = getattr(ut.nn, row.name)(*row.args, **row.options).double().eval()
    inputs = tensors(ut, inputs_of(row))
    wanted = [p for p in [*inputs, *module.parameters()] if p.requires_grad]
    outputs = [out for out in flat(module(*inputs)) if out.requires_grad]
    if not outputs or not wanted:
        return
    total = outputs[0].sum()
    grads = ut.autograd.grad(total, wanted, allow_unused=True)
    step = 1e-6
    for tensor, grad in zip(wanted, grads, strict=True):
        place = (0,) * tensor.dim()
        values = []
        for sign in (1, -1):
            with ut.no_grad():
                tensor[place] += sign * step
                values.append(flat(module(*inputs))[0].sum().item())
                tensor[place] -= sign * step
        slope = (values[0] - values[1]) / (2 * step)
        assert slope == pytest.approx(0.0 if grad is None else grad[place].item(), rel=1e-4, abs=1e-5)


def smooth(row: Row) -> bool:
    """Whether second derivatives exist, and are not all zero by construction, where the test looks."""
    return row.name not in ("Identity", "EmbeddingBag", "Embedding") and "max_norm" not in row.options


@rows("row", [row for row in ROWS if smooth(row)], ids=lambda row: row.id)
def test_second_derivatives_are_those_of_differences(row: Row) -> None:
    """The Hessian times a vector, by a recorded backward pass and by differences of gradients."""
    module = getattr(ut.nn, row.name)(*row.args, **row.options).double().eval()
    inputs = tensors(ut, inputs_of(row))
    wanted = [p for p in [*inputs, *module.parameters()] if p.requires_grad]
    directions = [ut.randn(*p.shape, dtype=ut.float64) for p in wanted]

    def gradients(**options: bool) -> list[ut.Tensor]:
        outputs = [out for out in flat(module(*inputs)) if out.requires_grad]
        total = sum((out.sin() * 1.3).sum() for out in outputs)
        found = ut.autograd.grad(total, wanted, allow_unused=True, **options)
        return [ut.zeros_like(p) if g is None else g for g, p in zip(found, wanted, strict=True)]

    def moved(step: float) -> list[ut.Tensor]:
        with ut.no_grad():
            for p, d in zip(wanted, directions, strict=True):
                p.add_(d, alpha=step)
        return gradients()

    first = gradients(create_graph=True)
    product = sum((g * d).sum() for g, d in zip(first, directions, strict=True))
    second = ut.autograd.grad(product, wanted, allow_unused=True) if product.requires_grad else [None] * len(wanted)
    step = 1e-5
    ahead, behind = moved(step), moved(-2 * step)
    for number, (a, b, s) in enumerate(zip(ahead, behind, second, strict=True)):
        expected = (a - b) / (2 * step)
        assert_same(ut.zeros_like(expected) if s is None else s, expected, f"number {number}", rtol=1e-4, atol=1e-4)

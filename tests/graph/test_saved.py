"""Saved values: which node saves what under which name, how long, and how a change is noticed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from undertow.errors import GraphFreedError, ModifiedInplaceError


def leaf(L: ModuleType) -> Any:
    return L.tensor([1.0, 2.0], requires_grad=True)


# ---- names

OPERATIONS: dict[str, Callable[..., Any]] = {
    "mul": lambda L, x, y: x * y,
    "div": lambda L, x, y: x / y,
    "pow": lambda L, x, y: x**2,
    "pow of tensors": lambda L, x, y: x**y,
    "exp": lambda L, x, y: x.exp(),
    "log": lambda L, x, y: x.log(),
    "sin": lambda L, x, y: x.sin(),
    "tanh": lambda L, x, y: x.tanh(),
    "sigmoid": lambda L, x, y: x.sigmoid(),
    "sqrt": lambda L, x, y: x.sqrt(),
    "abs": lambda L, x, y: x.abs(),
    "relu": lambda L, x, y: x.relu(),
    "reciprocal": lambda L, x, y: x.reciprocal(),
    "neg": lambda L, x, y: -x,
    "sum": lambda L, x, y: x.sum(),
    "sum over a dimension": lambda L, x, y: x.sum(0),
    "mean": lambda L, x, y: x.mean(),
    "mean over a dimension": lambda L, x, y: x.mean(0),
    "prod": lambda L, x, y: x.prod(),
    "max over a dimension": lambda L, x, y: x.max(0)[0],
    "amax": lambda L, x, y: x.amax(0),
    "cumsum": lambda L, x, y: x.cumsum(0),
    "softmax": lambda L, x, y: L.softmax(x, 0),
    "log_softmax": lambda L, x, y: L.log_softmax(x, 0),
    "logsumexp": lambda L, x, y: x.logsumexp(0),
    "var": lambda L, x, y: x.var(),
    "std": lambda L, x, y: x.std(),
    "matrix product": lambda L, x, y: x.view(1, 2).mm(y.view(2, 1)),
    "dot": lambda L, x, y: x.dot(y),
    "view": lambda L, x, y: x.view(2, 1),
    "expand": lambda L, x, y: x.expand(3, 2),
    "transpose": lambda L, x, y: x.view(1, 2).transpose(0, 1),
    "permute": lambda L, x, y: x.view(1, 2).permute(1, 0),
    "squeeze": lambda L, x, y: x.view(1, 2).squeeze(0),
    "unsqueeze": lambda L, x, y: x.unsqueeze(0),
    "select": lambda L, x, y: x.select(0, 1),
    "slice": lambda L, x, y: x[1:],
    "index": lambda L, x, y: x[L.tensor([0, 1])],
    "gather": lambda L, x, y: x.gather(0, L.tensor([0])),
    "index_select": lambda L, x, y: x.index_select(0, L.tensor([0])),
    "masked_fill": lambda L, x, y: x.masked_fill(L.tensor([True, False]), 0.0),
    "where": lambda L, x, y: L.where(L.tensor([True, False]), x, y),
    "clamp": lambda L, x, y: x.clamp(0.0, 1.0),
    "flip": lambda L, x, y: x.flip(0),
    "sort": lambda L, x, y: x.sort()[0],
    "cat": lambda L, x, y: L.cat([x, y]),
    "stack": lambda L, x, y: L.stack([x, y]),
    "lerp": lambda L, x, y: x.lerp(y, 0.5),
    "atan2": lambda L, x, y: x.atan2(y),
    "norm": lambda L, x, y: x.norm(),
}


#: names of tensors that one of the libraries saves and the other can do without
DIFFERENT = {"gather": {"_saved_self"}, "index": {"_saved_index0"}}


@pytest.mark.torch
@pytest.mark.parametrize("name", OPERATIONS)
def test_names_are_pytorchs(torch: ModuleType, name: str) -> None:
    """A node of ours has PyTorch's name and saves the same tensors under the same names."""
    f = OPERATIONS[name]
    ours, theirs = (
        saved_tensors(ut, f(ut, leaf(ut), leaf(ut))),
        saved_tensors(torch, f(torch, leaf(torch), leaf(torch))),
    )
    for attribute in ours.keys() & theirs.keys():
        assert ours[attribute] == (theirs[attribute] if attribute == "name" else pytest.approx(theirs[attribute]))
    assert ours.keys() ^ theirs.keys() == DIFFERENT.get(name, set())


def saved_tensors(L: ModuleType, result: Any) -> dict[str, Any]:
    """The saved attributes that hold a tensor, as flat lists; and the node's name."""
    node = result.grad_fn
    saved = {n: getattr(node, n) for n in dir(node) if n.startswith("_saved_")}
    for n, value in saved.items():
        assert isinstance(value, L.Tensor) <= hasattr(node, n.replace("_saved_", "_raw_saved_", 1))
    flat = {n: v.reshape(-1).tolist() for n, v in saved.items() if isinstance(v, L.Tensor)}
    return flat | {"name": type(node).__name__}


VALUES: dict[str, tuple[Callable[..., Any], str, Any]] = {
    "exponent": (lambda L, x: x**3, "_saved_exponent", 3),
    "dimension": (lambda L, x: x.cumsum(0), "_saved_dim", 0),
    "dimensions": (lambda L, x: x.view(1, 2).sum((0, 1)), "_saved_dim", (0, 1)),
    "keepdim": (lambda L, x: x.sum(0, keepdim=True), "_saved_keepdim", True),
}


@pytest.mark.parametrize(("f", "name", "value"), VALUES.values(), ids=VALUES)
def test_saved_values_that_are_no_tensors(L: ModuleType, f: Callable[..., Any], name: str, value: Any) -> None:
    node = f(L, leaf(L)).grad_fn
    found = getattr(node, name)
    assert (tuple(found) if isinstance(found, list | tuple) else found) == value
    assert getattr(node, name) == found


FURTHER: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "sizes of a product": (
        lambda L, F: L.ones(2, 3, requires_grad=True).mm(L.ones(3, 4)),
        {"self_sym_sizes": (2, 3), "mat2_sym_sizes": (3, 4)},
    ),
    "one size": (
        lambda L, F: L.addbmm(L.ones(3, 5), L.ones(2, 3, 4, requires_grad=True), L.ones(2, 4, 5)),
        {"batch1_sym_argsize_0": 2, "batch1_sym_argsize_1": 3, "batch2_sym_argsize_2": 5},
    ),
    "a size from the end": (
        lambda L, F: F.unfold(L.ones(1, 1, 3, 4, requires_grad=True), 2),
        {"self_sym_argsize_minus_2": 3, "self_sym_argsize_minus_1": 4},
    ),
    "number of elements": (lambda L, F: L.ones(2, 3, requires_grad=True).mean(), {"self_sym_numel": 6}),
    "one dimension as a tuple": (lambda L, F: L.ones(2, 3, requires_grad=True).sum(1), {"dim": (1,)}),
    "a factor": (
        lambda L, F: F.interpolate(L.ones(1, 1, 4, requires_grad=True), scale_factor=0.5, mode="linear"),
        {"scales": 0.5, "output_size": (2,), "align_corners": False},
    ),
    "no factor": (
        lambda L, F: F.interpolate(L.ones(1, 1, 4, 4, requires_grad=True), (2, 3), mode="bilinear"),
        {"scales_h": None, "scales_w": None},
    ),
    "a convolution": (
        lambda L, F: L.conv2d(L.ones(1, 1, 3, 3, requires_grad=True), L.ones(2, 1, 2, 2), L.ones(2), stride=(1, 2)),
        {"bias_sym_sizes_opt": (2,), "transposed": False, "stride": (1, 2), "output_padding": (0, 0), "groups": 1},
    ),
    "a transposed convolution": (
        lambda L, F: L.conv_transpose1d(
            L.ones(1, 1, 3, requires_grad=True), L.ones(1, 1, 2), stride=3, output_padding=2
        ),
        {"transposed": True, "stride": (3,), "output_padding": (2,)},
    ),
    "windows": (
        lambda L, F: F.max_pool2d(L.ones(1, 1, 4, 4, requires_grad=True), 2, stride=1),
        {"kernel_size": (2, 2), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "ceil_mode": False},
    ),
    "a rounded quotient": (
        lambda L, F: L.div(L.ones(2, requires_grad=True), 2.0, rounding_mode="floor"),
        {"rounding_mode": "floor"},
    ),
    "not rounded": (
        lambda L, F: L.div(L.ones(2, requires_grad=True), 2.0, rounding_mode=None),
        {"rounding_mode": None},
    ),
    "distances": (lambda L, F: F.pdist(L.eye(3, requires_grad=True), 1), {"p": 1.0}),
    "a list of numbers": (
        lambda L, F: L._foreach_maximum([L.ones(2, requires_grad=True), L.ones(2, requires_grad=True)], [0.0, 3.0])[1],
        {"scalars": [0.0, 3.0]},
    ),
}


def functions(L: ModuleType) -> Any:
    """Where the functions are that PyTorch has in nn.functional."""
    return importlib.import_module("torch.nn.functional") if L.__name__ == "torch" else NeuralFunctions


class NeuralFunctions:
    interpolate, max_pool2d, pdist, unfold = ut.interpolate, ut.max_pool2d, ut.pdist, ut.ops.im2col


@pytest.mark.parametrize(("f", "expected"), FURTHER.values(), ids=FURTHER)
def test_names_that_follow_from_what_is_kept(L: ModuleType, f: Callable[..., Any], expected: dict[str, Any]) -> None:
    node = f(L, functions(L)).grad_fn
    for name, value in expected.items():
        assert f"_saved_{name}" in dir(node)
        found = getattr(node, f"_saved_{name}")
        assert (list(found) if isinstance(value, list) else found) == value
        assert type(found) is type(value) or isinstance(value, list | tuple)


def test_a_number_that_stands_for_a_tensor_is_shown_as_one(L: ModuleType) -> None:
    node = (leaf(L) * 2.5).grad_fn
    assert node._saved_other.item() == 2.5 and node._raw_saved_other.unpack().item() == 2.5
    assert (leaf(L) ** 3).grad_fn._saved_exponent == 3
    assert not hasattr((leaf(L) ** 3).grad_fn, "_raw_saved_exponent")


def test_looking_at_what_was_not_saved_leaves_the_node_alone(L: ModuleType) -> None:
    x = leaf(L)
    y = x * L.tensor([3.0, 4.0])
    assert y.grad_fn._raw_saved_self.data is None and y.grad_fn._saved_self is None
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]


def test_another_name_of_a_saved_tensor(L: ModuleType) -> None:
    x = L.tensor([[2.0, 0.0], [0.0, 4.0]], requires_grad=True)
    inverse = L.linalg.inv(x)
    assert inverse.grad_fn._saved_inverse.tolist() == [[0.5, 0.0], [0.0, 0.25]]
    inverse.grad_fn._raw_saved_inverse.register_hooks(lambda t: t * 2, lambda t: t / 2)
    inverse.sum().backward()
    assert x.grad.tolist() == [[-0.25, -0.125], [-0.125, -0.0625]]


def test_an_attribute_that_is_not_there(L: ModuleType) -> None:
    node = leaf(L).exp().grad_fn
    for name in ("_saved_nothing", "_raw_saved_nothing", "something"):
        assert not hasattr(node, name)
    with pytest.raises(AttributeError, match="_saved_self"):
        node._saved_self


# ---- identity


def test_a_saved_input_is_the_tensor_itself(L: ModuleType) -> None:
    x = leaf(L)
    y = x * 2
    assert x.sin().grad_fn._saved_self is x
    assert y.sin().grad_fn._saved_self is y


def test_a_saved_output_is_an_equal_tensor_with_the_same_node(L: ModuleType) -> None:
    y = leaf(L).exp()
    saved = y.grad_fn._saved_result
    assert saved is not y and saved.tolist() == y.tolist() and saved.data_ptr() == y.data_ptr()
    assert saved.grad_fn is y.grad_fn and saved.requires_grad


def test_only_what_a_gradient_needs_is_saved(L: ModuleType) -> None:
    x, constant = leaf(L), L.ones(2)
    both = (x * leaf(L)).grad_fn
    one = (x * constant).grad_fn
    assert both._saved_self is x and both._saved_other is not None
    assert one._saved_self is None and one._saved_other is constant
    assert not hasattr((x + leaf(L)).grad_fn, "_saved_self") and not hasattr(x.sum().grad_fn, "_saved_self")


def test_indices_are_saved_as_a_tuple(L: ModuleType) -> None:
    x = L.ones(2, 3, requires_grad=True)
    saved = x[:, L.tensor([0, 1])].grad_fn._saved_indices
    assert saved[0] is None and saved[1].tolist() == [0, 1]


# ---- lifetime


def test_saved_values_cannot_be_read_after_the_pass(L: ModuleType) -> None:
    for f, name in ((lambda x: x.exp(), "result"), (lambda x: x.sin(), "self"), (lambda x: x * x, "other")):
        y = f(leaf(L))
        y.sum().backward()
        with pytest.raises(RuntimeError, match="after they have already been freed"):
            getattr(y.grad_fn, f"_saved_{name}")


def test_saved_values_can_be_read_while_the_graph_is_retained(L: ModuleType) -> None:
    y = leaf(L).exp()
    y.sum().backward(retain_graph=True)
    assert y.grad_fn._saved_result.tolist() == y.tolist()


def test_saved_numbers_can_be_read_after_the_pass(L: ModuleType) -> None:
    y = leaf(L).cumsum(0)
    y.sum().backward()
    assert y.grad_fn._saved_dim == 0


def test_reading_saved_values_changes_nothing(L: ModuleType) -> None:
    x = leaf(L)
    y = x * x
    for _ in range(2):
        y.grad_fn._saved_self
        y.grad_fn._raw_saved_other
    y.sum().backward()
    assert x.grad.tolist() == [2, 4]


# ---- raw saved tensors


def test_a_raw_saved_tensor_is_the_same_object_every_time() -> None:
    node = leaf(ut).exp().grad_fn
    assert node._raw_saved_result is node._raw_saved_result


def test_hooks_on_a_raw_saved_tensor(L: ModuleType) -> None:
    x = leaf(L)
    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t.tolist(), lambda packed: L.tensor(packed) * 10)
    assert y.grad_fn._saved_self.tolist() == [10, 20]
    y.sum().backward()
    assert x.grad.tolist() == [11, 22]


REFUSED: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "twice": (
        lambda raw: [raw.register_hooks(lambda t: t, lambda t: t) for _ in range(2)],
        RuntimeError,
        "already been set",
    ),
    "not functions": (lambda raw: raw.register_hooks(1, 2), TypeError, "incompatible function arguments"),
    "one": (lambda raw: raw.register_hooks(lambda t: t), TypeError, "incompatible function arguments"),
}


@pytest.mark.parametrize(("attempt", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_hooks_that_are_refused(L: ModuleType, attempt: Callable[..., Any], error: type[Exception], words: str) -> None:
    y = leaf(L).exp()
    with pytest.raises(error, match=words):
        attempt(y.grad_fn._raw_saved_result)


def test_no_hooks_on_what_was_not_saved_or_is_freed(L: ModuleType) -> None:
    x = leaf(L)
    unsaved = (x * L.ones(2)).grad_fn._raw_saved_self
    with pytest.raises(RuntimeError, match="None is forbidden"):
        unsaved.register_hooks(lambda t: t, lambda t: t)
    y = x.exp()
    raw = y.grad_fn._raw_saved_result
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after it has been freed"):
        raw.register_hooks(lambda t: t, lambda t: t)


def test_a_saved_tensor_cannot_be_made_by_hand() -> None:
    kind = type(leaf(ut).exp().grad_fn._raw_saved_result)
    with pytest.raises(RuntimeError, match="Trying to create a SavedTensor object from Python is forbidden"):
        kind()


# ---- changes

NEEDED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    # what the operation makes of y, and who is changed
    "an input": (lambda y: y.sin(), lambda y, z: y.add_(1)),
    "an input through a view": (lambda y: y.sin(), lambda y, z: y.view(2, 1).add_(1)),
    "an input through its base": (lambda y: y.view(2, 1).sin(), lambda y, z: y.add_(1)),
    "an input through a detached twin": (lambda y: y.sin(), lambda y, z: y.detach().add_(1)),
    "an output": (lambda y: y.exp(), lambda y, z: z.add_(1)),
    "an output through a view": (lambda y: y.exp(), lambda y, z: z[:1].zero_()),
    "an input by assignment": (lambda y: y * y, lambda y, z: y.__setitem__(0, 5.0)),
    "an input without recording": (lambda y: y.sin(), lambda y, z: unrecorded(y)),
    "an input, announced": (lambda y: y.sin(), lambda y, z: announce(y)),
}


def library_of(y: Any) -> Any:
    return ut if isinstance(y, ut.Tensor) else importlib.import_module("torch")


def unrecorded(y: Any) -> None:
    with library_of(y).no_grad():
        y.add_(1)


def announce(y: Any) -> None:
    library_of(y).autograd.graph.increment_version(y)


@pytest.mark.parametrize(("f", "change"), NEEDED.values(), ids=NEEDED)
def test_a_change_of_what_is_needed_is_an_error(
    L: ModuleType, f: Callable[..., Any], change: Callable[..., Any]
) -> None:
    x = leaf(L)
    y = x * 1
    z = f(y)
    out = z.clone().sum()
    change(y, z)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation: .*is at version 1; expected version 0"):
        out.backward()
    assert x.grad is None


NOT_NEEDED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "the input of exp": (lambda y: y.exp(), lambda y, z: y.add_(1)),
    "the output of sin": (lambda y: y.sin(), lambda y, z: z.add_(1)),
    "the inputs of a sum": (lambda y: y + y, lambda y, z: y.add_(1)),
    "its data": (lambda y: y.sin(), lambda y, z: y.data.add_(0)),
}


@pytest.mark.parametrize(("f", "change"), NOT_NEEDED.values(), ids=NOT_NEEDED)
def test_a_change_of_what_is_not_needed_is_fine(
    L: ModuleType, f: Callable[..., Any], change: Callable[..., Any]
) -> None:
    x = leaf(L)
    y = x * 1
    z = f(y)
    out = z.clone().sum()
    (expected,) = L.autograd.grad(f(x).sum(), x)
    change(y, z)
    out.backward()
    assert x.grad.tolist() == pytest.approx(expected.tolist())


def test_the_error_of_a_change_carries_its_facts() -> None:
    y = leaf(ut) + 1
    z = y.sin()
    y.mul_(2)
    with pytest.raises(ModifiedInplaceError, match="output 0 of Mul,") as caught:
        z.sum().backward()
    error = caught.value
    assert (error.saved_by, error.argument, error.shape) == ("SinBackward0", "input", (2,))
    assert (error.version, error.expected) == (1, 0)
    assert "undertow.FloatTensor [2]" in str(error) and "Hint:" in str(error)


def test_the_error_names_the_producer_as_pytorch_does(L: ModuleType) -> None:
    y = leaf(L).sum(0, keepdim=True)
    z = y.sin()
    y += 1
    with pytest.raises(RuntimeError, match="which is output 0 of Add, is at version 1; expected version 0 instead"):
        z.sum().backward()


def test_the_error_of_a_freed_graph_carries_its_facts() -> None:
    y = leaf(ut).exp()
    y.sum().backward()
    with pytest.raises(GraphFreedError) as caught:
        y.grad_fn._saved_result
    assert caught.value.node_name == "ExpBackward0"


def test_a_saved_leaf_changed_under_no_grad(L: ModuleType) -> None:
    """The update of a parameter between forward and backward."""
    w = leaf(L)
    loss = (w * w).sum()
    with L.no_grad():
        w.sub_(0.1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_tensor_detached_in_place_after_it_was_saved(L: ModuleType) -> None:
    y = leaf(L) * 1
    z = y.sin()
    y.detach_()
    with pytest.raises(RuntimeError, match="Trying to use a saved tensor that has been detached"):
        z.sum().backward()

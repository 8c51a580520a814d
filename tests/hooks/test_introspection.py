"""What can be read from a graph: nodes, edges, saved values, and which node runs now."""

from __future__ import annotations

import gc
import weakref
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from tests import spellings


def node_class(L: ModuleType) -> Any:
    return L.autograd.graph.Node


# ---- the virtual base


def test_node_is_a_virtual_base(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    node = x.exp().grad_fn
    accumulate = node.next_functions[0][0]
    base = node_class(L)
    for found in (node, accumulate):
        assert isinstance(found, base) and issubclass(type(found), base)
        assert base not in type(found).__mro__
    for other in (None, 1, base, type(node)):
        assert not isinstance(other, base)
    assert issubclass(base, base) and not issubclass(int, base)


def test_ctx_is_a_node(L: ModuleType) -> None:
    seen: list[bool] = []

    class Function(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            seen.append(isinstance(ctx, node_class(L)))
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(isinstance(ctx, node_class(L)))
            return grad

    y = Function.apply(L.ones(1, requires_grad=True))
    y.backward()
    assert seen == [True, True]
    assert isinstance(y.grad_fn, L.autograd.function.BackwardCFunction)
    assert issubclass(L.autograd.function.BackwardCFunction, node_class(L))
    assert type(y.grad_fn) is Function._backward_cls and type(y.grad_fn).__name__ == "FunctionBackward"


@pytest.mark.parametrize("name", ["shape", "dtype", "device", "saved", "params", "num_outputs", "code", "op", "node"])
def test_ctx_has_any_attribute_the_user_likes(L: ModuleType, name: str) -> None:
    class Function(L.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            setattr(ctx, name, "mine")
            ctx.save_for_backward(x)
            return x.sum()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            assert getattr(ctx, name) == "mine"
            return grad.expand(ctx.saved_tensors[0].shape)

    x = L.ones(3, requires_grad=True)
    y = Function.apply(x)
    y.backward()
    assert x.grad.tolist() == [1.0] * 3 and getattr(y.grad_fn, name) == "mine"


def test_a_name_the_engine_needs_is_refused() -> None:
    class Function(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.extra = 1
            return x * 2

    with pytest.raises(AttributeError, match=r"ctx\.extra .* choose another name"):
        Function.apply(ut.ones(1, requires_grad=True))


# ---- edges and metadata


def test_next_functions(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    y = x + 5
    (node, nr), second = y.grad_fn.next_functions
    assert type(node).__name__ == "AccumulateGrad" and nr == 0 and node.variable is x
    assert second == (None, 0)
    assert y.grad_fn is y.grad_fn
    assert (y * x).grad_fn.next_functions[0][0] is y.grad_fn
    assert (y * x).grad_fn.next_functions[1][0] is node  # one per leaf, as long as somebody holds it
    one, two = y.unbind(0)
    assert (one.grad_fn is two.grad_fn, one.output_nr, two.output_nr) == (True, 0, 1)
    assert (two * 2).grad_fn.next_functions[0] == (two.grad_fn, 1)


def test_input_metadata(L: ModuleType) -> None:
    x = L.ones(2, 3, dtype=L.float64, requires_grad=True)
    (facts,) = x.exp().grad_fn._input_metadata
    assert (tuple(facts.shape), facts.dtype, facts.device.type) == ((2, 3), L.float64, "cpu")
    assert not facts.is_nested_tensor
    assert [tuple(f.shape) for f in x.unbind(0)[0].grad_fn._input_metadata] == [(3,), (3,)]


def test_sequence_numbers_grow(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    y = x * 2
    z = y * 2
    assert z.grad_fn._sequence_nr() > y.grad_fn._sequence_nr()
    accumulate = y.grad_fn.next_functions[0][0]
    assert accumulate._sequence_nr() == 2**64 - 1
    z.grad_fn._set_sequence_nr(y.grad_fn._sequence_nr() + 1000)
    assert z.grad_fn._sequence_nr() == y.grad_fn._sequence_nr() + 1000
    if L is ut:  # the switch is for the whole process
        ut.autograd.graph._node.sequence_order.trusted = True


def test_metadata_is_the_users(L: ModuleType) -> None:
    y = L.ones(2, requires_grad=True) * 2
    y.grad_fn.metadata["note"] = "mine"
    assert y.grad_fn.metadata == {"note": "mine"}
    y.sum().backward()
    assert y.grad_fn.metadata == {"note": "mine"}


def test_names(L: ModuleType) -> None:
    y = L.ones(2, requires_grad=True) * 2
    assert y.grad_fn.name() == type(y.grad_fn).__name__ == "MulBackward0"
    accumulate = y.grad_fn.next_functions[0][0]
    assert accumulate.name().endswith("::autograd::AccumulateGrad")
    assert y.grad_fn.requires_grad


# ---- saved values


def test_dir_lists_what_is_saved(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    names = dir((x * x).grad_fn)
    for name in ("_saved_self", "_saved_other", "_raw_saved_self", "_raw_saved_other", "next_functions", "name",
                 "metadata", "register_hook", "register_prehook", "_input_metadata", "_sequence_nr"):  # fmt: skip
        assert name in names
    assert "_saved_result" in dir(x.exp().grad_fn)
    assert "_saved_dim" in dir(L.stack([x, x], dim=0).grad_fn)


def test_every_listed_name_can_be_read() -> None:
    x = ut.rand(3, requires_grad=True)
    made = [x * x, x * 2, x.exp(), x.sum(), x[1:], x / x, x**2, ut.cat([x, x]), x.max(), ut.where(x > 0.5, x, x * 2)]
    for node in [tensor.grad_fn for tensor in made]:
        for name in dir(node):
            if name.startswith(("_saved_", "_raw_saved_")):
                getattr(node, name)


def test_identity_of_saved_tensors(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    y = x * 3
    product = y * x
    assert product.grad_fn._saved_other is x and product.grad_fn._saved_self is y
    out = y.exp()
    saved = out.grad_fn._saved_result
    assert saved is not out and saved.tolist() == out.tolist() and saved.grad_fn is out.grad_fn


def test_what_a_number_makes_superfluous_is_none(L: ModuleType) -> None:
    node = (L.ones(2, requires_grad=True) * 2).grad_fn
    assert node._saved_self is None
    with pytest.raises(RuntimeError, match="None is forbidden"):
        node._raw_saved_self.register_hooks(lambda t: t, lambda t: t)


def test_a_name_that_is_not_saved_says_what_is() -> None:
    node = ut.ones(2, requires_grad=True).exp().grad_fn
    with pytest.raises(AttributeError, match=r"_saved_self.*it saves _saved_result"):
        node._saved_self


# ---- the running pass


def test_the_running_pass(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    y = x * 2
    z = y.sin()
    unrelated = x * 5
    seen: list[Any] = []

    def look(inputs: Any, outputs: Any) -> None:
        seen.append((
            spellings.current_node(L) is y.grad_fn,
            spellings.will_execute_node(L, y.grad_fn),
            spellings.will_execute_node(L, unrelated.grad_fn),
            spellings.is_graph_kept(L),
        ))  # fmt: skip

    y.grad_fn.register_hook(look)
    z.sum().backward(retain_graph=True)
    z.sum().backward()
    assert seen == [(True, True, False, True), (True, True, False, False)]
    assert spellings.current_graph_task_id(L) == -1


def test_ids_of_passes_follow_each_other(L: ModuleType) -> None:
    x = L.ones(2, requires_grad=True)
    ids: list[int] = []
    x.register_hook(lambda grad: ids.append(spellings.current_graph_task_id(L)))
    for _ in range(3):
        (x * 2).sum().backward()
    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]


def test_edges_own_the_graph_but_not_the_tensor() -> None:
    gc.disable()
    x = ut.ones(2, requires_grad=True)
    y = x.exp()
    edge, tensor = ut.autograd.graph.get_gradient_edge(y), weakref.ref(y)
    del y
    assert tensor() is None
    (g,) = ut.autograd.grad(edge, x, ut.ones(2))
    assert g.tolist() == pytest.approx([2.718281828] * 2)

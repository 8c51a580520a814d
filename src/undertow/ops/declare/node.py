"""The Node of a declared operation: what it kept is read back and handed to the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from undertow.backend import namespace_of_array
from undertow.backend.interface import Array, Namespace
from undertow.errors import NoValuesError
from undertow.graph.node import space_of
from undertow.graph.operation_node import DeclaredNode
from undertow.graph.saved import Freed, unpack_input, unpack_output
from undertow.ops.arguments.half_precision import holds_narrow, stays, wide
from undertow.ops.declare.recorded_namespace import recorded
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.graph.edges import Edge
    from undertow.ops.declare.form import Form
    from undertow.ops.declare.op import Op


class PrimitiveNode(DeclaredNode):
    """Base of the Node classes made from declarations. The compiled core does the usual case of `pull` in its place."""

    __slots__ = ()

    form: Any

    def pull(self, xp: Namespace, grad: Any, edges: Any, keep: Any) -> list[Any]:
        form = self.form
        if form.only_gradient is not None:
            grad = grad[form.only_gradient]
            if grad is None:
                if not keep:
                    self.release(keep)
                return [None] * len(form.all_edges)
        kept = self.unpack(form, xp)
        if not keep:  # See Note [When saved values die]
            for slot in self.saved_slots:
                if getattr(self, slot) is not None:
                    setattr(self, slot, keep)
        kept.extend(self.params)
        if xp is not recorded and (holds_narrow(grad) or holds_narrow(kept)):
            known = xp.half_rules
            if not (known and stays(known, form.op, [grad, *kept[: len(form.kept_inputs)]])):  # outputs may be exact
                grad, kept = wide(grad), wide(kept)
        try:
            return self.gradients(form, xp, grad, edges, kept)
        except NoValuesError:
            if xp is recorded:
                raise
            return [None if edge is None else empty_gradient(edge) for edge in edges]

    def gradients(self, form: Any, xp: Namespace, grad: Any, edges: Any, kept: list[Any]) -> list[Any]:
        if form.joint is not None:
            rule, arguments = form.joint
            return list(rule(xp, grad, tuple([edge is not None for edge in edges]), *arguments(kept)))
        gradients: list[Any] = []
        for edge, (rule, arguments) in zip(edges, form.rules, strict=True):
            if edge is None or rule is None:
                gradients.append(None)
            else:
                gradients.append(rule(xp, grad, *arguments(kept)))
        return gradients

    def unpack(self, form: Form, xp: Namespace) -> list[Any]:
        """The saved tensors (arrays, unless the rules are recorded), if they are still what they were."""
        found = []
        for _, name, slot, version, _ in form.kept_inputs:
            value = getattr(self, slot)
            if value is not None:
                # Freed and SavedTensor have an _extra with a counter, so this finds everything out of the ordinary
                extra = value._extra
                if extra is not None and (extra.counter is not None or extra.view is not None):
                    value = unpack_input(self, name, value, getattr(self, version))
                if xp is not recorded:
                    value = value._array
            found.append(value)
        for nr, name, slot, _ in form.kept_outputs:
            value = getattr(self, slot)
            if self.extra is not None or type(value) is Freed:
                value = unpack_output(self, nr, name, value)
            if xp is recorded and value is not None:
                value = self.output_as_tensor(form, nr, value, xp)
            found.append(value)
        return found

    @property
    def further_names(self) -> Mapping[str, Any]:
        from undertow.ops.reference.saved_attributes import FURTHER

        return FURTHER.get(self.op_name, {})

    def output_as_tensor(self, form: Form, nr: int, array: Array, xp: Namespace) -> Tensor:
        if nr in form.constant:
            return Tensor(array, namespace_of_array(array))
        return self.output_tensor(nr, array, xp.arrays)


def node_class(form: Form) -> Any:
    """The Node class of a form: a slot for each tensor that its rules need."""
    op = form.op
    slots = (*[kept.slot for kept in form.kept_inputs], *[kept.slot for kept in form.kept_outputs])
    versions = [kept.version for kept in form.kept_inputs]
    members = {
        "__slots__": (*slots, *versions, *(("_dtypes", "_shapes") if form.several else ())),
        "__module__": "undertow",
        "form": form,
        "op": op,
        "op_name": op.name,
        "saved_slots": slots,
        "saved_names": saved_names(form),
        "multiple_outputs": form.several,
        "keeps_outputs": bool(form.kept_outputs),
        "shown_outputs": shown_outputs(op),
    }
    return type(op.number_node_name if form.numbers else op.node_name, (PrimitiveNode,), members)


def shown_outputs(op: Op) -> int | None:
    """Gradients of outputs that have none are not shown, if these are the last: PyTorch's nodes do not have them."""
    if not isinstance(op.outputs, tuple) or not op.nondifferentiable:
        return None
    return 1 + max([k for k, name in enumerate(op.outputs) if name not in op.nondifferentiable])


def saved_names(form: Form) -> dict[str, tuple[str, Any]]:
    """PyTorch's `_saved_*` names -> (kind, place)."""
    found: dict[str, tuple[str, Any]] = {}
    for kept in form.kept_inputs:
        found[public_name(kept.name)] = "input", kept.name
    for output in form.kept_outputs:
        found["result" if output.name == "out" else output.name] = "output", (output.name, output.output)
    for k, name in enumerate(form.value_names):
        is_shape = name.endswith("_shape") and name not in form.op.params
        shown = public_name(name.removesuffix("_shape")) + "_sym_sizes" if is_shape else public_name(name)
        found[shown] = "value", k
    return found


def public_name(name: str) -> str:
    return {"input": "self", "out": "result"}.get(name, name)


def empty_gradient(edge: Edge) -> Any:
    """A gradient without values, for a rule that asked for some: it has the shape that its receiver expects."""
    node, nr = edge[0], edge[1]
    shape, dtype = (node._shapes[nr], node._dtypes[nr]) if node.multiple_outputs else (node.shape, node.dtype)
    return space_of(node, nr).empty(shape, dtype)

"""backward() and grad(): from what a user passes to what the engine executes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.autograd.batched_tensor import VmapError
from undertow.autograd.found_gradients import as_tensors
from undertow.autograd.gradient_edge import GradientEdge
from undertow.autograd.interceptors.stack import active, under, with_beneath
from undertow.backend import dtypes
from undertow.backend.interface import DType
from undertow.engine.engine import engine
from undertow.errors import AutogradError, EmptyInputsError, warn_once
from undertow.graph.accumulate import AccumulateGrad, formers_of, gradient_edge, refuse_former, try_get_grad_accumulator
from undertow.graph.end_nodes import Identity
from undertow.graph.history import recorded_edge
from undertow.graph.hooks import retain_at
from undertow.graph.node import Node, OutputEdge, space_of
from undertow.modes import current, enable_grad
from undertow.ops.declare.recorded_namespace import recorded
from undertow.tensor import LEAF, Size, Tensor
from undertow.tensor.subclasses import class_of
from undertow.tensor.tensor import SUBCLASSES
from undertow.tensor.torch_function import FUNCTIONS_ASK, NOBODY, answer, converted, own_function

if TYPE_CHECKING:
    from undertow.autograd.vmap.level import VmapLevel
    from undertow.backend.interface import Array
    from undertow.graph.edges import Edge


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Compute the gradients of `tensors` and add them to the `.grad` of the leaves (or of `inputs`).

    grad_tensors    the gradient with respect to each tensor; None stands for one, if the tensor is a real scalar
    retain_graph    keep what backward frees, so that the graph can be used again; default: the value of create_graph
    create_graph    record the pass, so that the gradients can be differentiated
    inputs          accumulate into these tensors only (leaves or not)
    grad_variables  the older name of `grad_tensors`

    >>> import undertow as ut
    >>> x = ut.tensor([1.0, 2.0], requires_grad=True)
    >>> ut.autograd.backward([(x * x).sum(), x.sum()])
    >>> x.grad
    tensor([3., 5.])
    """
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError("`grad_tensors` and `grad_variables` (deprecated) arguments both passed to backward().")
        grad_tensors = grad_variables
    if inputs is not None and _length(inputs) == 0:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    if FUNCTIONS_ASK:
        named = {"grad_tensors": grad_tensors, "retain_graph": retain_graph, "create_graph": create_graph,
                 "inputs": None if inputs is None else _items(inputs)}  # fmt: skip
        result = answer(backward, (_items(tensors),), named)
        if result is not NOBODY:
            return result
    roots = _sequence(tensors, "tensors")
    if any(level.concerns(roots) for level in active().vmaps):
        raise VmapError(
            "backward() called inside a functorch transform (vmap). This is not supported: `.grad` has room for one "
            "example. Please use undertow.func.grad, or undertow.autograd.grad, instead."
        )
    targets = None if inputs is None else _sequence(inputs, "inputs")
    given = _optional_sequence(grad_tensors, len(roots))
    on_arrays = not create_graph and not current().transforms
    grads = _seeds(roots, given, may_share=on_arrays and targets is None and len(roots) == 1)
    if create_graph:
        _warn_create_graph()
    keep = create_graph if retain_graph is None else retain_graph
    edges = _root_edges(roots)
    if targets is None:
        _execute(edges, grads, keep, create_graph)
        return
    _backward_into(targets, edges, grads, keep, create_graph)


def backward_method(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Compute gradients of this tensor and add them to the `.grad` of the leaves it was computed from.

    gradient  the gradient with respect to this tensor; may be left out for a real scalar
    The other arguments are those of `undertow.autograd.backward`.

    retain_graph  keep what the pass frees, for another one
    inputs        the leaves whose `.grad` is added to; None: all

    >>> import undertow as ut
    >>> x = ut.tensor([2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([4.])
    """
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


backward_method.__name__ = backward_method.__qualname__ = "backward"


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; `.grad` is not touched.

    Inputs may be tensors or GradientEdges, or a dict of tensors, which gives a dict of gradients.

    grad_outputs       the gradient with respect to each output; None stands for one, if the output is a real scalar
    retain_graph       keep what the pass frees, for another one; default: the value of create_graph
    only_inputs        accepted: the gradients of other leaves are never touched
    allow_unused       None for an input that no output depends on, instead of an error; default: the value of
                       materialize_grads
    is_grads_batched   the first dimension of `grad_outputs` counts passes, which are computed together, by vmap
    materialize_grads  zeros, instead of None, for inputs that no output depends on

    >>> import undertow as ut
    >>> x = ut.tensor(3.0, requires_grad=True)
    >>> (first,) = ut.autograd.grad(x * x * x, x, create_graph=True)
    >>> (second,) = ut.autograd.grad(first, x)
    >>> first.item(), second.item()
    (27.0, 18.0)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True).", FutureWarning, stacklevel=2
        )
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    if isinstance(inputs, Mapping):
        found = grad(outputs, tuple(inputs.values()), grad_outputs, retain_graph, create_graph, True, allow_unused,
                     is_grads_batched, materialize_grads)  # fmt: skip
        return dict(zip(inputs, found, strict=True))
    if FUNCTIONS_ASK:
        named = {"grad_outputs": grad_outputs, "retain_graph": retain_graph, "create_graph": create_graph,
                 "only_inputs": only_inputs, "allow_unused": allow_unused, "is_grads_batched": is_grads_batched,
                 "materialize_grads": materialize_grads}  # fmt: skip
        found = answer(grad, (_items(outputs), _items(inputs)), named)
        if found is not NOBODY:
            return found
    roots, targets = _sequence(outputs, "outputs"), _sequence(inputs, "inputs")
    if not targets:
        raise EmptyInputsError()
    keep = create_graph if retain_graph is None else retain_graph
    given = _optional_sequence(grad_outputs, len(roots))
    options = (keep, create_graph, allow_unused, materialize_grads)
    find = _grad_batched if is_grads_batched else _grad
    found = find(roots, targets, given, *options)
    return converted(found, class_of((*roots, *targets))) if SUBCLASSES else found


def _grad(
    roots: Sequence[Any],
    targets: Sequence[Any],
    given: Sequence[Any],
    keep: bool,
    create_graph: bool,
    allow_unused: bool,
    materialize_grads: bool,
) -> tuple[Any, ...]:
    grads = _seeds(roots, given)
    for level in active().vmaps[::-1]:
        if level.concerns(roots) or level.concerns(targets):
            return _grad_of_batch(level, roots, targets, grads, (keep, create_graph, allow_unused, materialize_grads))
    return _grad_once(roots, targets, grads, keep, create_graph, allow_unused, materialize_grads)


# ---- arguments


def _length(value: Any) -> int:
    return 1 if isinstance(value, (Tensor, GradientEdge)) else len(value)


def _items(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (Tensor, GradientEdge)) or own_function(type(value)) is not None:
        return (value,)
    return tuple(value.values() if isinstance(value, Mapping) else value)


def _sequence(value: Any, what: str) -> tuple[Any, ...]:
    items = _items(value)
    for item in items:
        if type(item) is Tensor:
            continue
        if isinstance(item, GradientEdge):
            _check_edge(item)
        elif not isinstance(item, Tensor):
            raise AutogradError(f"all {what} have to be Tensors or GradientEdges, but got {type(item).__name__}")
    return items


def _check_edge(edge: GradientEdge) -> None:
    """An edge may be made by hand: its node must be one, and have that output."""
    if not isinstance(edge.node, Node):
        raise AutogradError(f"the node of a GradientEdge has to be a grad_fn, but got {type(edge.node).__name__}")
    if not 0 <= edge.output_nr < edge.node._output_count:
        raise AutogradError(
            f"GradientEdge: {edge.node.name()} has no output {edge.output_nr}, only {edge.node._output_count} from 0 on"
        )


def _optional_sequence(value: Any, count: int) -> tuple[Any, ...]:
    if value is None:
        return (None,) * count
    found = (value,) if isinstance(value, Tensor) else tuple(value)
    if len(found) != count:
        raise RuntimeError(f"got {count} tensors and {len(found)} gradients")
    return found


def _metadata(root: Tensor) -> tuple[Any, Any]:
    if not isinstance(root, Tensor) and type(root.node) is AccumulateGrad:
        root = root.node.variable
    if isinstance(root, Tensor):
        return root._array.shape, root._array.dtype
    facts = root.node._input_metadata[root.output_nr]
    return tuple(facts.shape), facts.dtype


def _seeds(roots: Sequence[Any], given: Sequence[Any], may_share: bool = False) -> list[Any]:
    """The gradient for each root: the given one, checked, or ones; shared ones are the same for all passes."""
    seeds = []
    for index, (root, seed) in enumerate(zip(roots, given, strict=True)):
        shape, dtype = _metadata(root)
        if seed is None:
            seeds.append(_implicit_seed(root, shape, dtype, may_share))
            continue
        if not isinstance(seed, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(seed).__name__}")
        if seed._array.shape != shape or seed._array.dtype is not dtype:
            _check_seed(index, seed, shape, dtype)
        seeds.append(seed)
    return seeds


def _implicit_seed(root: Any, shape: tuple[int, ...], dtype: DType, may_share: bool) -> Tensor | None:
    if isinstance(root, Tensor) and root._edge is None:
        return None  # reported with the other roots, by index
    if math.prod(shape) != 1:
        raise AutogradError(
            f"grad can be implicitly created only for scalar outputs: the output has shape {list(shape)}. "
            "Reduce it first (sum, mean), or pass the gradient with respect to it."
        )
    if not dtypes.is_floating(dtype):
        raise AutogradError(f"grad can be implicitly created only for real scalar outputs but got {dtype}")
    xp = root._xp if isinstance(root, Tensor) else space_of(root.node, root.output_nr)
    ones = xp.shared_ones if may_share and xp.shared_ones is not None else xp.ones
    return Tensor(ones(shape, dtype), xp)


def _check_seed(index: int, seed: Tensor, shape: tuple[int, ...], dtype: DType) -> None:
    if seed._array.shape != shape:
        raise AutogradError(
            f"Mismatch in shape: grad_output[{index}] has a shape of {seed.shape} and output[{index}] has a shape of "
            f"{Size(shape)}."
        )
    if (seed._array.dtype.kind == "c") != (dtype.kind == "c"):
        raise AutogradError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
            f"grad_output[{index}] has a dtype of {seed.dtype} and output[{index}] has a dtype of {dtype}."
        )


def _root_edges(roots: Sequence[Any]) -> list[Any]:
    edges = []
    for index, root in enumerate(roots):
        edge = gradient_edge(root) if isinstance(root, Tensor) else internal_edge(root)
        if edge is None:
            raise AutogradError(
                f"element {index} of tensors does not require grad and does not have a grad_fn: it was not computed "
                "from a tensor with requires_grad=True, or it was detached or computed under no_grad."
            )
        edges.append(edge)
    return edges


def internal_edge(edge: GradientEdge) -> Edge:
    """A GradientEdge as the engine keeps edges."""
    node, nr = edge.node, edge.output_nr
    return OutputEdge((node, nr)) if node.multiple_outputs else node


# ---- running

#: None, or what runs the passes of this thread in its own way: `around(run, *arguments of run)`
around_pass: ContextVar[Callable[..., list[Any]] | None] = ContextVar("undertow.around_pass", default=None)


def _execute(edges: list[Any], grads: list[Any], keep: bool, create_graph: bool, **chosen: Any) -> list[Any]:
    around = around_pass.get()
    if around is not None:
        return around(_execute_on, edges, grads, keep, create_graph, **chosen)
    return _execute_on(edges, grads, keep, create_graph, **chosen)


def _execute_on(edges: list[Any], grads: list[Any], keep: bool, create_graph: bool, **chosen: Any) -> list[Any]:
    """Run the pass on arrays or, where its operations are recorded or intercepted, on tensors."""
    on_tensors = create_graph or current().transforms
    xp = recorded if on_tensors else recorded.arrays
    values = grads if on_tensors else [g._array for g in grads]
    return engine.execute(edges, values, keep_graph=keep, create_graph=create_graph, xp=xp, **chosen)


def _backward_into(targets: Sequence[Any], edges: list[Any], grads: list[Any], keep: bool, create_graph: bool) -> None:
    """backward(inputs=...): leaves accumulate as always; other tensors retain what arrives at them."""
    nodes = []
    for index, target in enumerate(targets):
        edge = _target_edge(target, index)
        nodes.append(edge[0])
        if isinstance(target, Tensor) and type(edge[0]) not in (AccumulateGrad, Identity):
            retain_at(edge, target)
    _refuse_changed(targets, edges)
    _execute(edges, grads, keep, create_graph, targets=nodes)


def _refuse_changed(targets: Sequence[Any], edges: list[Any], unused_is_error: bool = False) -> None:
    """Raise if part of a leaf's gradient, or all of it, is for what it was before its shape was changed.

    unused_is_error  leave the latter to who raises for leaves that nothing leads to
    """
    changed = [t for t in targets if isinstance(t, Tensor) and t._edge is LEAF and formers_of(t)]
    if not changed:
        return
    stack = [edge[0] for edge in edges]
    seen = set(stack)
    while stack:
        below = {edge[0] for edge in stack.pop().next_edges if edge is not None} - seen
        seen |= below
        stack += below
    for leaf in changed:
        if not unused_is_error or try_get_grad_accumulator(leaf) in seen:
            for node in seen:
                if type(node) is AccumulateGrad and node.variable is leaf:
                    refuse_former(node, formers_of(leaf))


def _target_edge(target: Tensor, index: int) -> Any:
    if isinstance(target, Tensor) and target._edge is LEAF:
        return try_get_grad_accumulator(target) or Identity(target)
    edge = gradient_edge(target) if isinstance(target, Tensor) else internal_edge(target)
    if edge is None and isinstance(target, Tensor):
        edge = recorded_edge(target)  # of a view that is cut off from its base: nothing leads there
    if edge is None:
        from undertow.autograd.why_unreachable import not_differentiated

        raise not_differentiated(index, target)
    return edge


def _grad_once(
    roots: Sequence[Any],
    targets: Sequence[Any],
    grads: list[Any],
    keep: bool,
    create_graph: bool,
    allow_unused: bool,
    materialize_grads: bool,
) -> tuple[Any, ...]:
    edges = _root_edges(roots)  # before the targets': a root may be the only use of a leaf
    captures = [_target_edge(t, index) for index, t in enumerate(targets)]
    _refuse_changed(targets, edges, unused_is_error=not (allow_unused or materialize_grads))
    found = as_tensors(_execute(edges, grads, keep, create_graph, captures=captures), grads)
    results: list[Tensor | None] = []
    for index, (target, value) in enumerate(zip(targets, found, strict=True)):
        if value is not None:
            results.append(value)
        elif materialize_grads:
            results.append(_materialized(target, create_graph))
        elif allow_unused:
            results.append(None)
        else:
            from undertow.autograd.why_unreachable import unreachable

            raise unreachable(index, target, captures[index], roots)
    return tuple(results)


def _materialized(target: Array, create_graph: bool) -> Tensor:
    if not isinstance(target, Tensor):
        raise AutogradError("materialize_grads cannot be used when the given input is a GradientEdge")
    zeros = Tensor(target._xp.zeros(target._array.shape, target._array.dtype), target._xp)
    if create_graph:
        zeros._edge = LEAF
    return zeros


def _grad_batched(
    roots: Sequence[Any],
    targets: Sequence[Any],
    given: Sequence[Any],
    keep: bool,
    create_graph: bool,
    allow_unused: bool,
    materialize_grads: bool,
) -> tuple[Any, ...]:
    """is_grads_batched: one pass with all rows of the given gradients, under vmap; else a pass for each."""
    for index, (root, seeds) in enumerate(zip(roots, given, strict=True)):
        shape = _metadata(root)[0]
        if seeds is None or seeds._array.shape[1:] != shape:
            got = None if seeds is None else list(seeds._array.shape)
            raise AutogradError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                f"dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{index}] has a shape of {got} and output[{index}] "
                f"has a shape of {list(shape)}."
            )
    chosen = (keep, create_graph, allow_unused, materialize_grads)
    try:
        return _grad_vectorized(roots, targets, given, chosen)
    except VmapError as error:
        if not keep:
            raise
        warn_once(
            "batched-gradient-loop",
            f"There is a performance drop because a gradient cannot be computed for a batch at once: {error}",
        )
    return _grad_row_by_row(roots, targets, given, chosen)


def _grad_vectorized(
    roots: Sequence[Any], targets: Sequence[Any], given: Sequence[Any], chosen: tuple[bool, bool, bool, bool]
) -> tuple[Any, ...]:
    """One pass over the graph, with gradients that are batches."""
    from undertow.autograd.vmap import vmap  # few programs ask for it

    keep, create_graph, allow_unused, materialize_grads = chosen
    present: list[bool] = []

    def one(*seeds: Any) -> list[Any]:
        found = grad(roots, targets, seeds, keep, create_graph, True, allow_unused, False, materialize_grads)
        present.extend([g is not None for g in found])
        return [g for g in found if g is not None]

    found = iter(vmap(one)(*given))
    return tuple([next(found) if there else None for there in present])


def _grad_row_by_row(
    roots: Sequence[Any], targets: Sequence[Any], given: Sequence[Any], chosen: tuple[bool, bool, bool, bool]
) -> tuple[Any, ...]:
    """One pass for each row of the given gradients."""
    rows = []
    for row in range(given[0]._array.shape[0]):
        seeds = _seeds(roots, [g[row] for g in given])
        rows.append(_grad_once(roots, targets, seeds, *chosen))
    return tuple(None if column[0] is None else ops.stack(column) for column in zip(*rows, strict=True))


def _grad_of_batch(
    level: VmapLevel,
    roots: Sequence[Any],
    targets: Sequence[Any],
    grads: list[Any],
    chosen: tuple[bool, bool, bool, bool],
) -> tuple[Any, ...]:
    """grad() inside vmap: the graph was recorded on tensors with all examples, so one pass serves all of them."""
    for index, target in enumerate(targets):
        if not level.is_batched(target):
            raise VmapError(
                f"vmap: grad() was asked for the gradient of a batch of outputs with respect to input {index}, which "
                "is the same for all examples: it would be summed over them. Use undertow.func.grad inside of vmap."
            )
    keep, create_graph, allow_unused, materialize_grads = chosen
    below = [t._value for t in targets]
    remaining = with_beneath(current().intercept, active().without(level))
    with enable_grad():  # moving the batch of a root to the front is a part of its history
        fronts = [level.front(root) for root in roots]
    found = under(
        remaining, grad, fronts, below, [level.front(g) for g in grads],
        keep, create_graph, True, allow_unused, False, materialize_grads,
    )  # fmt: skip
    return tuple([None if g is None else level.wrap(g, t._dim) for g, t in zip(found, targets, strict=True)])


def _warn_create_graph() -> None:
    warn_once(
        "backward-create-graph",
        "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
        "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you "
        "have to use this function, make sure to reset the .grad fields of your parameters to None after use to break "
        "the cycle and avoid the leak.",
    )

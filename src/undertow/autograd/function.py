"""Function: operations with derivatives of the user's own.

`MyFunction.apply(*args)` runs the user's `forward` without recording, makes one node of class MyFunctionBackward, and
points the outputs at it. The node is the `ctx` that forward and backward are given.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from undertow.engine.tasks import current_task
from undertow.errors import AutogradError, GraphFreedError
from undertow.graph.accumulate import gradient_edge
from undertow.graph.error_node import Error
from undertow.graph.node import Node, OutputEdge, next_sequence_nr
from undertow.graph.saved import SavedTensor
from undertow.modes import current, set_state
from undertow.ops import REGISTRY
from undertow.ops.inplace import rebase_history
from undertow.tensor import LEAF, Extra, Tensor, counter_of, current_edge, share_memory
from undertow.tensor import views as creation
from undertow.tensor.metadata import View


class FunctionNode(Node):
    """The node of a custom Function, and its `ctx`."""

    __slots__ = ("__dict__",)

    multiple_outputs = True
    wants_undefined = True

    _forward_cls: Any = None

    def __init__(self) -> None:
        self.next_edges = ()
        self.sequence_nr = next_sequence_nr()
        self.saved = self.params = ()
        self.shape, self.dtype = [], []
        self.extra = None
        self.needs_input_grad: tuple[bool, ...] = ()
        self.materialize_grads = True
        self._materialize_non_diff_grads = True
        self._is_pure_view = False
        self._to_save: tuple[Any, ...] = ()
        self._saved_for_forward: tuple[Any, ...] = ()
        self._dirty: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self._non_differentiable_outputs: set[int] = set()
        self._variable_positions: list[bool] = []

    # ---- what forward calls

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for backward: inputs, outputs, or None. Call once, in forward or setup_context."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument is of type {type(tensor).__name__}; "
                    "keep other values as attributes of ctx"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep tensors for `jvp`."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError("save_for_forward expects all arguments to be Tensors or None; you can save other "
                                "values as attributes of ctx")  # fmt: skip
        self._saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs forward changed in place; each must be returned."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Any) -> None:
        """Say which outputs have no gradient."""
        self._non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward sees zeros (the default) or None where no gradient flowed."""
        self.materialize_grads = value

    # ---- what backward reads

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        if self.saved is None:
            raise GraphFreedError(self.name())
        if not self.saved and self._to_save:  # read during forward or setup_context
            return self._to_save
        once = getattr(self._forward_cls, "clear_saved_tensors_on_access", False)
        if once and self.__dict__.get("_accessed"):
            raise RuntimeError(
                f"{self.name()}: saved_tensors can only be accessed once when clear_saved_tensors_on_access is set; "
                "keep the tuple of the first access"
            )
        found = tuple([s.unpack(self) for s in self.saved])
        if once and _releasing():
            self.__dict__["_accessed"] = True
            self.saved = tuple([SavedTensor(None)] * len(self.saved))
        return found

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        if self.saved is None:
            raise GraphFreedError(self.name())
        return tuple(self.saved)

    def release(self) -> None:
        if self.saved:
            for saved in self.saved:
                saved.release()
            self.saved = None

    # ---- running backward

    def pull(self, xp: Any, grad: Any, edges: tuple[Any, ...], keep: Any) -> list[Any]:
        raw = xp.ndarray is not Tensor
        grads = [Tensor(g, xp) if raw and g is not None else g for g in grad]
        self._materialize(grads, xp if raw else xp.arrays)
        task = current_task()
        outer = None if task is None else task.node
        if task is not None:
            task.node = self
        try:
            results = self._call_backward(grads)
            results = self._check_results(results)
        finally:
            if task is not None:
                task.node = outer
        if not keep:
            self.release()
        return [r if r is None or not raw else r._array for r in results]

    def apply(self, *grads: Any) -> Any:
        """Call the user's backward by hand: `grad_fn.apply(*gradients)`."""
        return self._call_backward(list(grads))

    def _materialize(self, grads: list[Any], arrays: Any) -> None:
        if not self.materialize_grads:
            return
        for nr, g in enumerate(grads):
            skip = nr in self._non_differentiable_outputs and not self._materialize_non_diff_grads
            if g is None and not skip and self.dtype[nr] is not None:
                grads[nr] = Tensor(arrays.zeros(self.shape[nr], self.dtype[nr]), arrays)

    def _call_backward(self, grads: list[Any]) -> Any:
        rule = backward_rule(self._forward_cls)
        if getattr(self._forward_cls, "boxed_grads_call", False):
            return rule(self, grads)
        arguments = tuple(grads)
        grads.clear()
        return rule(self, *arguments)

    def _check_results(self, results: Any) -> list[Any]:
        """One gradient per tensor input; None for the other inputs; extra values only if None."""
        results = list(results) if isinstance(results, tuple | list) else [results]
        count = len(self._variable_positions)
        if len(results) > count and all(r is None for r in results[count:]):
            results = results[:count]
        if len(results) != count:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {count}, got "
                f"{len(results)}): backward returns one value per argument of forward, None for those without gradient"
            )
        kept = []
        for position, (is_variable, result) in enumerate(zip(self._variable_positions, results, strict=True)):
            if is_variable:
                if result is not None and not isinstance(result, Tensor):
                    raise TypeError(
                        f"expected Variable or None (got {type(result).__name__}) at position {position} of what "
                        f"{self.name()} returned"
                    )
                kept.append(result)
            elif result is not None:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different from None at position {position + 1}, but "
                    "the corresponding forward input was not a Variable"
                )
        return kept


def _releasing() -> bool:
    task = current_task()
    return task is not None and not task.keep_graph


def backward_rule(cls: Any) -> Callable[..., Any]:
    """The user's `backward` (or `vjp`)."""
    own_backward = cls.backward is not Function.backward
    own_vjp = cls.vjp is not Function.vjp
    if own_backward and own_vjp:
        raise RuntimeError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement "
            "one of them."
        )
    return cls.vjp if own_vjp else cls.backward  # type: ignore[no-any-return]


class _FunctionMeta(type):
    """Gives every Function its node class; `MyFunction` -> `MyFunctionBackward`."""

    def __init__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
        super().__init__(name, bases, members)
        cls._backward_cls = type(name + "Backward", (FunctionNode,), {"__slots__": (), "_forward_cls": cls})


class Function(metaclass=_FunctionMeta):
    """Base of custom operations: define static `forward` and `backward`, call `.apply`.

    Either `forward(ctx, *args)`, or `forward(*args)` with `setup_context(ctx, inputs, output)`.

    >>> import undertow as ut
    >>> class Cube(ut.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return grad * 3 * x * x
    >>> x = ut.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    #: for `vmap` to derive a batching rule from forward and backward
    generate_vmap_rule = False
    #: hand backward one list of gradients, which it may empty as it goes
    boxed_grads_call = False
    #: release each saved tensor when it is read in backward
    clear_saved_tensors_on_access = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of undertow.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        return Function.backward(ctx, *grad_outputs)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward on `args`, recording this Function in the graph."""
        separate_setup = cls.setup_context is not Function.setup_context
        if separate_setup:
            args = _with_defaults(cls.forward, args, kwargs)
            kwargs = {}
        node = cls._backward_cls()
        node.needs_input_grad = tuple([isinstance(a, Tensor) and current_edge(a) is not None for a in args])
        outer = current()
        recording = outer.grad_enabled and any(node.needs_input_grad)
        inputs = [a for a in args if isinstance(a, Tensor)]
        before = {id(t): (current_edge(t), t) for t in inputs}
        set_state(outer.with_grad(False))
        try:
            if separate_setup:
                output = cls.forward(*args)
                cls.setup_context(node, args, output)
            else:
                output = cls.forward(node, *args, **kwargs)
        finally:
            set_state(outer)
        if recording:
            node._variable_positions = [isinstance(a, Tensor) for a in args]
            node.next_edges = tuple([gradient_edge(t) for t in inputs])
        return _wrap_outputs(cls, node, before, output, recording)


def _with_defaults(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


def _wrap_outputs(cls: Any, node: FunctionNode, inputs: dict[int, Any], output: Any, recording: bool) -> Any:
    """Point the outputs at the node, by the rules for inputs returned as they are, dirty inputs and views."""
    single = not isinstance(output, tuple)
    outputs = (output,) if single else output
    tensors = [o for o in outputs if isinstance(o, Tensor)]
    _check_dirty(cls, node, inputs, tensors)
    wrapped: dict[int, Tensor] = {}
    results = []
    for nr, out in enumerate(outputs):
        if not isinstance(out, Tensor):
            results.append(out)
            node.shape.append(())
            node.dtype.append(None)
            continue
        node.shape.append(out._array.shape)
        node.dtype.append(out._array.dtype)
        if id(out) not in wrapped:
            wrapped[id(out)] = _wrap_output(node, nr, out, inputs, len(tensors), recording)
        results.append(wrapped[id(out)])
    if recording:
        _save(node, inputs, wrapped)
        state = current()
        if state.record is not None:
            state.record(node, state)
    return results[0] if single else tuple(results)


def _check_dirty(cls: Any, node: FunctionNode, inputs: dict[int, Any], tensors: list[Tensor]) -> None:
    returned = {id(t) for t in tensors}
    for dirty in node._dirty:
        if id(dirty) not in inputs:
            if dirty._extra is not None and dirty._extra.view is not None:
                raise RuntimeError("mark_dirty: received a tensor that was not an input.")
            warnings.warn(
                f"{cls.__name__}: mark_dirty received a tensor that was not an input; only inputs need marking.",
                stacklevel=4,
            )
        if id(dirty) not in returned:
            raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. "
                               "The inputs that are modified inplace must all be outputs of the Function.")  # fmt: skip


def _wrap_output(
    node: FunctionNode, nr: int, out: Tensor, inputs: dict[int, Any], count: int, recording: bool
) -> Tensor:
    is_input = id(out) in inputs
    is_dirty = any(out is d for d in node._dirty)
    differentiable = recording and out._array.dtype.kind in "fc"
    if any(out is n for n in node._non_differentiable):
        node._non_differentiable_outputs.add(nr)
        differentiable = False
    if is_dirty and is_input:
        return _wrap_dirty(node, nr, out, inputs[id(out)][0], count, differentiable)
    if not differentiable:
        return detached(out) if is_input or out._edge is not None else out
    view = None if out._extra is None else out._extra.view
    if is_input or view is not None or out._edge is not None:
        # an input returned as it is, a view made in forward, or something recorded elsewhere: a new alias of it
        base = out if view is None else view.base
        alias = Tensor(out._array, out._xp)
        if is_input or view is not None:
            extra = alias._extra = Extra()
            steps = creation.Replay(((REGISTRY["view_as"].function, (out,), None),)) if view is None else view.replay
            extra.view = View(base, steps, creation.CUSTOM_FUNCTION, counter_of(base).value)
        else:
            share_memory(out, alias)
        out = alias
    out._edge = OutputEdge((node, nr))
    return out


def _wrap_dirty(node: FunctionNode, nr: int, out: Tensor, edge: Any, count: int, differentiable: bool) -> Tensor:
    view = None if out._extra is None else out._extra.view
    if not differentiable:
        if edge is not None and out._edge is not LEAF and nr in node._non_differentiable_outputs:
            out._edge = None
        return out
    if edge is LEAF:
        raise RuntimeError(
            "a leaf Variable that requires grad has been used in an in-place operation: a Function marked it dirty. "
            "Pass a clone() of it."
        )
    if view is not None:
        if view.base._edge is LEAF:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        if count > 1:
            raise RuntimeError(
                "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot "
                "return more than one Tensor. This is not supported by the current autograd engine. You should either "
                "make sure the input is not a view (using .clone() for example) or make your Function only return one "
                "Tensor (potentially splitting it into two Functions: one doing the inplace that returns a single "
                "Tensor and a second one that does the other operations). You can ask on the forum if you need help."
            )
        if view.creation is not creation.DEFAULT:
            raise RuntimeError(
                f"A view was created {view.creation} and is being modified inplace by a custom Function with grad mode "
                "enabled."
            )
    rebase_history(out, OutputEdge((node, nr)))
    return out


def detached(tensor: Tensor) -> Tensor:
    """An alias of the tensor without history, sharing its version counter."""
    alias = Tensor(tensor._array, tensor._xp)
    share_memory(tensor, alias)
    return alias


def _save(node: FunctionNode, inputs: dict[int, Any], wrapped: dict[int, Tensor]) -> None:
    saved = []
    for tensor in node._to_save:
        output = wrapped.get(id(tensor))
        edge = None if output is None else output._edge
        is_output = edge is not None and edge is not LEAF and edge[0] is node
        saved.append(SavedTensor.of_output(output) if is_output else SavedTensor(tensor))  # type: ignore[arg-type]
    node.saved = tuple(saved)
    node._to_save = node._dirty = node._non_differentiable = ()


class InplaceFunction(Function):
    """Kept for programs that name it; any Function may change inputs with `ctx.mark_dirty`."""


class DelayedError:
    """A function that returns its arguments, joined to a node that raises when it is differentiated."""

    def __init__(self, message: str | bytes, num_inputs: int) -> None:
        self.message = message.decode() if isinstance(message, bytes) else message
        self.num_inputs = num_inputs

    def __call__(self, *args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, Tensor)]
        node = Error(
            AutogradError(self.message),
            tuple([gradient_edge(a) if isinstance(a, Tensor) else None for a in args]),
            [t._array.shape for t in tensors],
            [t._array.dtype for t in tensors],
        )
        numbers = iter(range(len(tensors)))
        results = [
            Tensor(a._array, a._xp, OutputEdge((node, next(numbers)))) if isinstance(a, Tensor) else a for a in args
        ]
        return results[0] if len(results) == 1 else results


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a `backward` that is not itself differentiable: a second derivative raises instead of being wrong."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *args: Any) -> Any:
        outer = current()
        set_state(outer.with_grad(False))
        try:
            outputs = function(ctx, *args)
        finally:
            set_state(outer)
        if not outer.grad_enabled or not any(isinstance(a, Tensor) and current_edge(a) is not None for a in args):
            return outputs
        single = not isinstance(outputs, tuple)
        found = (outputs,) if single else outputs
        error = DelayedError("trying to differentiate twice a function that was marked with @once_differentiable",
                             len(found))  # fmt: skip
        joined = error(*[_as_leaf(o) for o in found])
        return joined if single else tuple(joined if isinstance(joined, list) else [joined])

    return wrapper


def _as_leaf(value: Any) -> Any:
    """A value's alias that requires grad, so that the error node has an edge for it."""
    if not isinstance(value, Tensor):
        return value
    alias = detached(value)
    alias._edge = LEAF
    return alias

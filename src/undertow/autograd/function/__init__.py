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

from undertow.autograd.function.intermediates import (
    Kept,
    guard_attributes,
    guard_saved,
    is_guarding,
    needed_inputs,
    note_intermediates,
    watch_for,
)
from undertow.autograd.function.outputs import detached, wrap_outputs
from undertow.autograd.interceptors.stack import with_beneath
from undertow.backend import dtypes, namespace_of_array
from undertow.engine.tasks import current_task
from undertow.engine.validate import conform, expected
from undertow.errors import AutogradError
from undertow.graph.accumulate import gradient_edge
from undertow.graph.end_nodes import Error
from undertow.graph.node import Node, OutputEdge, freed_error, next_sequence_nr, space_of
from undertow.graph.saved import Freed, SavedTensor
from undertow.graph.user_lines import caller_site, is_site_recording_enabled
from undertow.modes import Interceptor, current, set_state
from undertow.tensor import LEAF, Tensor, current_edge
from undertow.tensor.tensor import requires_grad


class FunctionNode(Node):
    """The node of a custom Function, and its `ctx`."""

    # Its attributes are the user's, apart from those with an underscore and `Node`'s own: see check_names.
    __slots__ = ("__dict__", "_dtypes", "_intermediates", "_kept", "_shapes")

    multiple_outputs = True
    wants_undefined = True

    _forward_cls: Any = None
    _own_attributes = 0  # how many of __dict__ are not the user's

    def __init__(self) -> None:
        self.next_edges = ()
        self.sequence_nr = next_sequence_nr()
        self._kept: Any = ()
        self._shapes, self._dtypes = [], []
        self._intermediates: Kept | None = None
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
        self._wanted: tuple[Any, ...] | None = None  # in a pass: `next_edges`, None where nobody wants the gradient

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
        if type(self._kept) is Freed:
            raise freed_error(self, self._kept)
        if self.__dict__.get("_in_jvp"):
            saved = self._saved_for_forward
            return guard_saved(self, saved, for_jvp=True) if is_guarding(self) else saved
        if not self._kept and self._to_save:  # read during forward or setup_context; or in a rule that vmap made
            return guard_saved(self, self._to_save) if is_guarding(self) else self._to_save
        once = getattr(self._forward_cls, "clear_saved_tensors_on_access", False)
        if once and self.__dict__.get("_accessed"):
            raise RuntimeError(
                f"{self.name()}: saved_tensors can only be accessed once when clear_saved_tensors_on_access is set; "
                "keep the tuple of the first access"
            )
        found = tuple([s.unpack(self) for s in self._kept])
        if once and _releasing():
            self.__dict__["_accessed"] = True
            self._kept = tuple([SavedTensor(None)] * len(self._kept))
        return guard_saved(self, found) if is_guarding(self) else found

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        if type(self._kept) is Freed:
            raise freed_error(self, self._kept)
        return tuple(self._kept)

    def wants_gradient(self, nr: int) -> bool:
        """Whether anybody wants the gradient of the nr-th tensor among the arguments, in the pass that runs."""
        return self._wanted is None or self._wanted[nr] is not None

    def release(self, freed: Any) -> None:
        if self._kept:
            for saved in self._kept:
                saved.release()
            self._kept = freed

    # ---- running backward

    def pull(self, xp: Any, grad: Any, edges: tuple[Any, ...], keep: Any) -> list[Any]:
        raw = xp.ndarray is not Tensor
        grads = [Tensor(g, namespace_of_array(g)) if raw and g is not None else g for g in grad]
        self._materialize(grads)
        task = current_task()
        outer = None if task is None else task.node
        if task is not None:
            task.node = self
        self._wanted = edges
        try:
            results = self._call_backward(grads)
            results = self._check_results(results)
        finally:
            self._wanted = None
            if task is not None:
                task.node = outer
        if not keep:
            self.release(keep)
        return self._fitting([r if r is None or not raw else r._array for r in results], edges, xp)

    def _fitting(self, results: list[Any], edges: tuple[Any, ...], xp: Any) -> list[Any]:
        """The results in the shapes and dtypes of the inputs: checked all before any is used."""
        for index, (result, edge) in enumerate(zip(results, edges, strict=True)):
            if result is not None and edge is not None:
                shape, dtype = expected(edge[0], edge[1])
                results[index] = conform(self, index, result, shape, dtype, xp)
        return results

    def apply(self, *grads: Any) -> Any:
        """Call the user's backward by hand: `grad_fn.apply(*gradients)`."""
        return self._call_backward(list(grads))

    def _materialize(self, grads: list[Any]) -> None:
        if not self.materialize_grads:
            return
        for nr, g in enumerate(grads):
            skip = nr in self._non_differentiable_outputs and not self._materialize_non_diff_grads
            if g is None and not skip and self._dtypes[nr] is not None:
                arrays = space_of(self, nr)
                grads[nr] = Tensor(arrays.zeros(self._shapes[nr], self._dtypes[nr]), arrays)

    def _call_backward(self, grads: list[Any]) -> Any:
        rule = backward_rule(self._forward_cls)
        if is_guarding(self):
            guard_attributes(self, history=not hasattr(rule, "_differentiable_once"))
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
                    raise RuntimeError(
                        f"expected Variable or None (got {type(result).__name__}) at position {position} of what "
                        f"{self.name()} returned"
                    )
                kept.append(result)
            elif result is not None:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different than None at position {position + 1}, but "
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
    return cls.vjp if own_vjp else cls.backward


FunctionNode._own_attributes = len(FunctionNode().__dict__)


class _FunctionMeta(type):
    """Gives every Function its node class; `MyFunction` -> `MyFunctionBackward`."""

    def __init__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
        super().__init__(name, bases, members)
        cls._backward_cls = type(name + "Backward", (FunctionNode,), {"__slots__": (), "_forward_cls": cls})
        #: `needs_input_grad` -> whether a call like that kept intermediates; see intermediates.py
        cls._keeps_intermediates: dict[tuple[bool, ...], bool] = {}


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
    #: whether forward is watched for intermediates (intermediates.py); undertow's own switch it off
    _is_watched = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._node = type(self)._backward_cls()
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

    def __getattr__(self, name: str) -> Any:
        """An instance, which nobody needs, answers what its node would: `name()`, `metadata`, `register_hook`, ..."""
        if name == "_node":
            raise AttributeError(name)
        return getattr(self._node, name)

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(*args: Any, **kwargs: Any) -> Any:  # of (ctx, *grad_outputs), as many as a subclass names
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vjp(*args: Any, **kwargs: Any) -> Any:
        return Function.backward(*args, **kwargs)

    @staticmethod
    def jvp(*args: Any, **kwargs: Any) -> Any:  # of (ctx, *grad_inputs)
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(*args: Any, **kwargs: Any) -> Any:  # of (info, in_dims, *args)
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward on `args`, recording this Function in the graph."""
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.apply_function(cls, args, kwargs)
        return cls._call(args, kwargs).result

    @classmethod
    def _call(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        separate_setup = cls.setup_context is not Function.setup_context
        if separate_setup:
            args = bind_arguments(cls, args, kwargs)
            kwargs = {}
        node = cls._backward_cls()
        inputs = [a for a in args if isinstance(a, Tensor)]
        node.needs_input_grad = tuple([isinstance(a, Tensor) and requires_grad(a) for a in args])
        outer = current()
        recording = outer.grad_enabled and any(node.needs_input_grad)
        if recording:
            node._variable_positions = [isinstance(a, Tensor) for a in args]
            node.next_edges = tuple([gradient_edge(t) for t in inputs])  # now, because forward may change the inputs
            if is_site_recording_enabled():
                site = caller_site()
                node.code, node.lasti = site.code, site.lasti
        needed = needed_inputs(inputs, recording) if cls._is_watched else ()
        watch = watch_for(cls, inputs, needed)
        inner = outer.with_grad(False)
        set_state(inner if watch is None else inner.with_intercept(with_beneath(inner.intercept, watch)))
        try:
            if separate_setup:
                output = cls.forward(*args)
                cls.setup_context(node, args, output)
            else:
                output = cls.forward(node, *args, **kwargs)
        finally:
            set_state(outer)
        if needed:
            note_intermediates(node, inputs, needed, output, watch)
        call = Call(node, args, output)
        call.result = wrap_outputs(node, inputs, output, recording, separate_setup)
        return call


def bind_arguments(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call, in order, with the defaults of `forward`."""
    if cls.setup_context is Function.setup_context:
        return inspect.signature(cls.forward).bind(None, *args, **kwargs).args[1:] if kwargs else args
    bound = inspect.signature(cls.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise NotImplementedError(
            f"{cls.__name__}.forward takes {', '.join(bound.kwargs)} by name only, but kwarg-only Tensor args (and "
            "others) are not supported together with setup_context, which is given the arguments in order: make them "
            "positional"
        )
    return bound.args


class Call:
    """One call of a Function, for forward mode: its arguments, and its outputs before and after they were wrapped."""

    result: Any

    def __init__(self, node: FunctionNode, args: tuple[Any, ...], output: Any) -> None:
        self.node, self.args = node, args
        self.raw = tuple(output) if isinstance(output, tuple) else (output,)
        self.dirty, self.non_differentiable = node._dirty, node._non_differentiable

    @property
    def outputs(self) -> tuple[Any, ...]:
        return self.result if isinstance(self.result, tuple) else (self.result,)

    def jvp(self, tangents: list[Any]) -> list[Any]:
        """What the user's jvp returns, as a list; it sees what was saved for it."""
        wrapped = {id(raw): out for raw, out in zip(self.raw, self.outputs, strict=True)}
        self.node._saved_for_forward = tuple([wrapped.get(id(t), t) for t in self.node._saved_for_forward])
        found = call_jvp(self.node, tangents)
        return list(found) if isinstance(found, tuple | list) else [found]

    def is_differentiable(self, nr: int) -> bool:
        out = self.raw[nr]
        marked = any(out is n for n in self.non_differentiable)
        return isinstance(out, Tensor) and not marked and dtypes.is_differentiable(out._array.dtype)

    def is_dirty(self, output: Any) -> bool:
        return any(output is d for d in self.dirty)

    def viewed_input(self, output: Tensor) -> int | None:
        """The place of the argument that an output is, or shares its memory with as a view."""
        base = _root(output)
        return next((k for k, a in enumerate(self.args) if isinstance(a, Tensor) and _root(a) is base), None)


def call_jvp(node: FunctionNode, tangents: list[Any]) -> Any:
    """What the user's jvp returns; its `saved_tensors` are those that were saved for it."""
    if is_guarding(node):
        guard_attributes(node)
    node.__dict__["_in_jvp"] = True
    try:
        return node._forward_cls.jvp(node, *tangents)
    finally:
        node.__dict__["_in_jvp"] = False


def _root(tensor: Tensor) -> Tensor:
    return tensor if tensor._extra is None or tensor._extra.view is None else tensor._extra.view.base


#: PyTorch's name for the base of the nodes of custom Functions
BackwardCFunction = FunctionNode


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

    wrapper._differentiable_once = True  # type: ignore[attr-defined]
    return wrapper


def _as_leaf(value: Any) -> Any:
    """A value's alias that requires grad, so that the error node has an edge for it."""
    if not isinstance(value, Tensor):
        return value
    alias = detached(value)
    alias._edge = LEAF
    return alias

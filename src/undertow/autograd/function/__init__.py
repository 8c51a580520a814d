"""Function: operations with derivatives of the user's own.

`MyFunction.apply(*args)` runs the user's `forward` without recording, makes one node of class MyFunctionBackward, and
points the outputs at it. The node is the `ctx` that forward and backward are given.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.autograd.function.call import FunctionCall
from undertow.autograd.function.intermediates import needed_inputs, note_intermediates, tracking_for
from undertow.autograd.function.node import FunctionNode
from undertow.autograd.function.outputs import wrap_new_output, wrap_outputs
from undertow.autograd.interceptors.stack import with_beneath
from undertow.graph.accumulate import gradient_edge
from undertow.graph.user_lines import is_site_recording_enabled
from undertow.lazy_names import loaded_when_used as _loaded_when_used
from undertow.modes import Interceptor, current, in_state
from undertow.own_files import user_frame
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad


class _FunctionMeta(type):
    """Gives every Function its node class; `MyFunction` -> `MyFunctionBackward`."""

    def __init__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> None:
        super().__init__(name, bases, members)
        cls._backward_cls = type(name + "Backward", (FunctionNode,), {"__slots__": (), "_forward_cls": cls})
        #: which of its tensors require gradients -> whether a call like that kept intermediates; see intermediates.py
        cls._keeps_intermediates: dict[tuple[bool, ...], bool] = {}


class Function(metaclass=_FunctionMeta):
    """Base of custom operations: define static `forward` and `backward`, call `.apply`.

    forward          `forward(ctx, *args)`, or `forward(*args)` and `setup_context(ctx, inputs, output)`; ctx is
                     `FunctionCtx`
    backward         `backward(ctx, *grads)`: from a gradient for each result to one, or None, for each argument; or
                     `vjp`
    jvp              `jvp(ctx, *tangents)`, for forward mode
    vmap             `vmap(info, in_dims, *args)`, which returns results and their batch dimensions
    *args, **kwargs  accepted; a Function is not instantiated, but applied

    Switches of a class, False unless set: `generate_vmap_rule` makes the rule of `vmap` of the other rules;
    `clear_saved_tensors_on_access` releases a saved tensor when backward reads it; `boxed_grads_call` hands backward
    one list of gradients, which it may empty as it goes.

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
    #: whether forward is tracked for intermediates (intermediates.py); undertow's own switch it off
    _is_tracked = True

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
        """Run forward on `args`, recording this Function in the graph.

        **kwargs  arguments of forward by name; backward returns gradients in the order of forward's signature
        """
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.apply_function(cls, args, kwargs)
        return cls._forward_and_record(args, kwargs, None)

    @classmethod
    def _backward_rule(cls) -> Callable[..., Any]:
        """The user's `backward` (or `vjp`)."""
        own_backward = cls.backward is not Function.backward
        own_vjp = cls.vjp is not Function.vjp
        if own_backward and own_vjp:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                "implement one of them."
            )
        return cls.vjp if own_vjp else cls.backward

    @classmethod
    def _noted_call(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FunctionCall:
        """What `apply` does, for an interceptor that needs to know what happened."""
        call = FunctionCall()
        call.result = cls._forward_and_record(args, kwargs, call)
        return call

    @classmethod
    def _forward_and_record(cls, args: tuple[Any, ...], kwargs: dict[str, Any], call: FunctionCall | None) -> Any:
        """The result of forward, in the graph; `call` is told what happened."""
        separate_setup = cls.setup_context is not Function.setup_context
        if separate_setup:
            args, kwargs = bind_arguments(cls, args, kwargs), {}
        elif kwargs:
            args, kwargs = bound_in_order(cls, args, kwargs)
        inputs: list[Tensor] = []
        needs: list[bool] = []
        for argument in args:
            if isinstance(argument, Tensor):
                inputs.append(argument)
                needs.append(argument._edge is not None or requires_grad(argument))
            else:
                needs.append(False)
        outer = current()
        recording = outer.grad_enabled and True in needs
        # before forward, which may change the inputs; and before the node: its number is greater than those below it,
        # and the node of a view whose memory has changed is made here
        edges = tuple([gradient_edge(t) for t in inputs]) if recording else ()
        node = cls._backward_cls()
        node.needs_input_grad = tuple(needs)
        if recording:
            node._variable_positions = [isinstance(a, Tensor) for a in args]
            node.recorded_edges = edges
            if is_site_recording_enabled():
                frame = user_frame(past=2)  # this, and apply
                node.code, node.lasti = frame.f_code, frame.f_lasti
        needed = needed_inputs(inputs, recording) if cls._is_tracked else ()
        tracking = tracking_for(cls, inputs, needed)
        inner = outer.with_grad(False)
        if tracking is not None:
            inner = inner.with_intercept(with_beneath(inner.intercept, tracking))
        if separate_setup:
            output = in_state(inner, cls.forward, *args)
            in_state(inner, cls.setup_context, node, args, output)
        else:
            output = in_state(inner, cls.forward, node, *args, **kwargs)
        if needed and (tracking is not None or node._to_save or node.__dict__):
            note_intermediates(node, inputs, needed, output, tracking)
        if call is not None:
            call.note(node, args, output)
        if recording and wrap_new_output(node, inputs, output):
            return output
        return wrap_outputs(node, inputs, output, recording, separate_setup)


def bind_arguments(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call, in order, with the defaults of `forward`; for rules that are given them so."""
    if cls.setup_context is Function.setup_context:
        args, by_name = bound_in_order(cls, args, kwargs) if kwargs else (args, {})
    else:
        bound = inspect.signature(cls.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        args, by_name = bound.args, bound.kwargs
    if by_name:
        raise NotImplementedError(
            f"{cls.__name__}.forward takes {', '.join(by_name)} by name only, but kwarg-only Tensor args (and others) "
            "are not supported together with setup_context or vmap, which are given the arguments in order: make them "
            "positional"
        )
    return args


def bound_in_order(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call in the order in which `backward` returns gradients, and those that have a name only."""
    signature = inspect.signature(cls.forward)
    bound = signature.bind(None, *args, **kwargs)
    ordered = [n for n, each in signature.parameters.items() if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if not bound.kwargs.keys().isdisjoint(ordered):
        bound.apply_defaults()  # of those before them, which were left out
    lost = [n for n, value in bound.kwargs.items() if isinstance(value, Tensor) and value.requires_grad]
    if lost and current().grad_enabled:
        raise TypeError(
            f"{cls.__name__}.forward takes {', '.join(lost)} by name only, and backward can return no gradient for it: "
            "make it positional, or pass a tensor that requires none"
        )
    return bound.args[1:], bound.kwargs


#: the class of `ctx`, under PyTorch's names for it, which annotations use
FunctionCtx = BackwardCFunction = FunctionNode
FunctionMeta = _FunctionMeta


class InplaceFunction(Function):
    """Kept for programs that name it; any Function may change inputs with `ctx.mark_dirty`.

    *args, **kwargs  accepted; a Function is not instantiated, but applied

    >>> import undertow as ut
    >>> issubclass(ut.autograd.function.InplaceFunction, ut.autograd.Function)
    True
    """


if TYPE_CHECKING:
    from undertow.autograd.function.differentiable_once import DelayedError as DelayedError
    from undertow.autograd.function.differentiable_once import once_differentiable as once_differentiable
else:
    __getattr__, __dir__ = _loaded_when_used(
        __name__, names={"undertow.autograd.function.differentiable_once": "DelayedError once_differentiable"}
    )

"""Operation modes: code that is shown every operation of this thread, and may do something else in its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.autograd.interceptors.stack import Above, run_function, under
from undertow.modes import Interceptor, State, current, in_state, state_variable
from undertow.scopes import Scope

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op
    from undertow.tensor import Tensor


class Operation(str):
    """What an OpMode is shown: the operation's name, which can be called.

    The name is PyTorch's, that of the node: "mm" for MmBackward0, "div" for a / b, "add_" for a change in place.

    kind      "primitive", "variadic" (on a list of tensors), "nondifferentiable", "view", "in_place" or "random"
    function  what computes it

    >>> import undertow as ut
    >>> class Kinds(ut.OpMode):
    ...     def on_operation(self, op, args, kwargs):
    ...         print(op, op.kind)
    ...         return op(*args, **kwargs)
    >>> with Kinds():
    ...     _ = ut.ones(2) * 3
    mul primitive
    """

    __slots__ = ("_function", "kind")
    _function: Callable[..., Any]
    kind: str

    def __new__(cls, name: str, kind: str, function: Callable[..., Any]) -> Operation:
        self = super().__new__(cls, name)
        self.kind, self._function = kind, function
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def operation_name(op: Op) -> str:
    """The operation in PyTorch's words, the name its node has: `mm` for MmBackward0, `div` for true_divide."""
    name = str(op.name).strip("_")
    if (not op.edges and op.kind != "variadic") or "Backward" not in op.node_name:
        return name
    stem = re.sub(r"Backwards?\d*(?=$|_copy$)", "", op.node_name)
    found = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", stem).lower()
    # GridSampler2D does not say that it is grid_sampler_2d
    return name if name.replace("_", "") == found.replace("_", "") and len(name) > len(found) else found


class OpMode(Scope):
    """A context in which `on_operation` stands between this thread and its operations. Make a subclass.

    It is shown the single operations that everything is made of (`mm`, `add`, `relu_`, `rand`), also those of
    backward passes, and inside it the mode is off. Calling the operation records it as always; so does whatever else
    is done in its place, with the gradients that belong to that. What makes tensors from nothing (`zeros`, `tensor`)
    is not shown. Modes nest: the innermost is asked first, and its operations are shown to the next one.

    >>> import undertow as ut
    >>> class Log(ut.OpMode):
    ...     def on_operation(self, op, args, kwargs):
    ...         print(op, [tuple(a.shape) for a in args if isinstance(a, ut.Tensor)])
    ...         return op(*args, **kwargs)
    >>> x = ut.ones(2, 3, requires_grad=True)
    >>> with Log():
    ...     y = (x @ x.t()).sum()
    t [(2, 3)]
    mm [(2, 3), (3, 2)]
    sum [(2, 2)]
    """

    def on_operation(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the operation, or another.

        op            which one: an `Operation`, which can be called
        args, kwargs  what it was called with
        """
        return op(*args, **kwargs)

    variable = state_variable

    @property
    def given(self) -> OpMode:
        return self

    def inside(self, outer: State) -> State:
        return outer.with_intercept(Shown(self, outer.intercept))

    def after(self, inner: State, outer: State) -> State:
        return inner.with_intercept(without(inner.intercept, self))


class Shows(Interceptor):
    """An interceptor that shows every operation, by its name and as it could be called, to `show`."""

    def show(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError("what becomes of an operation that is shown")

    def __call__(self, function: Any, args: tuple[Any, ...]) -> Any:
        op = function.op
        kind = "random" if op.random else op.kind
        return self.show(Operation(operation_name(op), kind, op.function), *given(op, args))

    def in_place(
        self,
        name: str,
        change: Callable[..., Any],
        function: Callable[..., Any],
        tensor: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        return self.show(Operation(name, "in_place", change), (tensor, *args), kwargs)

    def in_place_view(
        self, change: Any, function: Callable[..., Any], tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.show(Operation(change.__name__, "in_place", change), (tensor, *args), kwargs)

    def detach(self, function: Callable[..., Any], itself: Callable[..., Any], tensor: Tensor) -> Any:
        return self.show(Operation("detach", "view", function), (tensor,), {})

    def draw(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.show(Operation(function.__name__, "random", function), args, kwargs)


class Shown(Shows, Above):
    """The interceptor of an OpMode that was entered."""

    def __init__(self, mode: OpMode, below: Callable[..., Any] | None) -> None:
        super().__init__(below)
        self.mode = mode

    def over(self, below: Callable[..., Any] | None) -> Shown:
        return Shown(self.mode, below)

    def show(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return under(self.below, self.mode.on_operation, op, args, kwargs)


class GroundMode(Scope):
    """A context like OpMode, but `on_operation` is asked last: below vmaps, dual levels, autocast and all OpModes.

    So it sees what is computed at the end, on plain tensors: the product of whole batches, not that of examples. There
    is one at a time: entering a second one puts it in the place of the first until it is left.
    """

    def on_operation(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the operation, or another."""
        return op(*args, **kwargs)

    def on_alias(self, alias: Tensor, tensor: Tensor) -> None:
        """Learn that a transformation made an alias of a tensor, to differentiate by it."""

    def on_cut(self, alias: Tensor, tensor: Tensor) -> None:
        """Learn of `tensor.data`, or of `tensor.detach()` inside a transformation."""

    variable = state_variable

    @property
    def given(self) -> GroundMode:
        return self

    def inside(self, outer: State) -> State:
        return with_ground(outer, Ground(self))

    def after(self, inner: State, outer: State) -> State:
        return with_ground(inner, outer.ground)


class Ground(Shows):
    """The interceptor of a GroundMode that was entered."""

    def __init__(self, mode: GroundMode) -> None:
        self.mode = mode

    def show(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return in_state(with_ground(current(), None), self.mode.on_operation, op, args, kwargs)

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return run_function(cls, args, kwargs)

    def stands_for(self, alias: Tensor, tensor: Tensor) -> None:
        self.mode.on_alias(alias, tensor)

    def cut_off(self, alias: Tensor, tensor: Tensor) -> None:
        self.mode.on_cut(alias, tensor)


def with_ground(state: State, ground: Any) -> State:
    """The state with another interceptor below all others, or None."""
    intercept = None if state.intercept is state.ground else state.intercept
    return state.replace(ground=ground, intercept=intercept)


class PassedBy(Shown):
    """Shows the mode nothing: see TorchFunctionMode, which is asked earlier, and needs calls to come to Python."""

    def over(self, below: Callable[..., Any] | None) -> PassedBy:
        return PassedBy(self.mode, below)

    def show(self, op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return under(self.below, op, *args, **kwargs)


def without(intercept: Any, mode: OpMode) -> Callable[..., Any] | None:
    """The interceptors that remain when a mode is left."""
    if not isinstance(intercept, Above):
        return intercept
    if isinstance(intercept, Shown) and intercept.mode is mode:
        return intercept.below
    return intercept.over(without(intercept.below, mode))


def given(op: Op, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by position and by name, without those at the end that are what they would be anyway."""
    named = dict(zip(op.ordered, args, strict=True))
    kwargs = {n: named.pop(n) for n in op.ordered if n in op.keyword_only}
    values = list(named.items())
    while values and is_default(op, *values[-1]):
        values.pop()
    return tuple([v for _, v in values]), {n: v for n, v in kwargs.items() if not is_default(op, n, v)}


def is_default(op: Op, name: str, value: Any) -> bool:
    if name not in op.defaults:
        return False
    default = op.defaults[name]
    return value is default or (type(value) is type(default) and type(value) in PLAIN and value == default)


#: types whose values can be compared
PLAIN = {bool, int, float, str}

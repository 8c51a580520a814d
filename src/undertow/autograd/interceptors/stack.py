"""The transformations that are active: dual levels of forward mode, and vmaps. The interceptor that runs them.

Note [Order of transformations]: whatever order they were entered in, an operation first meets the vmaps, innermost
first, and below them the dual levels, innermost first. So a BatchedTensor holds tensors that hold tangents, never the
other way round - but the tangent of a tensor that is not batched may be a BatchedTensor (as in jacfwd, which computes
the primal once for all directions). A graph is recorded below all of them, on the tensors with all examples.
A tangent of a level has itself tangents of outer levels only.

Above all of them, whenever they were entered, stand the operation modes (Above): they see what the program calls.
What a State's `intercept` holds, from what an operation meets first:

    operation modes         `Above`, each over the next
    vmaps, innermost first  } one `Transforms`, which lies `beneath` all modes
    duals, innermost first  }
    ground                  State.ground, which is there where None is given for an interceptor (GroundMode)
    apply                   no interceptor: the operation itself

`with_beneath` is the same modes over other transformations, which is what happens when a level is `entered` or `left`;
`under(intercept, f, ...)` calls f with that interceptor in the place of the current one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from undertow.modes import Interceptor, State, current, in_state

if TYPE_CHECKING:
    from undertow.autograd.forward.level import DualLevel
    from undertow.tensor import Tensor


class Above(Interceptor):
    """An interceptor that stands above the transformations, and hands operations on to what is `below` it."""

    def __init__(self, below: Any) -> None:
        self.below = below

    def over(self, below: Any) -> Above:
        """The same, above something else."""
        raise NotImplementedError("a copy with another `below`")

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a custom Function calls is seen, but where a transformation has a say: it has its own ways there."""
        lowest = beneath(self)
        if isinstance(lowest, Transforms):
            return under(lowest, lowest.apply_function, cls, args, kwargs)
        return run_function(cls, args, kwargs)

    def in_place_view(
        self, change: Any, function: Callable[..., Any], tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return under(beneath(self), change, tensor, *args, **kwargs)

    def detach(self, function: Callable[..., Any], itself: Callable[..., Any], tensor: Tensor) -> Any:
        return under(self.below, function, tensor)

    def in_turn(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = beneath(self)
        if isinstance(found, Interceptor):
            return found.in_turn(function, args, kwargs)
        return function.__wrapped__(*args, **kwargs)

    def check_out(self, name: str, tensors: list[Any]) -> None:
        if isinstance(self.below, Interceptor):
            self.below.check_out(name, tensors)

    def in_float32(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(self.below, Interceptor):  # nobody below knows of autocast: this one stays where it is
            return function(*args, **kwargs)

        def again(*args: Any, **kwargs: Any) -> Any:
            return under(self.over(current().intercept), function, *args, **kwargs)

        return in_float32_under(self.below, again, args, kwargs)


def beneath(intercept: Callable[..., Any] | None) -> Any:
    """What stands below all operation modes."""
    while isinstance(intercept, Above):
        intercept = intercept.below
    return intercept


def stands_for(alias: Tensor, tensor: Tensor) -> None:
    """Tell those above the transformations of an alias that a transformation differentiates by."""
    intercept = current().intercept
    while isinstance(intercept, Above):
        intercept.stands_for(alias, tensor)
        intercept = intercept.below
    ground = current().ground
    if isinstance(ground, Interceptor):
        ground.stands_for(alias, tensor)


def with_beneath(intercept: Callable[..., Any] | None, lowest: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The operation modes of `intercept`, above something else."""
    return intercept.over(with_beneath(intercept.below, lowest)) if isinstance(intercept, Above) else lowest


class Transforms(Interceptor):
    """vmaps and duals: the active levels, innermost last."""

    __slots__ = ("_without", "duals", "order", "vmaps")

    def __init__(self, duals: tuple[Any, ...], vmaps: tuple[Any, ...]) -> None:
        self.duals = duals
        self.vmaps = vmaps
        #: as they are to be asked. See Note [Order of transformations]
        self.order = (*reversed(vmaps), *reversed(duals))
        self._without: dict[Any, Transforms | None] = {}

    def without(self, level: Any) -> Transforms | None:
        """The transformations that remain when a level has done its part."""
        if level not in self._without:
            duals = tuple([d for d in self.duals if d is not level])
            vmaps = tuple([v for v in self.vmaps if v is not level])
            self._without[level] = Transforms(duals, vmaps) if duals or vmaps else None
        return self._without[level]

    def __call__(self, function: Any, args: tuple[Any, ...]) -> Any:
        if self.vmaps and function.op.random:
            return self.vmaps[-1].draw(function, args, {}, self)
        for level in self.order:
            if level.concerns(args):
                return level.run(function, args, self)
        result = plainly(function, args)
        for level in self.duals:
            level.spread_cuts(function, args, result)
        return result

    def in_place(
        self,
        name: str,
        change: Callable[..., Any],
        function: Callable[..., Any],
        tensor: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if self.vmaps and getattr(function, "op", NOTHING).random:
            for vmap in self.vmaps:
                if not vmap.concerns((*args, *kwargs.values())):
                    vmap.check_fill(tensor)
        for level in self.order:
            if level.concerns((tensor, *args, *kwargs.values())):
                return level.in_place(name, function, tensor, args, kwargs, self)
        return under(None, change, tensor, *args, **kwargs)

    def in_place_view(
        self,
        change: Callable[..., Any],
        function: Callable[..., Any],
        tensor: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        recorded = current().replace(grad_enabled=True, inference=False)  # no_grad does not end histories of views
        for level in self.vmaps[::-1]:
            if level.is_batched(tensor):
                return level.look_again(tensor, in_state(recorded, function, tensor, *args, **kwargs))
        looks = [in_state(recorded, level.new_look, function, tensor, args, kwargs, self) for level in self.duals]
        under(None, change, tensor, *args, **kwargs)
        for level, tangent in zip(self.duals, looks, strict=True):
            level.look_again(tensor, tangent)
        return tensor

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for level in self.order:
            if level.concerns((*args, *kwargs.values())):
                return level.apply_function(cls, args, kwargs, self)
        lower = Transforms((), self.vmaps) if self.vmaps else None
        return under(lower, run_function, cls, args, kwargs)

    def check_out(self, name: str, tensors: list[Any]) -> None:
        for level in self.order:
            if level.concerns(tensors):
                level.refuse_out(name)

    def draw(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.vmaps:
            return self.vmaps[-1].draw(function, args, kwargs, self)
        return function.__wrapped__(*args, **kwargs)

    def in_turn(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for level in self.vmaps[::-1]:
            if level.concerns((*args, *kwargs.values())):
                return level.whole_or_in_turn(function, args, kwargs, self)
        return function.__wrapped__(*args, **kwargs)


def plainly(function: Any, args: tuple[Any, ...]) -> Any:
    """The operation itself, below all transformations."""
    return in_state(current().with_intercept(None), function.op.by_position, *args)


def under(intercept: Callable[..., Any] | None, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function with another set of transformations, or none."""
    return in_state(current().with_intercept(intercept), function, *args, **kwargs)


def in_float32_under(
    intercept: Callable[..., Any] | None, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a function that autocast computes in float32 under another interceptor, which may be a plain function."""
    if isinstance(intercept, Interceptor):
        return under(intercept, intercept.in_float32, function, args, kwargs)
    return under(intercept, function, *args, **kwargs)


def active() -> Transforms:
    """The transformations of this thread; without any, an empty set."""
    return active_in(current())


def active_in(state: State) -> Transforms:
    intercept = state.intercept
    if isinstance(intercept, Above):
        intercept = beneath(intercept)
    return intercept if isinstance(intercept, Transforms) else NONE


def entered(state: State, level: Any, kind: str) -> State:
    """The state of this thread, which is given, with another level ("duals" or "vmaps")."""
    now = active()
    parts = {"duals": now.duals, "vmaps": now.vmaps}
    parts[kind] += (level,)
    return state.with_intercept(with_beneath(state.intercept, Transforms(**parts)))


def left(state: State, level: DualLevel) -> State:
    """A state without a level."""
    return state.with_intercept(with_beneath(state.intercept, active_in(state).without(level)))


NONE = Transforms((), ())
#: stands for the operation of a function that is none
NOTHING = SimpleNamespace(random=None)


def run_function(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return cls._forward_and_record(args, kwargs, None)

"""Hooks around the steps of optimizers, and around saving and loading their state."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from undertow.graph.hooks import RemovableHandle, add_hook

if TYPE_CHECKING:
    from undertow.optim.optimizer import Optimizer

Hook = Callable[..., Any]
Hooks = OrderedDict[int, Hook]

#: of all optimizers
_before_any_step: Hooks = OrderedDict()
_after_any_step: Hooks = OrderedDict()
_after_any_zero_grad: Hooks = OrderedDict()


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before every step of every optimizer."""
    return add_hook(_before_any_step, hook)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after every step of every optimizer."""
    return add_hook(_after_any_step, hook)


def register_optimizer_zero_grad_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, when it began)` after every `zero_grad` of every optimizer, for profiles."""
    return add_hook(_after_any_zero_grad, hook)


def with_zero_grad_hooks(zero_grad: Callable[..., None]) -> Callable[..., None]:
    """A `zero_grad` that calls the hooks of all optimizers."""

    @functools.wraps(zero_grad)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> None:
        begin = perf_counter_ns()
        zero_grad(self, *args, **kwargs)
        for hook in list(_after_any_zero_grad.values()):
            hook(self, begin)

    return hooked


def with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step that calls the hooks of all optimizers, and of this one, before and after."""

    @functools.wraps(step)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        self = args[0]
        self.has_stepped = True
        if "_optimizer_step_pre_hooks" not in vars(self):  # a wrapper of another optimizer, never initialized
            return step(*args, **kwargs)
        if _before_any_step or self._optimizer_step_pre_hooks:
            hooks = [*_before_any_step.values(), *self._optimizer_step_pre_hooks.values()]
            args, kwargs = replaced(hooks, self, args, kwargs)
        result = step(*args, **kwargs)
        if _after_any_step or self._optimizer_step_post_hooks:
            for hook in [*self._optimizer_step_post_hooks.values(), *_after_any_step.values()]:
                hook(self, args, kwargs)
        return result

    return hooked


def replaced(hooks: list[Hook], optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a step, after each hook could return others."""
    for hook in hooks:
        result = hook(optimizer, args, kwargs)
        if result is None:
            continue
        if not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError(
                f"{type(optimizer).__name__}.step: a hook before it must return None or a tuple of (new_args, "
                f"new_kwargs), but got {result}."
            )
        args, kwargs = result
    return args, kwargs


HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


class HookedOptimizer:
    """The hooks of one optimizer, around its steps and its state_dict."""

    _optimizer_step_pre_hooks: Hooks
    _optimizer_step_post_hooks: Hooks
    _optimizer_state_dict_pre_hooks: Hooks
    _optimizer_state_dict_post_hooks: Hooks
    _optimizer_load_state_dict_pre_hooks: Hooks
    _optimizer_load_state_dict_post_hooks: Hooks
    #: whether there was a step since a scheduler watches them
    has_stepped = False
    _watched = False

    def __init_subclass__(cls) -> None:
        """A subclass's own `step` calls the hooks, too."""
        super().__init_subclass__()
        if "step" in vars(cls):
            cls.step = with_hooks(cls.step)  # type: ignore[attr-defined]

    def __init__(self) -> None:
        for name in HOOKS:
            setattr(self, name, OrderedDict())

    def watch_steps(self) -> None:
        """From now on, `has_stepped` says whether there was a step: schedulers come after it.

        >>> import undertow as ut
        >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.5)
        >>> sgd.watch_steps()
        >>> sgd.step()
        >>> sgd.has_stepped
        True
        """
        if not self._watched:
            self._watched, self.has_stepped = True, False

    def __getstate__(self) -> dict[str, Any]:
        """Without hooks: a copy, or what comes out of a pickle, has none."""
        return {name: value for name, value in vars(self).items() if name not in HOOKS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        HookedOptimizer.__init__(self)
        vars(self).update(state)

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before every step; it may return other (args, kwargs).

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> _ = sgd.register_step_pre_hook(lambda optimizer, args, kwargs: print("before"))
        >>> sgd.step()
        before
        """
        return add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after every step.

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> _ = sgd.register_step_post_hook(lambda optimizer, args, kwargs: print("stepped"))
        >>> sgd.step()
        stepped
        """
        return add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict` looks at the state.

        prepend  call it before the hooks that are there

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> _ = sgd.register_state_dict_pre_hook(lambda optimizer: print("before"))
        >>> _ = sgd.state_dict()
        before
        """
        return add(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before `state_dict` returns; it may return another dict.

        prepend  call it before the hooks that are there

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> _ = sgd.register_state_dict_post_hook(lambda optimizer, state: {**state, "note": "mine"})
        >>> sgd.state_dict()["note"]
        'mine'
        """
        return add(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before a state is loaded; it may return another dict.

        prepend  call it before the hooks that are there

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> _ = sgd.register_load_state_dict_pre_hook(lambda optimizer, state: print(sorted(state)))
        >>> sgd.load_state_dict(sgd.state_dict())
        ['param_groups', 'state']
        """
        return add(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after a state was loaded.

        prepend  call it before the hooks that are there

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> _ = sgd.register_load_state_dict_post_hook(lambda optimizer: print("loaded"))
        >>> sgd.load_state_dict(sgd.state_dict())
        loaded
        """
        return add(self._optimizer_load_state_dict_post_hooks, hook, prepend)


def add(hooks: Hooks, hook: Hook, prepend: bool) -> RemovableHandle:
    handle = add_hook(hooks, hook)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def passed_through(hooks: Hooks, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The dict, or what the hooks return in its place."""
    for hook in list(hooks.values()):
        result = hook(optimizer, state_dict)
        state_dict = state_dict if result is None else result
    return state_dict

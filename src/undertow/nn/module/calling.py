"""Calling a Module: forward, and the hooks around it."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from undertow.graph.hooks import RemovableHandle, add_hook
from undertow.nn.module.backward_hooks import BackwardWatch
from undertow.nn.module.failures import TOLD, tell_module
from undertow.nn.module.old_backward_hooks import BOTH, watch_last_node
from undertow.nn.module.state_dict import Stateful, place_of_hooks
from undertow.tensor import Tensor

#: the functions by the numbers of their handles, as libraries look for their own among them
Functions = OrderedDict[int, Callable[..., Any]]


KINDS_OF_HOOKS = ("forward_pre", "forward", "backward_pre", "backward", "old_backward")


class Hooks:
    """The hooks around the calls of one module, or of all modules, and how those around forward want to be called."""

    def __init__(self) -> None:
        self.forward_pre: Functions = OrderedDict()
        self.forward: Functions = OrderedDict()
        self.backward_pre: Functions = OrderedDict()
        self.backward: Functions = OrderedDict()
        self.old_backward: Functions = OrderedDict()
        self.with_kwargs: OrderedDict[int, bool] = OrderedDict()
        self.always_called: OrderedDict[int, bool] = OrderedDict()

    def add(
        self,
        kind: str,
        hook: Callable[..., Any],
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        hooks = getattr(self, kind)
        handle = add_hook(hooks, hook)
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        if with_kwargs:
            self.with_kwargs[handle.id] = True
        if always_call:
            self.always_called[handle.id] = True
        return handle


#: hooks around the calls of every module; a list of none or one, so that asking for them is one truth test
EVERYWHERE: list[Hooks] = []


def everywhere() -> Hooks:
    if not EVERYWHERE:
        EVERYWHERE.append(Hooks())
    return EVERYWHERE[0]


def forget_hooks_everywhere() -> None:
    """Let calls go the short way again, if no hook is left that concerns every module."""
    if EVERYWHERE and not any([getattr(EVERYWHERE[0], kind) for kind in KINDS_OF_HOOKS]):
        EVERYWHERE.clear()


class Called(Stateful):
    """The part of Module that runs forward."""

    _undertow_hooks: Hooks | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass defines it.

        *args, **kwargs  what the module is called with

        >>> import undertow as ut
        >>> class Double(ut.nn.Module):
        ...     def forward(self, x):
        ...         return 2 * x
        >>> Double()(ut.ones(2))
        tensor([2., 2.])
        """
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self._undertow_hooks is None and not EVERYWHERE:
                return self.forward(*args, **kwargs)
            return ModuleCall(self, args, kwargs).run()
        except TOLD as error:
            tell_module(error, self, args)
            raise

    # ---- hooks

    def _own_hooks(self) -> Hooks:
        if self._undertow_hooks is None:
            self.__dict__["_undertow_hooks"] = Hooks()
        return self._undertow_hooks  # type: ignore[return-value]

    _forward_pre_hooks = place_of_hooks("_own_hooks", "forward_pre")
    _forward_hooks = place_of_hooks("_own_hooks", "forward")
    _backward_pre_hooks = place_of_hooks("_own_hooks", "backward_pre")
    _backward_hooks = place_of_hooks("_own_hooks", "backward")
    _forward_pre_hooks_with_kwargs = _forward_hooks_with_kwargs = place_of_hooks("_own_hooks", "with_kwargs")
    _forward_hooks_always_called = place_of_hooks("_own_hooks", "always_called")

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before forward; what it returns, if not None, are the arguments.

        with_kwargs  call `hook(module, args, kwargs)`, which returns None or (args, kwargs)
        prepend      before the hooks that are there already

        >>> import undertow as ut
        >>> linear = ut.nn.Linear(2, 1)
        >>> _ = linear.register_forward_pre_hook(lambda module, args: print(args[0].shape))
        >>> _ = linear(ut.ones(4, 2))
        undertow.Size([4, 2])
        """
        return self._own_hooks().add("forward_pre", hook, prepend, with_kwargs)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; what it returns, if not None, is the output.

        with_kwargs  call `hook(module, args, kwargs, output)`
        always_call  also if forward, or another hook, raises
        prepend      call it before the hooks that are there

        >>> import undertow as ut
        >>> layer = ut.nn.Linear(2, 3)
        >>> handle = layer.register_forward_hook(lambda module, args, output: print(output.shape))
        >>> y = layer(ut.ones(1, 2))
        undertow.Size([1, 3])
        """
        return self._own_hooks().add("forward", hook, prepend, with_kwargs, always_call)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_outputs)` when the gradients of the outputs are there; it may return others.

        prepend  call it before the hooks that are there

        >>> import undertow as ut
        >>> linear = ut.nn.Linear(1, 1)
        >>> _ = linear.register_full_backward_pre_hook(lambda module, grads: print(grads[0].shape))
        >>> linear(ut.ones(4, 1, requires_grad=True)).sum().backward()
        undertow.Size([4, 1])
        """
        return self._own_hooks().add("backward_pre", hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_inputs, grad_outputs)` when the gradients of the inputs are there.

        What it returns, if not None, takes the place of the gradients of the inputs.

        prepend  call it before the hooks that are there

        >>> import undertow as ut
        >>> layer = ut.nn.ReLU()
        >>> handle = layer.register_full_backward_hook(lambda module, inputs, outputs: print(inputs[0].tolist()))
        >>> layer(ut.tensor([-1.0, 2.0], requires_grad=True)).sum().backward()
        [0.0, 1.0]
        """
        if self._own_hooks().old_backward:
            raise RuntimeError(BOTH)
        return self._own_hooks().add("backward", hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, grad_inputs, grad_outputs)` with the gradients of the module's last operation.

        Deprecated: `register_full_backward_hook` gives those of the module.

        >>> import undertow as ut
        >>> model = ut.nn.Linear(2, 3)
        >>> _ = model.register_backward_hook(lambda module, inputs, outputs: print(outputs[0].shape))
        >>> model(ut.ones(1, 2)).sum().backward()
        undertow.Size([1, 3])
        """
        if self._own_hooks().backward:
            raise RuntimeError(BOTH)
        return self._own_hooks().add("old_backward", hook)


class ModuleCall:
    """One call of a module that is hooked, or while hooks are on every module."""

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.result: Any = None
        self.called: set[int] = set()
        self.hooks = [*EVERYWHERE, *([] if module._undertow_hooks is None else [module._undertow_hooks])]

    def all_of(self, kind: str) -> list[tuple[int, Any]]:
        return [item for hooks in self.hooks for item in getattr(hooks, kind).items()]

    def run(self) -> Any:
        try:
            return self.run_hooked()
        except Exception:
            self.run_left_over()
            raise

    def run_hooked(self) -> Any:
        for id, hook in self.all_of("forward_pre"):
            self.before(hook, self.wants("with_kwargs", id))
        watch = self.make_watch()
        if watch is not None:
            self.args = watch.around_inputs(self.args)
        self.result = self.module.forward(*self.args, **self.kwargs)
        for id, hook in self.all_of("forward"):
            self.called.add(id)
            self.after(hook, self.wants("with_kwargs", id))
        if watch is not None:
            if not isinstance(self.result, Tensor | tuple):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                    f"received {type(self.result)}",
                    stacklevel=4,
                )
            self.result = watch.around_outputs(self.result)
        old = [hook for _, hook in self.all_of("old_backward")]
        if old:
            watch_last_node(self.module, self.args, self.result, old)
        return self.result

    def make_watch(self) -> BackwardWatch | None:
        hooks = [hook for _, hook in self.all_of("backward")]
        pre_hooks = [hook for _, hook in self.all_of("backward_pre")]
        return BackwardWatch(self.module, hooks, pre_hooks) if hooks or pre_hooks else None

    def wants(self, what: str, id: int) -> bool:
        return any([id in getattr(hooks, what) for hooks in self.hooks])

    def before(self, hook: Callable[..., Any], with_kwargs: bool) -> None:
        if not with_kwargs:
            found = hook(self.module, self.args)
            if found is not None:
                self.args = found if isinstance(found, tuple) else (found,)
            return
        found = hook(self.module, self.args, self.kwargs)
        if found is None:
            return
        if not isinstance(found, tuple) or len(found) != 2:
            raise RuntimeError(
                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {found}."
            )
        self.args, self.kwargs = found

    def after(self, hook: Callable[..., Any], with_kwargs: bool) -> None:
        kwargs = (self.kwargs,) if with_kwargs else ()
        found = hook(self.module, self.args, *kwargs, self.result)
        if found is not None:
            self.result = found

    def run_left_over(self) -> None:
        """After an error: the hooks that want to be called in any case and have not been."""
        for id, hook in self.all_of("forward"):
            if self.wants("always_called", id) and id not in self.called:
                try:
                    self.after(hook, self.wants("with_kwargs", id))
                except Exception as error:
                    warnings.warn(
                        "module forward hook with ``always_call=True`` raised an exception that was silenced as "
                        f"another error was raised in forward: {error}",
                        stacklevel=4,
                    )


# ---- hooks on every module


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the forward of any module."""
    return everywhere().add("forward_pre", hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the forward of any module."""
    return everywhere().add("forward", hook, False, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_outputs)` for any module."""
    return everywhere().add("backward_pre", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_inputs, grad_outputs)` for any module."""
    if everywhere().old_backward:
        raise RuntimeError(BOTH)
    return everywhere().add("backward", hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`register_backward_hook` for any module."""
    if everywhere().backward:
        raise RuntimeError(BOTH)
    return everywhere().add("old_backward", hook)

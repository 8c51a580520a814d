"""Walking through a Module: its parameters, buffers and modules, with their dotted names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from undertow.nn.module.registry import Registry

if TYPE_CHECKING:
    from undertow.nn.module import Module

T = TypeVar("T", bound="Tree")


class Tree(Registry):
    """The part of Module that knows its members and those of its children."""

    # ---- modules

    def children(self) -> Iterator[Any]:
        """The modules directly below this one, each once.

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> list(model.children())
        [Linear(in_features=2, out_features=3, bias=True), Linear(in_features=3, out_features=1, bias=True)]
        """
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The modules directly below this one with their names, each once.

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> [name for name, _ in model.named_children()]
        ['0', '1']
        """
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """This module and all below it, each once (or as often as it is there).

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> len(list(model.modules()))
        3
        """
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """This module and all below it with their dotted names ('' for this one).

        memo  a set of modules that have been seen, and do not come again

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> [name for name, _ in model.named_modules()]
        ['', '0', '1']
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    # ---- tensors

    def _named_members(
        self, members: Callable[[Any], Any], prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, member in members(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield (f"{path}.{name}" if path else name), member

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """The parameters of this module and (recurse) of all below it, each once: what an optimizer is given.

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> sum(parameter.numel() for parameter in model.parameters())
        13
        """
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """`parameters` with their dotted names.

        recurse  those of the modules below it, too

        >>> import undertow as ut
        >>> [name for name, _ in ut.nn.Sequential(ut.nn.Linear(2, 3)).named_parameters()]
        ['0.weight', '0.bias']
        """
        return self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """The buffers of this module and (recurse) of all below it, each once.

        >>> import undertow as ut
        >>> len(list(ut.nn.BatchNorm1d(3).buffers()))
        3
        """
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """`buffers` with their dotted names.

        recurse  those of the modules below it, too

        >>> import undertow as ut
        >>> [name for name, _ in ut.nn.BatchNorm1d(2).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    # ---- by name

    def get_submodule(self, target: str) -> Any:
        """The module with a dotted name ('' is this one).

        target  the name, such as "body.linear"

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> model.get_submodule("0")
        Linear(in_features=2, out_features=3, bias=True)
        """
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Tree):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module in the place of a dotted name.

        strict  there must be a module already
        target  the name, such as "body.linear"

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> model.set_submodule("1", ut.nn.ReLU())
        >>> model[1]
        ReLU()
        """
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        if not isinstance(module, Tree):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if not isinstance(getattr(parent, name, module), Tree):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Any:
        """The parameter with a dotted name.

        target  the name, such as "body.linear.weight"

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> model.get_parameter("1.bias").shape
        undertow.Size([1])
        """
        return self._get_member(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target: str) -> Any:
        """The buffer with a dotted name.

        target  the name, such as "body.norm.running_mean"

        >>> import undertow as ut
        >>> ut.nn.BatchNorm1d(2).get_buffer("running_mean")
        tensor([0., 0.])
        """
        return self._get_member(target, "_buffers", "a buffer")

    def _get_member(self, target: str, kind: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if name not in module.__dict__[kind]:
            raise AttributeError(f"`{name}` is not {what}")
        return module.__dict__[kind][name]

    def apply(self: T, fn: Callable[[Any], Any]) -> T:
        """Call `fn(module)` for every module below this one, then for this one.

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> _ = model.apply(lambda module: print(type(module).__name__))
        Linear
        Linear
        Sequential
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

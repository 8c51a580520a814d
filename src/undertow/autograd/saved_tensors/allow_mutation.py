"""allow_mutation_on_saved_tensors: change tensors that a graph has saved, and let it keep what they were.

Saved tensors are kept as handles (see saved-tensor hooks). An in-place change looks for handles of the memory it is
about to change, and gives each a copy of what it stands for: one copy per saved version, made only when it is needed.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from undertow.graph.operation_node import SavedHooks
from undertow.modes import State, state_variable
from undertow.scopes import Scope
from undertow.tensor import Tensor, counter_of, version_of


class Handle:
    """One saved tensor at one version. The graph owns it; it knows the counter, so that its id stays taken."""

    __slots__ = ("__weakref__", "counter", "version")

    def __init__(self, counter: Any) -> None:
        self.counter = counter
        self.version = counter.value


class MutationContext:
    """What `allow_mutation_on_saved_tensors` keeps.

    original           handle -> the saved tensor, as long as nobody changes it
    cloned             handle -> the copy made before it was changed
    tid_to_weakhandle  which tensor at which version -> its handle
    """

    def __init__(self) -> None:
        self.original: WeakKeyDictionary[Handle, Tensor] = WeakKeyDictionary()
        self.cloned: WeakKeyDictionary[Handle, Tensor] = WeakKeyDictionary()
        self.tid_to_weakhandle: WeakValueDictionary[Any, Handle] = WeakValueDictionary()
        self._of_counter: dict[int, WeakSet[Handle]] = {}

    def pack(self, tensor: Tensor) -> Handle:
        counter, array = counter_of(tensor), tensor._array
        key = (id(counter), counter.value, array.__array_interface__["data"], array.shape, array.strides)
        handle = self.tid_to_weakhandle.get(key)
        if handle is None:
            handle = self.tid_to_weakhandle[key] = Handle(counter)
            self.original[handle] = tensor
            self._of_counter.setdefault(id(counter), WeakSet()).add(handle)
        return handle

    def unpack(self, handle: Handle) -> Tensor:
        if handle in self.cloned:
            return self.cloned[handle]
        if handle not in self.original:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "originally recorded. Call backward inside the same block."
            )
        tensor = self.original[handle]
        if version_of(tensor) != handle.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation that "
                "allow_mutation_on_saved_tensors was not told of: its memory was changed outside of the block, or "
                f"behind undertow's back. The last change was {handle.counter.last_change()}."
            )
        return tensor

    def before_change(self, tensor: Tensor) -> None:
        """Copy what the graph has saved of the memory behind `tensor`, which is about to be changed."""
        for handle in self._of_counter.pop(id(counter_of(tensor)), ()):
            saved = self.original.pop(handle, None)
            if saved is not None:
                self.cloned[handle] = Tensor(saved._array.copy(order="K"), saved._xp)

    def clear(self) -> None:
        for known in (self.original, self.cloned, self.tid_to_weakhandle, self._of_counter):
            known.clear()


class allow_mutation_on_saved_tensors(Scope):
    """Inside, tensors that a graph has saved may be changed in place: the graph keeps a copy of what they were.

    Backward must be called inside, too. Gives a `MutationContext`, whose `cloned` shows the copies that exist.

    >>> import undertow as ut
    >>> a = ut.ones(2, requires_grad=True)
    >>> with ut.autograd.graph.allow_mutation_on_saved_tensors():
    ...     b = a.clone()
    ...     out = (b * b).sum()
    ...     _ = b.zero_()
    ...     out.backward()
    >>> a.grad
    tensor([2., 2.])
    """

    variable = state_variable
    given: MutationContext

    def inside(self, outer: State) -> State:
        if outer.before_change is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        if outer.no_saved_hooks is not None:
            raise RuntimeError(outer.no_saved_hooks)
        self.given = context = MutationContext()
        hooks = (*outer.saved_hooks, SavedHooks(context.pack, context.unpack))
        return outer.replace(saved_hooks=hooks, before_change=context.before_change)

    def after(self, inner: State, outer: State) -> State:
        return inner.replace(saved_hooks=inner.saved_hooks[:-1], before_change=None)

    def ended(self) -> None:
        self.given.clear()

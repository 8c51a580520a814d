"""`__torch_function__`: functions ask the classes of their arguments what becomes of the call.

A class has a say if it has a `__torch_function__` of its own: a subclass of Tensor, or one that has nothing to do with
it but stands for a tensor (a diagonal matrix that is never written out, say).

Note [Functions that ask]: until a program defines such a class, nobody is asked, and `FUNCTIONS_ASK` is empty. An
operation and its in-place form look there on the way that C leaves to Python, where a call begins (`function_of` in
ops/declare/apply.py). Every other function that programs call is put behind a gate, `asks`, when it is made: a
composite where it is registered, the rest by the list that makes it public. With the compiled core a gate is a C
object, which costs a hundredth of what most of these functions take. Profiles see composites through the same gates
(instrument/profiler/composites.py).

`__get__` of a tensor's attributes, which PyTorch also asks about, is not asked about here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from undertow.compiled import core
from undertow.scopes import Scope, common_lock, held

# ---- whom to ask


class Asking(NamedTuple):
    """Who is asked in this thread at present.

    classes  ASKED; SILENT, and results are of the class that they would have been; or PLAIN, and they are plain tensors
    modes    the TorchFunctionModes that were entered, the innermost last
    """

    classes: int = 0
    modes: tuple[Any, ...] = ()

    @property
    def mode(self) -> Any:
        return self.modes[-1] if self.modes else None


ASKED, SILENT, PLAIN = range(3)
EVERYBODY = Asking()
asking: ContextVar[Asking] = ContextVar("undertow.torch_function", default=EVERYBODY)


class _Disabled(Scope):
    variable = asking
    classes = SILENT

    def inside(self, outer: Asking) -> Asking:
        return outer._replace(classes=max(outer.classes, self.classes))

    def after(self, inner: Asking, outer: Asking) -> Asking:
        return outer


class DisableTorchFunctionSubclass(_Disabled):
    """Inside, no class is asked, and results are plain tensors."""

    classes = PLAIN


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Inside, neither classes nor modes are asked."""

    def inside(self, outer: Asking) -> Asking:
        return Asking(PLAIN)


def by_default(cls: Any, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
    """What Tensor itself says to a call: the function, whose results are of the class that is asked."""
    if not all([issubclass(cls, kind) for kind in types]):
        return NotImplemented
    if asking.get().classes != ASKED:  # none of our functions asks now: this is one of PyTorch's own
        return NotImplemented
    own = cls.__base__ is object  # Tensor's own, called by a subclass that wants plain results
    with DisableTorchFunctionSubclass() if own else _Disabled():
        return converted(func(*args, **(kwargs or {})), cls)


def converted(result: Any, cls: Any) -> Any:
    """A result, whose plain tensors become tensors of the class."""
    if isinstance(result, tuple | list):
        items = [converted(item, cls) for item in result]
        if all([new is old for new, old in zip(items, result, strict=True)]):
            return result
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    is_tensor = hasattr(result, "results_keep_class") and issubclass(cls, type(result))
    return result.as_subclass(cls) if is_tensor and type(result) is not cls else result


def never(func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of classes that have no say, and whose results are plain tensors."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def own_function(kind: type) -> Any:
    """The `__torch_function__` that a class has of its own, or None. PyTorch's tensors know none of our functions."""
    found = getattr(kind, "__torch_function__", None)
    if found is None or getattr(found, "__func__", found) in (by_default, never):
        return None
    return None if is_pytorchs(kind) else found


def is_pytorchs(kind: type) -> bool:
    """Whether it is PyTorch's Tensor, or derived from it. Ours may go by the same name (see stand_in)."""
    names = [(base.__module__, base.__name__) for base in kind.__mro__]
    return ("torch", "Tensor") in names and not hasattr(kind, "results_keep_class")


def is_derived(kind: type) -> bool:
    """Whether it is a subclass of Tensor that leaves `__torch_function__` as it is, and has its class kept."""
    found = getattr(getattr(kind, "__torch_function__", None), "__func__", None)
    return found is by_default and kind.__base__ is not object and kind.results_keep_class  # type: ignore[attr-defined]


def overloaded(values: Iterable[Any]) -> list[Any]:
    """The arguments whose classes take part, one of each class, subclasses before their bases."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in QUIET or (own_function(kind) is None and not is_derived(kind)):
            continue
        if not any([kind is type(other) for other in found]):
            place = next((n for n, other in enumerate(found) if issubclass(kind, type(other))), len(found))
            found.insert(place, value)
    return found


#: classes of most arguments, which are not tensors
QUIET = frozenset((int, float, bool, str, complex, type(None), dict, slice, type(Ellipsis)))


def flat(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments of a call, and what is in lists among them."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, tuple | list):
            yield from value
        else:
            yield value


# ---- asking


#: not empty from the first class, or the first mode, on
FUNCTIONS_ASK: list[bool] = []

#: while profiles look on at functions made of operations, and there is no compiled core: what runs those behind a gate
LOOKING_ON: list[Callable[..., Any]] = []

#: what a call gets for an answer where nobody has a say
NOBODY = object()


def answer(public: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a mode or the classes of the arguments make of a call, or NOBODY.

    public  what programs know the function by, and handlers compare
    """
    now = asking.get()
    if len(args) == 2 and isinstance(args[1], list | tuple) and public.__name__ == "einsum":
        args = (args[0], *args[1])  # as PyTorch unpacks them before it asks
    found = overloaded(flat(args, kwargs)) if now.classes == ASKED else []
    mode = now.mode
    if mode is None and all([own_function(type(value)) is None for value in found]):
        return NOBODY
    if mode is not None:
        result = mode.show_function(public, tuple([type(value) for value in found]), args, kwargs)
        if result is not NotImplemented:
            return result
    return ask(public, found, args, kwargs)


def ask(public: Any, found: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the first of these arguments that knows the function makes of the call."""
    types = tuple([type(value) for value in found])
    for value in found:
        result = value.__torch_function__(public, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if public.__name__ in ("__eq__", "__ne__"):  # a tensor is just unequal to what it knows nothing of
        return NotImplemented
    name = f"{getattr(public, '__module__', '')}.{getattr(public, '__name__', public)}"
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: {list(types)}: "
        "each of them returned NotImplemented. Handle the function there, or convert the arguments to tensors first."
    )


def enable() -> None:
    """Let functions ask, from now on. Tensor's subclasses with a `__torch_function__` call this when they are made."""
    with held(common_lock):
        if not FUNCTIONS_ASK:
            if core is not None:
                core.bind(ask_first=ask_first)
            FUNCTIONS_ASK.append(True)


# ---- which functions ask


def asks(function: Callable[..., Any]) -> Any:
    """Put a function that programs call behind a gate, unless it asks already, as C objects do."""
    if type(function) is not FunctionType or vars(function).get("asks") is function:
        return function
    if core is not None:
        return core.Gate(function)

    @asks_itself
    @functools.wraps(function)
    def gate(*args: Any, **kwargs: Any) -> Any:
        if FUNCTIONS_ASK:
            return ask_first(gate, function, *args, **kwargs)
        return LOOKING_ON[0](gate, function, *args, **kwargs) if LOOKING_ON else function(*args, **kwargs)

    return gate


def asks_itself(function: Any) -> Any:
    """Mark a function that asks. It is the value of the mark, which wrappers copy, but which is not them."""
    function.asks = function
    return function


def ask_first(public: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the function that is behind a gate, unless somebody has a say. C calls this, too (csrc/call/gate.c)."""
    result = answer(public, args, kwargs)
    if result is not NOBODY:
        return result
    return LOOKING_ON[0](public, function, *args, **kwargs) if LOOKING_ON else function(*args, **kwargs)


_namespaces: list[tuple[Mapping[str, Any], frozenset[str]]] = []


def join(namespace: Mapping[str, Any], but: str = "") -> None:
    """Note that the functions of a module or a class ask, but those named."""
    _namespaces.append((namespace, frozenset(but.split())))


def gates(namespace: Mapping[str, Any], but: str = "") -> dict[str, Any]:
    """The functions of a module or a class behind gates, but those named; see `join`."""
    join(namespace, but)
    return {
        name: asks(value)
        for name, value in namespace.items()
        if type(value) is FunctionType and takes_part(name, value, _namespaces[-1][1])
    }


def takes_part(name: str, function: FunctionType | None, but: frozenset[str]) -> bool:
    """Whether a function asks. Methods that programs have given to Tensor do not."""
    return function is not None and name not in but and function.__module__.partition(".")[0] == "undertow"


def overridable() -> Iterator[tuple[Mapping[str, Any], str, Any]]:
    """The functions that ask: where they are found, by which name, and what programs know them by."""
    for namespace, but in _namespaces:
        for name, public in list(namespace.items()):
            if takes_part(name, python_function(public), but):
                yield namespace, name, public


def python_function(public: Any) -> FunctionType | None:
    """The function itself, or the one behind C objects."""
    while type(public) is not FunctionType:
        if isinstance(public, type | ModuleType) or not hasattr(public, "function"):
            return None
        public = public.function
    return public

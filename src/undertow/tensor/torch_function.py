"""`__torch_function__`: functions ask the classes of their arguments what becomes of the call.

A class has a say if it has a `__torch_function__` of its own: a subclass of Tensor, or one that has nothing to do with
it but stands for a tensor (a diagonal matrix that is never written out, say).

Note [Functions that ask]: until a program defines such a class, nothing is asked and nothing is slower. The functions
that take part join (`join`) when their module is loaded; when the first class is met (`enable`), the code of each is
replaced by one line that asks and then calls what it was before. The function objects stay what they are, so whoever
imported one before has the asking one, too. With the compiled core, a C object goes on to do the usual case itself,
because its tensors are plain ones, and comes to the Python function behind it with all others.

`__get__` of a tensor's attributes, which PyTorch also asks about, is not asked about here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import CodeType, FunctionType, ModuleType
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


def by_default(cls: Any, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
    """What Tensor itself says to a call: the function, whose results are of the class that is asked."""
    if not all([issubclass(cls, kind) for kind in types]):
        return NotImplemented
    if asking.get().classes != ASKED:  # none of our functions asks now: this is one of PyTorch's own
        return NotImplemented
    with _Disabled():
        return _converted(func(*args, **(kwargs or {})), cls)


def _converted(result: Any, cls: Any) -> Any:
    if isinstance(result, tuple | list):
        items = [_converted(item, cls) for item in result]
        if all([new is old for new, old in zip(items, result, strict=True)]):
            return result
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    is_tensor = hasattr(result, "results_keep_class") and issubclass(cls, type(result))
    return result.as_subclass(cls) if is_tensor and type(result) is not cls else result


def never(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
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


class Asked:
    """A function that asks before it does what it did.

    public    what programs know the function by, and handlers compare: the function, or the C object in front of it
    original  the function as it was
    """

    __slots__ = ("original", "public")

    def __init__(self, public: Any, original: FunctionType) -> None:
        self.public, self.original = public, original

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        now = asking.get()
        if len(args) == 2 and self.original.__name__ == "einsum" and isinstance(args[1], list | tuple):
            args = (args[0], *args[1])  # as PyTorch unpacks them before it asks
        found = overloaded(flat(args, kwargs)) if now.classes == ASKED else []
        mode = now.mode
        if mode is None and all([own_function(type(value)) is None for value in found]):
            return self.original(*args, **kwargs)
        if mode is not None:
            result = mode.show_function(self.public, tuple([type(value) for value in found]), args, kwargs)
            if result is not NotImplemented:
                return result
        return ask(self.public, found, args, kwargs)


def ask(public: Any, found: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the first of these arguments that knows the function makes of the call."""
    types = tuple([type(value) for value in found])
    for value in found:
        result = value.__torch_function__(public, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{getattr(public, '__module__', '')}.{getattr(public, '__name__', public)}"
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: {list(types)}: "
        "each of them returned NotImplemented. Handle the function there, or convert the arguments to tensors first."
    )


# ---- which functions ask


_namespaces: list[tuple[Mapping[str, Any], frozenset[str]]] = []
_enabled: list[bool] = []


def join(namespace: Mapping[str, Any], but: str = "") -> None:
    """Let the functions of a module or a class take part, but those named. See Note [Functions that ask]."""
    with held(common_lock):
        _namespaces.append((namespace, frozenset(but.split())))
        if _enabled:
            _interpose_all(*_namespaces[-1])


def enable() -> None:
    """Let functions ask, from now on. Tensor's subclasses with a `__torch_function__` call this when they are made."""
    with held(common_lock):
        if not _enabled:
            for namespace, but in _namespaces:
                _interpose_all(namespace, but)
            _enabled.append(True)
            if core is not None:
                core.bind(functions_ask=True)


def is_enabled() -> bool:
    return bool(_enabled)


def functions_of(namespace: Mapping[str, Any], but: frozenset[str]) -> Iterator[tuple[str, Any, FunctionType]]:
    """The functions that take part: their names, what programs know them by, and the Python functions behind them.

    Methods that programs have given to Tensor are not among them.
    """
    for name, public in list(namespace.items()):
        function = python_function(public)
        if function is not None and name not in but and function.__module__.partition(".")[0] == "undertow":
            yield name, public, function


def python_function(public: Any) -> FunctionType | None:
    """The function itself, or the one behind C objects."""
    while type(public) is not FunctionType:
        if isinstance(public, type | ModuleType) or not hasattr(public, "function"):
            return None
        public = public.function
    return public


def overridable() -> Iterator[tuple[Mapping[str, Any], str, Any]]:
    for namespace, but in _namespaces:
        for name, public, _ in functions_of(namespace, but):
            yield namespace, name, public


def _interpose_all(namespace: Mapping[str, Any], but: frozenset[str]) -> None:
    for _, public, function in functions_of(namespace, but):
        code = function.__code__
        if code.co_filename != __file__ and not inspect.isgeneratorfunction(function):
            _interpose(public, function)


def _interpose(public: Any, function: FunctionType) -> None:
    """Replace the function's code by one that asks, with the Asked of this function as a constant."""
    code = function.__code__
    original = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    original.__kwdefaults__ = function.__kwdefaults__
    original.__dict__.update(function.__dict__)
    if public is function and not hasattr(function, "__wrapped__") and not hasattr(function, "__signature__"):
        function.__signature__ = inspect.signature(original)
    asked = Asked(public, original)
    template = _asking_code(len(code.co_freevars))
    function.__code__ = template.replace(
        co_consts=tuple([asked if value == PLACE else value for value in template.co_consts]),
        co_name=code.co_name,
        co_qualname=code.co_qualname,
    )


def behind(function: FunctionType) -> FunctionType:
    """The function that does the work: itself, or the one that it calls when it has asked."""
    asked = next((value for value in function.__code__.co_consts if type(value) is Asked), None)
    return function if asked is None else asked.original


#: the constant that stands where the Asked will be
PLACE = "the place of an Asked"


@functools.cache
def _asking_code(cells: int) -> CodeType:
    """The code of a function that asks, with as many variables of outer functions as the one whose place it takes.

    It has no use for them, but Python's frames must find them where the code says that they are.
    """
    names = [f"cell_{n}" for n in range(cells)]
    source = [
        "def outer():",
        *[f" {name} = None" for name in names],
        " def asking(*args, **kwargs):",
        f"  return {PLACE!r}.call(args, kwargs)",
        *[f"  {name}" for name in names],
        " return asking",
    ]
    scope: dict[str, Any] = {}
    above = Asked.call.__code__.co_firstlineno - 3 - cells  # so that tracebacks show that line
    exec(compile("\n" * above + "\n".join(source), __file__, "exec"), scope)
    code: CodeType = scope["outer"]().__code__
    return code

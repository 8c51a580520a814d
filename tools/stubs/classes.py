"""Classes as stubs write them: Tensor with all that is attached to it, Size, and the types of several results."""

from __future__ import annotations

import inspect
import re
from typing import Any

from tools.stubs.annotations import annotation_text
from tools.stubs.functions import definition, operation_behind, overloads, passes_on, write_function
from undertow import Size, Tensor, methods, ops
from undertow.ops.declare import return_types

#: attributes whose getter does not say what they are
ATTRIBUTES = {
    "device": "Device",
    "dtype": "dtype[Any]",
    "grad_dtype": "dtype[Any] | None",
    "name": "str | None",
    "_backward_hooks": "Any",
    "_post_accumulate_grad_hooks": "Any",
}

#: special methods that Python calls with one operand
COMPARISONS = ("__eq__", "__ne__")

#: of Size: what it does more precisely than a tuple
SIZE = [
    "def __new__(cls, sizes: Iterable[SupportsIndex] = ...) -> Size: ...",
    *overloads([
        "def __getitem__(self, index: SupportsIndex, /) -> int: ...",
        "def __getitem__(self, index: slice, /) -> Size: ...",
    ]),
    "def __add__(self, other: Iterable[int], /) -> Size: ...",
]  # fmt: skip


def tensor_class() -> list[str]:
    """The lines of class Tensor."""
    lines = ["class Tensor:"]
    for name in sorted(vars(Tensor)):
        member = methods.PROPERTIES.get(name) or inspect.getattr_static(Tensor, name)
        if name in ("__dict__", "__weakref__", "__doc__", "__module__", "__slots__", "__annotations__", "__init__"):
            continue
        if name == "__new__":
            continue  # it is there as soon as a program has made a subclass with one
        lines += [f"    {line}" for line in write_member(name, member)]
    return [*lines, "    def __init__(self, *sizes_or_data: Any, device: DeviceLike | None = None) -> None: ..."]


def write_member(name: str, member: Any) -> list[str]:
    if isinstance(member, property):
        return write_property(name, member)
    if name == "__hash__":
        return ["def __hash__(self) -> int: ..."]
    if name in COMPARISONS:
        return [f"def {name}(self, other: Operand | None) -> Tensor: ..."]
    if name.startswith("__") and name in operators():
        return write_operator(name)
    if name == "__delitem__":
        return ["def __delitem__(self, index: Index) -> None: ..."]
    if name == "__setitem__":
        return ["def __setitem__(self, index: Index, value: Operand) -> None: ..."]
    if name == "__repr__":
        return ["def __repr__(self) -> str: ..."]
    if name == "where":
        return ["def where(self, condition: TensorLike, other: Operand) -> Tensor: ..."]
    if name == "polygamma":
        return ["def polygamma(self, n: int) -> Tensor: ..."]
    if not callable(member):
        return [f"{name}: {type(member).__name__ if isinstance(member, bool | int | float | str) else 'Any'}"]
    if not hasattr(member, "op") and passes_on(member) and operation_behind(name):
        return in_place_method(name)
    return write_function(name, member, method=True)


def in_place_method(name: str) -> list[str]:
    """An in-place method takes what its operation takes, and returns the tensor."""
    behind = operation_behind(name)
    assert behind is not None
    lines = write_function(behind, getattr(ops, behind), method=True)
    renamed = [re.sub(r"^def \w+\(", f"def {name}(", line) for line in lines]
    return [re.sub(r"-> .*: \.\.\.$", "-> Tensor: ...", line) for line in renamed]


def operators() -> dict[str, str]:
    """Python's operators among the methods, and the operations they stand for."""
    return {**methods.OPERATORS, **methods.REFLECTED, **methods.AUGMENTED, "__rtruediv__": "true_divide"}


def write_operator(name: str) -> list[str]:
    if name == "__getitem__":
        return ["def __getitem__(self, index: Index) -> Tensor: ..."]
    if name in ("__abs__", "__invert__", "__neg__", "__pos__"):
        return [f"def {name}(self) -> Tensor: ..."]
    operand = "TensorLike" if "matmul" in name else "Operand"
    return [f"def {name}(self, other: {operand}, /) -> Tensor: ..."]


def write_property(name: str, member: property) -> list[str]:
    written = annotation_text(inspect.signature(member.fget).return_annotation) if member.fget else "Any"
    kind = ATTRIBUTES.get(name) or (fallback(name) if re.search(r"\bAny\b", written) else written)
    lines = ["@property", f"def {name}(self) -> {kind}: ..."]
    if member.fset is not None:
        lines += [f"@{name}.setter", f"def {name}(self, value: {kind}) -> None: ..."]
    if member.fdel is not None and name == "grad":
        lines += [f"@{name}.deleter", f"def {name}(self) -> None: ..."]
    return lines


def fallback(name: str) -> str:
    return "bool" if name.startswith("is_") else "Tensor"


def size_class() -> list[str]:
    own = [name for name in vars(Size) if not name.startswith("__")]
    lines = [line for name in own for line in write_function(name, vars(Size)[name], method=True)]
    return ["class Size(tuple[int, ...]):", *(f"    {line}" for line in [*SIZE, *lines])]


def return_type_classes() -> list[str]:
    """Tuples with named fields. A field holds a tensor, but for the edges of a histogram of several dimensions."""
    lines = ["class ReturnType(tuple[Any, ...]):", "    fields: tuple[str, ...]"]
    for name, kind in vars(return_types).items():
        if not inspect.isclass(kind) or not issubclass(kind, return_types.ReturnType) or not kind.fields:
            continue
        types = {field: "Tensor" for field in kind.fields}
        if name == "histogramdd":
            types["bin_edges"] = "tuple[Tensor, ...]"
        lines += [f"class {name}(tuple[{', '.join(types.values())}]):", "    fields: tuple[str, ...]"]
        for field, annotation in types.items():
            lines += ["    @property", f"    {definition(field, ['self'], annotation)}"]
    return lines

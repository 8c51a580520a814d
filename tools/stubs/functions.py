"""A function or a method as a stub writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tools.stubs.annotations import annotation_text, parameter_type, result_type
from undertow import ops

#: what a decorator adds to the arguments of the function it wraps
ADDED = {
    "numpy_spelling": ["axis: Dims = None", "keepdims: bool = False"],
    "with_out": ["out: Tensor | None = None"],
    "takes_old_arguments": ["size_average: bool | None = None", "reduce: bool | None = None"],
}

#: functions whose result depends on how they are called: the arguments after the first, and the result
CASES: dict[str, list[tuple[str, str]]] = {
    **{
        name: [
            ("", "Tensor"),
            ("dim: int, keepdim: bool = False, *, out: tuple[Tensor, Tensor] | None = None", f"return_types.{name}"),
            ("*, axis: int, keepdims: bool = False", f"return_types.{name}"),
            ("other: TensorLike, *, out: Tensor | None = None", "Tensor"),
        ]
        for name in ("max", "min")
    },
    **{
        name: [
            ("", "Tensor"),
            ("dim: int, keepdim: bool = False, *, out: tuple[Tensor, Tensor] | None = None", f"return_types.{name}"),
        ]
        for name in ("median", "nanmedian")
    },
    **{
        f"atleast_{n}d": [("/", "Tensor"), ("*tensors: TensorLike", "tuple[Tensor, ...]")] for n in (1, 2, 3)
    },
    "grad": [
        (f"outputs: Tensor | Sequence[Tensor], inputs: {inputs}, "
         "grad_outputs: Tensor | Sequence[Tensor | None] | None = None, retain_graph: bool | None = None, "
         "create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None, "
         "is_grads_batched: bool = False, materialize_grads: bool = False", result)
        for inputs, result in (("Tensor | Sequence[Any]", "tuple[Tensor, ...]"),
                               ("dict[str, Tensor]", "dict[str, Tensor]"))
    ],
    "size": [("", "Size"), ("dim: int", "int")],
    "stride": [("", "tuple[int, ...]"), ("dim: int", "int")],
    "to": [
        (f"{moved}, non_blocking: bool = False, copy: bool = False, *, memory_format: memory_format | None = None",
         "Tensor")
        for moved in ("dtype: DTypeLike", "device: DeviceLike | None = None, dtype: DTypeLike | None = None",
                      "other: Tensor")
    ],
    "type": [("", "str"), ("dtype: DTypeLike | str, non_blocking: bool = False", "Tensor")],
    "view": [("*shape: Sizes", "Tensor"), ("dtype: DTypeLike", "Tensor"), ("*, size: Sizes", "Tensor")],
    "where": [
        ("", "tuple[Tensor, ...]"),
        ("input: Operand, other: Operand, *, out: Tensor | None = None", "Tensor"),
    ],
}  # fmt: skip

#: arguments that change the result when they are True
FLAGS = {
    **{
        name: {"return_indices": "tuple[Tensor, Tensor]"}
        for n in (1, 2, 3)
        for name in (f"max_pool{n}d", f"adaptive_max_pool{n}d", f"fractional_max_pool{n}d")
    },
    "lu": {"get_infos": "tuple[Tensor, Tensor, Tensor]", "": "tuple[Tensor, Tensor]"},
    "nonzero": {"as_tuple": "tuple[Tensor, ...]"},
    "unique": {"return_inverse": "tuple[Tensor, ...]", "return_counts": "tuple[Tensor, ...]"},
    "unique_consecutive": {"return_inverse": "tuple[Tensor, ...]", "return_counts": "tuple[Tensor, ...]"},
}

POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


def wrappers(function: Any) -> Iterator[str]:
    """The names of the decorators around a function."""
    last = None
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is not None and code is not last and ".<locals>" in code.co_qualname:
            yield code.co_qualname.split(".")[0]
        last = code  # a gate in C has the code of what is behind it
        function = getattr(function, "__wrapped__", None)


def passes_on(function: Any) -> bool:
    """Whether a function's own signature says nothing, because it hands everything to another."""
    return any(p.kind is p.VAR_KEYWORD and p.name == "kwargs" for p in inspect.signature(function).parameters.values())


def signature_of(name: str, function: Callable[..., Any]) -> inspect.Signature:
    """How a function is called: of one that passes everything on, how the function behind it is called."""
    signature = annotated(inspect.signature(function), getattr(function, "op", None))
    if str(function.__module__).startswith(("undertow.nn", "undertow.ops.network")):
        signature = of_arrays_too(signature)
    if passes_on(function):
        behind = operation_behind(name)
        if behind and (behind != name or "inplace" in signature.parameters):
            return with_inplace(signature_of(behind, getattr(ops, behind)), "inplace" in signature.parameters)
    return signature


def annotated(signature: inspect.Signature, op: Any) -> inspect.Signature:
    """The signature of an operation, with what its forward says of the parameters."""
    if getattr(op, "kind", "composite") == "composite":
        return signature
    said = inspect.signature(op.forward).parameters
    parameters = [
        p.replace(annotation=said[p.name].annotation) if p.annotation is p.empty and p.name in said else p
        for p in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def of_arrays_too(signature: inspect.Signature) -> inspect.Signature:
    """The signature of a function behind a layer, which takes arrays where it says Tensor, as operations do."""
    said = {"Tensor": "Any", "Tensor | None": "Any | None"}
    parameters = [p.replace(annotation=said.get(p.annotation, p.annotation)) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters)


def operation_behind(name: str) -> str | None:
    """The operation that a function hands its arguments to: `exp` of `exp_`, `_uniform` of `uniform_`, ..."""
    stem = name.removesuffix("_").removesuffix("_copy").removesuffix("_with_indices")
    drawing = getattr(ops, f"_{stem}", None)
    if drawing is not None and "generator" in inspect.signature(drawing).parameters:
        return f"_{stem}"
    return stem if hasattr(ops, stem) else None


def with_inplace(signature: inspect.Signature, inplace: bool) -> inspect.Signature:
    parameters = [p for p in signature.parameters.values() if p.name != "out"]
    if inplace:
        parameters.append(inspect.Parameter("inplace", POSITIONAL, default=False, annotation="bool"))
        parameters.sort(key=lambda p: p.kind)
    return signature.replace(parameters=parameters)


def operand_type(op: Any) -> str:
    """What an operation takes for a tensor: where it works on each number by itself, a number is as good."""
    made_in = getattr(getattr(op, "forward", None), "__module__", "")
    return "Operand" if getattr(op, "promote", None) or ".pointwise." in made_in else "TensorLike"


def default_text(default: Any) -> str:
    return repr(default) if default is None or isinstance(default, bool | int | str) else "..."


def write_function(name: str, function: Callable[..., Any], method: bool = False) -> list[str]:
    """The lines of a stub for a function; several, where it is overloaded."""
    op = getattr(function, "op", None)
    known = getattr(op, "name", name)  # linalg.lu is not lu
    head = "self" if method else first_parameter(function, op)
    if known in CASES and not (method and known == "where"):
        heads = [] if name == "grad" else [head]
        return overloads([definition(name, [*heads, rest], result) for rest, result in CASES[known]])
    signature = signature_of(name, function)
    parameters = list(signature.parameters.values())
    behind = getattr(ops, name.removesuffix("_copy"), function) if passes_on(function) else function
    result = result_type(known, annotation_text(signature.return_annotation), getattr(behind, "op", None))
    if name.endswith("_with_indices"):
        parameters, result = [p for p in parameters if p.name != "return_indices"], "tuple[Tensor, Tensor]"
    if known in FLAGS:
        return flagged(name, FLAGS[known], parameters, op, method)
    added = [text for wrapper in wrappers(function) for text in ADDED.get(wrapper, ()) if fits(text, parameters)]
    lines = [definition(name, written(parameters, op, method, added), result)]
    if takes_axis_instead(parameters, added):
        others = [text for text in added if not text.startswith("axis")]
        lines.append(definition(name, written(by_keyword(parameters), op, method, others), result))
    if result != "Tensor":
        lines = [line.replace("out: Tensor |", "out: tuple[Tensor, ...] |") for line in lines]
    if name.endswith("_") and not method:
        lines = [re.sub(r"\(\w+: (TensorLike|Operand)", "(input: Tensor", line) for line in lines]
    return overloads(lines)


def plain_function(name: str, function: Callable[..., Any]) -> list[str]:
    """A function that is no operation: what its annotations say, and no more."""
    signature = inspect.signature(function)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    arguments = [
        f"{stars.get(p.kind, '')}{p.name}: {annotation_text(p.annotation)}"
        + ("" if p.default is p.empty else f" = {default_text(p.default)}")
        for p in signature.parameters.values()
    ]
    return [definition(name, arguments, annotation_text(signature.return_annotation))]


def first_parameter(function: Callable[..., Any], op: Any) -> str:
    first, *_ = [*inspect.signature(function).parameters.values(), None]
    if first is None or first.kind is first.VAR_POSITIONAL:
        return "input: TensorLike"
    return f"{first.name}: {operand_type(op)}"


def fits(added: str, parameters: list[inspect.Parameter]) -> bool:
    name = added.partition(":")[0]
    names = [p.name for p in parameters]
    needs = {"axis": "dim", "keepdims": "keepdim"}.get(name)
    return name not in names and (needs is None or needs in names)


def takes_axis_instead(parameters: list[inspect.Parameter], added: list[str]) -> bool:
    required = any(p.name == "dim" and p.default is p.empty for p in parameters)
    return required and any(text.startswith("axis") for text in [*added, *(p.name for p in parameters)])


def by_keyword(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """The parameters of a call that says `axis=` in the place of `dim`."""
    before = [p.name for p in parameters].index("dim")
    rest = [p for p in parameters[before + 1 :] if p.name != "axis"]
    axis = inspect.Parameter("axis", KEYWORD, annotation="int")
    return [*parameters[:before], axis, *(p.replace(kind=KEYWORD) for p in rest)]


def flagged(
    name: str, results: dict[str, str], parameters: list[inspect.Parameter], op: Any, method: bool
) -> list[str]:
    """Overloads for a flag that is False, for each that is True, and for a call that leaves it open."""
    flags = {flag: result for flag, result in results.items() if flag}
    plain = results.get("", "Tensor")
    lines = [definition(name, written(parameters, op, method, types=dict.fromkeys(flags, "Literal[False]")), plain)]
    for flag, result in flags.items():
        at = [p.name for p in parameters].index(flag)
        named = [p.replace(kind=KEYWORD) for p in parameters[at:]]
        named[0] = named[0].replace(default=inspect.Parameter.empty)
        arguments = written([*parameters[:at], *named], op, method, types={flag: "Literal[True]"})
        lines.append(definition(name, arguments, result))
    lines.append(definition(name, written(parameters, op, method), "Any"))
    return overloads(lines)


def written(
    parameters: list[inspect.Parameter],
    op: Any,
    method: bool,
    added: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
) -> list[str]:
    """Parameters as a stub writes them."""
    texts: list[str] = ["self"] if method else []
    operand, starred = operand_type(op), False
    for place, parameter in enumerate(parameters[1:] if method else parameters):
        if parameter.kind is KEYWORD and not starred:
            texts.append("*")
        starred |= parameter.kind in (KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        kind = (types or {}).get(parameter.name) or parameter_type(parameter, op, operand)
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" * (parameter.kind is parameter.VAR_KEYWORD)
        default = "" if parameter.default is parameter.empty else f" = {default_text(parameter.default)}"
        texts.append(f"{stars}{parameter.name}: {kind}{default}")
        following = (parameters[1:] if method else parameters)[place + 1 :]
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and not any(p.kind is parameter.kind for p in following):
            texts.append("/")
    options = [texts.pop()] if texts and texts[-1].startswith("**") else []
    return [*texts, *(["*"] if added and not starred else []), *added, *options]


def definition(name: str, arguments: list[str], result: str) -> str:
    return f"def {name}({', '.join(filter(None, arguments))}) -> {result}: ..."


def overloads(lines: list[str]) -> list[str]:
    return lines if len(lines) == 1 else [line for text in lines for line in ("@overload", text)]

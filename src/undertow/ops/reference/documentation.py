"""What `help` and the reference say of a declared operation: words, formulas, what is kept, an example.

It is made when somebody asks the C object that passes for a function. A plain function cannot be asked, and its text
would have to be there at import: without the compiled core, `help` says what is differentiable and what is kept.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from undertow.ops.reference.arguments import unexplained
from undertow.ops.reference.formula_text import formula, mathematics
from undertow.ops.reference.formulas import FORMULAS
from undertow.ops.reference.words import ARGUMENTS, EXAMPLES, IN_PLACE, OF_INTEGERS, WORDS, Words

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op

OTHER_WORDS = Words("One of the operations that others are made of.")


def text_of(op: Op) -> str:
    parts = [WORDS.get(op.name, OTHER_WORDS).summary]
    formulas = [f"    {line}" for line in formulas_of(op)]
    if formulas:
        parts.append("\n".join(formulas))
    if op.elementwise and op.kind != "view":  # view_as_real adds a dimension
        parts.append(shapes_of(op))
    arguments = arguments_of(op, " ".join([part for part in parts if not part.startswith("    ")]))
    if arguments:
        width = max(map(len, arguments)) + 2
        parts.append("\n".join([f"{name:{width}}{meaning}" for name, meaning in arguments.items()]))
    parts.append(op.derivatives())
    example = example_of(op)
    if example is not None:
        parts.append(f"Example: `{example}`")
    return "\n\n".join(parts)


def arguments_of(op: Op, words: str) -> dict[str, str]:
    """What arguments are that the words about an operation leave out."""
    own = ARGUMENTS.get(op.name, {})
    shared = unexplained(f"undertow.{public_name(op.name)}", str(op.signature()), words)
    return {name: (shared | own)[name] for name in op.ordered if name in own or name in shared}


def shapes_of(op: Op) -> str:
    """Of an elementwise operation: what its operands may look like, and its result."""
    *names, last = [f"`{name}`" for name in op.inputs]
    if not names:
        return f"{last} has any shape, and the result the same."
    return f"{', '.join(names)} and {last} are broadcast to one shape, which the result has."


def formulas_of(op: Op) -> Iterator[str]:
    """The value, and the gradient of each input from g, that of the result; where they are single expressions."""
    written = FORMULAS.get(op.name, {})
    value = mathematics(op.forward)
    if value is None or "(xp, " in formula(op.forward):  # a function that is given everything computes it
        value = written.get("value")
    if value is not None:
        yield f"value: {value}"
    rules: Any = op.vjp if isinstance(op.vjp, dict) else {}
    for name in op.edges:
        rule = rules.get(name)
        text = written.get(name) or (None if rule is None else mathematics(rule))
        if text is not None:
            yield f"gradient of {name}: {text}"


def example_of(op: Op) -> str | None:
    """A call to try, with `import undertow as ut`; None for operations that only rules use."""
    words = WORDS.get(op.name)
    if words is None or words.example is not None:
        return None if words is None else words.example
    name = public_name(op.name)
    if (not op.elementwise and op.kind != "nondifferentiable") or "backward" in name:
        return None
    if "." not in name and "function" not in op.variants[op.name]:
        return None
    given = OF_INTEGERS if op.name.startswith("bitwise") or op.name in ("gcd", "lcm") else EXAMPLES
    return f"ut.{name}({given[len(op.inputs)]})" if len(op.inputs) in given else None


def example_in_place(op: Op | None, name: str, module: str | None = None) -> str | None:
    """A call of a form in place, made of the example of the operation itself: `ut.tensor([0.25, 0.75]).sin_()`.

    module  where the function is found, such as "ut.nn.functional"; None for a method
    """
    if name in IN_PLACE:
        return IN_PLACE[name]
    example = None if op is None else example_of(op) if op.kind != "composite" else first_call(op)
    if example is None:
        return None
    call = ast.parse(example, mode="eval").body
    assert isinstance(call, ast.Call)
    first, *rest = written_out(call.args)
    if module is not None:
        return f"{module}.{name}({', '.join(map(ast.unparse, [first, *rest, *call.keywords]))})"
    return ast.unparse(ast.Call(ast.Attribute(first, name), rest, call.keywords))


def first_call(op: Op) -> str | None:
    """The call of a composite that its docstring begins its examples with, if that is a whole line."""
    found = re.search(rf"^>>> (ut\.{op.name}\(.*\))$", inspect.getdoc(op.function) or "", re.MULTILINE)
    return None if found is None else found[1]


def written_out(arguments: list[ast.expr]) -> Iterator[ast.expr]:
    """Arguments with `*3 * [x]` as x, x, x."""
    for argument in arguments:
        match argument:
            case ast.Starred(ast.BinOp(ast.Constant(int(count)), _, ast.List(elements))):
                yield from count * elements
            case _:
                yield argument


def public_name(name: str) -> str:
    """Where programs find an operation: `special.i1` is `special_i1`."""
    room, _, rest = name.partition("_")
    return f"{room}.{rest}" if room in ("special", "linalg", "fft") and rest else name

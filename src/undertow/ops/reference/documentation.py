"""What `help` and the reference say of a declared operation: words, formulas, what is kept, an example.

It is made when somebody asks the C object that passes for a function. A plain function cannot be asked, and its text
would have to be there at import: without the compiled core, `help` says what is differentiable and what is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from undertow.ops.reference.formula_text import formula, mathematics
from undertow.ops.reference.words import EXAMPLES, OF_INTEGERS, WORDS, Words

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op

OTHER_WORDS = Words("One of the operations that others are made of.")


def text_of(op: Op) -> str:
    parts = [WORDS.get(op.name, OTHER_WORDS).summary]
    formulas = [f"    {line}" for line in formulas_of(op)]
    if formulas:
        parts.append("\n".join(formulas))
    parts.append(op.derivatives())
    example = example_of(op)
    if example is not None:
        parts.append(f"Example: `{example}`")
    return "\n\n".join(parts)


def formulas_of(op: Op) -> Iterator[str]:
    """The value, and the gradient of each input from g, that of the result; where they are single expressions."""
    value = mathematics(op.forward)
    if value is not None and "(xp, " not in formula(op.forward):  # else a function that is given everything computes it
        yield f"value: {value}"
    rules: Any = op.vjp if isinstance(op.vjp, dict) else {}
    for name, rule in rules.items():
        text = None if rule is None else mathematics(rule)
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


def public_name(name: str) -> str:
    """Where programs find an operation: `special.i1` is `special_i1`."""
    room, _, rest = name.partition("_")
    return f"{room}.{rest}" if room in ("special", "linalg", "fft") and rest else name

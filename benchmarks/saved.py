"""Writes docs/saved.md, a table of what every operation keeps for the backward pass: `python -m benchmarks.saved`.

It is read off the declarations: a rule saves exactly what it names.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from undertow.ops import REGISTRY

PAGE = Path(__file__).parents[1] / "docs" / "saved.md"

INTRODUCTION = """\
# What operations save

A recorded operation keeps what its derivative rules name, until the backward pass has used it, and nothing else. An
array is kept only if a gradient that needs it is asked for: `mul` keeps `input` for the gradient of `other`, so
`x * constant` keeps the constant alone. Keeping an input or an output copies nothing; it only lives longer. Shapes and
numbers cost next to nothing.

Functions made of other operations are not listed: they save what those do. Names that begin with an underscore are the
parts that public functions are made of (`sum` is `_sum_all` or `_sum_dims`).

This page is written by `python -m benchmarks.saved`.
"""


class Row(NamedTuple):
    operation: str
    node: str
    inputs: str
    outputs: str
    values: str


def rules_of(op: Any) -> dict[str, list[str]]:
    """For each input with a gradient, the names that its rule uses; "*" stands for all of them."""
    if op.kind == "variadic":
        return {"*": list(inspect.signature(op.vjp["tensors"]).parameters)[3:]}
    names: dict[str, list[str]] = op.rule_names()
    return names


def users_of(op: Any) -> dict[str, set[str]]:
    """For each saved name, the inputs whose gradient needs it."""
    found: dict[str, set[str]] = {}
    for rule, names in rules_of(op).items():
        for name in names:
            found.setdefault(name, set()).update(op.edges if rule == "*" else [rule])
    return found


def row_of(op: Any) -> Row:
    users = users_of(op)
    outputs = list(op.outputs) if isinstance(op.outputs, tuple) else ["out"]
    values = [f"`{n}`" for n in users if n not in op.inputs and n not in outputs]
    arrays = [
        ", ".join(described(n, used_by, op.edges) for n, used_by in users.items() if n in names)
        for names in (op.inputs, outputs)
    ]
    return Row(f"`{op.name}`", f"`{op.node_name}`", *arrays, ", ".join(values))


def described(name: str, users: set[str], edges: list[str]) -> str:
    """The name, and which gradients it is saved for, unless that is all of them."""
    if len(users) == len(edges):
        return f"`{name}`"
    return f"`{name}` for {' and '.join(f'`{u}`' for u in edges if u in users)}"


def families() -> Iterator[tuple[str, list[Row]]]:
    """The tables of operations with their rows, in alphabetical order."""
    recorded = {op.name: op for op in REGISTRY.values() if op.kind != "composite" and op.edges}
    of_family: dict[str, list[Any]] = {}
    for op in recorded.values():
        of_family.setdefault(family_of(op), []).append(op)
    for family, ops in sorted(of_family.items()):
        yield family, [row_of(op) for op in sorted(ops, key=lambda op: op.name.strip("_"))]


def family_of(op: Any) -> str:
    rule = next(rule for rule in rules_in(op) if rule is not None)
    return str(rule.__module__).rpartition(".")[2]


def rules_in(op: Any) -> list[Any]:
    return [op.vjp.rule] if hasattr(op.vjp, "rule") else list(op.vjp.values())


def page() -> str:
    parts = [INTRODUCTION]
    for family, rows in families():
        lines = [f"| {' | '.join(row)} |" for row in rows]
        header = ["| operation | node | inputs | outputs | values |", "| --- | --- | --- | --- | --- |"]
        parts.append("\n".join([f"## {family}", "", *header, *lines, ""]))
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.saved", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    options = parser.parse_args()
    text = page()
    if options.check:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("up to date" if current else f"{PAGE.name} is out of date: run python -m benchmarks.saved")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.name}: {sum(len(rows) for _, rows in families())} operations")
    return 0


if __name__ == "__main__":
    sys.exit(main())

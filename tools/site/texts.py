"""From docstrings to Markdown: lists, examples and indented formulas as the site shows them."""

from __future__ import annotations

import inspect
import re
from typing import Any

#: "name   what it is", in the tables of docstrings
ROW = re.compile(r"^(?P<name>[`\w*][\w`*, ./\[\]|()-]*?) {2,}(?P<text>\S.*)$")


def markdown(doc: str) -> str:
    """A docstring as Markdown."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(doc))
    return "\n\n".join([block_as_markdown(block) for block in blocks])


def first_paragraph(doc: str) -> str:
    return markdown(doc).partition("\n\n")[0]


def block_as_markdown(block: str) -> str:
    lines = block.split("\n")
    if lines[0].lstrip().startswith(">>>"):
        return f"```pycon\n{inspect.cleandoc(block)}\n```"
    if all(line.startswith("    ") for line in lines):
        return f"```text\n{inspect.cleandoc(block)}\n```"
    if ROW.match(lines[0].lstrip()):
        return table(lines)
    starts = [n for n, line in enumerate(lines) if line.lstrip().startswith(">>>")]
    if starts:  # an example right below its words
        words, example = lines[: starts[0]], lines[starts[0] :]
        return paragraph(words) + "\n\n" + block_as_markdown("\n".join(example))
    return paragraph(lines)


def paragraph(lines: list[str]) -> str:
    """Lines of words. Stars and underscores mean themselves, but in code."""
    parts = re.split(r"(`[^`]*`)", "\n".join([line.strip() for line in lines]))
    return "".join([part if part.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts])


def table(lines: list[str]) -> str:
    """Names and what they mean, one below the other, as a list."""
    found: list[str] = []
    for line in lines:
        row = ROW.match(line.lstrip())
        if row is not None:
            names = row["name"].strip("`")
            found.append(f"- `{names}`: {paragraph([row['text']])}")
        else:
            found.append(f"  {paragraph([line])}")
    return "\n".join(found)


def signature(value: Any, bound: bool = False) -> str:
    """How something is called, without annotations; "(...)" if Python does not know.

    bound  it is called on an object, which is the first argument
    """
    try:
        found = inspect.signature(value)
    except (ValueError, TypeError):
        return "(...)"
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found.parameters.values()]
    if (
        bound
        and plain
        and plain[0].kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ):
        del plain[0]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r"<[^<>]*(<[^<>]*>)?[^<>]*>", "...", text).replace("\n", " ")

"""Annotations of undertow's own source say what a thing is: few of them are `Any` alone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.typing.checkers import ROOT

SOURCE = ROOT / "src" / "undertow"

#: the share of annotations that may be a bare `Any`
LIMIT = 0.2


def annotations(tree: ast.AST) -> Iterator[ast.expr]:
    """What is said of parameters, results and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


#: containers that say no more than what is in them; of a dict, that is its values and its keys
CONTAINERS = {
    "list", "tuple", "set", "frozenset", "dict", "type", "deque", "Sequence", "Iterable", "Iterator", "Collection",
    "Mapping",
}  # fmt: skip


def is_bare(annotation: ast.expr) -> bool:
    """Whether an annotation is `Any`, or `Any | None` or `list[Any]`, which say no more."""
    match annotation:
        case ast.Name(name):
            return name == "Any"
        case ast.BinOp(left, ast.BitOr(), ast.Constant(None)) | ast.BinOp(ast.Constant(None), ast.BitOr(), left):
            return is_bare(left)
        case ast.Subscript(ast.Name(name), content) if name in CONTAINERS:
            parts = content.elts if isinstance(content, ast.Tuple) else [content]
            return all(is_bare(part) or ast.unparse(part) == "..." for part in parts)
    return False


def count(path: Path) -> Counter[bool]:
    return Counter(map(is_bare, annotations(ast.parse(path.read_text()))))


@pytest.mark.long
def test_few_annotations_are_any() -> None:
    counts = {path.relative_to(SOURCE).as_posix(): count(path) for path in sorted(SOURCE.rglob("*.py"))}
    total = sum(counts.values(), Counter[bool]())
    worst = sorted(counts, key=lambda name: -counts[name][True])[:5]
    share = total[True] / total.total()
    assert share < LIMIT, f"{share:.1%} of {total.total()} annotations are a bare Any; most of them in {worst}"


def test_what_is_counted() -> None:
    tree = ast.parse("a: Any = 1\ndef f(self, x: Any, *y: int, **z: Any | None) -> dict[str, Any]:\n    b: str")
    assert Counter(map(is_bare, annotations(tree))) == {True: 3, False: 3}
    tree = ast.parse(
        "a: list[Any]\nb: tuple[Any, ...] | None\nc: dict[Any, list[Any]]\nd: list[int]\ne: Callable[[], Any]"
    )
    assert Counter(map(is_bare, annotations(tree))) == {True: 3, False: 2}

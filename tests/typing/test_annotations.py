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


def is_bare(annotation: ast.expr) -> bool:
    """Whether an annotation is `Any`, or `Any | None`, which says no more."""
    return ast.unparse(annotation) in ("Any", "Any | None")


def count(path: Path) -> Counter[bool]:
    return Counter(map(is_bare, annotations(ast.parse(path.read_text()))))


@pytest.mark.slow
def test_few_annotations_are_any() -> None:
    counts = {path.relative_to(SOURCE).as_posix(): count(path) for path in sorted(SOURCE.rglob("*.py"))}
    total = sum(counts.values(), Counter[bool]())
    worst = sorted(counts, key=lambda name: -counts[name][True])[:5]
    share = total[True] / total.total()
    assert share < LIMIT, f"{share:.1%} of {total.total()} annotations are a bare Any; most of them in {worst}"


def test_what_is_counted() -> None:
    tree = ast.parse("a: Any = 1\ndef f(self, x: Any, *y: int, **z: Any | None) -> dict[str, Any]:\n    b: str")
    assert Counter(map(is_bare, annotations(tree))) == {True: 3, False: 3}

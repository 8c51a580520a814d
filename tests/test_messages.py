"""Messages say what they mean: a string with {name} in it, where a variable has that name, wants to be an f-string."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import undertow as ut

SOURCE = Path(__file__).parents[1] / "src" / "undertow"
PLACE = re.compile(r"\{([A-Za-z_]\w*)[^{}]*\}")
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@pytest.mark.slow
def test_no_message_lacks_its_f() -> None:
    found = [f"{path.relative_to(SOURCE)}:{line}" for path in sorted(SOURCE.rglob("*.py")) for line in lacking(path)]
    assert found == []


def test_one_that_lacks_it_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "def f(name, size):\n"
        "    raise ValueError(f'{name} has a size: ' '{size} is none')\n"
        "def g(name):\n"
        "    warn('{name}'.format(name=name), '{other}', f'{name}', '{{name}}')\n"
        "def h(name):\n"
        "    return lambda: warn('{name!r}')\n"
    )
    assert list(lacking(path)) == [2, 6]


def lacking(path: Path) -> Iterator[int]:
    """The lines of strings that name a variable of the function around them in braces, and keep the braces."""
    yield from lacking_in(ast.parse(path.read_text()), frozenset())


def lacking_in(node: ast.AST, variables: frozenset[str]) -> Iterator[int]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if any(match[1] in variables for match in PLACE.finditer(node.value.replace("{{", "").replace("}}", ""))):
            yield node.lineno
        return
    if is_template(node):
        return
    if isinstance(node, Scope):
        variables |= own_variables(node)
    for child in ast.iter_child_nodes(node):
        yield from lacking_in(child, variables)


def is_template(node: ast.AST) -> bool:
    """Whether the node is a docstring, or a string whose braces are filled by format()."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"


def own_variables(scope: Scope) -> set[str]:
    """The arguments of a function, and what is assigned anywhere in it."""
    names = {node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg)}
    return names | {n.id for n in ast.walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def test_tensors_of_another_library_are_told_apart(torch: Any) -> None:
    for wrong in (
        lambda: ut.ones(2) * torch.ones(2),
        lambda: torch.ones(2) * ut.ones(2),
        lambda: ut.cat([torch.ones(2)]),
    ):
        with pytest.raises(
            TypeError, match=r"must be Tensor, not torch.Tensor. Take its memory over first: .*from_dlpack"
        ):
            wrong()


@pytest.mark.parametrize("name", ["linalg", "special", "fft"])
def test_namespaces_go_by_the_names_that_programs_know(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'undertow.{name}' has no attribute 'slove'"):
        _ = getattr(ut, name).slove

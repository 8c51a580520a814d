"""The stubs are those of the library as it is, and list all that is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import undertow
from tools.stubs.__main__ import FOLDER, differences
from undertow.ops.namespaces import fft, functional, linalg, sparse, special

NAMESPACES = [fft, functional, linalg, sparse, special]


def test_stubs_are_current() -> None:
    assert differences() == [], "run `python -m tools.stubs`"


def defined_in(body: list[ast.stmt]) -> set[str]:
    """The names that a stub binds."""
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    imported = [alias for node in body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return names | {alias.asname for alias in imported if alias.asname}


def parse(name: str) -> list[ast.stmt]:
    return ast.parse((Path(FOLDER) / name).read_text()).body


def test_completion_of_a_tensor_lists_every_attribute() -> None:
    (tensor,) = [node for node in parse("tensor/tensor.pyi") if isinstance(node, ast.ClassDef)]
    public = {name for name in dir(undertow.Tensor) if not name.startswith("_")}
    assert public - defined_in(tensor.body) == set()


def test_completion_of_undertow_lists_every_operation() -> None:
    listed = defined_in(parse("__init__.pyi"))
    assert {*undertow.OPERATIONS, *undertow.IN_PLACE, "Tensor", "nn", "float32", "no_grad"} - listed == set()


@pytest.mark.parametrize("module", NAMESPACES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_completion_of_a_namespace(module: object) -> None:
    short = module.__name__.rpartition(".")[2]
    assert set(module.__all__) - defined_in(parse(f"ops/namespaces/{short}.pyi")) == set()


def test_completion_of_nn_functional() -> None:
    functions = undertow.nn.functional
    public = {*functions.OPERATIONS, *functions.LOSSES, *functions.PARAMETERS, "softmax", "embedding", "dropout"}
    assert public - defined_in(parse("nn/functional.pyi")) == set()

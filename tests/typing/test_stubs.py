"""The stubs are those of the library as it is, and list all that is there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import undertow
from tests.typing.checkers import ROOT
from tools.stubs.__main__ import FOLDER, differences
from undertow.ops.declare import names_with
from undertow.ops.namespaces import fft, functional, linalg, sparse, special

NAMESPACES = [fft, functional, linalg, sparse, special]


def test_stubs_are_current() -> None:
    assert differences() == [], "run `python -m tools.stubs`"


@pytest.mark.slow
@pytest.mark.parametrize("pure", ["", "1"], ids=["core", "pure"])
@pytest.mark.parametrize("first", ["undertow.utils.data.dataloader", "undertow.nn.modules.conv, undertow.testing"])
def test_stubs_do_not_depend_on_what_was_loaded(pure: str, first: str) -> None:
    program = f"import {first}\nfrom tools.stubs.__main__ import differences\nprint(differences())"
    variables = {name: value for name, value in os.environ.items() if name != "UNDERTOW_PURE"}
    variables |= {"UNDERTOW_PURE": pure} if pure else {}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=variables, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def defined_in(body: list[ast.stmt]) -> set[str]:
    """The names that a stub binds."""
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    names |= {ast.unparse(node.targets[0]) for node in body if isinstance(node, ast.Assign)}
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
    operations = {*names_with("function"), *(f"{name}_" for name in names_with("in_place_function"))}
    assert {*operations, "Tensor", "nn", "float32", "no_grad"} - listed == set()


@pytest.mark.parametrize("module", NAMESPACES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_completion_of_a_namespace(module: object) -> None:
    short = module.__name__.rpartition(".")[2]
    assert set(module.__all__) - defined_in(parse(f"ops/namespaces/{short}.pyi")) == set()


def test_completion_of_nn_functional() -> None:
    functions = undertow.nn.functional
    public = {*functions.OPERATIONS, *functions.LOSSES, *functions.PARAMETERS, "softmax", "embedding", "dropout"}
    assert public - defined_in(parse("nn/functional.pyi")) == set()

"""Imports go down: every module under src/undertow is read, and each import must respect the rooms' order.

Imports under `if TYPE_CHECKING:` run for the type checker alone and may point anywhere.  Imports inside a
function count like any other: hiding one there does not change what depends on what.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "undertow"

# A room is a top-level module or package of undertow.  It may import its own layer and the layers below.
LAYERS = {
    0: [
        "errors",
        "version",
        "_core",
        "compiled",
        "backend",
        "own_files",
        "pytree",
        "lazy_names",
        "torch_names.missing",
        "torch_names.module_aliases",
    ],
    1: ["modes", "tensor"],
    2: ["graph"],
    3: ["ops", "engine"],
    4: ["autograd", "interop", "methods"],
    5: [
        "data",
        "func",
        "masked",
        "nn",
        "optim",
        "distributed",
        "distributions",
        "amp",
        "cuda",
        "settings",
        "testing",
        "torch_names",  # some of its modules are tables that lower rooms read, and have a layer of their own
    ],
    6: ["undertow"],  # the public list, src/undertow/__init__.py
    7: ["demo", "__main__"],  # programs, written as a user would write them
}

# Siblings that must not know each other, although they share a layer.
STRANGERS = [{"ops", "engine"}]

# Third-party packages: the rooms that may import each.  What is not listed may not be imported at all.
PACKAGES = {
    "numpy": {"backend", "interop"},
    "cupy": {"backend", "interop"},
    "cupyx": {"backend", "interop"},
    "scipy": {"backend", "interop"},
    "ml_dtypes": {"backend", "interop"},
    "threadpoolctl": {"backend"},
    "safetensors": {"interop"},
    "matplotlib": {"demo"},
    "mpi4py": {"distributed"},
}

LAYER_OF = {room: layer for layer, rooms in LAYERS.items() for room in rooms}


def room_of(path: str) -> str:
    """The room of a module, `path` within undertow: the longest beginning that has a layer."""
    parts = path.split(".")
    found = [".".join(parts[:n]) for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in LAYER_OF]
    return found[0] if found else parts[0]


class Import(NamedTuple):
    """One imported module, as a dotted name, and where and how it is imported."""

    where: str
    room: str
    target: str
    in_function: bool
    typing_only: bool


# ------------------------------------------------------------------ reading


def read_imports(source: Path) -> Iterator[Import]:
    for path in sorted(source.rglob("*.py")):
        yield from ImportReader(source, path).read()


class ImportReader(ast.NodeVisitor):
    """Collects the imports of one file, absolute, relative and by `import_module("literal")`."""

    def __init__(self, source: Path, path: Path) -> None:
        self.source, self.path = source, path
        module = (source.name, *path.relative_to(source).with_suffix("").parts)
        self.package = module[:-1]
        self.room = source.name if module[1:] == ("__init__",) else room_of(".".join(module[1:]))
        self.function_depth = self.typing_depth = 0
        self.found: list[Import] = []

    def read(self) -> list[Import]:
        self.visit(ast.parse(self.path.read_text(encoding="utf-8"), str(self.path)))
        return self.found

    def add(self, node: ast.AST, target: str) -> None:
        where = f"{self.path.relative_to(self.source.parent)}:{getattr(node, 'lineno', 0)}"
        self.found.append(Import(where, self.room, target, self.function_depth > 0, self.typing_depth > 0))

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self.add(node, name.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        up = self.package[: len(self.package) - node.level + 1] if node.level else ()
        base = ".".join([*up, *([node.module] if node.module else [])])
        # each name may be a room of its own
        inside = base == self.source.name or base == f"{self.source.name}.torch_names"
        for target in dict.fromkeys(f"{base}.{name.name}" if inside else base for name in node.names):
            self.add(node, target)

    def visit_Call(self, node: ast.Call) -> None:
        called = getattr(node.func, "attr", getattr(node.func, "id", None))
        first = node.args[0] if node.args else None
        if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
            self.add(node, str(first.value))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        typing_only = getattr(node.test, "attr", getattr(node.test, "id", None)) == "TYPE_CHECKING"
        self.typing_depth += typing_only
        for statement in node.body:
            self.visit(statement)
        self.typing_depth -= typing_only
        for statement in node.orelse:
            self.visit(statement)
        self.visit(node.test)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.function_depth += 1
        self.generic_visit(node)
        self.function_depth -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef


# ------------------------------------------------------------------ judging


def violations(source: Path) -> list[str]:
    """One line for each import that breaks a rule, and for each room without a layer."""
    rooms = {path.stem for path in source.iterdir() if path.suffix == ".py" or is_package(path)}
    homeless = sorted(rooms - {"__init__"} - set(LAYER_OF))
    found = [f"{room}: a room without a layer; give it one in LAYERS" for room in homeless]
    for entry in read_imports(source):
        if not entry.typing_only and entry.room in LAYER_OF:
            complaint = judge(entry, source.name)
            if complaint:
                found.append(f"{entry.where}: {complaint}{' (inside a function)' * entry.in_function}")
    return found


def is_package(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.py"))


def judge(entry: Import, package: str) -> str | None:
    """Say what is wrong with one import, or None."""
    top, *rest = entry.target.split(".")
    if top != package:
        allowed = PACKAGES.get(top, set())
        if top in sys.stdlib_module_names or entry.room in allowed:
            return None
        return f"{entry.room} imports {top}; {' and '.join(sorted(allowed)) or 'no room'} may"
    # `from undertow import Tensor` asks the public list, which is above everything.
    target = room_of(".".join(rest)) if rest and room_of(".".join(rest)) in LAYER_OF else package
    if any({entry.room, target} == pair for pair in STRANGERS):
        return f"{entry.room} imports {target}; these two must not know each other"
    if LAYER_OF[target] > LAYER_OF[entry.room]:
        return f"{entry.room} [{LAYER_OF[entry.room]}] imports {target} [{LAYER_OF[target]}], a higher layer"
    return None


def test_imports_go_down() -> None:
    found = violations(SOURCE)
    assert not found, "imports against the layers:\n  " + "\n  ".join(found)


# ------------------------------------------------------------------ the checker itself


def write_tree(root: Path, files: dict[str, str]) -> Path:
    source = root / "undertow"
    for name, text in {"__init__.py": "", **files}.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return source


FORBIDDEN = [
    ("errors.py", "from undertow.tensor import Tensor", "errors [0] imports tensor [1]"),
    ("errors.py", "import undertow.engine.tasks as tasks", "errors [0] imports engine [3]"),
    ("modes.py", "from . import graph", "modes [1] imports graph [2]"),
    ("tensor/views.py", "from ..graph.node import Node", "tensor [1] imports graph [2]"),
    ("tensor/__init__.py", "from ..graph import Node", "tensor [1] imports graph [2]"),
    ("graph/deep/er.py", "from ...ops import sin", "graph [2] imports ops [3]"),
    ("graph/node.py", "from undertow import Tensor", "graph [2] imports undertow [6]"),
    ("nn/layers/linear.py", "import undertow as ut", "nn [5] imports undertow [6]"),
    ("ops/linalg.py", "from ..engine import tasks", "must not know each other"),
    ("engine/tasks.py", "from undertow import ops", "must not know each other"),
    ("graph/node.py", "def f():\n    from ..autograd import grad", "(inside a function)"),
    ("graph/node.py", "class C:\n    async def f(self):\n        from .. import ops", "(inside a function)"),
    ("graph/node.py", "try:\n    import undertow.ops\nexcept ImportError:\n    pass", "imports ops [3]"),
    ("graph/node.py", "if TYPE_CHECKING:\n    pass\nelse:\n    from .. import ops", "imports ops [3]"),
    ("graph/node.py", "import importlib\nimportlib.import_module('undertow.ops')", "imports ops [3]"),
    ("ops/linalg/products.py", "import numpy as np", "ops imports numpy; backend and interop may"),
    ("masked/page.py", "from numpy.linalg import norm", "masked imports numpy"),
    ("ops/pointwise/special/error_functions.py", "def f():\n    import scipy.special", "ops imports scipy"),
    ("engine/workers.py", "__import__('cupy')", "engine imports cupy"),
    ("backend/cpu.py", "import torch", "backend imports torch; no room may"),
    ("__init__.py", "import numpy", "undertow imports numpy"),
    ("optim/sgd.py", "import pandas", "optim imports pandas; no room may"),
    ("helpers.py", "", "helpers: a room without a layer"),
    ("helpers/text.py", "import undertow.nn", "helpers: a room without a layer"),
]

ALLOWED = [
    ("errors.py", "from __future__ import annotations\nimport sys\nfrom collections import abc"),
    ("backend/cpu.py", "import numpy as np\nfrom ..errors import DeviceError"),
    ("backend/cuda.py", "def load():\n    import cupy\n    return cupy"),
    ("interop/numpy_protocols.py", "import numpy\nfrom undertow.ops import sin"),
    ("tensor/tensor.py", "from .. import modes\nfrom . import metadata\nfrom ..backend import cpu"),
    ("graph/node.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..ops import sin"),
    ("engine/tasks.py", "import typing\nif typing.TYPE_CHECKING:\n    import numpy, undertow.ops"),
    ("engine/engine.py", "from .tasks import GraphTask\nfrom ..graph import node"),
    ("nn/layers/linear.py", "from .. import ops, autograd\nfrom ..optim import SGD"),
    ("__init__.py", "from .nn import Linear\nfrom undertow import autograd, errors"),
]


@pytest.mark.parametrize(("name", "text", "complaint"), FORBIDDEN)
def test_checker_reports(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    found = violations(write_tree(tmp_path, {name: text}))
    assert len(found) == 1 and complaint in found[0]


@pytest.mark.parametrize(("name", "text"), ALLOWED)
def test_checker_accepts(tmp_path: Path, name: str, text: str) -> None:
    assert violations(write_tree(tmp_path, {name: text})) == []


def test_checker_lists_every_edge_with_its_line(tmp_path: Path) -> None:
    text = "import os\nfrom ..ops import sin, cos\nimport numpy\n"
    found = violations(write_tree(tmp_path, {"graph/node.py": text, "modes.py": "from .nn import Module"}))
    assert found == [
        "undertow/graph/node.py:2: graph [2] imports ops [3], a higher layer",
        "undertow/graph/node.py:3: graph imports numpy; backend and interop may",
        "undertow/modes.py:1: modes [1] imports nn [5], a higher layer",
    ]


# ------------------------------------------------------------------ families of operations

#: a declaration needs what is done in place for `out=`, which it installs at the end
UPWARDS = {("declare.out_argument", "inplace"), ("declare.inplace_templates", "pointwise")}


def test_families_of_operations_know_those_above_them() -> None:
    from undertow.ops import FAMILIES

    order = ["arguments", "declare", *dict.fromkeys(family.split(".")[0] for family in FAMILIES), "namespaces"]
    rank = {family: k for k, family in enumerate(order)}
    found = []
    for one in read_imports(SOURCE):
        home = one.where.split(":")[0].removeprefix("undertow/ops/").removesuffix(".py").replace("/", ".")
        parts = one.target.split(".")
        if not one.where.startswith("undertow/ops/") or parts[:2] != ["undertow", "ops"] or one.typing_only:
            continue
        family, target = home.split(".")[0], parts[2] if len(parts) > 2 else None
        if family in rank and target in rank and rank[target] > rank[family] and (home, target) not in UPWARDS:
            found.append(f"{one.where} imports {one.target}")
    assert found == []

"""Imports go down: every module under src/undertow is read, and each import must respect the rooms' order.

Imports under `if TYPE_CHECKING:` run for the type checker alone and may point anywhere.  Imports inside a
function count like any other: hiding one there does not change what depends on what.

Inside two large rooms the folders have an order, too; and nowhere may modules import each other in a circle.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from undertow.ops import FAMILIES

SOURCE = Path(__file__).parents[1] / "src" / "undertow"

# A room is a top-level module or package of undertow.  It may import its own layer and the layers below.
LAYERS = {
    0: [
        "errors",
        "version",
        "_core",
        "_cuda",
        "compiled",
        "scopes",
        "backend",
        "own_files",
        "refcounts",
        "pytree",
        "long_loops",
        "lazy_names",
        "torch_names.absent_reasons",
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
        "instrument",
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
    7: ["demo", "stand_in", "__main__"],  # programs, and what makes undertow stand for PyTorch in programs
}

# Siblings that must not know each other, although they share a layer.
STRANGERS = [{"ops", "engine"}]

# Inside these rooms, what a folder or file may import: those above it in the list, and those it shares a line with.
ORDERS = {
    "ops": "\n".join(["declare arguments reference", *dict.fromkeys(f.split(".")[0] for f in FAMILIES), "namespaces"]),
    "autograd": """
        batched_tensor found_gradients gradient_edge version_counters
        interceptors
        slopes
        saved_tensors
        why_unreachable
        graph
        anomaly
        forward
        function
        vmap
        backward
        imperative_engine
        variable
        tensor_attributes
        alias
        forward_ad
        functional
        gradcheck
        checkpoint
    """,
}

RANK_OF = {
    f"{room}.{name}": rank
    for room, lines in ORDERS.items()
    for rank, line in enumerate(lines.strip().splitlines())
    for name in line.split()
}

# Imports against these orders, and circles, that are still there. Nothing may be added; what is gone must be removed.
KNOWN: set[tuple[str, str]] = set()

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
    "torch": {"stand_in"},  # which is undertow itself there, under the name that it stands for
    "tqdm": {"data"},
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
    module: str
    room: str
    target: str
    in_function: bool
    typing_only: bool


# ------------------------------------------------------------------ reading


@functools.cache  # several tests ask what the library imports
def read_imports(source: Path) -> list[Import]:
    paths = sorted(source.rglob("*.py"))
    modules = {module_name(source, path) for path in paths}
    return [entry for path in paths for entry in ImportReader(source, path, modules).read()]


def module_name(source: Path, path: Path) -> str:
    parts = (source.name, *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class ImportReader(ast.NodeVisitor):
    """Collects the imports of one file, absolute, relative and by `import_module("literal")`."""

    def __init__(self, source: Path, path: Path, modules: set[str]) -> None:
        self.source, self.path, self.modules = source, path, modules
        self.module = module_name(source, path)
        self.package = (source.name, *path.relative_to(source).parent.parts)
        inside = self.module.partition(".")[2]
        self.room = room_of(inside) if inside else source.name
        self.function_depth = self.typing_depth = 0
        self.found: list[Import] = []

    def read(self) -> list[Import]:
        self.visit(ast.parse(self.path.read_text(encoding="utf-8"), str(self.path)))
        return self.found

    def add(self, node: ast.AST, target: str) -> None:
        where = f"{self.path.relative_to(self.source.parent)}:{getattr(node, 'lineno', 0)}"
        self.found.append(Import(where, self.module, self.room, target, self.function_depth > 0, self.typing_depth > 0))

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self.add(node, name.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        up = self.package[: len(self.package) - node.level + 1] if node.level else ()
        base = ".".join([*up, *([node.module] if node.module else [])])
        for target in dict.fromkeys(self.target(base, name.name) for name in node.names):
            self.add(node, target)

    def target(self, base: str, name: str) -> str:
        """What `from base import name` imports: a name may be a module of its own."""
        whole = f"{base}.{name}"
        return whole if base == self.source.name or whole in self.modules else base

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
    found += [f"{room}.{name}: it has no place in ORDERS" for room in ORDERS for name in unordered(source / room, room)]
    for entry in read_imports(source):
        if not entry.typing_only and entry.room in LAYER_OF:
            complaint = judge(entry, source.name) or judge_order(entry, source.name)
            if complaint:
                found.append(f"{entry.where}: {complaint}{' (inside a function)' * entry.in_function}")
    return found


def unordered(folder: Path, room: str) -> list[str]:
    """The files and folders of a room with an order that it does not name."""
    names = [path.stem for path in folder.glob("*") if path.suffix == ".py" or is_package(path)]
    return sorted(name for name in names if name != "__init__" and f"{room}.{name}" not in RANK_OF)


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


def judge_order(entry: Import, package: str) -> str | None:
    """Say what is wrong with an import from one part of a room to another, or None."""
    own, target = part_of(entry.module, package), part_of(entry.target, package)
    room = own.partition(".")[0]
    if own == target or own not in RANK_OF or target.partition(".")[0] != room or is_known(entry, package):
        return None
    if target == room:
        return f"{own} imports {room}, which joins its parts"
    if target in RANK_OF and RANK_OF[target] > RANK_OF[own]:
        return f"{own} imports {target}, which comes later"
    return None


def part_of(module: str, package: str) -> str:
    """ops.views, for a module in that folder; ops, for ops/__init__.py."""
    top, *inside = module.split(".")
    return ".".join(inside[:2]) if top == package else ""


def is_known(entry: Import, package: str) -> bool:
    return short_pair(entry, package) in KNOWN


def short_pair(entry: Import, package: str) -> tuple[str, str]:
    return entry.module.removeprefix(f"{package}."), entry.target.removeprefix(f"{package}.")


def circle(source: Path) -> list[str]:
    """Modules each of which imports the next, the last one the first; none, if there is no such circle.

    To import a module runs the packages that it is in, so these count as imported, but for those the importer is in.
    """
    graph: dict[str, set[str]] = {}
    for entry in read_imports(source):
        if not entry.typing_only and not is_known(entry, source.name):
            needed = {entry.target, *outer_packages(entry.target)} - {entry.module, *outer_packages(entry.module)}
            graph.setdefault(entry.module, set()).update(needed - {source.name})
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def outer_packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def test_imports_go_down() -> None:
    found = violations(SOURCE)
    assert not found, "imports against the layers:\n  " + "\n  ".join(found)


def test_no_circle() -> None:
    assert not circle(SOURCE), "modules that import each other: " + " <- ".join(circle(SOURCE))


SLOT = re.compile(r"^def (install_\w+|lend)\(", re.MULTILINE)


def test_slots_for_calls_upwards_are_in_the_table() -> None:
    """A function named install_* (or lend) fills a slot. There are four at most, and docs/architecture.md says why."""
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    slots = sorted(f"`{name}` in `{path}`" for path, text in texts.items() for name in SLOT.findall(text))
    table = (SOURCE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(slots) <= 4 and not [slot for slot in slots if slot not in table], slots


def test_known_imports_exist() -> None:
    gone = KNOWN - {short_pair(entry, SOURCE.name) for entry in read_imports(SOURCE)}
    assert not gone, f"no longer there; remove them from KNOWN: {sorted(gone)}"


# ------------------------------------------------------------------ functions

#: the most lines that the body of a function may have
LONGEST = 60


def body_length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """From the first statement behind the docstring to the last one."""
    statements = function.body[ast.get_docstring(function) is not None :]
    return 0 if not statements else (statements[-1].end_lineno or 0) - statements[0].lineno + 1


def test_functions_are_short() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert body_length(node) <= LONGEST, f"{node.name} in {path} has {body_length(node)} lines"


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
    ("ops/linalg/other_products.py", "import numpy as np", "ops imports numpy; backend and interop may"),
    ("masked/page.py", "from numpy.linalg import norm", "masked imports numpy"),
    ("ops/pointwise/special/error_functions.py", "def f():\n    import scipy.special", "ops imports scipy"),
    ("engine/workers.py", "__import__('cupy')", "engine imports cupy"),
    ("backend/cpu.py", "import torch", "backend imports torch; stand_in may"),
    ("__init__.py", "import numpy", "undertow imports numpy"),
    ("optim/sgd.py", "import pandas", "optim imports pandas; no room may"),
    ("helpers.py", "", "helpers: a room without a layer"),
    ("ops/declare/node.py", "from ..views import slices", "ops.declare imports ops.views, which comes later"),
    ("ops/pointwise/powers.py", "import undertow.ops.views.slices", "ops.pointwise imports ops.views"),
    ("ops/views/slices.py", "from undertow.ops import REGISTRY", "ops.views imports ops, which joins its parts"),
    ("autograd/forward/level.py", "from ..function.node import FunctionNode", "autograd.forward imports"),
    ("autograd/graph.py", "def f():\n    from .backward import backward", "(inside a function)"),
    ("ops/tidbits.py", "", "ops.tidbits: it has no place in ORDERS"),
    ("helpers/text.py", "import undertow.nn", "helpers: a room without a layer"),
]

ALLOWED = [
    ("errors.py", "from __future__ import annotations\nimport sys\nfrom collections import abc"),
    ("backend/cpu.py", "import numpy as np\nfrom ..errors import DeviceError"),
    ("backend/cuda.py", "def load():\n    import cupy\n    return cupy"),
    ("interop/numpy_protocols.py", "import numpy\nfrom undertow.ops import sin"),
    ("tensor/tensor.py", "from .. import modes\nfrom . import extra\nfrom ..backend import cpu"),
    ("graph/node.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..ops import sin"),
    ("engine/tasks.py", "import typing\nif typing.TYPE_CHECKING:\n    import numpy, undertow.ops"),
    ("engine/engine.py", "from .tasks import GraphTask\nfrom ..graph import node"),
    ("nn/layers/linear.py", "from .. import ops, autograd\nfrom ..optim import SGD"),
    ("__init__.py", "from .nn import Linear\nfrom undertow import autograd, errors"),
    ("ops/declare/node.py", "from ..arguments import operands"),
    ("ops/arguments/operands.py", "from ..declare import op"),
    ("ops/views/slices.py", "from ..pointwise.powers import square\nfrom .dimensions import t"),
    ("ops/__init__.py", "from .views import slices"),
    ("autograd/checkpoint/__init__.py", "from undertow.autograd.interceptors import stack"),
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


CIRCLES = [
    {"a.py": "from . import b", "b.py": "import undertow.a"},
    {"a.py": "def f():\n    from .b import g", "b.py": "from .a import f"},
    {"a/__init__.py": "from undertow import b", "a/c.py": "", "b.py": "from undertow.a import c"},
    {"a/c.py": "from .d import e", "a/d.py": "from .f import g", "a/f.py": "from . import c"},
]

STRAIGHT = [
    {"a.py": "from . import b", "b.py": "if TYPE_CHECKING:\n    from .a import A"},
    {"a/__init__.py": "from . import b, c", "a/b.py": "from undertow.a.c import d", "a/c.py": ""},
    {"a/__init__.py": "", "a/c.py": "from ..b import d", "b.py": ""},
]


@pytest.mark.parametrize("files", CIRCLES)
def test_checker_finds_circles(tmp_path: Path, files: dict[str, str]) -> None:
    assert circle(write_tree(tmp_path, files))


@pytest.mark.parametrize("files", STRAIGHT)
def test_checker_finds_no_circle(tmp_path: Path, files: dict[str, str]) -> None:
    assert circle(write_tree(tmp_path, files)) == []

"""`python -m undertow doctor`: which names of torch a program or a package mentions that undertow does not have.

The files are read and not run, so names are found that a test run would not have reached; what a program asks of an
object (a tensor's method, say) cannot be seen this way.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from undertow.stand_in.finder import as_torch
from undertow.stand_in.torch_module import TORCH
from undertow.torch_names.absent import AbsentClass, AbsentModule, explanation
from undertow.torch_names.missing import BELOW


def examine(paths: list[str]) -> int:
    """Print what is missing, most mentioned first; 1 if there is something, 2 if a path is not there."""
    files = [file for path in paths for file in python_files(path)]
    if not files:
        print(f"no Python files at {' '.join(paths)}: expected files, folders or installed packages", file=sys.stderr)
        return 2
    mentions: dict[str, list[str]] = {}
    for file in files:
        for name, line in mentioned(file):
            mentions.setdefault(name, []).append(f"{file}:{line}")
    with as_torch():
        missing = {name: reason for name in sorted(mentions) if (reason := why_missing(name))}
    for name in sorted(missing, key=lambda name: -len(mentions[name])):
        places = mentions[name]
        print(f"{name}  ({len(places)} x, first at {places[0]})\n    {missing[name]}")
    here = len(mentions) - len(missing)
    print(f"{len(files)} files mention {len(mentions)} names of torch: {here} are here, {len(missing)} are not")
    return 1 if missing else 0


def python_files(path: str) -> list[Path]:
    """The files at a path; of a package that is installed, if there is no such path."""
    place = Path(path)
    if not place.exists():
        try:
            spec = importlib.util.find_spec(path)
        except (ImportError, ValueError):
            return []
        if spec is None or spec.origin is None:
            return []
        place = Path(spec.origin)
        if spec.submodule_search_locations:
            place = place.parent
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def mentioned(file: Path) -> Iterator[tuple[str, int]]:
    """Every name of torch in a file, in full (`torch.nn.functional.relu`), with its line."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if is_torch(alias.name):
                    known[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level and is_torch(node.module or ""):
            for alias in node.names:
                if alias.name != "*":
                    known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                    yield f"{node.module}.{alias.name}", node.lineno
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            found = dotted(node, known)
            if found:
                yield found, node.lineno


def is_torch(module: str) -> bool:
    return module == "torch" or module.startswith("torch.")


def dotted(node: ast.expr, known: dict[str, str]) -> str | None:
    """`F.relu` in full, if F is known to be something of torch."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return None
    return ".".join([known[node.id], *reversed(names)])


def why_missing(name: str) -> str | None:
    """What to say of a name that undertow does not have, or None if it has it."""
    value: Any = importlib.import_module(TORCH)
    parts = name.split(".")
    for k, part in enumerate(parts[1:], 1):
        path = ".".join(parts[: k + 1])
        if not isinstance(value, (ModuleType, type)):
            return None  # an object: whoever reads the file cannot know what it has
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(path)
            except ImportError:
                return BELOW.get(".".join(parts[1:k]), {}).get(part) or explanation(path).partition(": ")[2]
        if isinstance(value, (AbsentClass, AbsentModule)):
            return explanation(path).partition(": ")[2]
    return None

"""Undertow with all its modules: rooms are loaded when they are first used, but the stubs list them all."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import undertow
from undertow.torch_names import missing, module_aliases

#: what users import, and nothing else loads
ROOMS = """
amp autograd.checkpoint autograd.forward_ad autograd.functional autograd.graph cuda data distributed distributions func
interop.files masked nn nn.functional nn.grad nn.init nn.parallel nn.utils optim optim.lr_scheduler optim.swa_utils
testing
""".split()

#: the folder of modules that are found by a name of PyTorch's
TOP_LEVEL = Path(undertow.__path__[-1])


def load_everything() -> None:
    """Load every room, and every module that has a name of PyTorch's."""
    for room in [*ROOMS, *filter(None, module_aliases.ALIASES)]:
        import_module(f"undertow.{room}")
    for name in names_at_top_level():
        import_module(name)
    for name in dir(undertow):
        getattr(undertow, name)  # those that are bound when they are first asked for


def names_at_top_level(folder: Path = TOP_LEVEL, package: str = "undertow") -> list[str]:
    """The modules of PyTorch that undertow has; the others only say what to use instead."""
    names: list[str] = []
    for found in pkgutil.iter_modules([str(folder)]):
        name = f"{package}.{found.name}"
        if name.removeprefix("undertow.") not in missing.INSTEAD:
            names += [name, *(names_at_top_level(folder / found.name, name) if found.ispkg else [])]
    return names


def is_at_top_level(module: ModuleType) -> bool:
    spec = getattr(module, "__spec__", None)
    return spec is not None and spec.origin is not None and TOP_LEVEL in Path(spec.origin).parents


def is_elsewhere(name: str, module: ModuleType) -> bool:
    """Whether a module is not in the file that its name says."""
    spec = getattr(module, "__spec__", None)
    return spec is None or spec.name != name or is_at_top_level(module)


def aliases() -> dict[str, ModuleType]:
    """Modules found under a name of PyTorch's, which is not where they are."""
    return {
        name: module
        for name, module in sorted(sys.modules.items())
        if name.startswith("undertow.") and module is not None and is_elsewhere(name, module)
        and ".torch_names." not in name and name.split(".")[1] not in missing.INSTEAD
    }  # fmt: skip


def names_in_source(module: ModuleType) -> set[str]:
    """The public names that a module's source binds by itself, whether at once or when they are used."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if not name.startswith("_")}

"""What PyTorch's modules import into themselves: `python -m tools.imported_names`, where PyTorch is installed.

Programs take names from modules that merely import them (`from torch.nn.modules.conv import _pair, F`). Those which
undertow has at another place are written to `undertow/stand_in/imported.txt`, which finder.py reads.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
import typing
from pathlib import Path
from typing import Any

from tools.missing_names import resolve
from undertow.stand_in import as_torch
from undertow.stand_in.finder import modules_of_torch
from undertow.torch_names.absent import AbsentClass, AbsentModule

#: packages whose modules are PyTorch's own affair, or not there
INTERNAL = """
_C _dynamo _export _functorch _higher_order_ops _inductor _lazy _library _logging _native _numpy _prims _prims_common
_refs _strobelight _subclasses _decomp ao contrib distributed export fx masked monitor mps mtia nativert nested
numa onnx ops package sparse testing._internal utils.data.datapipes utils.tensorboard utils.viz utils.benchmark xpu
""".split()

#: modules of such packages from which programs take something all the same
EXCEPT = {"_functorch.vmap"}

HEAD = """\
# MODULE: NAME=WHERE ..., names that PyTorch's modules import from elsewhere (NAME= is left out where it is WHERE's last
# part); of modules that undertow does not have, those of their own that it has. Written by `python -m
# tools.imported_names`.
"""

PLACE = Path(__file__).parents[1] / "src/undertow/stand_in/imported.txt"


def modules() -> list[str]:
    """The modules of PyTorch from which programs might take something."""
    parts = [name.removeprefix("torch.") for name in modules_of_torch() if name.startswith("torch.")]
    internal = {p for p in parts if any([p == skip or p.startswith(f"{skip}.") for skip in INTERNAL])}
    return sorted(p for p in parts if p not in internal - EXCEPT)


def homes(name: str, value: Any) -> list[str]:
    """Where else a value may be found, the likeliest first."""
    if isinstance(value, types.ModuleType):
        return [value.__name__] if is_common(value.__name__) else []
    if getattr(typing, name, None) is value and getattr(value, "__module__", "typing") == "typing":
        return [f"typing.{name}"]
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return []
    module, own = value.__module__, value.__name__
    found = [f"{module}.{own}"] if module is not None and "." not in own and is_common(module) else []
    shared = [*packages_of(module or ""), "torch", "torch.nn", "torch.nn.functional", "torch.overrides"]
    return found + [f"{place}.{name}" for place in shared if is_same(f"{place}.{name}", value)]


def packages_of(module: str) -> list[str]:
    """Those of PyTorch that a module is in, the innermost first: `torch.optim` of `torch.optim.adamw`."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(len(parts) - 1, 1, -1)] if parts[0] == "torch" else []


def is_common(module: str) -> bool:
    """Whether it is PyTorch's or Python's, or of a library that those who ask for it have."""
    return module.partition(".")[0] in {"torch", "numpy", "tqdm", *sys.stdlib_module_names}


def is_same(path: str, value: Any) -> bool:
    module, _, name = path.rpartition(".")
    return getattr(sys.modules[module], name, None) is value


def is_here(path: str) -> bool:
    """Whether undertow has something at this place (inside of `as_torch`)."""
    try:
        found = resolve(path)
    except (AttributeError, ImportError):
        return False
    return not isinstance(found, (AbsentClass, AbsentModule))


def collected() -> dict[str, dict[str, list[str]]]:
    """Module -> name -> where it might be, of what a module of PyTorch has of others."""
    found: dict[str, dict[str, list[str]]] = {}
    for module in modules():
        try:
            loaded = importlib.import_module(f"torch.{module}")
        except Exception:  # something that it needs is not installed
            continue
        for name, value in vars(loaded).items():
            if not name.startswith("__"):
                found.setdefault(module, {})[name] = homes(name, value)
    return found


def written() -> str:
    """The text of the file."""
    wanted = collected()
    lines = []
    with as_torch():
        for module, names in wanted.items():
            is_absent = not is_here(f"torch.{module}")
            tokens = []
            for name, places in sorted(names.items()):
                if is_here(f"torch.{module}.{name}"):
                    continue
                if is_absent and f"torch.{module}.{name}" not in places:
                    continue  # not a name of its own
                home = next((place for place in places if is_here(place)), None)
                if home is not None:
                    tokens.append(home if home.rpartition(".")[2] == name else f"{name}={home}")
            if tokens:
                lines.append(f"{module}: {' '.join(tokens)}")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PLACE.write_text("")  # what it says now shall not hide what is missing
    PLACE.write_text(written())
    print(PLACE, PLACE.read_text().count(" "), "names")

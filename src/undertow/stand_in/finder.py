"""How `import torch` finds undertow: a finder at the front of Python's list of them.

`torch` is a module of its own (torch_module.py). Every module below it is undertow's own module, under a second name:
`torch.nn` is `undertow.nn`, so there is one `Linear` and one `Tensor`, whoever asks. Modules that PyTorch has and
undertow has not are found, too, and say so when they are used (torch_names/absent.py). What PyTorch has not is not
found.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from importlib.resources import files
from types import ModuleType
from typing import Any

from undertow.backend.public_dtypes import PREFIX
from undertow.stand_in.torch_module import ELSEWHERE, TORCH, TORCH_VERSION, torch_module
from undertow.tensor import Tensor
from undertow.tensor.torch_function import enable, own_function
from undertow.torch_names.absent import AbsentModule, absent
from undertow.torch_names.missing import STAND_INS


def modules_of_torch() -> set[str]:
    """The names of the modules of PyTorch, from the file `modules.txt`."""
    found: set[str] = {"torch", "functorch"}
    package = ""
    for line in files(__package__).joinpath("modules.txt").read_text().splitlines():
        if not line.startswith(" "):
            package, _, line = line.partition(": ")
            found.add(package)
        found.update([f"{package}.{name}" for name in line.split()])
    return found


class Metadata(Distribution):
    """What `importlib.metadata.version("torch")` reads."""

    def read_text(self, filename: str) -> str | None:
        if filename in ("METADATA", "PKG-INFO"):
            return f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH_VERSION}\nSummary: undertow, as torch\n"
        return None

    def locate_file(self, path: Any) -> Any:
        return files(__package__).joinpath(str(path))


class TorchFinder(MetaPathFinder, Loader):
    """Finds `torch` and the modules below it, and nothing else."""

    def __init__(self) -> None:
        self.modules = modules_of_torch()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self.modules:
            return ModuleSpec(fullname, self, is_package=True, origin="undertow")
        return None

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterator[Distribution]:
        if context is None or context.name in (None, "torch"):
            yield Metadata()

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Put the module that is meant into the place of the one that Python made for the import."""
        sys.modules[module.__name__] = found(module.__name__)


def found(name: str) -> ModuleType:
    """The module that `import name` gives."""
    if name == "functorch":
        return importlib.import_module("undertow.torch_names.functorch")
    if name == "torch":
        module: ModuleType = torch_module()
        module.__spec__ = ModuleSpec(TORCH, None, origin="undertow", is_package=True)
        return module
    below = name.removeprefix("torch.")
    place = ELSEWHERE.get(below, f"undertow.{below}")
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and not place.startswith(error.name):
            raise  # something that the module itself imports
        return AbsentModule(name)
    if not hasattr(module, "__path__"):
        module.__path__ = []  # a file here may be a package there, and Python asks for modules in packages alone
    if name not in _with_modules_below:
        _with_modules_below.add(name)
        let_modules_be_attributes(module, name)
    return module


def let_modules_be_attributes(module: ModuleType, name: str) -> None:
    """Let `torch.a.b` find the module of that name, if nothing else is there: PyTorch imports most of its modules with
    itself, and programs do not."""
    own: Any = vars(module).get("__getattr__")

    def __getattr__(attribute: str) -> Any:
        try:
            value = own(attribute) if own is not None else None
        except AttributeError:
            if not _is_module_of_torch(f"{name}.{attribute}"):
                raise
            value = None
        if _is_module_of_torch(f"{name}.{attribute}") and (value is None or isinstance(value, ModuleType)):
            return importlib.import_module(f"{name}.{attribute}")
        if own is None:
            raise AttributeError(f"module {module.__name__!r} has no attribute {attribute!r}")
        return value

    vars(module)["__getattr__"] = __getattr__
    for attribute, value in list(vars(module).items()):
        if isinstance(value, ModuleType) and _is_module_of_torch(f"{name}.{attribute}"):
            importlib.import_module(f"{name}.{attribute}")


def _is_module_of_torch(name: str) -> bool:
    """Whether PyTorch has such a module, and undertow stands for PyTorch now."""
    return any([isinstance(finder, TorchFinder) and name in finder.modules for finder in sys.meta_path])


#: modules of undertow that find what is below them in PyTorch, by the names that they have there
_with_modules_below: set[str] = set()


def install() -> TorchFinder:
    """Let `import torch` find undertow in this process, from now on."""
    for finder in sys.meta_path:
        if isinstance(finder, TorchFinder):
            return finder
    real = sys.modules.get("torch")
    if real is not None:
        raise ImportError(
            f"torch was imported before undertow could stand for it, from {getattr(real, '__file__', 'somewhere')}: "
            "call undertow.as_torch() before the first import of torch, or use python -m undertow run."
        )
    finder = TorchFinder()
    sys.meta_path.insert(0, finder)
    builtins.__build_class__ = build_class
    answer_to(TORCH)
    return finder


build_class_of_python: Any = builtins.__build_class__


def build_class(*args: Any, **kwargs: Any) -> Any:
    """What Python calls to make a class: if that has `__torch_function__`, functions have to ask it from now on."""
    made = build_class_of_python(*args, **kwargs)
    if isinstance(made, type) and "__torch_function__" in vars(made) and own_function(made) is not None:
        enable()
    return made


def answer_to(name: str) -> None:
    """Let what is printed, and what libraries read of a class, be PyTorch's: `torch.float32`, `torch.Tensor`."""
    PREFIX[0] = name
    STAND_INS[:] = [absent] if name == TORCH else []
    Tensor.__module__ = name if name == TORCH else "undertow.tensor.tensor"


@contextmanager
def as_torch() -> Iterator[Any]:
    """While this is entered, `import torch` finds undertow; a PyTorch that was imported before is set aside meanwhile.

    >>> import undertow as ut
    >>> with ut.as_torch():
    ...     import torch
    ...
    ...     print(torch.nn.Linear is ut.nn.Linear)
    True

    Libraries that were imported before keep the torch they know, and those that are imported inside keep undertow.
    """
    aside = {name: module for name, module in sys.modules.items() if name == "torch" or name.startswith("torch.")}
    nested = any([isinstance(finder, TorchFinder) for finder in sys.meta_path])
    if not nested:
        for name in aside:
            del sys.modules[name]
    finder = install()
    try:
        yield importlib.import_module(TORCH)
    finally:
        if not nested:
            sys.meta_path.remove(finder)
            builtins.__build_class__ = build_class_of_python
            answer_to("undertow")
            for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
                del sys.modules[name]
            sys.modules.update(aside)

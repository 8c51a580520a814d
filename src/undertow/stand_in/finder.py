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
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from importlib.resources import files
from types import ModuleType
from typing import Any, NoReturn

from undertow.backend.public_dtypes import PREFIX
from undertow.compiled import core
from undertow.scopes import computed_once
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


def imported_names() -> dict[str, dict[str, str]]:
    """Module -> name -> where it is, of what PyTorch's modules import from others, from the file `imported.txt`."""
    found: dict[str, dict[str, str]] = {}
    for line in files(__package__).joinpath("imported.txt").read_text().splitlines():
        module, _, names = line.partition(": ")
        if not line.startswith("#"):
            pairs = [token.partition("=") for token in names.split()]
            found[f"torch.{module}"] = {
                name if equal else name.rpartition(".")[2]: home or name for name, equal, home in pairs
            }
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

    @computed_once
    def imported(self) -> dict[str, dict[str, str]]:
        """What modules import from others; read when a program first asks for a name that is not there."""
        return imported_names()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self.modules:
            return ModuleSpec(fullname, self, is_package=True, origin="undertow")
        if fullname.startswith(f"{TORCH}.") and PathFinder.find_spec(fullname, path) is not None:
            # a file that undertow alone has: it would be loaded once more, and take the place of what has its name
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
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
        return ElsewhereModule(name) if imported(name) else AbsentPackage(name)
    if not hasattr(module, "__path__"):
        module.__path__ = []  # a file here may be a package there, and Python asks for modules in packages alone
    keep_functions(module, name)
    let_modules_be_attributes(module, name)
    return module


def keep_functions(module: ModuleType, name: str) -> None:
    """Let `torch.autograd.gradcheck` be the function also if a program imports the module of that name: a module that
    is known already is not made an attribute of its package once more."""
    for attribute, value in list(vars(module).items()):
        if callable(value) and _is_module_of_torch(f"{name}.{attribute}"):
            home = sys.modules.get(f"{module.__name__}.{attribute}") or sys.modules.get(value.__module__)
            if home is not None:
                sys.modules[f"{name}.{attribute}"] = home
                let_modules_be_attributes(home, f"{name}.{attribute}")


def let_modules_be_attributes(module: ModuleType, name: str) -> None:
    """Let `torch.a.b` find a module of undertow's that has this name, if nothing else does: PyTorch imports most of its
    modules with itself, and programs do not. And let it find what PyTorch's module imports from others."""

    if name in _with_modules_below:
        return
    _with_modules_below.add(name)

    def lacking(attribute: str) -> NoReturn:
        raise AttributeError(f"module {module.__name__!r} has no attribute {attribute!r}")

    own: Any = vars(module).get("__getattr__", lacking)

    def __getattr__(attribute: str) -> Any:
        below = f"{name}.{attribute}"
        try:
            value = own(attribute)
        except AttributeError:
            if _is_here(below):
                return importlib.import_module(below)
            home = imported(name).get(attribute)
            if home is None:
                raise
            return resolved(home)
        return importlib.import_module(below) if isinstance(value, ModuleType) and _is_here(below) else value

    vars(module)["__getattr__"] = __getattr__
    for attribute, value in list(vars(module).items()):
        if isinstance(value, ModuleType) and _is_module_of_torch(f"{name}.{attribute}"):
            importlib.import_module(f"{name}.{attribute}")


def imported(module: str) -> dict[str, str]:
    """The names that PyTorch's module has and undertow has elsewhere, and where."""
    finder = next((finder for finder in sys.meta_path if isinstance(finder, TorchFinder)), None)
    return {} if finder is None else finder.imported.get(module, {})


class AbsentPackage(AbsentModule):
    """An absent module, of which undertow may have modules below it: `torch._functorch.vmap`."""

    def __getattr__(self, name: str) -> Any:
        below = f"{self.__name__}.{name}"
        return importlib.import_module(below) if _is_here(below) else super().__getattr__(name)


class ElsewhereModule(AbsentPackage):
    """A module of PyTorch of which undertow has names at other places: `torch.optim.adamw`, whose class is in `optim`.

    What undertow does not have at all says so when it is used, as in any absent module.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__doc__ = f"{name}, whose names undertow has elsewhere."
        self.__all__ = [own for own in imported(name) if not own.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        home = imported(self.__name__).get(name)
        return super().__getattr__(name) if home is None else resolved(home)

    def __repr__(self) -> str:
        return f"<module {self.__name__!r}, whose names undertow has elsewhere>"


def resolved(path: str) -> Any:
    """What a dotted path names: a module, or something in one."""
    module, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), name)


def _is_here(name: str) -> bool:
    """Whether undertow has such a module: programs ask `hasattr(torch.distributed.rpc, "api")` before they use it."""
    return _is_module_of_torch(name) and (bool(imported(name)) or not isinstance(found(name), AbsentModule))


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
    builtins.__build_class__ = build_class if core is None else core.class_builder(build_class_of_python, tell)
    answer_to(TORCH)
    return finder


build_class_of_python: Any = builtins.__build_class__


def tell(made: Any) -> None:
    """Of a class that was made: if it has `__torch_function__`, functions have to ask it from now on."""
    if isinstance(made, type) and "__torch_function__" in vars(made) and own_function(made) is not None:
        enable()


def build_class(*args: Any, **kwargs: Any) -> Any:
    """What Python calls to make a class. That of the core has no frame that the class's body would see."""
    made = build_class_of_python(*args, **kwargs)
    tell(made)
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

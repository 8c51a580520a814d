"""Tensors among other libraries: NumPy's protocols, DLPack, pickling, SciPy's optimizers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undertow.interop.scipy.optimize import FlatFunction as FlatFunction
    from undertow.interop.scipy.optimize import value_and_jac as value_and_jac

#: public names and their modules, loaded when first asked for: parts of autograd use other modules of this package
NAMES = {"FlatFunction": "scipy.optimize", "value_and_jac": "scipy.optimize"}


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{NAMES[name]}"), name)

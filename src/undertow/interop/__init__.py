"""Tensors among other libraries: NumPy's protocols, DLPack, pickling, SciPy's optimizers."""

from typing import TYPE_CHECKING

from undertow.lazy_names import loaded_when_used as _loaded_when_used

if TYPE_CHECKING:
    from undertow.interop.scipy.optimize import FlatFunction as FlatFunction
    from undertow.interop.scipy.optimize import value_and_jac as value_and_jac
else:
    # when first asked for, because parts of autograd use other modules of this package
    __getattr__, __dir__ = _loaded_when_used(
        __name__, modules="files", names={"undertow.interop.scipy.optimize": "FlatFunction value_and_jac"}
    )

"""Whole objects in PyTorch's files: models, optimizers, whatever can be pickled.

A pickle may call any function, so such a file is read only where the program says `weights_only=False`. The reader
knows PyTorch's own functions for tensors, as in read_torch.py, and takes undertow's classes for those of PyTorch: it
reads what `save` wrote here, and whole models that PyTorch wrote, as far as their classes are alike.
"""

from __future__ import annotations

import io
import pickle
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from undertow.interop.files.archives import writing
from undertow.interop.files.read_torch import ALLOWED, STORAGES, WeightsReader

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.tensor import Tensor


def write_objects(file: BinaryIO, obj: Any, pickle_module: Any = None, protocol: int = 2) -> None:
    """Write what is more than data, as `pickle` (or a module like it) writes it."""
    memory = io.BytesIO()
    (pickle_module or pickle).dump(obj, memory, protocol=protocol)
    with writing(file) as archive:
        archive.writestr("archive/data.pkl", memory.getvalue())
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")


class ObjectsReader(WeightsReader):
    """Finds whatever the pickle names, and calls it."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    allowed = sys.maxsize

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] == "module":  # a class, with its source, in files of old
            return pid[1]
        return super().persistent_load(pid)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return self._parameter
        if (module == "torch" and name in STORAGES) or ((module, name) in ALLOWED and module.startswith("torch")):
            return super().find_class(module, name)
        if module.partition(".")[0] == "torch" and not self._stands_for_torch():
            module = "undertow" + module.removeprefix("torch")
            return self._nearest(module, name)
        return pickle._Unpickler.find_class(self, module, name)

    def _parameter(self, data: Array, requires_grad: bool, hooks: Any) -> Tensor:
        return self._nearest("undertow.nn", "Parameter")(data, requires_grad)

    @staticmethod
    def _stands_for_torch() -> bool:
        return "undertow" in getattr(sys.modules.get("torch"), "__version__", "")

    def _nearest(self, module: str, name: str) -> Any:
        """The name where PyTorch has it, or in a module above (torch.nn.modules.linear is undertow.nn)."""
        parts = module.split(".")
        while True:
            try:
                return pickle._Unpickler.find_class(self, ".".join(parts), name)
            except (ImportError, AttributeError):
                parts.pop()
                if not parts:
                    raise

"""PyTorch's spellings on undertow's classes: private attributes of tensors, and names that say `torch`."""

from __future__ import annotations

import dis
import functools
import sys
import weakref
from typing import Any

import undertow

from ._dtypes import ADDED, DType
from ._legacy import TypedTensor
from ._undertow import lookup


def apply() -> None:
    """Teach undertow's classes what the tests call them; whatever undertow has itself is left alone."""
    for teach in (_size, _accumulate_grad, _errors, _dtype, _use_count, _type, _private_methods):
        try:
            teach()
        except AttributeError as error:
            print(f"shim: {error}", file=sys.stderr)


def _size() -> None:
    lookup("Size").__repr__ = lambda self: f"torch.Size({list(self)})"


def _accumulate_grad() -> None:
    node = lookup("autograd.graph.AccumulateGrad", "graph.accumulate.AccumulateGrad")
    own = node.name
    node.name = lambda self: own(self).replace("undertow::", "torch::")


def _errors() -> None:
    """Tracebacks print undertow's own subclasses of RuntimeError as RuntimeError."""
    for value in vars(lookup("errors")).values():
        if isinstance(value, type) and issubclass(value, RuntimeError):
            value.__module__, value.__qualname__ = "builtins", "RuntimeError"


def _dtype() -> None:
    """`tensor.dtype.is_floating_point` answers; every other reading of `dtype` gives NumPy's."""
    own = undertow.Tensor.dtype

    def read(self: Any) -> Any:
        dtype = own.__get__(self)
        caller = sys._getframe(1)
        return DType(dtype) if _reads_next(caller.f_code, caller.f_lasti) in ADDED else dtype

    undertow.Tensor.dtype = property(read)


@functools.lru_cache(maxsize=4096)
def _reads_next(code: Any, offset: int) -> str:
    """The attribute that is read right after the instruction at `offset`."""
    steps = iter(dis.get_instructions(code))
    for step in steps:
        if step.offset == offset:
            following = next(steps, None)
            return str(following.argval) if following and following.opname == "LOAD_ATTR" else ""
    return ""


def _use_count() -> None:
    """How many strong references a tensor has, one local variable counting as one."""

    class Probe:
        def _use_count(self) -> int:
            return sys.getrefcount(self)

    probe = Probe()
    alone = probe._use_count()
    undertow.Tensor._use_count = lambda self: sys.getrefcount(self) - alone + 1


def _type() -> None:
    """`tensor.type(torch.FloatTensor)`."""
    own = undertow.Tensor.type

    def cast(self: Any, dtype: Any = None, **kwargs: Any) -> Any:
        if isinstance(dtype, TypedTensor):
            dtype = dtype.dtype
        return own(self, dtype, **kwargs) if dtype is not None else own(self)

    undertow.Tensor.type = cast


def _private_methods() -> None:
    tensor = undertow.Tensor
    for name, method in {"new": _new, "storage": _Storage}.items():
        if not hasattr(tensor, name):
            setattr(tensor, name, lambda self, *args, _method=method: _method(self, *args))


class _Storage:
    """`tensor.storage()`: the memory that the tensor lies in."""

    def __init__(self, tensor: Any):
        self._memory = lookup("ops.strided.memory_of")(tensor._xp, tensor._array)

    def __len__(self) -> int:
        return len(self._memory)

    def data_ptr(self) -> int:
        return int(self._memory.ctypes.data)


def _new(self: Any, *args: Any) -> Any:
    """`tensor.new(size)`: an uninitialised tensor of the same dtype."""
    return undertow.empty(*args, dtype=self.dtype)


class WeakTensorRef:
    """`torch._C._WeakTensorRef`: whether a tensor is gone."""

    def __init__(self, tensor: Any):
        self._reference = weakref.ref(tensor)

    def expired(self) -> bool:
        return self._reference() is None

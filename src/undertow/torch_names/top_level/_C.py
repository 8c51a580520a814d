"""Names of PyTorch's compiled module that libraries use, for what they use them."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType
from typing import Any

from undertow.autograd.batched_tensor import BatchedTensor
from undertow.autograd.graph import current_graph_task_execution_order as _current_graph_task_execution_order
from undertow.autograd.graph import current_graph_task_id as _current_graph_task_id
from undertow.autograd.graph import current_node as _current_autograd_node
from undertow.autograd.graph import will_execute_node as _will_engine_execute_node
from undertow.autograd.imperative_engine import ImperativeEngine as _ImperativeEngine
from undertow.autograd.vmap import steps
from undertow.backend import Device
from undertow.backend.dtypes import as_dtype, public
from undertow.backend.dtypes import dtype as dtype
from undertow.errors import LinAlgError as _LinAlgError
from undertow.errors import OutOfMemoryError as OutOfMemoryError
from undertow.modes import is_grad_enabled as is_grad_enabled
from undertow.modes import is_multithreading_enabled as _is_multithreading_enabled
from undertow.modes import set_grad_enabled as _set_grad_enabled
from undertow.ops.random.generator import Generator as Generator
from undertow.tensor import Size as Size
from undertow.tensor import Tensor
from undertow.tensor.layouts import layout as layout
from undertow.tensor.memory import Storage
from undertow.tensor.memory_formats import memory_format as memory_format
from undertow.tensor.torch_function import DisableTorchFunction as DisableTorchFunction
from undertow.tensor.torch_function import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from undertow.tensor.torch_function import asking
from undertow.tensor.torch_function import never as _disabled_torch_function_impl

_TensorMeta = type(Tensor)
TensorBase = _TensorBase = Tensor
StorageBase = Storage
device = Device
_has_mkldnn = has_mkl = _has_cuda = _has_mps = False


class ScriptFunction:
    """The class of functions that PyTorch has compiled: nothing is one of it."""


class ScriptObject:
    """The class of objects of PyTorch's C++ classes: nothing is one of it."""


Graph = Node = Value = ScriptObject
ScriptModule = ScriptMethod = ScriptObject
Future = ScriptObject


class Keys:
    """What PyTorch's dispatcher sorts operations by: here they are not sorted."""

    def __getattr__(self, name: str) -> str:
        return name


DispatchKey = Keys()


class DispatchKeySet:
    """A set of such keys."""

    def __init__(self, *keys: Any) -> None: ...

    def __or__(self, other: Any) -> DispatchKeySet:
        return self

    __sub__ = __and__ = remove = add = __or__

    def has(self, key: Any) -> bool:
        return False


def _get_tracing_state() -> None:
    """The state of `jit.trace`: nothing is traced."""


def _log_api_usage_once(name: str) -> None:
    """Nobody counts."""


def _is_tracing() -> bool:
    return False


def _are_functorch_transforms_active() -> bool:
    from undertow.modes import current

    return current().intercept is not None


def _disabled_torch_dispatch_impl(*args: Any) -> Any:
    """The `__torch_dispatch__` of classes that have no say: none has, here."""
    return NotImplemented


def _jit_set_profiling_executor(enabled: bool) -> bool:
    return False


_jit_set_profiling_mode = _jit_override_can_fuse_on_gpu = _jit_override_can_fuse_on_cpu = _jit_set_profiling_executor
_jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_set_profiling_executor


def _get_default_device() -> str:
    return "cpu"


def _cuda_clearCublasWorkspaces() -> None:
    """There are none."""


def _get_accelerator(check: Any = None) -> Device:
    return Device("cpu")


def _functorch_is_batched(tensor: Any) -> bool:
    return type(tensor) is BatchedTensor


def _unwrapped(tensor: Any) -> Any:
    """What a batch of examples holds: a tensor with one dimension more."""
    return tensor._value if type(tensor) is BatchedTensor else tensor


def _is_torch_function_mode_enabled() -> bool:
    return bool(asking.get().modes)


@contextlib.contextmanager
def _ExcludeDispatchKeyGuard(keys: Any) -> Any:
    yield


def _parse_to(*args: Any, **kwargs: Any) -> Any:
    """What the arguments of `x.to(...)` mean: device, dtype, non_blocking, memory format."""
    wanted, kind, blocking = kwargs.get("device"), kwargs.get("dtype"), kwargs.get("non_blocking", False)
    for value in args:
        if isinstance(value, Tensor):
            wanted, kind = value.device, value.dtype
        elif isinstance(value, bool):
            blocking = value
        elif isinstance(value, (str, int, Device)):
            wanted = value
        elif value is not None:
            kind = value
    found = None if wanted is None else wanted if isinstance(wanted, Device) else Device(wanted)
    return found, None if kind is None else public(as_dtype(kind)), blocking, kwargs.get("memory_format")


_nn = ModuleType(f"{__name__}._nn", "Names of PyTorch's compiled functions for layers.")
_nn._parse_to = _parse_to  # type: ignore[attr-defined]
sys.modules[_nn.__name__] = _nn

_functorch = ModuleType(f"{__name__}._functorch", "Names of PyTorch's compiled part of function transforms.")
_functorch._add_batch_dim = steps._add_batch_dim  # type: ignore[attr-defined]
_functorch._remove_batch_dim = steps._remove_batch_dim  # type: ignore[attr-defined]
_functorch.get_unwrapped = _unwrapped  # type: ignore[attr-defined]
_functorch.is_batchedtensor = _functorch_is_batched  # type: ignore[attr-defined]
_functorch.maybe_get_bdim = lambda tensor: getattr(tensor, "_dim", -1)  # type: ignore[attr-defined]
sys.modules[_functorch.__name__] = _functorch


def __getattr__(name: str) -> Any:
    if name.endswith("Type") and not name.startswith("_"):  # of PyTorch's compiler
        return ScriptObject
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["_ImperativeEngine", "_LinAlgError", "_current_autograd_node", "_current_graph_task_execution_order",
           "_current_graph_task_id", "_disabled_torch_function_impl", "_is_multithreading_enabled", "_set_grad_enabled",
           "_will_engine_execute_node"]  # fmt: skip

"""Functions and values at the top of PyTorch that programs mention, and that mean little or nothing here."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

from undertow.autograd.interceptors.autocast import get_autocast_dtype, is_autocast_enabled
from undertow.backend import Device
from undertow.backend.dtypes import as_dtype, default_dtype
from undertow.backend.public_dtypes import unavailable
from undertow.engine.deterministic_sums import are_deterministic_algorithms_enabled, use_deterministic_algorithms
from undertow.errors import OutOfMemoryError as OutOfMemoryError
from undertow.ops.create.creation import frombuffer
from undertow.ops.reduce.segments import segment_reduce as _segment_reduce  # noqa: F401
from undertow.tensor import Tensor
from undertow.tensor.memory import Storage
from undertow.tensor.torch_function import asks

UntypedStorage = TypedStorage = StorageBase = Storage
complex32 = chalf = unavailable("complex32", 4)
qint8, quint8, qint32 = unavailable("qint8", 1), unavailable("quint8", 1), unavailable("qint32", 4)
quint4x2, quint2x4, bits8 = unavailable("quint4x2", 1), unavailable("quint2x4", 1), unavailable("bits8", 1)
float4_e2m1fn_x2 = unavailable("float4_e2m1fn_x2", 1)
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = [unavailable(f"uint{n}", 1) for n in range(1, 8)]
int1, int2, int3, int4, int5, int6, int7 = [unavailable(f"int{n}", 1) for n in range(1, 8)]
legacy_contiguous_format = None


class SymInt:
    """A size that a compiler does not know yet: nothing is one, for sizes are numbers here.

    >>> import undertow as ut
    >>> isinstance(ut.ones(2).shape[0], ut.SymInt)
    False
    """


class SymFloat:
    """A number that a compiler does not know yet: nothing is one.

    >>> import undertow as ut
    >>> isinstance(ut.ones(2).sum().item(), ut.SymFloat)
    False
    """


class SymBool:
    """A condition that a compiler does not know yet: nothing is one.

    >>> import undertow as ut
    >>> isinstance(True, ut.SymBool)
    False
    """


def compile(model: Any = None, **kwargs: Any) -> Any:
    """The function or the module itself: operations run as they are called. Without one, a decorator.

    model     a function or a module
    **kwargs  accepted, without effect

    >>> import undertow as ut
    >>> ut.compile(abs) is abs
    True
    """
    return model if model is not None else lambda function: function


class AcceleratorError(RuntimeError):
    """What PyTorch raises when a GPU fails; undertow raises RuntimeError, from which this derives, and never this.

    >>> import undertow as ut
    >>> issubclass(ut.AcceleratorError, RuntimeError)
    True
    """


def is_of_gpu(device: Any) -> bool:
    """Whether a device that a program names, or the fastest there is for None, is a GPU."""
    if device is None or isinstance(device, int):
        return bool(import_module("undertow.cuda").is_available())
    return str(device).startswith("cuda")


class Stream:
    """An order of work on a device. The CPU does everything at once; `Stream("cuda")` and `Stream("sim")` are queues.

    priority  of streams of GPUs: negative numbers go before others
    **kwargs  accepted, without effect

    >>> import undertow as ut
    >>> ut.Stream("cpu").query()
    True
    """

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        if is_of_gpu(device):
            return import_module("undertow.backend.cuda.streams").Stream(device, priority)
        if str(device).startswith("sim"):
            return import_module("undertow.backend.simulated").Stream(device)
        return object.__new__(cls)

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device = Device("cpu")

    def synchronize(self) -> None:
        """Everything is done."""

    def wait_stream(self, stream: Any) -> None:
        """Everything is done.

        stream  the one to wait for
        """

    def wait_event(self, event: Any) -> None:
        """Everything is done.

        event  the one to wait for
        """

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def query(self) -> bool:
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: Any) -> None: ...


class Event:
    """A place in the work of a device. The CPU has done what came before; `Event("cuda")` comes later.

    enable_timing  whether `elapsed_time` may be asked for
    **kwargs       accepted, without effect

    >>> import undertow as ut
    >>> event = ut.Event("cpu")
    >>> event.record()
    >>> event.query()
    True
    """

    def __new__(cls, device: Any = None, enable_timing: bool = False, **kwargs: Any) -> Any:
        if is_of_gpu(device):
            return import_module("undertow.backend.cuda.streams").Event(enable_timing)
        if str(device).startswith("sim"):
            return import_module("undertow.backend.simulated").Event(enable_timing)
        return object.__new__(cls)

    def __init__(self, device: Any = None, enable_timing: bool = False, **kwargs: Any) -> None:
        self._time = 0.0

    def record(self, stream: Any = None) -> None:
        import time

        self._time = time.perf_counter()

    def synchronize(self) -> None:
        """Everything is done."""

    def wait(self, stream: Any = None) -> None:
        """Everything is done.

        stream  which one is to wait
        """

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this one to another.

        end_event  the later one
        """
        return (end_event._time - self._time) * 1000


def typename(obj: Any, /) -> str:
    """The type of an object, as PyTorch writes it: of a tensor its dtype's, of others the class with its module.

    obj  any object

    >>> import undertow as ut
    >>> ut.typename(ut.ones(1))
    'undertow.FloatTensor'
    """
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if isinstance(obj, type) or callable(obj) else type(obj)
    module = getattr(kind, "__module__", "") or ""
    name = getattr(kind, "__qualname__", getattr(kind, "__name__", type(obj).__name__))
    return name if module in ("", "builtins") else f"{module}.{name}"


def is_storage(obj: Any, /) -> bool:
    """Whether an object is the storage of a tensor.

    obj  any object

    >>> import undertow as ut
    >>> ut.is_storage(ut.ones(1))
    False
    """
    return isinstance(obj, Storage)


# ---- conditions


def _check(cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raise a RuntimeError unless the condition holds."""
    _check_with(RuntimeError, cond, message)


def _check_with(error: type[Exception], cond: Any, message: Any = None) -> None:
    if not cond:
        raise error(str(message() if callable(message) else message or "Expected cond to be True, but got False."))


def _check_index(cond: Any, message: Any = None) -> None:
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    _check_with(NotImplementedError, cond, message)


def _check_tensor_all(cond: Tensor, message: Any = None) -> None:
    _check_with(RuntimeError, bool(cond.all()), message)


def _check_is_size(i: int, message: Any = None, *, max: int | None = None) -> None:
    _check_with(RuntimeError, i >= 0 and (max is None or i <= max), message)


@asks
def _assert(condition: Any, message: str) -> None:
    """Of a condition that a trace does not know, a node of its graph."""
    assert condition, message


def _assert_async(condition: Tensor, message: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    _check_with(RuntimeError, bool(condition), message)


def _is_functional_tensor(t: Any) -> bool:
    return False


def _shape_as_tensor(input: Tensor) -> Tensor:
    from undertow import ops

    return ops.tensor(list(input.shape))


# ---- sizes, which are numbers here


def sym_int(a: Any) -> int:
    """`int`: sizes are numbers here, never symbols.

    a  a number

    >>> import undertow as ut
    >>> ut.sym_int(2.5)
    2
    """
    return math.floor(a) if a >= 0 else math.ceil(a)


def sym_float(a: Any) -> float:
    """`float`: sizes are numbers here, never symbols.

    a  a number

    >>> import undertow as ut
    >>> ut.sym_float(2)
    2.0
    """
    return builtins.float(a)


def sym_max(a: Any, b: Any) -> Any:
    """`max` of two sizes.

    a, b  the sizes

    >>> import undertow as ut
    >>> ut.sym_max(2, 3)
    3
    """
    return max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """`min` of two sizes.

    a, b  the sizes

    >>> import undertow as ut
    >>> ut.sym_min(2, 3)
    2
    """
    return min(a, b)


def sym_not(a: Any) -> bool:
    """`not a`.

    >>> import undertow as ut
    >>> ut.sym_not(False)
    True
    """
    return not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t if b else f`.

    >>> import undertow as ut
    >>> ut.sym_ite(True, 1, 2)
    1
    """
    return t if b else f


def sym_sum(args: Any) -> Any:
    """`sum` of sizes.

    args  a list of sizes

    >>> import undertow as ut
    >>> ut.sym_sum([1, 2])
    3
    """
    return sum(args)


def sym_sqrt(a: Any) -> float:
    """The square root of a size.

    >>> import undertow as ut
    >>> ut.sym_sqrt(4)
    2.0
    """
    return math.sqrt(a)


# ---- autocast, by the older names


def get_autocast_cpu_dtype() -> Any:
    """The dtype that autocast computes in on the CPU.

    >>> import undertow as ut
    >>> ut.get_autocast_cpu_dtype()
    undertow.bfloat16
    """
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> Any:
    """The dtype that autocast computes in on GPUs.

    >>> import undertow as ut
    >>> ut.get_autocast_gpu_dtype()
    undertow.float16
    """
    return get_autocast_dtype("cuda")


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on, for the CPU.

    >>> import undertow as ut
    >>> with ut.autocast("cpu"):
    ...     print(ut.is_autocast_cpu_enabled())
    True
    """
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """Whether autocast keeps the copies of parameters that it made.

    >>> import undertow as ut
    >>> ut.is_autocast_cache_enabled()
    False
    """
    return False


def clear_autocast_cache() -> None:
    """Nothing is kept.

    >>> import undertow as ut
    >>> ut.clear_autocast_cache()
    """


# ---- settings without effect


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether a nondeterministic operation would only warn.

    >>> import undertow as ut
    >>> ut.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return False


def get_deterministic_debug_mode() -> int:
    """2 if deterministic algorithms were asked for, else 0.

    >>> import undertow as ut
    >>> ut.get_deterministic_debug_mode()
    0
    """
    return 2 if are_deterministic_algorithms_enabled() else 0


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """As `use_deterministic_algorithms`: off for 0 and "default", on for the rest.

    debug_mode  0 or "default", 1 or "warn", 2 or "error"

    >>> import undertow as ut
    >>> ut.set_deterministic_debug_mode("default")
    """
    use_deterministic_algorithms(debug_mode in (1, 2, "warn", "error"))


def get_num_interop_threads() -> int:
    """How many operations may run at the same time in one program.

    >>> import undertow as ut
    >>> ut.get_num_interop_threads() >= 1
    True
    """
    return 1


def set_num_interop_threads(num: int) -> None:
    """Operations run one after the other.

    num  accepted, without effect

    >>> import undertow as ut
    >>> ut.set_num_interop_threads(1)
    """


def set_flush_denormal(mode: bool) -> bool:
    """Whether numbers near zero can be made zero: no.

    mode  accepted; the answer is False

    >>> import undertow as ut
    >>> ut.set_flush_denormal(True)
    False
    """
    return False


def compiled_with_cxx11_abi() -> bool:
    """True, as programs expect; undertow has no C++.

    >>> import undertow as ut
    >>> ut.compiled_with_cxx11_abi() in (True, False)
    True
    """
    return True


def get_device_module(device: Any = None) -> Any:
    """The module with the functions of a device.

    >>> import undertow as ut
    >>> ut.get_device_module("cuda") is ut.cuda
    True
    """
    kind = str(device or "cpu").partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise RuntimeError(f"Invalid device string: {kind!r}, which has no module")
    return import_module(f"undertow.{kind}")


# ---- control flow that PyTorch can export


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """One of two functions, called with the operands.

    pred               True or False, or a tensor of one element
    true_fn, false_fn  the functions; they get the operands one by one

    >>> import undertow as ut
    >>> ut.cond(True, lambda x: x + 1, lambda x: x - 1, (ut.ones(1),))
    tensor([2.])
    """
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """A function called with its own results as long as another says so.

    cond_fn         called with the values; says whether to go on
    body_fn         called with the values; returns the next ones
    carried_inputs  the first values

    >>> import undertow as ut
    >>> ut.while_loop(lambda x: x < 5, lambda x: (2 * x,), (ut.tensor(1.0),))
    (tensor(8.),)
    """
    values = tuple(carried_inputs)
    while cond_fn(*values):
        values = tuple(body_fn(*values))
    return values


def from_file(
    filename: Any,
    shared: bool = False,
    size: int = 0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of `size` elements whose memory is a file. Changes are written to it if `shared`, which also makes the
    file, and makes it longer, where that is needed; otherwise the tensor alone has them.

    filename  its path

    >>> import os, tempfile
    >>> import undertow as ut
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
    >>> ut.from_file(path, shared=True, size=3).fill_(2.0)
    tensor([2., 2., 2.])
    >>> ut.from_file(path, size=2)
    tensor([2., 2.])
    """
    if device is not None and Device(device).type != "cpu":
        raise NotImplementedError(f"from_file: the memory of a file is on the CPU, not on {device}")
    kind = default_dtype() if dtype is None else as_dtype(dtype, "from_file")
    found = Storage.from_file(filename, shared, size * kind.itemsize).elements if size else bytearray()
    return frombuffer(found, dtype=kind, requires_grad=requires_grad)


def _has_compatible_shallow_copy_type(input: Tensor, from_: Tensor) -> bool:
    """Whether one tensor's memory may be set as another's: of arrays, it may.

    >>> import undertow as ut
    >>> ut._has_compatible_shallow_copy_type(ut.ones(2), ut.ones(3))
    True
    """
    return type(input._array) is type(from_._array)

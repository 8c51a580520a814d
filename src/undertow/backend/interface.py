"""What a backend is: a device, and a namespace of array functions that work on that device's arrays.

Derivative rules are written once over such a namespace `xp`. Its attributes are NumPy's functions under NumPy's names
(or CuPy's), joined by the forward functions of undertow's own primitives, which `ArrayNamespace.define` adds as
methods, so that `xp.select_backward(g, ...)` works as `xp.sum(g)` does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias


class Device:
    """Where an array lives: `cpu`, `cuda:0`, `sim:1`.

    type   "cpu", "cuda", "sim" or "meta"; or both at once: "cuda:0"
    index  which one; None: the current one

    >>> import undertow as ut
    >>> ut.device("cpu").type
    'cpu'
    """

    __slots__ = ("index", "type")
    index: int | None
    type: str

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        if isinstance(type, Device):
            type, index = type.type, type.index if index is None else index
        if not isinstance(type, str):
            raise TypeError(f"device() expects a string such as 'cpu' or 'cuda:0', got {type!r}")
        if ":" in type:
            type, _, tail = type.partition(":")
            if not tail.isdigit():
                raise RuntimeError(f"Invalid device string: '{type}:{tail}'. Use 'cpu', 'cuda', 'cuda:0', ...")
            index = int(tail)
        if type not in ("cpu", "cuda", "sim", "meta"):
            raise RuntimeError(f"Expected one of cpu, cuda, sim device type at start of device string: {type}")
        self.type = type
        self.index = index

    def __enter__(self) -> Device:
        """Make tensors on this device, in the block, where no other is asked for."""
        default_device.set((self, default_device.get()))
        return self

    def __exit__(self, *error: object) -> None:
        inner = default_device.get()
        default_device.set(None if inner is None else inner[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (")" if self.index is None else f", index={self.index})")

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Device, (self.type, self.index)


#: None (the CPU), or the device of tensors that are made without one, and what it was before: see Device.__enter__
default_device: ContextVar[tuple[Device, Any] | None] = ContextVar("undertow.default_device", default=None)

#: whether what runs is run for the shape of its result: no value that it computes will be seen (see backend/meta)
for_shapes_alone: ContextVar[bool] = ContextVar("undertow.for_shapes_alone", default=False)


#: whether the program goes on while elements are copied between pinned memory and a device
non_blocking: ContextVar[bool] = ContextVar("undertow.non_blocking", default=False)


class DeviceArray:
    """An array that is not the CPU's, and knows the namespace of its device."""

    __slots__ = ()

    namespace: ArrayNamespace
    device: Any

    def to_host(self) -> Any:
        """A CPU array with the same elements."""
        raise NotImplementedError("a backend says how its memory is copied to the host")


class KnownShape(DeviceArray):
    """What is known without looking at the elements: it is that of a NumPy array that is held as `_data`."""

    __slots__ = ()

    namespace: Any = None
    _data: Any

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    ndim = property(lambda self: self._data.ndim)
    size = property(lambda self: self._data.size)
    strides = property(lambda self: self._data.strides)
    itemsize = property(lambda self: self._data.itemsize)
    nbytes = property(lambda self: self._data.nbytes)
    flags = property(lambda self: self._data.flags)
    ctypes = property(lambda self: self._data.ctypes)
    device = property(lambda self: self.namespace.device)

    def setflags(self, **flags: bool) -> None:
        self._data.setflags(**flags)

    def __len__(self) -> int:
        return len(self._data)


class HostValues(DeviceArray):
    """What Python asks of an array's elements: the program waits for a copy of them."""

    __slots__ = ()

    def item(self, *index: Any) -> Any:
        return self.to_host().item(*index)

    def tolist(self) -> Any:
        return self.to_host().tolist()

    def __bool__(self) -> bool:
        return bool(self.to_host())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        return self.to_host().__index__()  # type: ignore[no-any-return]

    def __contains__(self, value: Any) -> bool:
        return value in self.to_host()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            f"can't convert {self.namespace.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )


class ArrayNamespace:
    """The array functions of one device, as attributes under NumPy's names.

    Instance attributes are the array module's functions. Class attributes, set by `define`, are the forwards of
    undertow's primitives, called with the namespace itself as their first argument.
    """

    #: the class of this device's arrays; everything else that rules return is turned into one by `asarray`
    ndarray: Any
    device: Device
    #: whether an index that is out of range is found by the kernel that uses it, so that nobody need look at it before
    checks_indices = False
    #: (shape, dtype) -> ones that nobody may write to, the same for all calls; None where new ones cost little
    shared_ones: Callable[..., Any] | None = None
    #: whether its functions of matrices serve all sizes, so that there are none for small ones beside them
    takes_any_matrix = False
    #: operations whose forwards, and whose rules, compute half precision themselves; others get it in float32
    half_forwards: frozenset[str] = frozenset()
    half_rules: frozenset[str] = frozenset()

    def __init__(self, device: Device, module: Any) -> None:
        self.device = device
        self.module = module
        # vars, not dir: looking at the names a module loads lazily would load them (numpy.f2py, numpy.testing, ...)
        self.__dict__.update(
            {n: v for n, v in vars(module).items() if not n.startswith("_") and n not in self.__dict__}
        )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @classmethod
    def define(cls, name: str, forward: Callable[..., Any]) -> None:
        """Make a primitive's forward callable by rules as `xp.name(...)`."""
        setattr(cls, name, forward)

    def current_stream(self) -> Any:
        """The stream that this thread's work on the device goes to; None on a device without streams."""
        return None

    def take_over(self, array: Any) -> Array:
        """A copy of an array of any device, in this one's memory."""
        if non_blocking.get() and hasattr(array, "to_host_later"):
            return array.to_host_later()
        return array.to_host() if hasattr(array, "to_host") else self.array(array)

    def outcome_of(self, name: str, forward: Callable[..., Any], args: Any) -> Any:
        """What `forward(self, *args)` would return, where it has asked for values that arrays of this device lack."""
        raise NotImplementedError(f"the arrays of {self.device} have values")

    def __repr__(self) -> str:
        return f"<array functions of {self.device}>"


#: an array of a namespace; where a rule is recorded, a Tensor. Its methods are those of NumPy's arrays, which no type
#: of this layer lists, so a checker takes it for anything
Array: TypeAlias = Any

#: an element type: NumPy's, or a Python or NumPy type that stands for one
DType: TypeAlias = Any

#: what rules compute with: the array functions of a device, or the recorded operations
Namespace: TypeAlias = ArrayNamespace

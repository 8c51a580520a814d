"""Simulated devices: `sim:0`, `sim:1`, ...: the rules of accelerators, on any computer.

Their memory is NumPy's, and their kernels run on a thread of each device, while the program goes on. What is simulated
is what makes programs for accelerators hard: memories that do not mix, streams whose work nothing orders but events and
waits (a read that nothing orders raises StreamOrderError), latencies (from a seed; in simulated time, or in real time
to shake threads), memory that runs out, and devices that fail. See docs/simulated-devices.md.

operations  what a stream is given        threads  what runs it
clocks      what happened before what     plans    what a kernel will give, before it has run
faults      memory, failures              arrays   SimArray, and how NumPy's functions become operations
streams     streams and events
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from undertow.backend.cpu import FUNCTIONS, cpu, sum_to
from undertow.backend.interface import Array, ArrayNamespace, Device, DType
from undertow.backend.simulated.arrays import SimArray, has_arrays, launch, launch_planned, raise_mixed, send
from undertow.backend.simulated.clocks import HOST, LOCK, Buffer, Clock, merge
from undertow.backend.simulated.clocks import StreamOrderError as StreamOrderError
from undertow.backend.simulated.faults import DeviceFailure as DeviceFailure
from undertow.backend.simulated.faults import Failure, Memory, meet_failures, raise_late_failure
from undertow.backend.simulated.faults import OutOfMemoryError as OutOfMemoryError
from undertow.backend.simulated.plans import copying
from undertow.backend.simulated.streams import Event as Event
from undertow.backend.simulated.streams import Stream, chosen_or_default, install_namespaces
from undertow.backend.simulated.streams import current_stream as current_stream
from undertow.backend.simulated.threads import DeviceThread
from undertow.backend.streams import stream as stream
from undertow.scopes import Scope, held


class Options:
    """How simulated devices behave; changed by `configure`.

    devices    how many there are
    seed       what latencies are drawn from
    latency    the least and the most seconds that a kernel takes
    real_time  whether a kernel really takes that long
    check      whether an access that nothing orders raises StreamOrderError
    launch_blocking  whether the thread that launches a kernel waits for it, and is told at once if it fails; if not, it
                     is told when it next gives that device something to do, or waits for it
    """

    devices = 8
    seed = 0
    latency = (5e-6, 50e-6)
    real_time = False
    check = True
    launch_blocking = False


options = Options()


class SimNamespace(ArrayNamespace):
    """The array functions of one simulated device."""

    def __init__(self, device: Device) -> None:
        super().__init__(device, cpu.module)
        self.__dict__.update(FUNCTIONS)  # the same numbers as on the CPU
        self.options = options
        self.ndarray = type(f"SimArray{device.index}", (SimArray,), {"__slots__": (), "namespace": self})
        self.memory = Memory(self)
        self.failures: list[Failure] = []
        self.late_failure: BaseException | None = None
        self.work: Clock = {}  # stream id -> how many operations it was given, of all streams there ever were
        self.busy_until = 0.0
        self._streams = 0
        self.default_stream = Stream._of(self)
        self.thread = DeviceThread(self)
        self._wrap_functions()

    def _wrap_functions(self) -> None:
        """NumPy asks SimArrays in most functions; the others are told here to make arrays of this device."""
        for name in ("arange", "empty", "eye", "frombuffer", "fromiter", "full", "identity", "indices", "linspace",
                     "logspace", "ones", "tri", "zeros"):  # fmt: skip
            setattr(self, name, self._kernel(name, getattr(np, name)))
        tricks = np.lib.stride_tricks
        as_strided = self._kernel("as_strided", tricks.as_strided)
        self.lib = SimpleNamespace(
            stride_tricks=SimpleNamespace(as_strided=as_strided, sliding_window_view=tricks.sliding_window_view)
        )
        self.sum_to = self._sum_to
        self.conj = cpu.conj
        self.errstate = cpu.errstate
        self.broadcast_to = self._kernel("broadcast_to", np.broadcast_to)
        self.array = self._taker("array", np.array)
        self.asarray = self.asanyarray = self._taker("asarray", np.asarray)
        self.ascontiguousarray = self._taker("ascontiguousarray", np.ascontiguousarray)
        self.asfortranarray = self._taker("asfortranarray", np.asfortranarray)

    def _kernel(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            return launch(self, name, function, args, kwargs)

        return kernel

    def _taker(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that takes anything and gives an array of this device; memory of the host is copied."""

        def take(value: Any, dtype: DType | None = None, **kwargs: Any) -> Any:
            if not isinstance(value, SimArray):
                if has_arrays(value):
                    return launch(self, name, np.array, (value, dtype), kwargs)
                return self._receive(name, np.array(function(value, dtype, **kwargs), order="K"))
            if value.namespace is not self:
                raise_mixed(name, self, value.namespace)
            if dtype is not None and value.dtype != dtype:
                value = value.astype(dtype)
            return launch(self, name, function, (value, None), kwargs)

        return take

    def _receive(self, name: str, array: Array) -> Array:
        """A copy of the program's array, which nobody else has, in this device's memory."""
        failure = meet_failures(self, name)
        return launch_planned(self, name, copying(np.empty_like(array), array), [], [], failure)

    def _sum_to(self, array: Array, shape: tuple[int, ...]) -> Array:
        return array if array.shape == shape else launch(self, "sum_to", sum_to, (array, shape), {})

    def take_over(self, array: Array) -> Array:
        """A copy of an array of any device, in this one's memory."""
        if not isinstance(array, SimArray):
            return self.array(array)
        if array.namespace is self:
            return array.copy()
        raise_late_failure(array.namespace)
        # as between two real devices: the source's stream copies, and the receiving stream waits for it
        source, here = array.namespace.current_stream(), self.current_stream()
        source.wait_stream(here)
        target = np.empty(array.shape, array.dtype)
        result = self.ndarray(target, Buffer(self, target.nbytes))
        call = copying(target, array._data).call
        operation = send(array.namespace, "copy", call, [array._buffer], [result._buffer], makes=True)
        here.wait_stream(source)
        if operation.awaited:
            operation.outcome()
        return result

    def current_stream(self) -> Stream:
        return chosen_or_default(self)

    def count_stream(self) -> int:
        """The number of a new stream."""
        number = self._streams
        self._streams += 1
        return number


_namespaces: dict[int, SimNamespace] = {}


def namespace(device: Device | str | int) -> SimNamespace:
    """The array functions of a simulated device: "sim:1", or "sim", which is "sim:0"."""
    device = Device(device)
    index = device.index or 0
    if device.type != "sim" or index >= options.devices:
        raise RuntimeError(
            f"invalid device ordinal: '{device}' is none of the simulated devices sim:0 ... sim:{options.devices - 1}. "
            "Ask for more with undertow.sim.configure(devices=...)."
        )
    found = _namespaces.get(index)
    if found is None:
        with held(LOCK):
            found = _namespaces.get(index) or _namespaces.setdefault(index, SimNamespace(Device("sim", index)))
    return found


install_namespaces(namespace)


# ---- switches


class _OptionsVariable:
    """The options as a variable (see scopes.py): a dict of those that are to be changed."""

    def get(self) -> dict[str, Any]:
        return {name: getattr(options, name) for name in vars(Options) if not name.startswith("_")}

    def set(self, changes: dict[str, Any]) -> None:
        for name, value in changes.items():
            setattr(options, name, value)
        if "seed" in changes:
            for space in list(_namespaces.values()):
                space.default_stream._random.seed(f"{options.seed} {space.device} 0")


class configure(Scope):
    """Change how simulated devices behave: at once as a call, until the end of the block as a context manager.

    devices, seed, latency, real_time, check, launch_blocking  see Options; what is not given stays as it is
    **changes  the options, by name

    >>> import undertow as ut
    >>> with ut.sim.configure(seed=1, latency=(1e-3, 2e-3)):
    ...     x = ut.ones(2, device="sim:0")
    """

    variable = _OptionsVariable()
    at_once = True

    def prepare(self, **changes: Any) -> None:
        unknown = set(changes) - {name for name in vars(Options) if not name.startswith("_")}
        if unknown:
            raise TypeError(f"configure() got an unexpected keyword argument {unknown.pop()!r}")
        self._changes = changes

    def inside(self, outer: dict[str, Any]) -> dict[str, Any]:
        return self._changes

    def after(self, inner: dict[str, Any], outer: dict[str, Any]) -> dict[str, Any]:
        return {name: outer[name] for name in self._changes}


def set_memory_limit(device: Device | str | int, nbytes: int | None) -> None:
    """Let a device have no more than `nbytes` bytes of memory (None: any amount).

    >>> import undertow as ut
    >>> ut.sim.set_memory_limit("sim:1", 64)
    >>> try:
    ...     ut.ones(256, device="sim:1")
    ... except ut.sim.OutOfMemoryError as error:
    ...     print(type(error).__name__)
    OutOfMemoryError
    >>> ut.sim.set_memory_limit("sim:1", None)
    """
    namespace(device).memory.limit = nbytes


def memory_allocated(device: Device | str | int = "sim") -> int:
    """How many bytes of a device's memory are in use.

    >>> import undertow as ut
    >>> x = ut.ones(256, device="sim:1")
    >>> ut.sim.memory_allocated("sim:1") >= 1024
    True
    """
    return namespace(device).memory.allocated()


def inject_failure(
    device: Device | str | int,
    after: int = 0,
    op: str | None = None,
    error: BaseException | None = None,
    sticky: bool = False,
) -> Failure:
    """Let a device fail: at the operation that follows `after` others (of NumPy's name `op`, if given).

    The program is told when it next gives the device something to do, or waits for it; see Options.launch_blocking.

    error   what is raised; by default a DeviceFailure
    sticky  whether all later operations fail too, until the failure is removed

    >>> import undertow as ut
    >>> with ut.sim.inject_failure("sim:0", op="exp"), ut.sim.configure(launch_blocking=True):
    ...     ut.ones(2, device="sim:0").exp()
    Traceback (most recent call last):
    ...
    undertow.backend.simulated.faults.DeviceFailure: sim:0 failed at exp, as undertow.sim.inject_failure told it to
    """
    return Failure(namespace(device), after, op, error, sticky)


# ---- questions


def synchronize(device: Device | str | int | None = None) -> None:
    """Wait for all work on one device, or on all of them.

    >>> import undertow as ut
    >>> x = 2 * ut.ones(2, device="sim:0")
    >>> ut.sim.synchronize("sim:0")
    >>> x
    tensor([2., 2.], device='sim:0')
    """
    for space in list(_namespaces.values()) if device is None else [namespace(device)]:
        with held(LOCK):
            work, time = dict(space.work), space.busy_until
        space.thread.wait_for_all()
        with held(LOCK):
            merge(HOST.clock, work)
            HOST.time = max(HOST.time, time)
        raise_late_failure(space)


def default_stream(device: Device | str | int = "sim") -> Stream:
    """The stream that a device's work goes to unless another is chosen.

    >>> import undertow as ut
    >>> ut.sim.default_stream("sim:0")
    default stream of sim:0
    """
    return namespace(device).default_stream


def device_count() -> int:
    """How many simulated devices there are.

    >>> import undertow as ut
    >>> with ut.sim.configure(devices=3):
    ...     print(ut.sim.device_count())
    3
    """
    return options.devices


def is_available() -> bool:
    return True

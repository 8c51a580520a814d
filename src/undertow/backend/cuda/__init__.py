"""GPUs: `cuda:0`, `cuda:1`, through the extension undertow._cuda (csrc/cuda/), with neither headers of CUDA nor CuPy.

device       the extension, and the GPUs there are         libraries    where NVRTC and cuBLAS are
streams      streams and events                            exchange     memory shared with other libraries
pinned       memory of the host for copies                 sites        lines whose kernels check indices
kernel_text  what every kernel begins with                 compile      from text to kernels, kept on disk
formulas     elementwise functions, as C++                 elementwise  their kernels for any dtypes
reductions   sums and their like                           indexing     places that arrays of integers name
views        functions that look at no element             tail         functions of NumPy, on the host
compositions, counting   functions of NumPy that are a few kernels
making       new arrays, and copies                        products     of matrices, by cuBLAS
functions    functions of NumPy made of all these          arrays       CudaArray
wrappers     functions of NumPy that have no kernel        by_cupy      long Fourier transforms
chains       elementwise launches that become one         joined       formulas as one kernel
fused        what takes array functions several steps      blocks       what kernels of many threads are made of
rows         softmax, cross entropy                        norms        layer norm, batch norm and their relatives
activations  gelu, silu; special functions                 pooling      the largest, or the mean, of windows
scans        running sums, argmax                          sorting, gather_scatter   sorting; sums by index
recurrent    steps of LSTM layers                            fourier      short Fourier transforms
factorizations, small_matrices, triangles   of matrices, by cuSOLVER (solver, solver_on_host) or kernels of ours
philox       random numbers
attention    a block of scores at a time                   flash        all of it, on tensor cores
convolution, cudnn   by cuDNN, or by kernels of ours       cudnn_graph, cudnn_attention   several steps, by cuDNN
updates      steps of optimizers, all at once              half_precision, precision   what is computed in which dtype

UNDERTOW_CUDA=emulate gives a device whose memory is the host's and whose kernels are the same text, compiled by the
host's compiler: for tests. UNDERTOW_CUDA=0 leaves the GPU alone. See docs/cuda.md.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from undertow.backend.cpu import cpu
from undertow.backend.cuda import (
    activations,
    attention,
    chains,
    convolution,
    device,
    elementwise,
    factorizations,
    functions,
    fused,
    gather_scatter,
    half_precision,
    indexing,
    joined,
    libraries,
    making,
    norms,
    philox,
    pinned,
    pooling,
    precision,
    products,
    recurrent,
    reductions,
    rows,
    scans,
    sites,
    streams,
    tail,
    updates,
)
from undertow.backend.cuda.arrays import Flags, array_class, reduce_by
from undertow.backend.cuda.elementwise import Formula
from undertow.backend.cuda.wrappers import (
    arange,
    cast_on_host,
    conj,
    has_arrays,
    in_order,
    learn,
    made_on_host,
    on_host,
    refuse,
    strided_view,
    without_detour,
)
from undertow.backend.interface import Array, ArrayNamespace, Device, DType, non_blocking
from undertow.backend.sparse.protocol import AnySparse
from undertow.compiled import core
from undertow.errors import OutOfMemoryError as OutOfMemoryError

#: kernels that do several steps at once, by the names of backend/kernels.py
OWN_KERNELS: dict[str, Callable[..., Any]] = {
    "adam_update": fused.adam_update, "running_sums": scans.running_sums,
    "linear": products.linear, "note_outside": indexing.note_outside, **recurrent.KERNELS,
    **factorizations.KERNELS,
    **norms.KERNELS, **rows.KERNELS, **activations.KERNELS, **pooling.KERNELS, **gather_scatter.KERNELS,
    **convolution.KERNELS, **attention.KERNELS, **updates.KERNELS, **philox.KERNELS,
}  # fmt: skip


#: operations that are rules of others -> how many operands they have, and their formula for real numbers
RULES = {
    "tanh_backward": (2, "a * (T(1) - b * b)"),
    "sigmoid_backward": (2, "a * (b * (T(1) - b))"),
    "threshold_backward": (3, "b <= c ? T(0) : a"),
}


class CudaNamespace(ArrayNamespace):
    """The array functions of a GPU."""

    checks_indices = True
    takes_any_matrix = True
    half_forwards = half_precision.FORWARDS
    half_rules = half_precision.RULES
    own_kernels = OWN_KERNELS

    def __init__(self, which: Device) -> None:
        device.check(which.index or 0)
        super().__init__(which, cpu.module)
        self.index = which.index or 0
        self.has_neighbours = device.count() > 1
        self.ndarray = array_class(self.index)
        self.ndarray.namespace = self
        self.default_stream = streams.default_stream_of(self)
        self._casts: dict[Any, Any] = {}
        self._ones: dict[Any, Any] = {}
        self._make_kernels()
        self._replace_functions()
        self._join_rules()
        device.extension().set_class(self.index, self.ndarray)
        if self.index == 0:
            self._set_up()

    def _set_up(self) -> None:
        """Give C what it calls: the same for all devices, because kernels run on each of them."""
        operators = {**self.kernels, "copy": self.copy_kernel, "matmul": products.matmul}
        extension = device.extension()
        extension.setup(Flags, operators, indexing.getitem, indexing.setitem, reductions.make, OutOfMemoryError)
        extension.set_chain_maker(chains.make)
        extension.start_lanes(streams.chosen_variable, streams.numbers_of)
        extension.name_sites(sites.name)
        if core is not None:
            core.bind(device_xp=self, device_array=self.ndarray)

    def here(self) -> Any:
        """The extension, which makes new arrays on this device."""
        extension = device.extension()
        if self.has_neighbours:
            extension.enter(self.index)
        return extension

    def _make_kernels(self) -> None:
        elementwise.kernel_class().reducer = staticmethod(reduce_by)
        self.kernels = elementwise.ufunc_kernels(on_host)
        self.copy_kernel = elementwise.kernel("copy", Formula(1, elementwise.same, lambda dtypes: "a"), refuse("copy"))
        self.fill_kernel = elementwise.kernel(
            "fill", Formula(2, elementwise.filled, lambda dtypes: "b"), refuse("fill")
        )
        self.where_kernel = elementwise.kernel(
            "where",
            Formula(3, elementwise.chosen, lambda dtypes: "a ? b : c"),
            lambda operands, out: tail.on_host("where", np.where, operands, {}),
        )

    def _join_rules(self) -> None:
        """Rules that many models use, and that are operations of their own: each is one kernel."""
        self.logistic, self.log1p_of_exp = activations.kernel("logistic"), activations.kernel("log1p_of_exp")
        for name, (count, code) in RULES.items():
            function = getattr(type(self), name, None)  # the operation's, which computes what the kernel cannot
            if function is not None:
                whole = functools.partial(function, self)
                setattr(self, name, joined.joined_kernel(code, count, whole))
        for name in ("mm", "t"):
            function = getattr(type(self), name, None)
            if function is not None:
                setattr(self, name, device.extension().shortcut(name, functools.partial(function, self)))

    def _replace_functions(self) -> None:
        """NumPy's functions that do not ask their arguments, and those that have kernels."""
        self.__dict__.update(self.kernels)
        for name in ("frombuffer", "fromiter", "indices", "linspace", "logspace"):
            setattr(self, name, made_on_host(self, getattr(np, name)))
        self.arange = functools.partial(arange, self)
        own = (
            self.empty_, self.zeros_, self.ones_, self.full_, self.eye_, self.identity_, self.tri_, self.array_,
            self.asarray_, self.matmul_,
        )  # fmt: skip
        self.__dict__.update({function.__name__.rstrip("_"): function for function in own})
        self.asanyarray = self.asarray_
        self.ascontiguousarray = lambda x, dtype=None: in_order(self.asarray_(x, dtype), "C")
        self.asfortranarray = lambda x, dtype=None: in_order(self.asarray_(x, dtype), "F")
        as_strided = functools.partial(strided_view, np.lib.stride_tricks.as_strided)
        windows = np.lib.stride_tricks.sliding_window_view
        self.lib = SimpleNamespace(
            stride_tricks=SimpleNamespace(as_strided=as_strided, sliding_window_view=windows),
            array_utils=np.lib.array_utils,
        )
        self.conj = device.extension().shortcut("conj", functools.partial(conj, self))
        self.errstate = cpu.errstate
        self.finfo = cpu.finfo
        self.sum_to = reductions.sum_to
        for name, function in functions.FUNCTIONS.items():
            setattr(self, name, without_detour(function, getattr(np, name)))
        self.sum_all = device.extension().shortcut("sum_all", lambda x: self.add.reduce(x, axis=None))
        for name in ("swapaxes", "transpose", "reshape", "expand_dims"):
            setattr(self, name, device.extension().shortcut(name, getattr(self, name)))
        self.broadcast_to = self.broadcast_to_

    def cast_to(self, dtype: np.dtype[Any]) -> Any:
        """The kernel of casts to a dtype."""
        found = self._casts.get(dtype)
        if found is None:
            learn(dtype)
            formula = Formula(1, lambda kinds: (dtype, dtype), lambda dtypes: "a")
            found = self._casts[dtype] = elementwise.kernel(f"cast to {dtype}", formula, cast_on_host(dtype))
        return found

    def joined(self, function: Callable[..., Any], tree: tuple[Any, ...], places: Mapping[str, int]) -> Any:
        """The call of one kernel for all of a function's formula; None if there can be none."""
        return joined.joined(self, function, tree, places)

    def random_stream(self, seed: int) -> philox.Philox:
        """A stream of random numbers, drawn in the memory of this device."""
        return philox.Philox(self, seed)

    def extra_finder(self, extra_on: Callable[[Any], Any]) -> Any:
        """`extra_on` of graph/node.py for the first GPU, which remembers what each stream has."""
        return device.extension().shortcut("extra_on", extra_on)

    def current_stream(self) -> streams.Stream:
        return streams.current_stream_of(self)

    # ---- making arrays; NumPy's functions of these names are in the instance, and these replace them

    def empty_(self, shape: Any, dtype: DType = float, order: str = "C", **options: Any) -> Array:
        dtype = np.dtype(dtype)
        learn(dtype)
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (int(shape),)
        if order == "F":
            return self.here().empty(shape[::-1], dtype).T
        return self.here().empty(shape, dtype)

    def zeros_(self, shape: Any, dtype: DType = float, order: str = "C", **options: Any) -> Array:
        return device.extension().zero(self.empty_(shape, dtype, order))

    def ones_(self, shape: Any, dtype: DType = None, order: str = "C", **options: Any) -> Array:
        return making.filled(self.empty_(shape, float if dtype is None else dtype, order), 1)

    def shared_ones(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Ones that nobody may write to, which each stream has made for itself."""
        key = self.current_stream().number, shape, dtype
        found = self._ones.get(key)
        if found is None:
            found = self._ones[key] = self.ones_(shape, dtype)
            found.is_writeable = False
        return found

    def eye_(
        self, N: int, M: int | None = None, k: int = 0, dtype: DType = float, order: str = "C", **options: Any
    ) -> Array:
        rows, columns = int(N), int(N if M is None else M)
        out = self.zeros_((rows, columns), dtype)
        length = min(rows + min(k, 0), columns - max(k, 0))
        if length > 0:
            start = k if k > 0 else -k * columns
            out.reshape(-1)[start : start + (length - 1) * (columns + 1) + 1 : columns + 1] = 1
        return in_order(out, order)

    def identity_(self, n: int, dtype: DType = None, **options: Any) -> Array:
        return self.eye_(n, dtype=float if dtype is None else dtype)

    def tri_(self, N: int, M: int | None = None, k: int = 0, dtype: DType = float, **options: Any) -> Array:
        return self.tril(self.ones_((int(N), int(N if M is None else M)), dtype), k)

    def full_(self, shape: Any, fill_value: Any, dtype: DType = None, order: str = "C", **options: Any) -> Array:
        if dtype is None:
            dtype = fill_value.dtype if tail.is_device_array(fill_value) else np.asarray(fill_value).dtype
        return making.filled(self.empty_(shape, dtype, order), fill_value)

    def asarray_(self, value: Any, dtype: DType = None, order: Any = None, copy: Any = None, **options: Any) -> Array:
        if not tail.is_device_array(value):
            value = self._stacked(value)
            if not tail.is_device_array(value):
                if isinstance(value, AnySparse):
                    return value if value.namespace is self else value.on(self.take_over)
                host = np.asarray(value, dtype, order)
                learn(host.dtype)
                return self.here().from_host(host)
        if dtype is not None and value.dtype != np.dtype(dtype):
            value = value.astype(dtype)
        elif copy:
            value = making.copied(value)
        return in_order(value, order) if order in ("C", "F") else value

    def array_(
        self, value: Array, dtype: DType = None, copy: Any = True, order: str = "K", ndmin: int = 0, **options: Any
    ) -> Array:
        if tail.is_device_array(value):
            same = dtype is None or value.dtype == np.dtype(dtype)
            made = making.copied(value, order) if same else self.asarray_(value, dtype)
        else:
            made = self.asarray_(value, dtype)
        return made if made.ndim >= ndmin else made[(None,) * (ndmin - made.ndim)]

    def _stacked(self, value: Any) -> Any:
        """A list of arrays of the device as one array; anything else as it is."""
        if type(value) in (tuple, list) and has_arrays(value):
            return functions.stack([self.asarray_(v) for v in value])
        return value

    def broadcast_to_(self, x: Array, shape: Any, subok: bool = False) -> Array:
        shape = shape if type(shape) in (tuple, list) else (shape,)
        return device.extension().broadcast_to(self.asarray_(x), shape)

    def matmul_(self, a: Array, b: Array) -> Array:
        return products.matmul(a, b)

    def take_over(self, array: Array) -> Array:
        """A copy of an array of any device, in this one's memory."""
        if isinstance(array, AnySparse):
            return array.on(self.take_over)
        if not tail.is_device_array(array):
            later = self._later(array) if non_blocking.get() else None
            return self.asarray_(array.to_host() if hasattr(array, "to_host") else array) if later is None else later
        return making.copied(array) if array.namespace is self else self._from_peer(array)

    def _later(self, array: Array) -> Array | None:
        """A copy of an array in pinned memory, there when the current stream is done; None: it is not pinned."""
        if not pinned.is_pinned(array) or not array.flags.c_contiguous:
            return None
        made = self.empty_(array.shape, array.dtype)
        return made if device.extension().copy_later(made, array, True) else None

    def _from_peer(self, array: Array) -> Array:
        """A copy of an array of another GPU: its stream copies, and the one here waits for it."""
        source, here = array.namespace.current_stream(), self.current_stream()
        source.wait_stream(here)
        rows = in_order(array, "C")
        made = self.empty_(rows.shape, rows.dtype)
        device.extension().copy_to_peer(made, rows)
        here.wait_stream(source)
        return made


# ---- the devices there are

_lock = threading.RLock()  # guards the making of namespaces
_namespaces: dict[int, CudaNamespace] = {}


def namespace(which: Device | None = None) -> CudaNamespace:
    """The array functions of a GPU: "cuda:1", or "cuda", which is the current one."""
    index = device.current() if which is None or which.index is None else which.index
    found = _namespaces.get(index)
    if found is not None:
        return found
    why = device.reason()
    if why is not None:
        raise RuntimeError(f"device 'cuda' is not available: {why}")
    device.check(index)
    with _lock:
        if not _namespaces:
            _start()
        if index not in _namespaces:
            _namespaces[index] = CudaNamespace(Device("cuda", index))
    return _namespaces[index]


def _start() -> None:
    """The first device, which all others share kernels with."""
    made = CudaNamespace(Device("cuda", 0))
    if not device.is_emulated():
        device.extension().start_blas(libraries.find("cublas"))
        with contextlib.suppress(RuntimeError):  # cuBLAS alone has all but half precision
            device.extension().start_light(libraries.find("cublasLt"))
        watch_queues(WATCH)
    precision.tell_device()
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        set_launch_mode("blocking")
    _namespaces[0] = made


#: how many microseconds a queue may lie unchanged before it is sent all the same
WATCH = 2000


def watch_queues(microseconds: int) -> None:
    """Have queues sent that nobody adds to any more; 0: leave them alone."""
    device.extension().set_watch(microseconds)
    if microseconds:
        atexit.unregister(device.extension().set_watch)
        atexit.register(device.extension().set_watch, 0)  # its thread needs an interpreter


def namespace_of_index(index: int) -> CudaNamespace:
    return namespace(Device("cuda", index))


def namespaces_in_use() -> list[int]:
    """The numbers of the GPUs that have been used."""
    return sorted(_namespaces)


def flush(behind_pass: bool) -> None:
    """Send what was asked of all devices; see send_to_devices."""
    if behind_pass:
        device.extension().flush_pass()
    else:
        device.extension().flush()


#: launch mode -> how many launches are sent together, and whether each is waited for
LAUNCH_MODES = {"queue": (32, False), "direct": (0, False), "blocking": (0, True)}


def set_launch_mode(mode: str) -> None:
    if mode not in LAUNCH_MODES:
        raise ValueError(f"set_launch_mode() takes {', '.join(map(repr, LAUNCH_MODES))}, not {mode!r}")
    device.extension().set_launch_mode(*LAUNCH_MODES[mode])

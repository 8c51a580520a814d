"""Functions of cuSOLVER, and those of cuBLAS beside products: their names, the memory they work with, and calls.

A call is an entry of the queue (csrc/cuda/library_calls.c). On the emulated device functions of the same names and
arguments, in C++, stand for those of the libraries (solver_on_host.py).
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import compile, device, fused, libraries, solver_on_host
from undertow.backend.interface import Array

#: the letters of dtypes in names, and cudaDataType_t
LETTERS = {dtypes.float32: "S", dtypes.float64: "D", dtypes.complex64: "C", dtypes.complex128: "Z"}
DATA_TYPES: dict[Any, int] = {dtypes.float32: 0, dtypes.float64: 1, dtypes.complex64: 4, dtypes.complex128: 5}
REAL: dict[Any, np.dtype[Any]] = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}

LOWER, UPPER = 0, 1
PLAIN, TRANSPOSED = 0, 1
RIGHT = 1

#: what functions are called for complex numbers
COMPLEX_NAMES = {"orgqr": "ungqr", "syevd": "heevd", "syevj": "heevj", "syevjBatched": "heevjBatched"}

#: the number 1, where cuBLAS finds it
ONE = {dtype: np.ones(1, dtype) for dtype in LETTERS}

#: the place of the result among the arguments that ask for the size of a workspace
SIZE: Any = object()


@functools.cache
def cusolver() -> Any:
    """The library; None where there is none."""
    if device.emulates():
        return emulated()
    try:
        path = libraries.find("cusolver")
        device.extension().start_solver(path)
        return ctypes.CDLL(path)
    except (RuntimeError, OSError):
        return None


@functools.cache
def cublas() -> Any:
    return emulated() if device.emulates() else ctypes.CDLL(libraries.find("cublas"))


@functools.cache
def emulated() -> Any:
    return compile.host_library(solver_on_host.TEXT)


@functools.cache
def handle() -> ctypes.c_void_p:
    """A handle that sizes of workspaces are asked of."""
    return created("cusolverDnCreate")


@functools.cache
def created(function: str) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    check(getattr(cusolver(), function)(ctypes.byref(made)), function)
    return made


def jacobi_settings(kind: str) -> Any:
    """The settings, as they come, of an iteration: "Syevj" or "Gesvdj"."""
    return created(f"cusolverDnCreate{kind}Info")


def check(status: int, name: str) -> None:
    if status:
        raise RuntimeError(f"{name} failed with status {status}")


def name_of(name: str, dtype: np.dtype[Any]) -> str:
    return f"cusolverDn{LETTERS[dtype]}{COMPLEX_NAMES.get(name, name) if dtype.kind == 'c' else name}"


@functools.cache
def address(name: str, of_blas: bool) -> int:
    found = getattr(cublas() if of_blas else cusolver(), name)
    return ctypes.cast(found, ctypes.c_void_p).value or 0


@functools.lru_cache(maxsize=4096)
def workspace_size(name: str, dtype: np.dtype[Any], *sizes: Any) -> int:
    """How many elements a function works with.

    None among its arguments is a pointer, which is not looked at, and a name the settings of an iteration.
    """
    count = ctypes.c_int()
    given = [jacobi_settings(size) if isinstance(size, str) else size for size in sizes]
    given[sizes.index(SIZE)] = ctypes.byref(count)
    check(getattr(cusolver(), f"{name_of(name, dtype)}_bufferSize")(handle(), *given), name)
    return count.value


def workspace(name: str, dtype: np.dtype[Any], *sizes: Any) -> tuple[Array, int]:
    """Memory for a function, and its size. It may be handed out again behind the call: later work comes later."""
    count = workspace_size(name, dtype, *sizes)
    return device.extension().empty((max(count, 1),), dtype), count


def call(name: str, dtype: np.dtype[Any], *arguments: Any, times: int = 1) -> None:
    """Call a function of cuSOLVER, `times` over; of an argument (start, step) each call gets the next."""
    device.extension().call_library(address(name_of(name, dtype), False), False, times, *arguments)


def call_blas(name: str, dtype: np.dtype[Any], *arguments: Any) -> None:
    device.extension().call_library(address(f"cublas{LETTERS[dtype]}{name}", True), True, 1, *arguments)


def each(stack: Array) -> tuple[Array, int]:
    """An argument that is one matrix of a stack after the other."""
    return stack, stack.nbytes // len(stack)


def pointers(stack: Array) -> Array:
    """The addresses of the matrices of a stack."""
    found = device.extension().empty((len(stack),), dtypes.int64)
    fused.count(found, stack.address, stack.nbytes // len(stack))
    return found


@functools.cache
def host_word() -> int:
    """The address of a number on the host, to which functions report what is wrong with their arguments."""
    return _word.ctypes.data


_word = np.zeros(1, np.int64)


# ---- eigenvalues of stacks, whose function has other ways


class Batch:
    """What cusolverDnXsyevBatched needs for a problem; its memory on the host lives as long as this does."""

    def __init__(self, dtype: np.dtype[Any], vectors: int, triangle: int, n: int, count: int) -> None:
        real = DATA_TYPES[REAL.get(dtype, dtype)]
        self.head = (created("cusolverDnCreateParams").value or 0, vectors, triangle, n, DATA_TYPES[dtype])
        self.real = real
        on_device, on_host = ctypes.c_size_t(), ctypes.c_size_t()
        long = ctypes.c_int64
        status = cusolver().cusolverDnXsyevBatched_bufferSize(
            handle(), created("cusolverDnCreateParams"), vectors, triangle, long(n), DATA_TYPES[dtype], None, long(n),
            real, None, DATA_TYPES[dtype], ctypes.byref(on_device), ctypes.byref(on_host), long(count),
        )  # fmt: skip
        check(status, "XsyevBatched")
        self.bytes, self.host = on_device.value, ctypes.create_string_buffer(max(on_host.value, 1))

    def call(self, A: Array, W: Array, info: Array) -> None:
        work = device.extension().empty((max(self.bytes, 1),), dtypes.uint8)
        device.extension().call_library(
            address("cusolverDnXsyevBatched", False), False, 1, *self.head, A, A.shape[-1], self.real, W, self.head[-1],
            work, self.bytes, ctypes.addressof(self.host), len(self.host), info, len(A),
        )  # fmt: skip


batch_of_eigenvalues = functools.lru_cache(maxsize=256)(Batch)


def knows_batches() -> bool:
    return hasattr(cusolver(), "cusolverDnXsyevBatched")

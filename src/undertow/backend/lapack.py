"""Functions of LAPACK that numpy.linalg has not, or has with copies and casts: called in the library NumPy brings.

What that library calls them depends on how it was built, and so does the size of its whole numbers: each way is tried
on a small matrix when it is first needed. Where none is right, `library()` is None, and so is what the functions
return: the caller then does without. Matrices are arrays of one of the four dtypes of LAPACK, in stacks.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np

from undertow.backend.interface import Array

LETTERS = {np.dtype(t): letter for t, letter in zip("fdFD", "sdcz", strict=True)}

#: how a function may be called in the library: OpenBLAS of NumPy's wheels, one with long whole numbers, LAPACK itself
NAMES = ("scipy_{}_64_", "{}_64_", "scipy_{}_", "{}_")


class Library(NamedTuple):
    handle: ctypes.CDLL
    names: str
    integer: np.dtype[Any]

    def call(self, name: str, dtype: np.dtype[Any], *arguments: Any) -> int:
        """What LAPACK says of it: 0, or which minor or pivot is not what it has to be.

        Arguments are arrays, whole numbers, and letters, whose lengths stand behind all others.
        """
        letters = [ctypes.c_size_t(1) for a in arguments if isinstance(a, bytes)]
        info = np.zeros(1, np.int64)
        getattr(self.handle, self.names.format(LETTERS[dtype] + name))(
            *map(passed, arguments), info.ctypes.data_as(ctypes.c_void_p), *letters
        )
        return int(info.view(self.integer)[0])


def passed(argument: Any) -> Any:
    """As Fortran takes it: by its address. Whole numbers have 8 bytes, of which a library of 4 reads the first."""
    if isinstance(argument, int):
        return ctypes.byref(ctypes.c_int64(argument))
    return argument if isinstance(argument, bytes) else ctypes.c_void_p(argument.ctypes.data)


@functools.cache
def library() -> Library | None:
    from numpy.linalg import _umath_linalg

    handle = ctypes.CDLL(_umath_linalg.__file__)
    for names in NAMES:
        if hasattr(handle, names.format("sgetrf")):
            found = [Library(handle, names, np.dtype(t)) for t in (np.int64, np.int32)]
            return next(filter(is_right, found), None)
    return None


def is_right(tried: Library) -> bool:
    matrix, pivots = np.array([[3.0, 4.0], [6.0, 2.0]], np.float32).T.copy(), np.full(2, -1, np.int64)
    info = tried.call("getrf", matrix.dtype, 2, 2, matrix, 2, pivots)
    exchanged = pivots.view(tried.integer)[:2].tolist()
    return info == 0 and exchanged == [2, 2] and matrix.tolist() == [[6.0, 0.5], [2.0, 3.0]]


def library_for(A: Array, function: str) -> Library | None:
    """The library, if it has that function for these matrices: a NumPy without a BLAS brings a part of LAPACK."""
    found = library() if A.size and A.dtype in LETTERS else None
    has_it = found is not None and hasattr(found.handle, found.names.format(LETTERS[A.dtype] + function))
    return found if has_it else None


def by_columns(A: Array) -> Array:
    """A copy to be worked on: the transposes of a stack, row after row."""
    return np.array(A.swapaxes(-1, -2), order="C")


def lu(A: Array) -> tuple[Array, Array] | None:
    """L and U of a stack of matrices in one, and the rows (from 1) that rows were exchanged with in turn."""
    lapack = library_for(A, "getrf")
    if lapack is None:
        return None
    count, m, n = A.shape
    work, pivots = by_columns(A), np.zeros((count, min(m, n)), lapack.integer)
    for matrix, exchanged in zip(work, pivots, strict=True):
        lapack.call("getrf", A.dtype, m, n, matrix, m, exchanged)
    return work.swapaxes(-1, -2), pivots.astype(np.int32)


def cholesky(A: Array) -> tuple[Array, Array] | None:
    """The lower factors of a stack, and of each the first minor that is not positive-definite, or 0."""
    lapack = library_for(A, "potrf")
    if lapack is None:
        return None
    n, work = A.shape[-1], by_columns(A)
    info = [lapack.call("potrf", A.dtype, b"L", n, matrix, n) for matrix in work]
    return np.triu(work).swapaxes(-1, -2), np.array(info, np.int32)


def ldl(A: Array, hermitian: bool) -> tuple[Array, Array, Array] | None:
    """L and D of a stack in one, the pivots, and of each the first that is zero, or 0."""
    name = "hetrf" if hermitian and A.dtype.kind == "c" else "sytrf"
    lapack = library_for(A, name)
    if lapack is None:
        return None
    count, n = A.shape[:2]
    work, pivots, room = by_columns(A), np.zeros((count, n), lapack.integer), np.zeros(1, A.dtype)
    lapack.call(name, A.dtype, b"L", n, work[0], n, pivots[0], room, -1)  # says how much room it wants
    room = np.empty(int(room[0].real), A.dtype)
    each = zip(work, pivots, strict=True)
    info = [lapack.call(name, A.dtype, b"L", n, matrix, n, taken, room, len(room)) for matrix, taken in each]
    return np.triu(work).swapaxes(-1, -2), pivots.astype(np.int32), np.array(info, np.int32)

"""Kernels that read an array through `take`, each element once: the launches that make the array may be done in them.

Their text has two parts. One ends with the structure P of their arguments, the other reads by `take<N>(p, i, to)`:
N elements from the i-th. There p are the `Arguments`: P, and what a chain adds to it (chains.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from undertow.backend.cuda.compile import Entry, compile_kernels

#: from memory; INPUT is a field of P
FROM_MEMORY = r"""
typedef P Arguments;
template <int N> FN void take(const Arguments &p, i64 i, S *to)
{
    struct alignas(N * sizeof(S)) Some { S v[N]; };
    const Some some = *(const Some *)((const S *)p.INPUT + i);
    for (int k = 0; k < N; k++) to[k] = some.v[k];
}
"""


class Reader(NamedTuple):
    """The text of a kernel, before `take` and behind it."""

    before: str
    behind: str
    entry: Entry


#: by the addresses of kernels
readers: dict[int, Reader] = {}


def compile_readers(before: str, behind: str, entries: Sequence[Entry], field: str = "in") -> tuple[int, ...]:
    """The addresses of kernels that read a field of P."""
    found = compile_kernels(before + FROM_MEMORY.replace("INPUT", field) + behind, entries)
    readers.update({address: Reader(before, behind, entry) for address, entry in zip(found, entries, strict=True)})
    return found

"""Reading and writing at places that an array of integers names.

The array is taken for (outer, length, inner), and what is read or written for (outer, count, inner). For each pair of
outer and inner one thread goes through the places in their order, where it writes: the last of equal places wins, and
sums are added up in the same order every time. Where there are few such pairs, each place first learns which element is
its last one; and integers are added by whoever comes, as their sums do not depend on that. An index that is out of
range writes nothing and is noted; the next look at the device's values raises IndexError (csrc/cuda/driver.c).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from undertow.backend.cuda import device, making, searching, sites, tail
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import computed, stored
from undertow.backend.interface import Array

#: what integers are added as, whose sums do not depend on the order
ADDED = {"i32": "u32", "u32": "u32", "i64": "unsigned long long", "u64": "unsigned long long"}

#: more places than this, and fewer pairs than that, are written by a thread for each element
MANY, FEW = 64, 1 << 12

#: words to move elements of a size in
WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "C128"}

PLACE = r"""
// the place that an index names, or -1; the first that is none is noted: those behind it may be made of it
FN i64 place(i64 index, i64 length, i64 *error)
{
    i64 at = index < 0 ? index + length : index;
    if (at >= 0 && at < length) return at;
    if (!error[0]) { error[1] = index; error[2] = length; error[0] = 1; }
    return -1;
}
"""

FOLD = r"""
struct P { i64 *out; const i64 *flat, *index; i64 n, length, *error; };
KERNEL(fold, P) { BEGIN i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= p.n) return;
    i64 at = place(p.index[i], p.length, p.error), before = p.flat ? p.flat[i] : 0;
    p.out[i] = at < 0 || before < 0 ? 0 : before * p.length + at; }
"""

OUTSIDE = r"""
struct P { const W *index; i64 n, first, end, *error; };
KERNEL(outside, P) { BEGIN i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; if (i >= p.n) return;
    const i64 at = (i64)p.index[i];
    if ((at < p.first || at >= p.end) && !p.error[0]) { p.error[1] = at; p.error[2] = p.end; p.error[0] = 1; } }
"""

# along: whether there is an index for every element, or one for each place of the middle dimension
GATHER = r"""
struct P { W *out; const W *x; const i64 *index; i64 outer, count, inner, length, along, *error; };
KERNEL(gather, P) { BEGIN i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, n = p.outer * p.count * p.inner;
    for (; i < n; i += (i64)gridDim.x * blockDim.x) {
        i64 rest = i / p.inner, within = i - rest * p.inner, outer = rest / p.count, j = rest - outer * p.count;
        i64 at = place(p.index[p.along ? i : j], p.length, p.error);
        if (at >= 0) p.out[i] = p.x[(outer * p.length + at) * p.inner + within]; } }
"""

SCATTER = r"""
struct P { W *out; const W *x; const i64 *index; i64 outer, count, inner, length, along, *error; };
KERNEL(scatter, P) { BEGIN i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, n = p.outer * p.inner;
    for (; i < n; i += (i64)gridDim.x * blockDim.x) {
        i64 outer = i / p.inner, within = i - outer * p.inner;
        for (i64 j = 0; j < p.count; j++) {
            i64 from = (outer * p.count + j) * p.inner + within;
            i64 at = place(p.index[p.along ? from : j], p.length, p.error);
            if (at < 0) continue;
            W *to = p.out + (outer * p.length + at) * p.inner + within; *to = written(*to, p.x[from]); } } }
"""

# `last`: for each place, or element if there is an index for every one, the last that is put there
LAST = r"""
struct P { i32 *last; const i64 *index; i64 n, count, inner, length, along, *error; };
KERNEL(last, P) { BEGIN i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < p.n; i += (i64)gridDim.x * blockDim.x) {
        const i64 rest = i / p.inner, outer = rest / p.count, j = rest - outer * p.count;
        const i64 at = place(p.index[i], p.length, p.error);
        if (at < 0) continue;
        i32 *mine = p.last + (p.along ? (outer * p.length + at) * p.inner + i - rest * p.inner : at);
#if ALONE
        *mine = (i32)j;
#else
        atomicMax(mine, (i32)j);
#endif
    } }
"""

# ADDED: the integer that is added to what is there; without it, only the last element of each place is written
EACH = r"""
struct P { W *out; const W *x; const i64 *index; i64 outer, count, inner, length, along, *error; const i32 *last; };
KERNEL(each, P) { BEGIN i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, n = p.outer * p.count * p.inner;
    for (; i < n; i += (i64)gridDim.x * blockDim.x) {
        const i64 rest = i / p.inner, within = i - rest * p.inner, outer = rest / p.count, j = rest - outer * p.count;
        const i64 at = place(p.index[p.along ? i : j], p.length, p.error);
        if (at < 0) continue;
        const i64 to = (outer * p.length + at) * p.inner + within;
#ifndef ADDED
        if (p.last[p.along ? to : at] == j) p.out[to] = p.x[i];
#elif ALONE
        p.out[to] += p.x[i];
#else
        atomicAdd((ADDED *)p.out + to, (ADDED)p.x[i]);
#endif
    } }
"""


@functools.cache
def kernel(name: str, word: str, written: str = "return given;") -> Any:
    texts = {"fold": FOLD, "gather": GATHER, "scatter": SCATTER, "outside": OUTSIDE, "last": LAST, "each": EACH}
    texts["add_each"] = f"#define ADDED {ADDED.get(word, word)}\n{EACH}"
    head = f"typedef {word} W;\nFN W written(W there, W given) {{ {written} }}\n{PLACE}"
    return device.extension().Kernel(compile_kernels(head + texts[name], [Entry(name.removeprefix("add_"), "P")])[0])


def blocks(count: int) -> int:
    return min(max(1, -(-count // 128)), 1 << 20)


# ---- indices


def as_index(index: Array) -> Array:
    """An array of int64 on the device, row after row; None if it is no array of integers."""
    if not tail.is_device_array(index):
        index = np.asarray(index)
        if index.dtype.kind not in "iu":
            return None
        index = device.extension().from_host(index.astype(np.int64))
    if index.dtype.kind not in "iu":
        return None
    return rows(index if index.dtype == np.int64 else index.astype(np.int64))


def rows(array: Array) -> Array:
    return array if array.is_contiguous else array.copy("C")


class Places:
    """What an index with arrays of integers names: `first` dimensions, then `length` elements, of which a `shape`."""

    def __init__(self, x: Array, first: int, indices: Sequence[Array]) -> None:
        self.first, self.last = first, first + len(indices)
        self.shape = np.broadcast_shapes(*[i.shape for i in indices])
        self.outer = math.prod(x.shape[:first])
        self.length = math.prod(x.shape[first : self.last])
        self.inner = math.prod(x.shape[self.last :])
        self.flat = self._folded(x, [spread(i, self.shape) for i in indices])
        self.result = (*x.shape[:first], *self.shape, *x.shape[self.last :])

    def _folded(self, x: Array, indices: Sequence[Array]) -> Array:
        """One index for the dimensions taken together."""
        if len(indices) == 1:
            return indices[0]
        flat = None
        for index, length in zip(indices, x.shape[self.first : self.last], strict=True):
            out = device.extension().empty(self.shape, index.dtype)
            if out.size:
                kernel("fold", "i64")(blocks(out.size), 128, out, flat, index, out.size, length, error_word())
            flat = out
        return flat


def spread(index: Array, shape: tuple[int, ...]) -> Array:
    return index if index.shape == shape else rows(index.namespace.broadcast_to(index, shape))


error_word = sites.error_word


def note_outside(index: Array, first: int, end: int) -> Any:
    """Note an index that is outside of [first, end), without a look at it."""
    if index.dtype.kind not in "iu":
        return None
    if index.size:
        index = rows(index)
        call = kernel("outside", stored(index.dtype))
        call(-(-index.size // 128), 128, index, index.size, first, end, error_word())
    return True


class Arranged(NamedTuple):
    """An index with arrays of integers as NumPy reads it: a view, from whose dimension `first` on they choose."""

    view: Array
    first: int
    indices: list[Any]


def arranged(x: Array, index: Any) -> Arranged | None:
    """Slices and new dimensions as a view, and the arrays; they choose in front where something stands between them.

    None if there are other arrays than those of integers.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    used = sum([i is not None for i in items]) - len(dots)
    if len(dots) > 1 or used > x.ndim:
        return None
    at = dots[0] if dots else len(items)
    items[at : at + len(dots)] = [slice(None)] * (x.ndim - used)
    chosen = [k for k, i in enumerate(items) if i is not None and not isinstance(i, slice)]
    found = [as_index(items[k]) for k in chosen]
    if any([i is None for i in found]):
        return None
    view = x[tuple([slice(None) if k in chosen else i for k, i in enumerate(items)])]
    if chosen[-1] - chosen[0] == len(chosen) - 1:
        return Arranged(view, chosen[0], found)
    return Arranged(view.transpose([*chosen, *[d for d in range(view.ndim) if d not in chosen]]), 0, found)


def places_of(x: Array, index: Any) -> Places | None:
    """The places that an index names, if it has nothing but whole slices beside adjacent arrays of integers."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any([i is None for i in items]) or sum([i is Ellipsis for i in items]) > 1:
        return None
    if Ellipsis in [i for i in items if i is Ellipsis]:
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        items[at : at + 1] = [slice(None)] * (x.ndim - len(items) + 1)
    whole = [isinstance(i, slice) and i == slice(None) for i in items]
    if all(whole) or len(items) > x.ndim:
        return None
    first, last = whole.index(False), len(whole) - whole[::-1].index(False)
    if any(whole[first:last]) or any([isinstance(i, slice) for i in items[first:last]]):
        return None
    found = [as_index(i) for i in items[first:last]]
    if any([i is None for i in found]) or (all([i.ndim == 0 for i in found])):
        return None
    return Places(x, first, found)


# ---- reading and writing


def take(x: Array, places: Places) -> Array:
    out = device.extension().empty(places.result, x.dtype)
    run_gather(out, rows(x), places.flat, places.outer, places.flat.size, places.inner, places.length, along=False)
    return out


def run_gather(
    out: Array, x: Array, index: Array, outer: int, count: int, inner: int, length: int, along: bool
) -> None:
    if out.size:
        call = kernel("gather", WORDS[x.itemsize])
        call(blocks(out.size), 128, out, x, index, outer, count, inner, length, int(along), error_word())


def run_scatter(name: str, out: Array, x: Array, index: Array, sizes: Sequence[int], length: int, along: bool) -> None:
    outer, count, inner = sizes
    if not x.size:
        return
    given = (out, x, index, outer, count, inner, length, int(along), error_word())
    if count > MANY and outer * inner < FEW and count < 1 << 31:
        if name == "put":
            last = out.namespace.full(out.size if along else length, -1, np.int32)
            n = x.size if along else count
            sizes_of_index = (count, inner, length) if along else (count, 1, length)
            kernel("last", "i32")(blocks(n), 128, last, index, n, *sizes_of_index, int(along), error_word())
            kernel("each", WORDS[x.itemsize])(blocks(x.size), 128, *given, last)
            return
        if name == "add" and stored(x.dtype) in ADDED:
            kernel("add_each", stored(x.dtype))(blocks(x.size), 128, *given, None)
            return
    if name == "put":
        call = kernel("scatter", WORDS[x.itemsize])
    else:
        word, number = stored(x.dtype), computed(x.dtype)
        value = {"add": "a + b", "subtract": "a - b", "multiply": "a * b", "maximum": "a > b || a != a ? a : b",
                 "minimum": "a < b || a != a ? a : b"}[name]  # fmt: skip
        casts = f"{number} a = Cast<{number}, W>::of(there), b = Cast<{number}, W>::of(given);"
        call = kernel("scatter", word, f"{casts} return Cast<W, {number}>::of(({number})({value}));")
    call(blocks(outer * inner), 128, *given)


def write(name: str, x: Array, places: Places, value: Array) -> bool:
    """Put values at places, or add them ("add"); whether that was possible. `x` must lie row after row."""
    if not x.is_contiguous or not x.is_writeable:
        return False
    space = x.namespace
    value = space.asarray(value, x.dtype) if not tail.is_device_array(value) else value.astype(x.dtype, copy=False)
    value = rows(space.broadcast_to(value, places.result))
    run_scatter(name, x, value, places.flat, (places.outer, places.flat.size, places.inner), places.length, along=False)
    return True


# ---- functions of NumPy


def along(x: Array, indices: Array, axis: int) -> tuple[Any, int] | None:
    """The index of `take_along_axis` for every element of the result, and the axis; None if it is not that simple."""
    index = as_index(indices)
    axis = axis % x.ndim if x.ndim else 0
    if index is None or index.ndim != x.ndim or not x.ndim:
        return None
    shape = tuple(
        [
            n if d == axis else max(n, m) if n and m else 0
            for d, (n, m) in enumerate(zip(index.shape, x.shape, strict=True))
        ]
    )
    if any([m not in (1, n) for d, (n, m) in enumerate(zip(shape, x.shape, strict=True)) if d != axis]):
        return None
    if any([n != shape[d] and n != 1 for d, n in enumerate(index.shape)]):
        return None
    return spread(index, shape), axis


def take_along_axis(x: Array, indices: Array, axis: int | None = -1) -> Array:
    found = None if axis is None else along(x, indices, axis)
    if found is None or x.itemsize not in WORDS:
        return NotImplemented
    index, axis = found
    x = rows(x.namespace.broadcast_to(x, tuple([x.shape[d] if d == axis else n for d, n in enumerate(index.shape)])))
    out = device.extension().empty(index.shape, x.dtype)
    sizes = math.prod(index.shape[:axis]), index.shape[axis], math.prod(index.shape[axis + 1 :])
    run_gather(out, x, index, *sizes, x.shape[axis], along=True)
    return out


def put_along_axis(x: Array, indices: Any, values: Any, axis: int | None) -> Any:
    found = None if axis is None else along(x, indices, axis)
    if found is None or not x.is_contiguous or not x.is_writeable or x.itemsize not in WORDS:
        return NotImplemented
    index, axis = found
    if any([n != m for d, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if d != axis]):
        return NotImplemented
    value = x.namespace.asarray(values, x.dtype)
    value = rows(x.namespace.broadcast_to(value, index.shape))
    sizes = math.prod(index.shape[:axis]), index.shape[axis], math.prod(index.shape[axis + 1 :])
    run_scatter("put", x, value, index, sizes, x.shape[axis], along=True)
    return None


def getitem(x: Array, index: Any) -> Array:
    """`x[index]` for an index that is not basic; csrc/cuda/views.c calls it."""
    if not x.ndim and tail.is_device_array(index) and index.dtype.kind == "b" and not index.ndim:
        return getitem(x.reshape(1), index.reshape(1))  # a single number, chosen or not
    index = as_indices((index,) if is_mask(index, x) else index, always=True)
    found = arranged(x, index) if x.itemsize in WORDS else None
    if found is not None:
        return take(found.view, Places(found.view, found.first, found.indices))
    return tail.on_host("getitem", np.ndarray.__getitem__, (x, index), {})


def setitem(x: Array, view: Array | None, index: Any, value: Array) -> None:
    """`x[index] = value`; `view` is what a basic index gives."""
    space = x.namespace
    if view is not None:
        if not x.is_writeable:
            raise ValueError("assignment destination is read-only")
        if making.is_number_of(value, x.dtype):
            making.filled(view, value)
            return
        space.copyto(view, value if tail.is_device_array(value) else space.asarray(np.asarray(value), x.dtype))
        return
    index = as_indices(index)
    if is_mask(index, x) and is_single(value):
        mask = index if tail.is_device_array(index) else space.asarray(index)
        value = value.reshape(()) if tail.is_device_array(value) else x.dtype.type(value)
        chosen = space.where(mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim)), value, x)
        space.copyto(x, chosen.astype(x.dtype, copy=False))
        return
    if not x.ndim and tail.is_device_array(index) and index.dtype.kind == "b" and not index.ndim:
        x, index = x.reshape(1), index.reshape(1)
    index = as_indices(index if isinstance(index, tuple) else (index,), always=True)
    if not change("put", x, index, value):
        tail.on_host("setitem", np.ndarray.__setitem__, (x, index, value), {}, [x])


def change(name: str, x: Array, index: Any, value: Array) -> bool:
    """Put values where an index says, or add them ("add"), ...; whether there are kernels for it.

    What is not whole dimensions side by side is found among the numbers of all elements.
    """
    if x.itemsize not in WORDS or not x.is_writeable:
        return False
    simple = places_of(x, index) if x.is_contiguous else None
    if simple is not None:
        return write(name, x, simple, value)
    found = arranged(x.namespace.arange(x.size).reshape(x.shape), index)
    if found is None:
        return False
    flat = take(found.view, Places(found.view, found.first, found.indices))
    space, whole = x.namespace, rows(x)
    value = space.broadcast_to(space.asarray(value, x.dtype), flat.shape).reshape(-1)
    done = write(name, whole.reshape(-1), Places(whole.reshape(-1), 0, [flat.reshape(-1)]), value)
    if done and whole is not x:
        space.copyto(x, whole)
    return done


def as_indices(index: Any, always: bool = False) -> Any:
    """Lists are arrays; masks are the places where they are true: how many there are, the host waits to know."""
    items = index if isinstance(index, tuple) else (index,)
    found: list[Any] = []
    for given in items:
        item: Any = np.asarray(given, None if given else np.int64) if isinstance(given, list) else given
        is_array = isinstance(item, np.ndarray) or tail.is_device_array(item)
        if is_array and item.dtype.kind == "b" and item.ndim and (always or len(items) > 1):
            found.extend(searching.nonzero(item) if tail.is_device_array(item) else np.nonzero(item))
        else:
            found.append(item)
    return tuple(found) if isinstance(index, tuple) else found[0]


def is_mask(index: Any, x: Array) -> bool:
    dtype = getattr(index, "dtype", None)
    return dtype is not None and dtype.kind == "b" and index.ndim > 0 and index.shape == x.shape[: index.ndim]


def is_single(value: Any) -> bool:
    return value.size == 1 if tail.is_device_array(value) else np.ndim(value) == 0


def at(ufunc: Array, x: Array, index: Array, value: Array | None = None) -> bool:
    """`ufunc.at(x, index, value)`; whether there is a kernel for it."""
    if ufunc.__name__ not in ("add", "subtract", "multiply", "maximum", "minimum") or x.dtype.kind not in "uifc":
        return False
    if x.dtype.kind == "c" and ufunc.__name__ in ("maximum", "minimum"):
        return False
    return change(ufunc.__name__, x, as_indices(index), value)

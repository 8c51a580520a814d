"""Random numbers on a GPU: a counter, and a function that turns it into words (Philox 4x32-10).

A seed gives the numbers that it gives in PyTorch on the same model of GPU: which thread writes an element, and in which
of its calls, decides which number that is, so grids are laid out as PyTorch lays them out.

How far a stream of numbers has come is known twice: here, and in words of the device's memory, which the kernels
themselves move on. So a launch says the same in every step of a training loop, and is replayed with the rest of it
(docs/cuda-inside.md). Each stream of the device has such words; where they say something else than is known here (a new
seed, a state put back, numbers drawn on another stream), a launch puts them right first.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cuda import device, elementwise
from undertow.backend.cuda.blocks import is_real
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.kernel_text import computed, stored
from undertow.backend.interface import Array, DType

#: threads of a block
THREADS = 256

#: a state: the seed, and how many words every thread has used
STATE = struct.Struct("<QQ")

# what a kernel that draws begins with: words of the counter's places, and numbers made of them
WORDS = r"""
struct Words { u32 x[4]; };
FN Words words_at(u64 seed, u64 thread, u64 call)
{
    Words c = {{(u32)call, (u32)(call >> 32), (u32)thread, (u32)(thread >> 32)}};
    u32 low = (u32)seed, high = (u32)(seed >> 32);
    for (int round = 0; round < 10; round++, low += 0x9E3779B9u, high += 0xBB67AE85u) {
        const u64 first = (u64)0xD2511F53u * c.x[0], second = (u64)0xCD9E8D57u * c.x[2];
        const Words next = {{(u32)(second >> 32) ^ c.x[1] ^ low, (u32)second,
                             (u32)(first >> 32) ^ c.x[3] ^ high, (u32)first}};
        c = next;
    }
    return c;
}
FN u64 joined(u32 high, u32 low) { return (u64)high << 32 | low; }
FN float fraction(u32 word) { return (float)word * 2.3283064e-10f + 1.1641532e-10f; } // in (0, 1]
FN double fraction(u32 low, u32 high)
{ return (double)((u64)low ^ (u64)high << 21) * 1.1102230246251565e-16 + 5.551115123125783e-17; }
#if ALONE
FN void sine_and_cosine(float v, float &sine, float &cosine) { sine = m_sin(v); cosine = m_cos(v); }
FN void sine_and_cosine_of_pi(double v, double &sine, double &cosine)
{ sine = m_sin(v * 3.14159265358979323846); cosine = m_cos(v * 3.14159265358979323846); }
FN float quick_log(float v) { return m_log(v); }
FN float quick_exp(float v) { return m_exp(v); }
FN float quick_tan(float v) { return m_tan(v); }
#else
FN void sine_and_cosine(float v, float &sine, float &cosine) { __sincosf(v, &sine, &cosine); }
FN void sine_and_cosine_of_pi(double v, double &sine, double &cosine) { sincospi(v, &sine, &cosine); }
FN float quick_log(float v) { return __logf(v); }
FN float quick_exp(float v) { return __expf(v); }
FN float quick_tan(float v) { return __tanf(v); }
#endif
FN double quick_log(double v) { return m_log(v); }
FN double quick_exp(double v) { return m_exp(v); }
FN double quick_tan(double v) { return m_tan(v); }
FN float once_rounded(float a, float b, float c) { return MATH(fmaf)(a, b, c); }
FN double once_rounded(double a, double b, double c) { return MATH(fma)(a, b, c); }

// the words of memory that say where the stream of numbers is: seed, words used, blocks that are done
#if ALONE
#define MOVE_ON(state, by) if (threadIdx.x == blockDim.x - 1 && blockIdx.x == gridDim.x - 1) state[1] += by;
#else
#define MOVE_ON(state, by) __syncthreads(); \
    if (threadIdx.x == 0) { __threadfence(); \
        if (atomicAdd(&state[2], 1ull) == gridDim.x - 1) { state[2] = 0; state[1] += by; } }
#endif
"""

PLACE = "struct P { u64 *state, seed, used; };\nKERNEL(place, P) { BEGIN p.state[0] = p.seed; p.state[1] = p.used; }"

# R: what is drawn. MANY numbers of a call, thread by thread: the k-th is for the element `threads` times k further on
DRAW = r"""
struct P { S *out; u64 *state, by; i64 n; double a, b, c; u64 range; i64 low; };
KERNEL(draw, P) { BEGIN
    const u64 seed = p.state[0], used = p.state[1] / 4;
    const i64 threads = (i64)blockDim.x * gridDim.x, thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 call = used;
    for (i64 i = thread; i < p.n; i += threads * MANY, call++) {
        const Words w = words_at(seed, thread, call);
        R drawn[MANY];
        NUMBERS
        for (int k = 0; k < MANY; k++) {
            const i64 at = i + k * threads;
            const R r = drawn[k];
            if (at < p.n) p.out[at] = MADE;
        }
    }
    MOVE_ON(p.state, p.by) }
"""

# the elements that a thread takes at a time lie side by side, unless that is one; probability of being kept
DROPOUT = r"""
struct P { S *out; bool *kept; const S *in; u64 *state, by; i64 n, side_by_side; double keep; };
KERNEL(dropout, P) { BEGIN
    const u64 seed = p.state[0], used = p.state[1] / 4;
    const i64 threads = (i64)blockDim.x * gridDim.x, thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 many = p.side_by_side, wide = many > 4 ? many : 4, step = many > 1 ? threads * many : threads * 4;
    const T keep = (T)p.keep, scale = (T)(1.0 / keep);
    u64 call = used;
    for (i64 i = many > 1 ? thread * many : thread; i < p.n; i += step) {
        for (int part = 0; part < wide; part += 4) {
            const Words w = words_at(seed, thread, call++);
            for (int k = 0; k < 4; k++) {
                const i64 at = many > 1 ? i + part + k : i + k * threads;
                if (at >= p.n || (many > 1 && k >= many)) continue;
                const bool kept = fraction(w.x[k]) < keep;
                p.out[at] = Cast<S, T>::of(kept ? Cast<T, S>::of(p.in[at]) * scale : T(0));
                p.kept[at] = kept;
            }
        }
    }
    MOVE_ON(p.state, p.by) }
"""

# four elements for each thread; probabilities in an array of float or double (Q)
CHANCES = r"""
struct P { S *out; const Q *chances; u64 *state, by; i64 n; };
KERNEL(chances, P) { BEGIN
    const u64 seed = p.state[0], used = p.state[1] / 4;
    const i64 threads = (i64)blockDim.x * gridDim.x, thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const Words w = words_at(seed, thread, used);
    for (i64 first = thread * 4; first < p.n; first += threads * 4)
        for (int k = 0; k < 4 && first + k < p.n; k++)
            p.out[first + k] = Cast<S, bool>::of(fraction(w.x[k]) <= p.chances[first + k]);
    MOVE_ON(p.state, p.by) }
"""

#: what a call's words become -> the type, how many, and how
NUMBERS = {
    "fractions of float": ("float", 4, "for (int k = 0; k < 4; k++) drawn[k] = fraction(w.x[k]);"),
    "fractions of double": ("double", 2, "for (int k = 0; k < 2; k++) drawn[k] = fraction(w.x[2*k], w.x[2*k + 1]);"),
    "normals of float": ("float", 4, """for (int k = 0; k < 4; k += 2) {
            const float radius = m_sqrt(-2.0f * m_log(fraction(w.x[k])));
            sine_and_cosine(once_rounded((float)w.x[k + 1], 1.4629181e-9f, 7.3145904e-10f), drawn[k], drawn[k + 1]);
            drawn[k] *= radius; drawn[k + 1] *= radius; }"""),
    "normals of double": ("double", 2, """const double radius = m_sqrt(-2.0 * m_log(fraction(w.x[0], w.x[1])));
            sine_and_cosine_of_pi(fraction(w.x[2], w.x[3]) * 2.0, drawn[0], drawn[1]);
            drawn[0] *= radius; drawn[1] *= radius;"""),
    "words": ("u32", 4, "for (int k = 0; k < 4; k++) drawn[k] = w.x[k];"),
    "long words": ("u64", 2, "for (int k = 0; k < 2; k++) drawn[k] = joined(w.x[2*k], w.x[2*k + 1]);"),
}  # fmt: skip

#: distribution -> what it is made of, and the formula of a number r; a, b, c, range and low are its parameters
FORMULAS = {
    "uniform": ("fractions", "inside(r, (R)p.a, (R)p.b, (R)p.c)"),
    "normal": ("normals", "Cast<S, R>::of(once_rounded(r, (R)p.b, (R)p.a))"),
    "log_normal": ("normals", "Cast<S, R>::of(quick_exp(once_rounded(r, (R)p.b, (R)p.a)))"),
    "exponential": ("fractions", "Cast<S, R>::of(R(-1) / (R)p.a * (r >= R(1) - (R)p.b ? -(R)p.b : quick_log(r)))"),
    "cauchy": ("fractions", "Cast<S, R>::of((R)p.a + (R)p.b * quick_tan(R(3.14159265358979323846) * "
               "((r > R(1) - (R)p.c ? R(1) - (R)p.c : r < (R)p.c ? (R)p.c : r) - R(0.5))))"),
    "bernoulli": ("fractions", "Cast<S, bool>::of(r < (R)p.a)"),
    "geometric": ("fractions", "Cast<S, R>::of(m_ceil(quick_log(r) / quick_log(R(1) - (R)p.a)))"),
    "integers": ("words", "Cast<S, i64>::of((i64)((p.range ? r % p.range : r) + (u64)p.low))"),
    "long integers": ("long words", "Cast<S, i64>::of((i64)((p.range ? r % p.range : r) + (u64)p.low))"),
}  # fmt: skip

# rounding may have reached the end of the interval, which does not belong to it
INSIDE = r"""
FN S inside(R r, R from, R to, R length)
{
    const S found = Cast<S, R>::of(once_rounded(r, length, from));
    return Cast<R, S>::of(found) == to ? Cast<S, R>::of(from) : found;
}
"""


@functools.cache
def place_kernel() -> Any:
    return device.extension().Kernel(compile_kernels(PLACE, [Entry("place", "P")])[0])


@functools.cache
def draw_kernel(name: str, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """The kernel of a distribution, and how many numbers a thread makes at a time."""
    source, made = FORMULAS[name]
    if "words" not in source:
        source += " of double" if dtype == dtypes.float64 else " of float"
    kind, many, numbers = NUMBERS[source]
    head = f"typedef {stored(dtype)} S; typedef {kind} R;\n#define MANY {many}\n"
    inside = INSIDE if name == "uniform" else ""
    text = head + WORDS + inside + DRAW.replace("NUMBERS", numbers).replace("MADE", made)
    return device.extension().Kernel(compile_kernels(text, [Entry("draw", "P")])[0]), many


@functools.cache
def dropout_kernel(dtype: np.dtype[Any]) -> Any:
    text = f"typedef {stored(dtype)} S; typedef {computed(dtype)} T;\n{WORDS}{DROPOUT}"
    return device.extension().Kernel(compile_kernels(text, [Entry("dropout", "P")])[0])


@functools.cache
def chances_kernel(dtype: np.dtype[Any], chances: np.dtype[Any]) -> Any:
    text = f"typedef {stored(dtype)} S; typedef {stored(chances)} Q;\n{WORDS}{CHANCES}"
    return device.extension().Kernel(compile_kernels(text, [Entry("chances", "P")])[0])


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


class Philox:
    """A stream of random numbers of a GPU, which begins with a seed. Nothing here locks: `Generator` does."""

    def __init__(self, space: Any, seed: int) -> None:
        self.space = space
        #: number of a stream -> its words in memory, and what they say
        self._places: dict[int, tuple[Any, tuple[int, int]]] = {}
        self.restart(seed)

    def restart(self, seed: int) -> None:
        self.seed, self.used = seed, 0

    def pack(self) -> bytes:
        return STATE.pack(self.seed, self.used)

    def unpack(self, state: bytes) -> None:
        self.seed, self.used = STATE.unpack(state)

    def apart(self) -> Philox:
        """One that draws the same numbers, for who wants nothing but their shape."""
        made = Philox(self.space, self.seed)
        made.used = self.used
        return made

    def on_host(self) -> Any:
        """A generator of NumPy's that begins here, for what has no kernel."""
        made = np.random.Generator(np.random.PCG64([self.seed, self.used]))
        self.used += 4
        return made

    # ---- where it is, in the memory of the device

    def _words(self) -> tuple[int, Any]:
        """The number of the current stream, and its words."""
        number, now = self.space.current_stream().number, (self.seed, self.used)
        if number not in self._places:
            words = self.space.zeros((3,), dtypes.uint64)
            self._places[number] = words, (0, 0)
        words, known = self._places[number]
        if known != now:
            place_kernel()(1, 1, words, _signed(self.seed), _signed(self.used))
            self._places[number] = words, now
        return number, words

    def _moved(self, number: int, words: Array, by: int) -> None:
        self.used = (self.used + by) % 2**64
        self._places[number] = words, (self.seed, self.used)

    def _grid(self, count: int, many: int) -> tuple[int, int]:
        """How many blocks draw, and by how many words each thread moves on: PyTorch's layout, and so its numbers."""
        known = device.properties(self.space.index)
        most = known["multi_processor_count"] * (known["max_threads_per_multi_processor"] // THREADS)
        blocks = min(-(-count // THREADS), most)
        return blocks, ((count - 1) // (THREADS * blocks * many) + 1) * 4

    # ---- drawing

    def fill(
        self, name: str, shape: Sequence[int], dtype: DType, *numbers: float, range: int = 0, low: int = 0
    ) -> Array:
        """An array of numbers of a distribution."""
        out = self.space.empty(tuple(shape), dtype)
        if not out.size:
            return out
        kernel, many = draw_kernel(name, out.dtype)
        blocks, by = self._grid(out.size, many)
        number, words = self._words()
        given = [float(n) for n in (*numbers, 0.0, 0.0, 0.0)[:3]]
        kernel(blocks, THREADS, out, words, by, out.size, *given, _signed(range % 2**64), low)
        self._moved(number, words, by)
        return out

    def bernoulli(self, shape: Sequence[int], dtype: DType, chances: Array) -> Array:
        """1 with the probabilities in an array, else 0."""
        wide = dtypes.float64 if dtype == dtypes.float64 else dtypes.float32
        chances = self.space.broadcast_to(chances.astype(wide, copy=False), tuple(shape))
        chances = self.space.ascontiguousarray(chances)
        out = self.space.empty(tuple(shape), dtype)
        if out.size:
            number, words = self._words()
            kernel = chances_kernel(out.dtype, wide)
            kernel(-(-out.size // (4 * THREADS)), THREADS, out, chances, words, 12, out.size)
            self._moved(number, words, 12)
        return out

    def dropout(self, x: Array, p: float) -> tuple[Array, Array]:
        """The array with every element 0 with probability p, else over 1 - p; and which were kept."""
        order = sorted(range(x.ndim), key=lambda dim: -x.strides[dim])
        if not x.is_contiguous and x.transpose(order).is_contiguous:  # the first in memory gets the first number
            back = sorted(range(x.ndim), key=order.__getitem__)
            return tuple([a.transpose(back) for a in self.dropout(x.transpose(order), p)])
        x = self.space.ascontiguousarray(x)
        out, kept = self.space.empty(x.shape, x.dtype), self.space.empty(x.shape, dtypes.bool_)
        if x.size:
            blocks, by = self._grid(x.size, 4)
            number, words = self._words()
            side_by_side = _side_by_side(x)
            dropout_kernel(x.dtype)(blocks, THREADS, out, kept, x, words, by, x.size, side_by_side, 1.0 - float(p))
            self._moved(number, words, by)
        return out, kept


def _side_by_side(x: Array) -> int:
    """How many elements a thread takes at a time: as many as fill 16 bytes, if that leaves none over."""
    many: int = 16 // x.dtype.itemsize
    while many > 1 and (x.size % many or x.address % (many * x.dtype.itemsize)):
        many //= 2
    return many


def _of_gradient(kinds: tuple[DType, ...]) -> tuple[np.dtype[Any], ...]:
    """The dtypes of a gradient, a mask and a number, and of the result."""
    if not isinstance(kinds[0], np.dtype) or not is_real(kinds[0]) or kinds[1] != dtypes.bool_:
        raise NotImplementedError("a gradient of dropout of other dtypes")
    return kinds[0], dtypes.bool_, kinds[0], kinds[0]


@functools.cache
def gradient_kernel() -> Any:
    formula = elementwise.Formula(3, _of_gradient, lambda dtypes: "b ? a * c : T(0)")
    return elementwise.kernel("dropout_gradient", formula, lambda given, out: given[0] * given[1] * given[2])


def dropout_gradient(g: Array, mask: Array, scale: float) -> Array:
    return gradient_kernel()(g, mask, float(scale))


KERNELS: dict[str, Callable[..., Any]] = {"dropout_gradient": dropout_gradient}

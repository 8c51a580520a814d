"""PyTorch's stream of random numbers on the CPU: the Mersenne Twister, and how its words become numbers.

The same seed gives the integers, permutations and uniform numbers that PyTorch gives, bit for bit; normal numbers agree
up to the rounding of logarithms, sines and cosines. Nothing here locks: `Generator` does. With the compiled core the
loops over words are its kernels (csrc/kernels/random.c).
"""

from __future__ import annotations

import functools
import gc
import importlib
import math
import struct
import threading
from typing import Any

from undertow.backend import cpu, dtypes, kernels
from undertow.backend.interface import Array, DType
from undertow.scopes import computed_once

#: words of the Twister's state
SIZE = 624

#: a state begins with the seed, how many words are left (and one), whether it was seeded, and the next word;
#: then come the words, in 64 bits each; and then an unused float, the spare normal number, an unused float, whether
#: there is a spare, and another spare that nothing uses
HEAD, TAIL = struct.Struct("<QiiQ"), struct.Struct("<dddi4xf?3x")
STATE_BYTES = HEAD.size + 8 * SIZE + TAIL.size

#: normal numbers are made in blocks: eight radii, eight angles
BLOCK = 16

#: ranges from here on take 64 bits, because the remainder of 32 would favour small numbers
WIDE = 2**28


@functools.cache
def numpy_random() -> Any:
    """NumPy's generators, loaded by a thread of its own when something is drawn for the first time.

    A signal handler may draw in the middle of that. In the thread that loads it would find half a module, where NumPy
    looks for the other half until the stack ends; here it waits for it. No destructor runs in the loading thread.
    """
    name = cpu.module.__name__ + ".random"
    loading = threading.Thread(target=_load, args=(name,), daemon=True)
    try:
        loading.start()
    except RuntimeError:  # no threads: the interpreter is about to end, or runs in a browser
        pass
    else:
        loading.join()
    return importlib.import_module(name)


def _load(name: str) -> None:
    collecting = gc.isenabled()
    gc.disable()
    try:
        importlib.import_module(name)
    finally:
        if collecting:
            gc.enable()


class Mersenne:
    """A stream of random numbers that begins with a seed."""

    def __init__(self, seed: int) -> None:
        self.restart(seed)

    def restart(self, seed: int) -> None:
        self.seed = seed
        self.spare: float | None = None  # the second of two normal numbers, when one was asked for
        if "bits" in vars(self):
            self._seed(self.bits)

    def apart(self) -> Mersenne:
        """Another one, for who wants nothing but the shape of numbers."""
        return Mersenne(self.seed)

    def _seed(self, bits: Array) -> None:
        numpy_random().RandomState(bits).seed(self.seed % 2**32)  # as the Twister's inventors do, and PyTorch

    # What draws is made when it is first asked: NumPy's generators take longer to load than a tenth of undertow.

    @computed_once
    def bits(self) -> Array:
        made = numpy_random().MT19937(0)
        self._seed(made)
        kernels.trust_twister(cpu, made.capsule)
        return made

    @computed_once
    def _numpy(self) -> Array:
        return numpy_random().Generator(self.bits)

    @computed_once
    def _capsule(self) -> Any:
        """What kernels draw from."""
        return self.bits.capsule

    def _read(self) -> tuple[Array, int]:
        """The words of the state, in 64 bits each, and how many of them are used."""
        bits = self.bits
        found = kernels.read_twister(cpu, self._capsule)  # NumPy's `state` moves the words one by one
        if found is None:
            state = bits.state["state"]
            found = state["key"].astype(dtypes.uint64), int(state["pos"])
        return found

    def _place(self, words: Array, position: int) -> None:
        bits = self.bits
        if not kernels.place_twister(cpu, self._capsule, words, position):
            key = words.astype(dtypes.uint32)
            bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}

    # ---- words

    def words(self, count: int) -> Array:
        """Integers of 32 bits, in an array of 64-bit ones."""
        found = kernels.random_words(cpu, self._capsule, count)
        return self.bits.random_raw(count) if found is None else found

    def long_words(self, count: int) -> Array:
        """Integers of 64 bits, each of two words."""
        words = self.words(2 * count)
        return (words[::2] << 32) | words[1::2]

    def below(self, count: int, end: int) -> Array:
        """Integers in [0, end)."""
        if end >= 2**64:
            return self.long_words(count)
        drawn = self.long_words(count) if end >= WIDE else self.words(count)
        return drawn % cpu.asarray(end, dtype=dtypes.uint64)

    def permutation(self, n: int) -> Array:
        """0, ..., n - 1 in random order: every number changes places with one that comes after it, or with itself."""
        found = kernels.random_permutation(cpu, self._capsule, n)
        if found is not None:
            return found
        numbers = list(range(n))
        jumps = self.words(max(n - 1, 0)) % cpu.arange(n, 1, -1).astype(dtypes.uint64)
        for i, jump in enumerate(jumps.tolist()):
            numbers[i], numbers[i + jump] = numbers[i + jump], numbers[i]
        return cpu.asarray(numbers, dtype=dtypes.int64)

    # ---- fractions

    def singles(self, count: int) -> Array:
        """float32 in [0, 1), from 24 bits."""
        found = kernels.random_singles(cpu, self._capsule, count)
        if found is not None:
            return found
        return (self.words(count) & (2**24 - 1)).astype(dtypes.float32) * dtypes.float32.type(2.0**-24)

    def doubles(self, count: int) -> Array:
        """float64 in [0, 1), from 53 bits."""
        found = kernels.random_doubles(cpu, self._capsule, count)
        return (self.long_words(count) & (2**53 - 1)) * 2.0**-53 if found is None else found

    def fractions(self, count: int, dtype: DType) -> Array:
        return self.doubles(count) if dtype == dtypes.float64 else self.singles(count)

    # ---- normal numbers

    def normals(self, count: int) -> Array:
        """float64, one after the other; an odd one out is kept for the next call."""
        spare = self.spare if count else None
        if spare is not None:
            self.spare = None  # at once: a signal handler that draws meanwhile must not get the same number
        kept = [] if spare is None else [spare]
        numbers = self.normal_pairs((count - len(kept) + 1) // 2)
        if count:
            self.spare = float(numbers[-1]) if len(numbers) + len(kept) > count else None
        return cpu.concatenate([kept, numbers])[:count] if kept else numbers[:count]

    def normal_pairs(self, pairs: int) -> Array:
        """float64, two from every two fractions: the first gives the angle, the second the radius."""
        found = kernels.random_normals(cpu, self._capsule, 2 * pairs)
        if found is not None:
            return found
        angle, u = self.doubles(2 * pairs).reshape(pairs, 2).T
        radius, angle = cpu.sqrt(-2 * cpu.log1p(-u)), 2 * math.pi * angle
        return cpu.stack([radius * cpu.cos(angle), radius * cpu.sin(angle)], -1).reshape(-1)

    def normal_blocks(self, count: int, dtype: DType, rounded: bool) -> Array:
        """At least BLOCK numbers of one dtype; the last BLOCK are drawn again if they are no block.

        rounded   the result will be rounded to fewer bits: then what is drawn again is not drawn before
        """
        whole, rest = count - count % BLOCK, count % BLOCK
        drawn = self.fractions(whole if rounded else count, dtype)
        blocks = _blocks_to_normal(drawn[:whole])
        if not rest:
            return blocks
        last = _blocks_to_normal(self.fractions(BLOCK, dtype))
        return cpu.concatenate([blocks[: count - BLOCK], last])

    # ---- one by one, for methods that do not know how many they will need

    def fraction(self) -> float:
        word = self.bits.random_raw
        return float(((word() << 32 | word()) & (2**53 - 1)) * 2.0**-53)

    def normal(self) -> float:
        """As `normals`, by C's functions: on some processors, NumPy's round otherwise."""
        spare, self.spare = self.spare, None
        if spare is not None:
            return float(spare)
        angle, u = 2 * math.pi * self.fraction(), self.fraction()
        radius = math.sqrt(-2 * math.log1p(-u))
        self.spare = radius * math.sin(angle)
        return radius * math.cos(angle)

    def gammas(self, alpha: Array) -> Array:
        """Of rate 1. Here and in `binomials` parameters are float32 or float64, and so are the numbers."""
        spare, self.spare = self.spare, None
        found = kernels.random_gammas(cpu, self._capsule, spare, alpha)
        if found is not None:
            found, self.spare = found
            return found
        self.spare = spare
        return self._by_rejection("gamma", alpha)

    def poissons(self, rate: Array) -> Array:
        found = kernels.random_poissons(cpu, self._capsule, rate)
        return self._by_rejection("poisson", rate) if found is None else found

    def binomials(self, count: Array, prob: Array) -> Array:
        found = kernels.random_binomials(cpu, self._capsule, count, prob)
        return self._by_rejection("binomial", count, prob) if found is None else found

    def _by_rejection(self, name: str, *parameters: Array) -> Array:
        """What the compiled core's kernels draw, without it."""
        from undertow.ops.random import rejection

        return rejection.each(getattr(rejection, name), self, *parameters)

    # ---- states, as PyTorch writes them

    def pack(self) -> bytes:
        words, position = self._read()
        spare = self.spare
        head = HEAD.pack(self.seed, SIZE + 1 - position, 1, position)
        tail = TAIL.pack(0.0, spare or 0.0, 0.0, spare is not None, 0.0, False)
        return head + words.astype("<u8", copy=False).tobytes() + tail

    def unpack(self, state: bytes) -> None:
        seed, left, seeded, position = HEAD.unpack_from(state)
        _, spare, _, has_spare, *_ = TAIL.unpack_from(state, HEAD.size + 8 * SIZE)
        if not seeded or not 0 < left <= SIZE or not 0 <= position <= SIZE:
            raise RuntimeError("Invalid mt19937 state: these bytes are no state of a generator")
        words = cpu.frombuffer(state, "<u8", SIZE, HEAD.size)
        self._place(words.astype(dtypes.uint64, copy=False), SIZE if left == 1 else position)
        self.seed, self.spare = seed, spare if has_spare else None


def _blocks_to_normal(drawn: Array) -> Array:
    """Box and Muller's transform of blocks: the first half gives radii, the second angles."""
    found = kernels.blocks_to_normal(cpu, drawn)
    if found is not None:
        return found
    halves = drawn.reshape(-1, 2, BLOCK // 2)
    radius = cpu.sqrt(-2 * cpu.log(1 - halves[:, 0]))
    angle = halves[:, 1] * drawn.dtype.type(2 * math.pi)
    return cpu.stack([radius * cpu.cos(angle), radius * cpu.sin(angle)], 1).reshape(-1)

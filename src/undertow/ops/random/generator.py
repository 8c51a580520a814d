"""Where random numbers come from: generators, and the default one that all threads share."""

from __future__ import annotations

import os
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any

from undertow.backend import Device, cpu, dtypes, namespace_of
from undertow.backend.interface import Array, for_shapes_alone
from undertow.ops.random.mersenne_twister import STATE_BYTES, Mersenne
from undertow.scopes import Scope, common_lock, held
from undertow.tensor import Tensor

#: what PyTorch seeds a new generator with
DEFAULT_SEED = 67280421310721


# common_lock guards the streams of all generators: a draw advances a state in several steps.


class Generator:
    """A source of random numbers with a state of its own. A seed gives the numbers that it gives in PyTorch.

    >>> import undertow as ut
    >>> g = ut.Generator().manual_seed(3)
    >>> a = ut.rand(2, generator=g)
    >>> b = ut.rand(2, generator=g.manual_seed(3))
    >>> a.tolist() == b.tolist()
    True
    >>> ut.randperm(6, generator=g.manual_seed(0))
    tensor([2, 5, 3, 0, 1, 4])
    """

    def __init__(self, device: Device | str | int = "cpu") -> None:
        self._xp = namespace_of(device)
        self._stream = Mersenne(DEFAULT_SEED)

    @property
    def device(self) -> Device:
        return self._xp.device

    def manual_seed(self, seed: int) -> Generator:
        """Start again from a seed (negative ones count back from 2**64) and return the generator."""
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = int(seed)
        if not -(2**63) <= seed < 2**64:
            raise ValueError(f"Overflow when unpacking long long: a seed lies in [-2**63, 2**64), got {seed}")
        with held(common_lock):
            self._stream.restart(seed % 2**64)
        return self

    def seed(self) -> int:
        """Start again from a seed that nobody can foresee, and return it."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed that the generator started from."""
        return self._stream.seed

    def draw(self, numbers: str, *args: Any) -> Array:
        """Random numbers from one of the methods of `Mersenne`."""
        if for_shapes_alone.get():
            return getattr(Mersenne(DEFAULT_SEED), numbers)(*args)
        with held(common_lock):
            return getattr(self._stream, numbers)(*args)

    def get_state(self) -> Tensor:
        """The state as a tensor of bytes: those that PyTorch writes."""
        with held(common_lock):
            packed = self._stream.pack()
        return Tensor(cpu.frombuffer(bytearray(packed), dtype=dtypes.uint8), cpu)

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state that `get_state` returned, here or in PyTorch."""
        if not isinstance(new_state, Tensor) or new_state._array.dtype != dtypes.uint8:
            kind = new_state.dtype if isinstance(new_state, Tensor) else type(new_state).__name__
            raise TypeError(f"expected an undertow.ByteTensor, but got {kind}")
        if new_state._array.size != STATE_BYTES:
            raise RuntimeError(
                f"Expected a generator state of size {STATE_BYTES} but found the input RNG state size to be "
                f"{new_state._array.size}"
            )
        with held(common_lock):
            self._stream.unpack(new_state._array.tobytes())
        return self

    def clone_state(self) -> Generator:
        """Another generator in the same state."""
        return Generator(self.device).set_state(self.get_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (str(self.device), self.get_state()._array.tobytes())


def _restore(device: str, state: bytes) -> Generator:
    return Generator(device).set_state(Tensor(cpu.frombuffer(state, dtype=dtypes.uint8), cpu))


default_generator = Generator()
default_generator.seed()

#: what takes the place of the default generator in a worker thread of a DataLoader
stand_in: ContextVar[Generator | None] = ContextVar("undertow.stand_in", default=None)


def _default_here() -> Generator:
    """The default generator, or in a worker thread the worker's own."""
    return stand_in.get() or default_generator


def manual_seed(seed: Any) -> Generator:
    """Seed the default generator and return it.

    >>> import undertow as ut
    >>> _ = ut.manual_seed(0)
    >>> a = ut.rand(2)
    >>> _ = ut.manual_seed(0)
    >>> a.tolist() == ut.rand(2).tolist()
    True
    """
    return _default_here().manual_seed(int(seed))


def seed() -> int:
    """Seed the default generator with a number that nobody can foresee, and return it.

    >>> import undertow as ut
    >>> ut.seed() == ut.initial_seed()
    True
    """
    return _default_here().seed()


def initial_seed() -> int:
    """The seed that the default generator started from.

    >>> import undertow as ut
    >>> _ = ut.manual_seed(7)
    >>> ut.initial_seed()
    7
    """
    return _default_here().initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator, as a tensor of bytes.

    >>> import undertow as ut
    >>> state = ut.get_rng_state()
    >>> first = ut.rand(2)
    >>> ut.set_rng_state(state)
    >>> bool((first == ut.rand(2)).all())
    True
    """
    return _default_here().get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Continue the default generator from a state that `get_rng_state` returned.

    >>> import undertow as ut
    >>> ut.set_rng_state(ut.get_rng_state())
    """
    _default_here().set_state(new_state)


class _DefaultState:
    """The state of the default generator as a variable; see scopes.py."""

    def get(self) -> Tensor:
        return get_rng_state()

    def set(self, state: Tensor | None) -> None:
        if state is not None:
            set_rng_state(state)


class fork_rng(Scope, ContextDecorator):
    """Put the default generator back into its present state at the end of the block.

    devices, device_type  which other generators are meant, in PyTorch: here one serves all devices

    >>> import undertow as ut
    >>> _ = ut.manual_seed(0)
    >>> with ut.random.fork_rng():
    ...     inside = ut.rand(1)
    >>> bool((inside == ut.rand(1)).all())
    True
    """

    variable = _DefaultState()

    def __init__(
        self,
        devices: Any = None,
        enabled: bool = True,
        _caller: str = "fork_rng",
        _devices_kw: str = "devices",
        device_type: str = "cuda",
    ) -> None:
        self.enabled = enabled

    def inside(self, outer: Tensor) -> None:
        return None  # as it is

    def after(self, inner: Tensor, outer: Tensor) -> Tensor | None:
        return outer if self.enabled else None


def as_generator(function: str, generator: Generator | None) -> Generator:
    if generator is None:
        return stand_in.get() or default_generator
    if not isinstance(generator, Generator):
        raise TypeError(
            f"{function}(): argument 'generator' must be undertow.Generator, not {type(generator).__name__}"
        )
    return generator

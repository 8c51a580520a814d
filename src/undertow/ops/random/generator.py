"""Where random numbers come from: generators, and the default ones that all threads share.

The CPU's default generator serves simulated devices, too. A GPU has one of its own, made when it is first asked; it
draws in the GPU's memory, and begins with the seed that the program gave last.
"""

from __future__ import annotations

import os
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any

from undertow.backend import Device, cpu, default_device, dtypes, gpus_in_use, namespace_of
from undertow.backend.interface import Array, Namespace, for_shapes_alone
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
        #: whether it draws in the memory of its device: distributions are then the stream's own
        self.is_of_gpu = self._xp.device.type == "cuda"
        self._stream: Any = self._xp.random_stream(DEFAULT_SEED) if self.is_of_gpu else Mersenne(DEFAULT_SEED)

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
        return int(self._stream.seed)

    def draw(self, numbers: str, *args: Any, **options: Any) -> Array:
        """Random numbers from one of the methods of `Mersenne`, or of a GPU's stream.

        *args, **options  what that method takes
        """
        if for_shapes_alone.get():
            return getattr(self._stream.apart(), numbers)(*args, **options)
        with held(common_lock):
            return getattr(self._stream, numbers)(*args, **options)

    def get_state(self) -> Tensor:
        """The state as a tensor of bytes: those that PyTorch writes."""
        with held(common_lock):
            packed = self._stream.pack()
        return Tensor(cpu.frombuffer(bytearray(packed), dtype=dtypes.uint8), cpu)

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state that `get_state` returned, here or in PyTorch.

        new_state  a tensor of bytes
        """
        if not isinstance(new_state, Tensor) or new_state._array.dtype != dtypes.uint8:
            kind = new_state.dtype if isinstance(new_state, Tensor) else type(new_state).__name__
            raise TypeError(f"expected an undertow.ByteTensor, but got {kind}")
        size = len(self._stream.pack()) if self.is_of_gpu else STATE_BYTES
        if new_state._array.size != size:
            raise RuntimeError(
                f"Expected a generator state of size {size} but found the input RNG state size to be "
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


#: number of a GPU -> its default generator; and what the next one is to be seeded with. common_lock guards both
_of_gpus: dict[int, Generator] = {}
_seed_of_gpus: list[int] = []


def _default_here() -> Generator:
    """The default generator, or in a worker thread the worker's own."""
    return stand_in.get() or default_generator


def usual_stream() -> Any:
    """What numbers for the CPU are drawn from, if nothing is unusual: for csrc/call/shortcuts_new.c."""
    return None if for_shapes_alone.get() or default_device.get() is not None else _default_here()._stream


def default_of(xp: Namespace) -> Generator:
    """The default generator of a device."""
    if xp.device.type != "cuda":
        return _default_here()
    index = xp.device.index or 0
    found = _of_gpus.get(index)
    if found is None:
        made = Generator(xp.device)
        made.seed()
        with held(common_lock):
            found = _of_gpus.setdefault(index, made)
            seeds = list(_seed_of_gpus)
        if seeds and found is made:
            found.manual_seed(seeds[-1])
    return found


def seed_gpus(seed: int) -> None:
    """Seed the default generators of all GPUs, also of those that are not used yet."""
    with held(common_lock):
        _seed_of_gpus[:] = [seed]
        present = list(_of_gpus.values())
    for generator in present:
        generator.manual_seed(seed)


def states(devices: Any = None) -> list[tuple[Generator, Tensor]]:
    """The default generators, and the states that they are in: the CPU's, and those of GPUs (all that are in use)."""
    spaces = (
        gpus_in_use()
        if devices is None
        else [namespace_of(Device("cuda", d) if isinstance(d, int) else d) for d in devices]
    )
    found = [_default_here(), *[default_of(xp) for xp in spaces if xp.device.type == "cuda"]]
    return [(generator, generator.get_state()) for generator in found]


def restore(saved: list[tuple[Generator, Tensor]]) -> None:
    """Put generators back into the states that they were in."""
    for generator, state in saved:
        generator.set_state(state)


def manual_seed(seed: Any) -> Generator:
    """Seed the default generators, the CPU's and those of GPUs, and return the CPU's.

    seed  an integer

    >>> import undertow as ut
    >>> _ = ut.manual_seed(0)
    >>> a = ut.rand(2)
    >>> _ = ut.manual_seed(0)
    >>> a.tolist() == ut.rand(2).tolist()
    True
    """
    here = _default_here().manual_seed(int(seed))
    if here is default_generator:
        seed_gpus(int(seed))
    return here


def seed() -> int:
    """Seed the default generators with a number that nobody can foresee, and return it.

    >>> import undertow as ut
    >>> ut.seed() == ut.initial_seed()
    True
    """
    here = _default_here()
    number = here.seed()
    if here is default_generator:
        seed_gpus(number)
    return number


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

    new_state  a tensor of bytes

    >>> import undertow as ut
    >>> ut.set_rng_state(ut.get_rng_state())
    """
    _default_here().set_state(new_state)


class _DefaultStates:
    """The states of default generators as a variable; see scopes.py."""

    def __init__(self, devices: Any = None) -> None:
        self.devices = devices

    def get(self) -> list[tuple[Generator, Tensor]]:
        return states(self.devices)

    def set(self, saved: list[tuple[Generator, Tensor]] | None) -> None:
        if saved is not None:
            restore(saved)


class fork_rng(Scope, ContextDecorator):
    """Put the default generators back into their present states at the end of the block.

    devices  which GPUs' are meant, beside the CPU's; all that are in use, unless said
    _caller, _devices_kw, device_type  accepted, without effect

    >>> import undertow as ut
    >>> _ = ut.manual_seed(0)
    >>> with ut.random.fork_rng():
    ...     inside = ut.rand(1)
    >>> bool((inside == ut.rand(1)).all())
    True
    """

    variable: Any = _DefaultStates()

    def __init__(
        self,
        devices: Any = None,
        enabled: bool = True,
        _caller: str = "fork_rng",
        _devices_kw: str = "devices",
        device_type: str = "cuda",
    ) -> None:
        self.enabled = enabled
        if devices is not None:
            self.variable = _DefaultStates(list(devices))

    def inside(self, outer: Any) -> None:
        return None  # as it is

    def after(self, inner: Any, outer: Any) -> Any:
        return outer if self.enabled else None


def as_generator(function: str, generator: Generator | None, xp: Namespace = cpu) -> Generator:
    """The generator that was given, or the default one of the device that numbers are drawn for."""
    if generator is None:
        return default_of(xp)
    if not isinstance(generator, Generator):
        raise TypeError(
            f"{function}(): argument 'generator' must be undertow.Generator, not {type(generator).__name__}"
        )
    wanted = xp.device.type if xp.device.type == "cuda" else "cpu"
    if generator.is_of_gpu != (wanted == "cuda") and xp.device.type != "meta":
        raise RuntimeError(
            f"Expected a '{wanted}' device type for generator but found '{generator.device.type}': {function}() draws "
            f"on {xp.device}. Use undertow.Generator(device='{wanted}')."
        )
    return generator

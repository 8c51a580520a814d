"""fully_shard: each process keeps its piece of every parameter; whole parameters are there while they are used.

A module that is sharded is a unit: its parameters are gathered by one exchange before its forward pass and dropped
after it, gathered again when the backward pass needs them, and their gradients are averaged and divided by one exchange
when the last has come. So at any time whole parameters of one or two units are in memory.

What dropping means: a graph saves whole parameters for its backward pass. While a unit's forward pass runs, hooks for
saved tensors keep a note of which part of which parameter it was instead, from which it is gathered again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple
from weakref import WeakSet

from undertow import ops
from undertow.autograd.function import Function
from undertow.autograd.saved_tensors import saved_tensors_hooks
from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.distributed.collectives import all_gather_into_tensor, broadcast
from undertow.distributed.nn.functional import ReduceScatter, ready
from undertow.distributed.process_group import ProcessGroup, resolve
from undertow.distributed.reduce_op import ReduceOp
from undertow.distributed.sharding.pieces import Stretch, step_of, stretch_of
from undertow.graph.operation_node import SavedHooks
from undertow.modes import current, no_grad
from undertow.nn.module import Module
from undertow.nn.parameter import Parameter
from undertow.tensor import Tensor

#: for what PyTorch's fully_shard takes, and this does not
INSTEAD = {
    "mesh": "pass process_group",
    "shard_placement_fn": "every parameter is divided as a flat piece",
    "mp_policy": "use autocast in the forward pass, or module.half()",
    "offload_policy": "parameters are on the CPU",
}


def fully_shard(
    module: Module,
    *,
    process_group: Any = None,
    mesh: Any = None,
    reshard_after_forward: bool | None = True,
    shard_placement_fn: Any = None,
    mp_policy: Any = None,
    offload_policy: Any = None,
    ignored_params: Collection[Tensor] | None = None,
) -> Module:
    """Divide the parameters of a module among processes: those that no module inside of it has divided before.

    Shard the layers first and the whole model last. Parameters become flat pieces, under their names: make the
    optimizer afterwards. They start as those of the first process. Parameters that ask for no gradient stay whole.

    process_group          the processes; all if None
    reshard_after_forward  drop whole parameters after the forward pass, and gather them again for the backward pass;
                           False: keep them until then, which saves an exchange
    ignored_params         parameters that stay whole, and each process's own

    PyTorch's other arguments are refused: mesh (pass process_group), shard_placement_fn (pieces are flat), mp_policy
    (use autocast), offload_policy (parameters are on the CPU).
    """
    others = {"mesh": mesh, "shard_placement_fn": shard_placement_fn, "mp_policy": mp_policy}
    asked = [name for name, value in {**others, "offload_policy": offload_policy}.items() if value is not None]
    if asked:
        raise ValueError(f"fully_shard: {asked[0]} is not there: {INSTEAD[asked[0]]}")
    group = resolve(process_group, "fully_shard")
    if group is None:
        raise ValueError("fully_shard: this process does not belong to process_group")
    if "_is_sharded" in module.__dict__:
        raise ValueError(f"fully_shard: this {type(module).__name__} is sharded already")
    ignored = {id(parameter) for parameter in ignored_params or ()}
    places: dict[Parameter, list[tuple[Module, str]]] = {}
    for inner in module.modules():
        for name, parameter in inner._parameters.items():
            if parameter is None or not parameter.requires_grad or id(parameter) in ignored:
                continue
            if stretch(parameter) is None:
                places.setdefault(parameter, []).append((inner, name))
    if len({parameter.dtype for parameter in places}) > 1:
        raise ValueError(
            f"fully_shard: the parameters of one unit must have one dtype: {sorted({str(p.dtype) for p in places})}. "
            "Shard the modules that differ on their own first."
        )
    if places:
        unit = Unit(places, group, True if reshard_after_forward is None else bool(reshard_after_forward))
        module.__dict__["forward"] = functools.partial(unit.call, module.forward)
    module.__dict__["_is_sharded"] = True
    return module


#: the parameters that are pieces
PIECES: WeakSet[Parameter] = WeakSet()


def stretch(parameter: Tensor) -> Stretch | None:
    """Which elements of a whole parameter this piece is; None if it is whole."""
    found: Stretch | None = getattr(parameter, "_stretch", None)
    return found


class Activation(NamedTuple):
    """What a graph keeps of anything else: as it is, or as hooks outside of the module pack it."""

    packed: Any
    version: int
    unpack: Callable[[Any], Tensor] | None


class Note(NamedTuple):
    """What a graph keeps instead of (a view of) a whole parameter."""

    unit: Unit
    number: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    versions: tuple[int, ...]


class Unit:
    """Parameters that are gathered together.

    pieces  the parameters that the program sees
    places  for each the modules that have it, and its name there
    again   whole parameters, while a backward pass uses them
    """

    def __init__(self, places: dict[Parameter, list[tuple[Module, str]]], group: ProcessGroup, reshards: bool) -> None:
        self.group, self.reshards = group, reshards
        self.places = list(places.values())
        self.shapes = [tuple(parameter.shape) for parameter in places]
        self.steps = [step_of(shape, group.size()) for shape in self.shapes]
        self.pieces = [self.divide(parameter) for parameter in places]
        self.again: list[Array] | None = None
        self.put(self.pieces)

    def divide(self, parameter: Parameter) -> Parameter:
        flat = parameter.detach().contiguous().clone()
        broadcast(flat, group=self.group, group_src=0)
        mine = stretch_of(tuple(parameter.shape), self.group.rank(), self.group.size())
        piece = Parameter(flat.reshape(-1)[mine.start : mine.stop].clone())
        piece._stretch = mine
        PIECES.add(piece)
        return piece

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Let the modules have these in the places of their parameters."""
        for tensor, places in zip(tensors, self.places, strict=True):
            for module, name in places:
                module._parameters[name] = tensor

    # ---- whole parameters

    def padded(self, pieces: Sequence[Tensor]) -> Tensor:
        """All pieces of this process behind each other, each as long as in the first process."""
        return ops.cat([
            piece if piece.numel() == step else ops.pad(piece, (0, step - piece.numel()))
            for piece, step in zip(pieces, self.steps, strict=True)
        ])  # fmt: skip

    def whole(self, gathered: Tensor) -> list[Tensor]:
        """Whole parameters, from everybody's pieces."""
        found, at = [], 0
        for shape, step in zip(self.shapes, self.steps, strict=True):
            flat = gathered[:, at : at + step].reshape(-1)
            total = math.prod(shape)
            found.append((flat if flat.numel() == total else flat[:total]).reshape(shape))
            at += step
        return found

    def call(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The forward pass of the module, with whole parameters."""
        gathered: Any = GatherPieces.apply(self.padded(self.pieces), self)
        whole = self.whole(gathered)
        arrays = [tensor._array for tensor in whole]
        self.put(whole)
        try:
            if not self.reshards:
                return forward(*args, **kwargs)
            outer = current().saved_hooks[-1] if current().saved_hooks else None
            with saved_tensors_hooks(functools.partial(self.pack, arrays, outer), unpack):
                return forward(*args, **kwargs)
        finally:
            self.put(self.pieces)

    def pack(self, arrays: list[Array], outer: SavedHooks | None, tensor: Tensor) -> Note | Activation:
        array = tensor._array
        for number, whole in enumerate(arrays):
            if type(array) is cpu.ndarray and cpu.may_share_memory(array, whole):
                offset = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
                return Note(self, number, offset, array.shape, array.strides, self.versions())
        if outer is None:
            return Activation(tensor, tensor._version, None)
        return Activation(outer.pack(tensor), 0, outer.unpack)

    def versions(self) -> tuple[int, ...]:
        return tuple([piece._version for piece in self.pieces])

    def gather_again(self) -> list[Array]:
        """Whole parameters for the backward pass, kept until the gradients of all have come."""
        if self.again is None:
            with no_grad():
                mine = self.padded([piece.detach() for piece in self.pieces])
                self.again = [tensor._array for tensor in self.whole(gather(mine, self.group))]
        return self.again


def unpack(kept: Note | Activation) -> Tensor:
    if isinstance(kept, Activation):
        return unpack_activation(kept)
    if kept.versions != kept.unit.versions():
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a sharded "
            "parameter was changed (by an optimizer's step?) between a forward pass and its backward pass, which "
            "gathers it again. Run backward() first."
        )
    whole = kept.unit.gather_again()[kept.number]
    flat = whole.reshape(-1)[kept.offset // whole.itemsize :]
    return Tensor(cpu.lib.stride_tricks.as_strided(flat, kept.shape, kept.strides), cpu)


def unpack_activation(kept: Activation) -> Tensor:
    if kept.unpack is not None:
        return kept.unpack(kept.packed)
    tensor: Tensor = kept.packed
    if tensor._version != kept.version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor "
            f"of shape {list(tensor.shape)} is at version {tensor._version}; expected version {kept.version} instead. "
            "It was saved inside of a sharded module: change a copy of it, or change it after backward()."
        )
    return tensor


def gather(mine: Tensor, group: ProcessGroup) -> Tensor:
    result = mine.new_empty((group.size(), *mine.shape))
    all_gather_into_tensor(result, ready(mine), group)
    return result


class GatherPieces(Function):
    """Everybody's pieces; backward, this process's pieces of the mean of the gradients."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor, unit: Unit) -> Tensor:
        ctx.unit = unit
        return gather(mine, unit.group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        ctx.unit.again = None  # nothing of the unit's part of the pass is left
        return ReduceScatter.apply(grad, ReduceOp.AVG, ctx.unit.group), None

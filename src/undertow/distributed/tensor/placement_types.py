"""How a tensor would lie on several processes, in PyTorch's words: programs list them, and no tensor here has them."""

from __future__ import annotations

from dataclasses import dataclass


class Placement:
    """Where one dimension of a mesh of processes has a tensor's elements."""

    def is_shard(self, dim: int | None = None) -> bool:
        return type(self) is Shard and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each process has a piece, cut along `dim`."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Placement):
    """Each process has a piece of each of `split_factor` parts."""

    dim: int
    split_factor: int = 1

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each process has all elements."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Each process has numbers of which the sum (or what `reduce_op` says) are the elements."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"

"""PipelineStage: the part of a model that one process has, and its messages to the neighbours.

A part of the batch is a microbatch. What travels forward are the outputs of a stage, each behind a message that says
its shape and dtype, and which batch it is of; what travels back are the gradients of them. Nothing waits for a message
to be taken: sends are started and looked after at the end of a step, so two neighbours that send to each other at once
do not hang. But a message that nobody has taken is there for the next one who receives: a stage that runs another step
than its neighbours, or goes on after one that failed, would compute with the numbers of another batch. So batches are
counted, and what is not of the same one is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from undertow.autograd.backward import backward
from undertow.backend import cpu, dtypes
from undertow.distributed.errors import DistMismatchError
from undertow.distributed.point_to_point import TAGS, Message, code_of, coded, isend, recv
from undertow.distributed.process_group import resolve
from undertow.modes import is_grad_enabled
from undertow.nn.module import Module
from undertow.tensor import LEAF, Tensor

#: how many numbers go before a tensor: its batch, of how many tensors, how many dimensions, which dtype, and the sizes
FACTS = 13
#: tensors have at most so many dimensions
DIMENSIONS = FACTS - 6
#: a stage sends at most so many tensors; gradients have tags of their own
OUTPUTS = 16
#: numbers of microbatches are told apart up to here; messages between two neighbours come in order anyway
MICROBATCHES = TAGS // (4 * OUTPUTS)


class Batch(NamedTuple):
    """A batch on its way: all stages must have the same one, under the same number."""

    number: int
    n_microbatches: int
    trains: int

    def __str__(self) -> str:
        return f"{'step' if self.trains else 'eval'}() number {self.number} of {self.n_microbatches} microbatches"


class PipelineStage:
    """One stage of a model.

    submodule    the layers of this process
    stage_index  which of the stages it is, from 0 on; the stages are the processes of the group in their order
    num_stages   how many there are
    group        the processes; all if None
    """

    def __init__(
        self, submodule: Module, stage_index: int, num_stages: int, device: Any = None, group: Any = None
    ) -> None:
        members = resolve(group, "PipelineStage")
        if members is None:
            raise ValueError("PipelineStage: this process does not belong to the group")
        if num_stages != members.size() or stage_index != members.rank():
            raise ValueError(
                f"PipelineStage: stage {stage_index} of {num_stages} must be process {stage_index} of a group of "
                f"{num_stages}; this is process {members.rank()} of {members.size()}"
            )
        self.submodule, self.stage_index, self.num_stages, self.group = submodule, stage_index, num_stages, members
        self.alive: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self.most_alive = 0  # how many microbatches were between their two passes at once
        self.under_way: list[Message | None] = []
        self.batch = Batch(0, 0, 0)

    @property
    def is_first(self) -> bool:
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        return self.stage_index == self.num_stages - 1

    def begin_step(self, n_microbatches: int, trains: bool) -> None:
        """Count the next batch, and forget what is left of one that failed."""
        self.group.batches += 1
        self.batch = Batch(self.group.batches, n_microbatches, int(trains))
        self.alive, self.under_way = {}, []

    # ---- one microbatch

    def forward_one(self, number: int, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Tensor]:
        """Compute a microbatch, of the arguments (first stage) or of what the stage before sends; its outputs."""
        inputs = [] if self.is_first else self.receive(self.stage_index - 1, number, back=False)
        found = self.submodule(*(args if self.is_first else inputs), **(kwargs or {}))
        outputs = list(found) if isinstance(found, tuple | list) else [found]
        if not all([isinstance(output, Tensor) for output in outputs]) or len(outputs) > OUTPUTS:
            raise TypeError(f"PipelineStage: a stage returns a tensor, or up to {OUTPUTS} of them")
        if is_grad_enabled():
            self.alive[number] = inputs, outputs
            self.most_alive = max(self.most_alive, len(self.alive))
        if not self.is_last:
            self.send(outputs, self.stage_index + 1, number, back=False)
        return outputs

    def backward_one(self, number: int, loss: Tensor | None = None) -> None:
        """The gradients of a microbatch: of its loss (last stage), or of what the next stage sends."""
        inputs, outputs = self.alive.pop(number)
        if loss is not None:
            loss.backward()
        else:
            grads = self.receive(self.stage_index + 1, number, back=True)
            pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
            if pairs:
                backward([o for o, _ in pairs], [g for _, g in pairs])
        if not self.is_first:
            grads = [cpu_zeros(x) if x.grad is None else x.grad for x in inputs]
            self.send(grads, self.stage_index - 1, number, back=True)

    def finish_step(self) -> None:
        """Wait until everything that was sent has been taken."""
        under_way, self.under_way = self.under_way, []
        for message in under_way:
            if message is not None:
                message.wait()

    # ---- messages

    def send(self, tensors: list[Tensor], to: int, number: int, back: bool) -> None:
        for k, tensor in enumerate(tensors):
            packed = tensor.detach().contiguous()
            facts = [0] * FACTS
            shape = packed._array.shape
            if len(shape) > DIMENSIONS:
                raise ValueError(f"PipelineStage: tensors of up to {DIMENSIONS} dimensions travel, not {len(shape)}")
            code = code_of(packed._array.dtype)
            facts[: 6 + len(shape)] = *self.batch, len(tensors), len(shape), code, *shape
            for part in (Tensor(cpu.asarray(facts, dtype=dtypes.int64), cpu), packed):
                self.under_way.append(isend(part, group=self.group, tag=tag(number, k, back), group_dst=to))

    def receive(self, source: int, number: int, back: bool) -> list[Tensor]:
        found: list[Tensor] = []
        count = 1
        while len(found) < count:
            facts = Tensor(cpu.zeros(FACTS, dtype=dtypes.int64), cpu)
            place = self.group.ranks[source]
            recv(facts, place, self.group, tag(number, len(found), back))
            *batch, count, dims, dtype = facts._array[:6].tolist()
            self.check_batch(Batch(*batch), place, number)
            shape = facts._array[6:].tolist()
            tensor = Tensor(cpu.empty(shape[:dims], dtype=coded(dtype)), cpu)
            recv(tensor, place, self.group, tag(number, len(found), back))
            if not back and is_grad_enabled() and dtypes.is_differentiable(tensor._array.dtype):
                tensor._edge = LEAF
            found.append(tensor)
        return found

    def check_batch(self, theirs: Batch, rank: int, number: int) -> None:
        if theirs != self.batch:
            mine = self.group.ranks[self.stage_index]
            raise DistMismatchError(
                f"rank {mine}: microbatch {number} of {self.batch} meets what rank {rank} has sent in {theirs}. All "
                "stages must call the same schedules in the same order; where one has failed in a step, its messages "
                f"are still there, and only stages of a new group can go on{self.group.roll_call(0)}"
            )


def tag(number: int, output: int, back: bool) -> int:
    return ((number % MICROBATCHES) * 2 + back) * OUTPUTS + output


def cpu_zeros(like: Tensor) -> Tensor:
    return Tensor(cpu.zeros(like._array.shape, like._array.dtype), cpu)

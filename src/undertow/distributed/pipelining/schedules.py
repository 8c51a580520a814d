"""Schedules: in which order a stage computes the forward and backward passes of its microbatches.

With p stages and m microbatches every stage idles for the time of p - 1 of the m + p - 1 microbatches, in both orders.
GPipe keeps the activations of all m until the end; 1F1B those of as many as there are stages from this one on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow import ops
from undertow.distributed.pipelining.stage import PipelineStage
from undertow.modes import is_grad_enabled, no_grad
from undertow.tensor import Tensor

FORWARD, BACKWARD = "F", "B"
#: what a stage does: a pass, and the number of the microbatch
Order = list[tuple[str, int]]


class Schedule:
    """What schedules have in common.

    stage           of this process
    n_microbatches  how many parts a batch is cut into, along the first dimension; some may have an example more
    loss_fn         loss_fn(output, target), in the last stage; the loss of a batch is the mean over its examples
    scale_grads     whether gradients are those of that mean; False: of the sum
    """

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        scale_grads: bool = True,
    ) -> None:
        if n_microbatches < 1:
            raise ValueError(f"n_microbatches must be at least 1, not {n_microbatches}")
        self.stage, self.n_microbatches, self.loss_fn, self.scale_grads = stage, n_microbatches, loss_fn, scale_grads

    def order(self) -> Order:
        """What this stage does, one after another."""
        raise NotImplementedError(f"{type(self).__name__} does not say in which order passes run")

    def step(self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, **kwargs: Any) -> Any:
        """One batch, forward and backward: gradients are accumulated as after `loss.backward()`.

        args    for the first stage: tensors, which are cut into microbatches; so are those of `kwargs`, in any stage
        target  for the last stage
        losses  a list that gets the losses of the microbatches, in the last stage

        Returns the outputs of the batch in the last stage, and None in the others.
        """
        self.stage.begin_step(self.n_microbatches, trains=True)
        if self.stage.is_last and self.loss_fn is not None and target is None:
            raise ValueError("step: the last stage needs the target of its loss_fn")
        if not is_grad_enabled():
            raise RuntimeError(
                "step() computes gradients, which are switched off here (no_grad); eval() is forward only"
            )
        run = Run(self, args, target, kwargs)
        for kind, number in self.order():
            if kind == FORWARD:
                run.forward(number)
            elif self.loss_fn is not None or not self.stage.is_last:
                run.backward(number)
        self.stage.finish_step()
        if losses is not None:
            losses[:] = [loss.detach() for loss in run.losses]
        return run.joined()

    def eval(self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, **kwargs: Any) -> Any:
        """One batch, forward only."""
        self.stage.begin_step(self.n_microbatches, trains=False)
        with no_grad():
            run = Run(self, args, target, kwargs)
            for number in range(self.n_microbatches):
                run.forward(number)
            self.stage.finish_step()
        if losses is not None:
            losses[:] = run.losses
        return run.joined()


class Run:
    """One batch on its way."""

    def __init__(self, schedule: Schedule, args: tuple[Any, ...], target: Any, kwargs: dict[str, Any]) -> None:
        self.schedule, self.stage = schedule, schedule.stage
        count = schedule.n_microbatches
        cut = {name: parts_of(value, count) for name, value in kwargs.items()}
        self.kwargs = [{name: parts[k] for name, parts in cut.items()} for k in range(count)]
        self.args = list(zip(*[parts_of(arg, count) for arg in args], strict=True)) if args else [()] * count
        self.targets: list[Any] = [None] * count if target is None else parts_of(target, count)
        self.outputs: list[list[Tensor]] = []
        self.losses: list[Tensor] = []

    def forward(self, number: int) -> None:
        outputs = self.stage.forward_one(number, self.args[number], self.kwargs[number])
        if not self.stage.is_last:
            return
        self.outputs.append([output.detach() for output in outputs])
        if self.schedule.loss_fn is not None and self.targets[number] is not None:
            given = outputs[0] if len(outputs) == 1 else tuple(outputs)
            self.losses.append(self.schedule.loss_fn(given, self.targets[number]))

    def backward(self, number: int) -> None:
        loss = self.losses[number] if self.stage.is_last else None
        if loss is not None and self.schedule.scale_grads:
            loss = loss / self.parts_as_large(number)
        self.stage.backward_one(number, loss)

    def parts_as_large(self, number: int) -> float:
        """How many microbatches of this one's size the batch has, by which its loss is divided."""
        if not isinstance(self.targets[number], Tensor):
            return self.schedule.n_microbatches
        sizes = [len(part) for part in self.targets]
        return sum(sizes) / sizes[number]

    def joined(self) -> Any:
        """The outputs of all microbatches as those of one batch."""
        if not self.stage.is_last:
            return None
        found = [ops.cat(list(parts)) for parts in zip(*self.outputs, strict=True)]
        return found[0] if len(found) == 1 else tuple(found)


def parts_of(value: Any, count: int) -> list[Any]:
    """A tensor cut along its first dimension; anything else is given to all."""
    if not isinstance(value, Tensor):
        return [value] * count
    if not value.dim() or value.shape[0] < count:
        raise ValueError(
            f"a batch of shape {list(value.shape)} cannot be cut into {count} microbatches along its first dimension"
        )
    return list(value.tensor_split(count))


class ScheduleGPipe(Schedule):
    """All forward passes, then all backward passes."""

    def order(self) -> Order:
        numbers = range(self.n_microbatches)
        return [*[(FORWARD, k) for k in numbers], *[(BACKWARD, k) for k in numbers]]


class Schedule1F1B(Schedule):
    """As many forward passes as there are stages from this one on; then a backward and a forward pass in turn."""

    def order(self) -> Order:
        ahead = min(self.n_microbatches, self.stage.num_stages - self.stage.stage_index)
        found: Order = [(FORWARD, k) for k in range(ahead)]
        for k in range(self.n_microbatches):
            found.append((BACKWARD, k))
            if ahead + k < self.n_microbatches:
                found.append((FORWARD, ahead + k))
        return found

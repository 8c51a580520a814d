"""ZeroRedundancyOptimizer: each process keeps the optimizer's state of its part of the parameters.

All processes have all parameters and gradients. A step changes the parameters of a process's own part, and then every
part is sent to all.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from undertow.distributed.algorithms.join import Joinable, JoinHook
from undertow.distributed.collectives import broadcast
from undertow.distributed.objects import everybodys
from undertow.distributed.process_group import ProcessGroup, resolve
from undertow.modes import no_grad
from undertow.optim.optimizer import Optimizer
from undertow.tensor import Tensor


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer whose state is divided among processes.

    params           as of any optimizer: tensors, or groups; the same in all processes
    optimizer_class  what makes the steps, such as undertow.optim.Adam
    process_group    the processes; all if None
    defaults         options for optimizer_class
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp is not there: parts of parameters are sent after the step"
            )
        group = resolve(process_group, "ZeroRedundancyOptimizer")
        if group is None:
            raise ValueError("ZeroRedundancyOptimizer: this process does not belong to process_group")
        self.process_group: ProcessGroup = group
        self._class = optimizer_class
        self._saved: dict[int, Any] | None = None
        self.optim: Optimizer | None = None
        self._loads = [0] * group.size()  # how many numbers each process has the state of
        self._owner: dict[int, int] = {}
        super().__init__(params, defaults)

    # ---- parts

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, which are divided among the processes; those that are there stay where they are."""
        super().add_param_group(param_group)
        added = self.param_groups[-1]
        for p in sorted(added["params"], key=lambda p: -p.numel()):
            owner = self._owner[id(p)] = self._loads.index(min(self._loads))
            self._loads[owner] += p.numel() if p.requires_grad else 0
        if self.optim is not None:
            self.optim.add_param_group(self._mine(added))
        elif self._mine(added)["params"]:
            self.optim = self._class([self._mine(group) for group in self.param_groups], **self.defaults)
        if self.optim is not None:  # options that the class adds
            for group in self.param_groups:
                group.update({k: v for k, v in self.optim.param_groups[0].items() if k not in group})

    def _mine(self, group: dict[str, Any]) -> dict[str, Any]:
        """The group, with the parameters whose state this process has."""
        rank = self.process_group.rank()
        return {**group, "params": [p for p in group["params"] if self._owner[id(p)] == rank]}

    # ---- steps

    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        """A step of this process's part, and everybody's parameters afterwards."""
        loss = None
        if self.optim is not None:
            self._hand_options_down()
            loss = self.optim.step(closure) if closure is not None else self.optim.step()
        elif closure is not None:
            loss = closure()
        self._exchange()
        return loss

    def _hand_options_down(self) -> None:
        """A scheduler changes the options of these groups; the optimizer that makes the steps has its own."""
        assert self.optim is not None
        for ours, its in zip(self.param_groups, self.optim.param_groups, strict=True):
            its.update({k: v for k, v in ours.items() if k != "params"})

    def _exchange(self) -> None:
        with no_grad():
            for p in self._parameters():
                self._exchange_one(p)

    def _exchange_one(self, p: Any) -> None:
        owner = self._owner[id(p)]
        packed = p.detach() if p.is_contiguous() else p.detach().contiguous()
        broadcast(packed, group=self.process_group, group_src=owner)
        if not p.is_contiguous() and owner != self.process_group.rank():
            p.copy_(packed)

    # ---- saving

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gather the state of all parts in the process `to`, whose `state_dict` then has it. All processes call it."""
        mine = {} if self.optim is None else {self._number(p): s for p, s in self.optim.state.items()}
        parts = everybodys("consolidate_state_dict", mine, self.process_group)
        if self.process_group.rank() == to:
            self._saved = {number: state for part in parts for number, state in part.items()}

    def _number(self, p: Tensor) -> int:
        return next(k for k, q in enumerate(self._parameters()) if q is p)

    def state_dict(self) -> dict[str, Any]:
        """The state of all parts, after `consolidate_state_dict` in this process."""
        if self._saved is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                f"{self.process_group.rank()})` on all ranks beforehand if you meant to save the global state."
            )
        return {**super().state_dict(), "state": dict(sorted(self._saved.items()))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of all parts; each process keeps its own."""
        state = state_dict["state"]
        super().load_state_dict({**state_dict, "state": {}})
        if self.optim is None:
            return
        numbers = [self._number(p) for p in self.optim._parameters()]
        mine = {k: deepcopy(state[n]) for k, n in enumerate(numbers) if n in state}
        self.optim.load_state_dict({**self.optim.state_dict(), "state": mine})
        self._hand_options_down()

    # ---- uneven inputs

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return StepWithoutBatch(self)

    @property
    def join_process_group(self) -> ProcessGroup:
        return self.process_group


class StepWithoutBatch(JoinHook):
    """A process without batches steps, too, so that its part of the parameters follows."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self.optimizer = optimizer

    def main_hook(self) -> None:
        self.optimizer.step()

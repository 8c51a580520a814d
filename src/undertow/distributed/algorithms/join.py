"""Join: processes that have a different number of batches.

A process that has none left enters into the exchanges of the others until nobody has any. Before each of its batches a
process says that it has one, which is one small exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.backend import cpu
from undertow.distributed.collectives import all_reduce
from undertow.distributed.errors import DistError
from undertow.distributed.process_group import ProcessGroup
from undertow.distributed.work import Work
from undertow.graph.user_lines import warn_user
from undertow.tensor import Tensor

#: after so many batches of the others, a process that has none left says so
WARNS_AFTER = 1000


class JoinHook:
    """What a process without batches does instead of one, and what all do at the end."""

    def main_hook(self) -> None:
        """Enter into the exchanges of one batch of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """All are done.

        is_last_joiner  whether this process had a batch when the last one was
        """


class Joinable:
    """Something that exchanges with every batch, and can do so without one."""

    _join: Join | None = None

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What is done where there are no batches; kwargs are those of the Join."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it does without a batch")

    @property
    def join_process_group(self) -> ProcessGroup:
        raise NotImplementedError(f"{type(self).__name__} does not say who takes part")


class Join:
    """`with Join([model]): for batch in loader: ...`, in which the loaders of processes may end at different times.

    joinables                   what takes part: DistributedDataParallel, ZeroRedundancyOptimizer
    enable                      False: nothing is done, as if the block were not there
    throw_on_early_termination  raise an error in all processes when the first has no batches left
    kwargs                      handed to `join_hook` of each
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        if len({id(j.join_process_group) for j in joinables}) > 1:
            raise ValueError("Using join context manager with multiple process groups")
        self.joinables, self.enable, self.throws = list(joinables), enable, throw_on_early_termination
        self.group = joinables[0].join_process_group
        self.hooks = [j.join_hook(**kwargs) for j in joinables]

    def __enter__(self) -> None:
        for joinable in self.joinables:
            joinable._join = self if self.enable else None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self.enable and kind is None:
                self.go_on_without_batches()
        finally:
            for joinable in self.joinables:
                joinable._join = None

    def go_on_without_batches(self) -> None:
        batches, is_last = 0, True
        while self.say(has_batch=False):
            is_last = False
            batches += 1
            if batches == WARNS_AFTER:
                warn_user(
                    f"Detected uneven input skew of greater than {WARNS_AFTER}: other processes have more batches"
                )
            for hook in self.hooks:
                hook.main_hook()
        for hook in self.hooks:
            hook.post_hook(is_last)

    def say(self, has_batch: bool) -> int:
        """Tell the others whether there is a batch; how many processes have one."""
        said = Tensor(cpu.asarray([float(has_batch)]), cpu)
        all_reduce(said, group=self.group)
        count = round(float(said._array[0]))
        if self.throws and 0 < count < self.group.size():
            raise DistError(
                f"Detected at least one rank that exhausted inputs: {count} of {self.group.size()} processes have "
                "another batch. Throwing across all ranks."
            )
        return count

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Say, before a batch, that there is one. Only the first of several joinables does."""
        join = joinable._join
        if join is not None and join.joinables[0] is joinable:
            join.say(has_batch=True)
        return None

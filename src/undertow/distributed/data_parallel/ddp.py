"""DistributedDataParallel: gradients averaged over processes, in buckets, while the backward pass still runs.

The module itself; how gradients are gathered and sent is in reducer.py.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from typing import Any
from weakref import finalize

from undertow.distributed.algorithms.join import Join, Joinable, JoinHook
from undertow.distributed.collectives import broadcast
from undertow.distributed.data_parallel.buckets import CommHook
from undertow.distributed.data_parallel.logging_data import LoggingData
from undertow.distributed.data_parallel.reducer import Reducer, check_alike
from undertow.distributed.process_group import ProcessGroup, resolve, world
from undertow.distributed.work import Future
from undertow.graph.user_lines import warn_user
from undertow.modes import is_grad_enabled, no_grad
from undertow.nn.module import Module
from undertow.tensor import Tensor

#: what a process does in an iteration in which others may have no batch
NO_BATCH, WITHOUT_SYNC, WITH_SYNC = 0, 1, 2
#: what is made anew where a model is unpickled
NOT_PICKLED = ("process_group", "_reducer", "_logging")


class DistributedDataParallel(Module, Joinable):
    """A module whose gradients are, after each backward pass, the means over all processes.

    Each process runs it on its own part of the examples; parameters and buffers start as those of the first process.

    module                   what is trained
    process_group            the processes; all if None
    broadcast_buffers        let buffers (running statistics) be those of the first process before each forward pass
    bucket_cap_mb            how many megabytes of gradients are sent together
    find_unused_parameters   let a pass leave some parameters without gradient, in some processes or in all
    gradient_as_bucket_view  let gradients lie in the memory that is sent, which saves a copy of them
    static_graph             every pass does what the first does: what is unused in the first may be, and checkpoints
                             with use_reentrant=True may use a parameter several times
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        super().__init__()
        group = resolve(process_group, "DistributedDataParallel")
        if group is None:
            raise ValueError("DistributedDataParallel: this process does not belong to process_group")
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        self.module, self.process_group = module, group
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = True
        cap = 25.0 if bucket_cap_mb is None else float(bucket_cap_mb)
        self._caps = min(1.0, cap), cap
        check_alike(group, [name for name, _ in named], [p for _, p in named])
        if init_sync:
            self._synchronise([*[p for _, p in named], *module.buffers()])
        self._make_reducer()

    def _make_reducer(self) -> None:
        """What gathers the gradients, in the group of all processes where a model was unpickled."""
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        sparse = {id(m.weight) for m in self.module.modules() if getattr(m, "sparse", False) and hasattr(m, "weight")}
        self._reducer = Reducer(
            self.process_group,
            [name for name, _ in named],
            [p for _, p in named],
            self._caps,
            {n for n, (_, p) in enumerate(named) if id(p) in sparse},
            self.find_unused_parameters,
            self.gradient_as_bucket_view,
            self.static_graph,
        )
        self._logging = LoggingData(self)
        finalize(self, self._reducer.leave).atexit = False  # the module may go on without this one

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.process_group = world()
        self._make_reducer()

    def _synchronise(self, tensors: list[Tensor], source: int = 0) -> None:
        with no_grad():
            for tensor in tensors:
                if tensor.is_contiguous():
                    broadcast(tensor, group=self.process_group, group_src=source)
                else:
                    packed = tensor.detach().contiguous()
                    broadcast(packed, group=self.process_group, group_src=source)
                    tensor.copy_(packed)

    # ---- what a program calls

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        started, source = time.perf_counter_ns(), 0
        if self._join is not None:
            Join.notify_join_context(self)
            source = self._who_has_batches(WITH_SYNC if self.require_backward_grad_sync else WITHOUT_SYNC)[1]
        else:
            self._reducer.members = self._reducer.divisor = self.process_group.size()
        if self.require_backward_grad_sync and self.broadcast_buffers:
            self._synchronise(list(self.module.buffers()), source)
        if is_grad_enabled():
            self._reducer.expect_pass(self.require_backward_grad_sync)
        result = self.module(*inputs, **kwargs)
        self._logging.forward_took(started, time.perf_counter_ns())
        return result

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A block in which processes may have different numbers of batches.

        divide_by_initial_world_size  divide sums of gradients by the number of all processes, also when some have no
                                      batches left; False: by the number of those that have
        throw_on_early_termination    raise in all processes when the first has none left
        """
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of passes in here are added up in each process; the next pass outside sends the sums.

        It is the forward pass that counts: its backward pass exchanges gradients if that was outside.
        """
        before = self.require_backward_grad_sync
        try:
            self.require_backward_grad_sync = False
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: Any, hook: CommHook) -> None:
        """Let `hook(state, bucket)` send a GradBucket: it returns a Future of the averaged buffer.

        See undertow.distributed.algorithms.ddp_comm_hooks for some: half the bytes, or fewer.
        """
        if self._reducer.hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self._reducer.hook = functools.partial(hook, state)

    def _set_static_graph(self) -> None:
        """PyTorch's private way to say `static_graph=True` after the fact."""
        if self.static_graph:
            warn_user("You've set static_graph to be True, no need to set it again.")
            return
        if self._reducer.passes:
            raise self._logging.noted(
                RuntimeError("set_static_graph() should be called before training loop starts and outside of it")
            )
        self.static_graph = self._reducer.static_graph = True

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """What is known of the model and of its last passes, by PyTorch's names."""
        return self._logging.facts()

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        self._logging.sample_rate = int(sample_rate)

    # ---- batches that others have: see Join

    def join_hook(self, divide_by_initial_world_size: bool = True, **kwargs: Any) -> JoinHook:
        self._divides_by_all = divide_by_initial_world_size
        return PassWithoutBatch(self)

    @property
    def join_process_group(self) -> ProcessGroup:
        return self.process_group

    def _who_has_batches(self, mine: int) -> tuple[list[int], int]:
        """What every process does in this iteration, and the first that has a batch."""
        found = self.process_group.gathered(mine, "join")
        members = sum([state != NO_BATCH for state in found])
        self._reducer.members = members
        self._reducer.divisor = self.process_group.size() if self._divides_by_all else members
        return found, next((k for k, state in enumerate(found) if state != NO_BATCH), 0)

    def _shadow_pass(self) -> None:
        """Enter into the exchanges of a forward and a backward pass of the others, with nothing."""
        states, source = self._who_has_batches(NO_BATCH)
        if WITH_SYNC not in states:
            return
        if self.broadcast_buffers:
            self._synchronise(list(self.module.buffers()), source)
        self._reducer.shadow()


class PassWithoutBatch(JoinHook):
    """A process without batches takes part in the exchanges, and gets the model of one that had a batch to the end."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.model = model

    def main_hook(self) -> None:
        self.model._shadow_pass()

    def post_hook(self, is_last_joiner: bool) -> None:
        model = self.model
        lasts = model.process_group.gathered(is_last_joiner, "join")
        model._synchronise([*model.module.parameters(), *model.module.buffers()], lasts.index(True))


def done(value: Any) -> Future:
    """A result that is there already, for communication hooks that wait themselves."""
    return Future(None, value)

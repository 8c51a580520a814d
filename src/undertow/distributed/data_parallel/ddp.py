"""DistributedDataParallel: gradients averaged over processes, in buckets, while the backward pass still runs.

The module itself; how gradients are gathered and sent is in reducer.py.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
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
from undertow.nn.module.lazy_parameters import UninitializedParameter
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
    broadcast_buffers        the older name of forward_sync_buffers; False also leaves buffers as they are at the start
    forward_sync_buffers     let buffers (running statistics) be those of the first process before each forward pass
                             that follows one with a backward pass that exchanges gradients
    init_sync                start with the parameters and buffers of the first process, which are compared beforehand;
                             False: no exchange, and they must be alike already
    bucket_cap_mb            how many megabytes of gradients are sent together
    bucket_cap_mb_list       the same for each bucket; the last of them counts for all that follow
    find_unused_parameters   let a pass leave some parameters without gradient, in some processes or in all
    gradient_as_bucket_view  let gradients lie in the memory that is sent, which saves a copy of them
    static_graph             every pass does what the first does: what is unused in the first may be, and checkpoints
                             with use_reentrant=True may use a parameter several times

    device_ids, output_device must be None (or empty): the module is on the CPU. dim, check_reduction,
    skip_all_reduce_unused_params and batched_grad_copy change nothing here: programs that pass them get the same
    gradients. So do those with delay_all_reduce_named_params and param_to_hook_all_reduce, whose parameters are sent
    with the others. mixed_precision and device_mesh are errors: autocast and process_group do what they are for.

    >>> import undertow as ut
    >>> import undertow.distributed as dist
    >>> dist.init_process_group()
    >>> model = ut.nn.parallel.DistributedDataParallel(ut.nn.Linear(2, 1))
    >>> model(ut.ones(3, 2)).sum().backward()
    >>> model.module.weight.grad
    tensor([[3., 3.]])
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Tensor | None = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Sequence[float] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        if (delay_all_reduce_named_params is None) != (param_to_hook_all_reduce is None):
            raise ValueError(
                "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time."
            )
        if mixed_precision is not None:
            raise ValueError("DistributedDataParallel: mixed_precision is not there; use autocast in the forward pass")
        if device_mesh is not None:
            raise ValueError("DistributedDataParallel: device_mesh is not there; pass process_group")
        group = resolve(process_group, "DistributedDataParallel")
        if group is None:
            raise ValueError("DistributedDataParallel: this process does not belong to process_group")
        self.module, self.process_group = module, group
        trained = self._trained()
        check_module(module, [p for _, p in trained], device_ids, output_device)
        asked = True if broadcast_buffers is None else bool(broadcast_buffers)
        self.forward_sync_buffers = asked if forward_sync_buffers is None else bool(forward_sync_buffers)
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        cap = 25.0 if bucket_cap_mb is None else float(bucket_cap_mb)
        self._caps = tuple(map(float, bucket_cap_mb_list)) if bucket_cap_mb_list else (min(1.0, cap), cap)
        if init_sync:
            check_alike(group, [name for name, _ in trained], [p for _, p in trained])
            self._synchronise(self._state(buffers=asked or forward_sync_buffers is not None))
        self._make_reducer()

    @property
    def broadcast_buffers(self) -> bool:
        """The older name of forward_sync_buffers."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    @property
    def _ignored(self) -> set[str]:
        """The names of what is left alone, which `_set_params_and_buffers_to_ignore_for_model` has noted."""
        return set(getattr(self.module, "_ddp_params_and_buffers_to_ignore", ()))

    def _trained(self) -> list[tuple[str, Tensor]]:
        """The parameters whose gradients are averaged, with their names."""
        ignored = self._ignored
        return [(name, p) for name, p in self.module.named_parameters() if p.requires_grad and name not in ignored]

    def _buffers_to_send(self) -> list[Tensor]:
        ignored = self._ignored
        return [buffer for name, buffer in self.module.named_buffers() if name not in ignored]

    def _state(self, buffers: bool) -> list[Tensor]:
        """What all processes have alike: parameters, also those that are not trained, and buffers."""
        ignored = self._ignored
        parameters = [p for name, p in self.module.named_parameters() if name not in ignored]
        return [*parameters, *(self._buffers_to_send() if buffers else ())]

    def _make_reducer(self) -> None:
        """What gathers the gradients, in the group of all processes where a model was unpickled."""
        named = self._trained()
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
        exchanges = self.require_backward_grad_sync and is_grad_enabled()
        if self._join is not None:
            Join.notify_join_context(self)
            source = self._who_has_batches(WITH_SYNC if exchanges else WITHOUT_SYNC)[1]
        else:
            self._reducer.members = self._reducer.divisor = self.process_group.size()
        self._synchronise_buffers(source)
        if is_grad_enabled():
            self._reducer.expect_pass(exchanges)
        result = self.module(*inputs, **kwargs)
        self.require_forward_param_sync = exchanges
        self._logging.forward_took(started, time.perf_counter_ns())
        return result

    def _synchronise_buffers(self, source: int) -> None:
        """Before a forward pass, unless the one before exchanged nothing: evaluations may have different lengths."""
        if self.require_forward_param_sync and self.forward_sync_buffers:
            self._synchronise(self._buffers_to_send(), source)

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A block in which processes may have different numbers of batches.

        divide_by_initial_world_size  divide sums of gradients by the number of all processes, also when some have no
                                    batches left; False: by the number of those that have
        throw_on_early_termination  raise in all processes when the first has none left
        enable                      False: the block does nothing
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

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: Any) -> None:
        """PyTorch's private way to leave some parameters and buffers, by their names, to each process."""
        module._ddp_params_and_buffers_to_ignore = list(params_and_buffers_to_ignore)

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
        """What every process does in this iteration, and the last that has a batch."""
        found = self.process_group.gathered(mine, "join")
        members = [k for k, state in enumerate(found) if state != NO_BATCH]
        self._reducer.members = len(members)
        self._reducer.divisor = self.process_group.size() if self._divides_by_all else len(members)
        return found, members[-1]

    def _shadow_pass(self) -> None:
        """Enter into the exchanges of a forward and a backward pass of the others, with nothing."""
        states, source = self._who_has_batches(NO_BATCH)
        self._synchronise_buffers(source)
        self.require_forward_param_sync = WITH_SYNC in states
        if self.require_forward_param_sync:
            self._reducer.shadow()


def check_module(module: Module, trained: list[Tensor], device_ids: Any, output_device: Any) -> None:
    """Refuse what has nothing to train, has no memory yet, or is to be on several devices."""
    if any([isinstance(p, UninitializedParameter) for p in module.parameters()]):
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a dummy forward "
            "pass to correctly initialize the modules"
        )
    if not trained:
        raise RuntimeError(
            "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
        )
    if device_ids is not None and len(device_ids) > 1:
        raise ValueError("device_ids can only be None or contain a single element.")
    if device_ids or output_device:
        raise ValueError(
            "DistributedDataParallel: device_ids and output_device are for modules on a GPU, and exchanges are on the "
            f"CPU; got device_ids={device_ids}, output_device={output_device}. Leave them out."
        )


class PassWithoutBatch(JoinHook):
    """A process without batches takes part in the exchanges, and gets the model of one that had a batch to the end."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.model = model

    def main_hook(self) -> None:
        self.model._shadow_pass()

    def post_hook(self, is_last_joiner: bool) -> None:
        model = self.model
        lasts = [k for k, last in enumerate(model.process_group.gathered(is_last_joiner, "join")) if last]
        model._synchronise(model._state(buffers=model.forward_sync_buffers), lasts[-1])


def done(value: Any) -> Future:
    """A result that is there already, for communication hooks that wait themselves."""
    return Future(None, value)

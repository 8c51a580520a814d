"""DistributedDataParallel: gradients averaged over processes, in buckets, while the backward pass still runs.

A gradient is written into its bucket when it has been accumulated. A bucket is sent when its last gradient has come and
all buckets before it are under way, so that all processes send them in one order. What has not come when the pass ends
was not used: zeros are sent for it, and counts behind the last bucket tell every process who used what. So a parameter
that one process did not use can neither hang the others nor lead them apart.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from undertow.autograd.graph import queue_callback
from undertow.backend import cpu
from undertow.backend.sparse.protocol import AnySparse
from undertow.distributed.algorithms.join import Join, Joinable, JoinHook
from undertow.distributed.collectives import all_reduce, broadcast
from undertow.distributed.data_parallel.buckets import Bucket, CommHook, GradBucket, divided
from undertow.distributed.errors import DistError
from undertow.distributed.objects import everybodys
from undertow.distributed.process_group import ProcessGroup, resolve
from undertow.distributed.reduce_op import ReduceOp
from undertow.distributed.work import Future
from undertow.modes import no_grad
from undertow.nn.module import Module
from undertow.tensor import Tensor

#: what a process does in an iteration in which others may have no batch
NO_BATCH, WITHOUT_SYNC, WITH_SYNC = 0, 1, 2


class DistributedDataParallel(Module, Joinable):
    """A module whose gradients are, after each backward pass, the means over all processes.

    Each process runs it on its own part of the examples; parameters and buffers start as those of the first process.

    module                   what is trained
    process_group            the processes; all if None
    broadcast_buffers        let buffers (running statistics) be those of the first process before each forward pass
    bucket_cap_mb            how many megabytes of gradients are sent together
    find_unused_parameters   let a pass leave some parameters without gradient, in some processes or in all
    gradient_as_bucket_view  let gradients lie in the memory that is sent, which saves a copy of them
    static_graph             the same parameters are used in every pass: what is unused in the first may be
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
        self._names, self._tensors = [name for name, _ in named], [p for _, p in named]
        cap = 25.0 if bucket_cap_mb is None else float(bucket_cap_mb)
        self._caps = min(1.0, cap), cap
        self._lock = threading.RLock()  # hooks of branches that run at the same time come on several threads
        self._armed = self._rebuilt = False
        self._arrivals: list[int] = []
        self._hook: CommHook = None
        self._check_alike()
        if init_sync:
            self._synchronise([*self._tensors, *module.buffers()])
        self._build(list(range(len(named)))[::-1])  # the last layers have their gradients first
        for number, tensor in enumerate(self._tensors):
            tensor.register_post_accumulate_grad_hook(functools.partial(self._arrived, number))

    def _check_alike(self) -> None:
        described = [f"{n} {t._array.dtype}{list(t.shape)}" for n, t in zip(self._names, self._tensors, strict=True)]
        for rank, theirs in enumerate(everybodys("DistributedDataParallel", described, self.process_group)):
            if theirs != described:
                other = next((t for t in theirs if t not in described), "fewer")
                raise DistError(
                    f"DDP expects same model across all ranks: rank {self.process_group.rank()} has {len(described)} "
                    f"parameters, rank {rank} has {len(theirs)}; only there: {other}"
                )

    def _synchronise(self, tensors: list[Tensor], source: int = 0) -> None:
        with no_grad():
            for tensor in tensors:
                if tensor.is_contiguous():
                    broadcast(tensor, group=self.process_group, group_src=source)
                else:
                    packed = tensor.detach().contiguous()
                    broadcast(packed, group=self.process_group, group_src=source)
                    tensor.copy_(packed)

    def _build(self, order: list[int]) -> None:
        self._buckets = divided(order, self._tensors, *self._caps)
        places = {n: (bucket, k) for bucket in self._buckets for k, n in enumerate(bucket.parameters)}
        self._places = [places[n] for n in range(len(self._tensors))]

    # ---- what a program calls

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        source = 0
        if self._join is not None:
            Join.notify_join_context(self)
            source = self._who_has_batches(WITH_SYNC if self.require_backward_grad_sync else WITHOUT_SYNC)[1]
        if self.require_backward_grad_sync and self.broadcast_buffers:
            self._synchronise(list(self.module.buffers()), source)
        return self.module(*inputs, **kwargs)

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
        """Gradients of passes in here are added up in each process; the next pass outside sends the sums."""
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
        if self._hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self._hook = functools.partial(hook, state)

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
        self._members = sum([state != NO_BATCH for state in found])
        return found, next((k for k, state in enumerate(found) if state != NO_BATCH), 0)

    def _shadow_pass(self) -> None:
        """Enter into the exchanges of a forward and a backward pass of the others, with nothing."""
        states, source = self._who_has_batches(NO_BATCH)
        if WITH_SYNC not in states:
            return
        if self.broadcast_buffers:
            self._synchronise(list(self.module.buffers()), source)
        self._start_pass()
        for bucket in self._buckets:
            bucket.flat[...] = 0
            bucket.missing = 0
        self._send_ready()
        self._settle(self._receive(), write=False)

    # ---- a backward pass

    def _arm(self) -> None:
        self._start_pass()
        self._armed = True
        queue_callback(self._finish)

    def _start_pass(self) -> None:
        self._sent = 0
        self._seen = [False] * len(self._tensors)
        for bucket in self._buckets:
            bucket.start_pass()

    def _arrived(self, number: int, tensor: Tensor) -> None:
        """A parameter has its gradient."""
        if not self.require_backward_grad_sync:
            return
        with self._lock:
            if not self._armed:
                self._arm()
            if self._seen[number]:
                raise DistError(
                    f"the parameter {self._names[number]!r} was given its gradient twice in one backward pass: it was "
                    "marked ready twice. A checkpoint with use_reentrant=True runs a pass of its own for each use: "
                    "pass use_reentrant=False, or run several backward passes with no_sync()."
                )
            self._seen[number] = True
            if not self._rebuilt:
                self._arrivals.append(number)
            self._put_into_bucket(number, tensor)
            self._send_ready()

    def _put_into_bucket(self, number: int, tensor: Tensor) -> None:
        bucket, k = self._places[number]
        view, gradient = bucket.views[k], tensor.grad._array
        if isinstance(gradient, AnySparse):
            raise DistError(
                f"the gradient of {self._names[number]!r} is sparse, and DistributedDataParallel sends dense ones: "
                "make the embedding with sparse=False, or call undertow.distributed.all_reduce for it after the pass"
            )
        if not cpu.may_share_memory(gradient, view):
            cpu.copyto(view, gradient)
            if self.gradient_as_bucket_view:
                tensor.grad = Tensor(view, cpu)
        bucket.missing -= 1

    def _send_ready(self) -> None:
        while self._sent < len(self._buckets) and not self._buckets[self._sent].missing:
            self._send(self._buckets[self._sent])
            self._sent += 1

    def _send(self, bucket: Bucket) -> None:
        is_last = bucket is self._buckets[-1]
        if self._hook is not None:
            bucket.sent = self._hook(GradBucket(bucket, is_last))
            return
        if is_last:
            bucket.counts[...] = self._seen
        work = all_reduce(Tensor(bucket.flat, cpu), group=self.process_group, async_op=True)
        bucket.sent = work.get_future()  # type: ignore[union-attr]

    def _finish(self) -> None:
        """The pass has ended: send what is left, and give every parameter the mean."""
        with self._lock:
            self._armed = False
            self._fill_with_zeros()
            self._send_ready()
            self._settle(self._receive(), write=True)

    def _settle(self, counts: list[int], write: bool) -> None:
        members = self.process_group.size() if self._join is None else self._members
        if any([n < members for n in counts]):
            self._check_unused(counts)
        if write:
            self._write_back(counts)
        self._rebuild(all([n == self.process_group.size() for n in counts]))

    def _fill_with_zeros(self) -> None:
        """What got no gradient counts as zero."""
        for number, seen in enumerate(self._seen):
            if not seen:
                bucket, k = self._places[number]
                bucket.views[k][...] = 0
                bucket.missing -= 1

    def _receive(self) -> list[int]:
        """Wait for all buckets; in how many processes each parameter was used."""
        size, last = self.process_group.size(), self._buckets[-1]
        if self._join is not None and not self._divides_by_all:
            size = self._members
        for bucket in self._buckets:
            found = bucket.sent.wait()  # type: ignore[union-attr]
            if self._hook is None:
                bucket.gradients /= bucket.gradients.dtype.type(size)
                continue
            found = found[0] if isinstance(found, list | tuple) else found
            if found is not None and found._array is not bucket.gradients:
                bucket.gradients[...] = found._array.reshape(-1)
        if self._hook is None:
            return [round(float(n)) for n in last.counts]
        used = Tensor(cpu.asarray(self._seen, dtype=cpu.float32), cpu)
        all_reduce(used, ReduceOp.SUM, self.process_group)
        return [round(float(n)) for n in used._array]

    def _check_unused(self, counts: list[int]) -> None:
        if self.find_unused_parameters or self.static_graph:
            return
        mine = [name for name, seen in zip(self._names, self._seen, strict=True) if not seen]
        everywhere = everybodys("unused parameters", mine, self.process_group)
        lines = "\n".join([f"  rank {r}: {', '.join(names) or 'none'}" for r, names in enumerate(everywhere)])
        raise DistError(
            "Expected to have finished reduction: the backward pass left some parameters without gradient. Pass "
            "find_unused_parameters=True to DistributedDataParallel, or let the loss depend on all parameters. Without "
            f"gradient were:\n{lines}"
        )

    def _write_back(self, counts: list[int]) -> None:
        for number, tensor in enumerate(self._tensors):
            bucket, k = self._places[number]
            if not counts[number]:
                continue  # used nowhere: its gradient stays what it was
            if tensor.grad is None:
                tensor.grad = Tensor(bucket.views[k] if self.gradient_as_bucket_view else bucket.views[k].copy(), cpu)
            elif not cpu.may_share_memory(tensor.grad._array, bucket.views[k]):
                cpu.copyto(tensor.grad._array, bucket.views[k])

    def _rebuild(self, all_came: bool) -> None:
        """After the first pass: buckets in the order in which gradients came, in the first process.

        all_came  everywhere: all processes must agree on whether they exchange the order
        """
        is_first, self._rebuilt = not self._rebuilt, True
        if is_first and all_came and len(self._buckets) > 1:
            order = everybodys("the order of gradients", self._arrivals, self.process_group)[0]
            if order != [n for bucket in self._buckets for n in bucket.parameters]:
                self._build(order)
                if self.gradient_as_bucket_view:
                    self._move_gradients()

    def _move_gradients(self) -> None:
        for number, tensor in enumerate(self._tensors):
            bucket, k = self._places[number]
            cpu.copyto(bucket.views[k], tensor.grad._array)
            tensor.grad = Tensor(bucket.views[k], cpu)


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

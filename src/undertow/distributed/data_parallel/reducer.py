"""Reducer: brings the gradients of a backward pass together, bucket by bucket, while it still runs.

A bucket is sent when its last gradient has been accumulated and all buckets before it are under way, so that all
processes send them in one order. What has not come when the pass ends was not used: what earlier passes have left is
sent for it, or zeros, and counts behind the last gradients tell every process who used what. So a parameter that
one process did not use can neither hang the others nor lead them apart.

Hooks of branches that run at the same time come on several threads: `lock` guards all fields but the options.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from undertow.autograd.graph import queue_callback
from undertow.backend import cpu
from undertow.distributed.collectives import all_reduce
from undertow.distributed.data_parallel.arrivals import Arrival, Arrivals
from undertow.distributed.data_parallel.buckets import AnyBucket, CommHook, GradBucket, SparseBucket, divided
from undertow.distributed.errors import DistError
from undertow.distributed.objects import everybodys
from undertow.distributed.process_group import ProcessGroup
from undertow.engine.tasks import current_task
from undertow.graph.hooks import add_last_hook, remove_last_hook
from undertow.tensor import Tensor


class Reducer:
    """The gradients of some parameters, averaged over a group.

    names, tensors  the parameters
    caps            how large the buckets are, in megabytes; the last for all that follow
    sparse          the numbers of the parameters whose gradients are sparse
    find_unused     whether a pass may leave parameters without gradient
    as_view         whether gradients lie in the memory that is sent
    static_graph    every pass does what the first does: parameters may be used by several passes inside one, and what
                    the first leaves without gradient is unused
    """

    def __init__(
        self,
        group: ProcessGroup,
        names: list[str],
        tensors: list[Tensor],
        caps: tuple[float, ...],
        sparse: set[int],
        find_unused: bool,
        as_view: bool,
        static_graph: bool,
    ) -> None:
        self.group, self.names, self.tensors, self.caps, self.sparse = group, names, tensors, caps, sparse
        self.find_unused, self.as_view, self.static_graph = find_unused, as_view, static_graph
        self.lock = threading.RLock()
        self.wanted = True  # whether gradients that come now are to be averaged
        self.divisor = self.members = group.size()  # of sums; and how many processes take part, which a Join changes
        self.armed = self.is_rebuilt = False
        self.has_batch = True
        self.arrivals = Arrivals(len(tensors), as_view, self.arrived, self.send_ready, self.lock)
        self.used = cpu.zeros(
            len(tensors), dtype=bool
        )  # since the last exchange: also by passes that exchanged nothing
        self.order: list[int] = []  # in which gradients came in the first pass
        self.uses = cpu.zeros(len(tensors), dtype=cpu.int64)  # how often each came in the first pass of a static graph
        self.knows_uses = False
        self.hook: CommHook = None
        self.passes = 0
        self.times: dict[str, float] = {}  # of the pass: see logging_data.py
        self.build(list(range(len(tensors)))[::-1])  # the last layers have their gradients first
        self.hooks = [Arrival(self.arrivals, number) for number in range(len(tensors))]
        for tensor, hook in zip(tensors, self.hooks, strict=True):
            add_last_hook(tensor, hook)

    def leave(self) -> None:
        """Let the parameters' gradients be their own again."""
        for tensor, hook in zip(self.tensors, self.hooks, strict=True):
            remove_last_hook(tensor, hook)

    def build(self, order: list[int]) -> None:
        self.buckets = divided(order, self.tensors, self.caps, self.sparse)
        last = self.buckets[-1]
        self.counted = None if isinstance(last, SparseBucket) else last  # with whose gradients counts of use are sent
        self.arrivals.lay_out([(bucket.parameters, bucket.views) for bucket in self.buckets])
        self.start_pass()

    # ---- gradients come

    def expect_pass(self, wanted: bool) -> None:
        """A forward pass begins. A backward pass that an error has ended is forgotten: nothing else tells its end."""
        self.wanted = wanted
        if current_task() is None:  # a checkpoint may run the model again inside the pass
            self.armed = False
        self.open()

    def arm(self) -> None:
        """A pass has begun; the outermost one, if a checkpoint runs others inside it, tells when all have come."""
        self.start_pass()
        self.armed = True
        self.times = {"backward_compute_time_start": time.perf_counter_ns()}
        queue_callback(self.finish, outermost=True)

    def start_pass(self) -> None:
        self.sent = 0
        self.arrivals.start_pass()
        for bucket in self.buckets:
            bucket.start_pass()

    @property
    def is_learning(self) -> bool:
        """Whether this pass tells how often each gradient comes."""
        return self.static_graph and not self.knows_uses

    def open(self) -> None:
        """Most gradients come inside a pass that does what it must: they are taken, and nothing else is done."""
        self.arrivals.is_open = self.armed and self.is_rebuilt and self.wanted and not self.is_learning

    def arrived(self, number: int, tensor: Tensor) -> None:
        """A parameter has its gradient, and that is not all."""
        self.used[number] = True
        if not self.wanted:
            return
        with self.lock:
            if not self.armed:
                self.arm()
            if self.is_learning:
                self.uses[number] += 1
                return  # there may be more to come: the end of the pass sends it
            if not self.static_graph and not self.arrivals.left[number]:
                self.refuse_second(number)
            if self.arrivals.is_due(number):
                if not self.is_rebuilt:
                    self.order.append(number)
                self.take(number)
                self.arrivals.note(number)
            self.open()  # not before this one is noted: others may come on other threads

    def take(self, number: int) -> None:
        bucket = self.buckets[self.arrivals.buckets[number]]
        bucket.take(self.names[number], self.tensors[number], self.arrivals.views[number], self.as_view)

    def refuse_second(self, number: int) -> None:
        raise DistError(
            f"the parameter {self.names[number]!r} was given its gradient twice in one backward pass: it was marked "
            "ready twice. A checkpoint with use_reentrant=True runs a pass of its own for each use: pass "
            "use_reentrant=False, or static_graph=True to DistributedDataParallel."
        )

    # ---- and are sent

    def send_ready(self) -> None:
        with self.lock:
            self.send_complete()

    def send_complete(self) -> None:
        """A function of its own, for Python 3.12: see tests/test_loops_in_blocks.py."""
        while self.sent < len(self.buckets) and not self.arrivals.missing[self.sent]:
            self.send_next()

    def send_rest(self) -> None:
        """The pass has ended: what has not come was not used."""
        while self.sent < len(self.buckets):
            self.send_next()

    def send_next(self) -> None:
        bucket = self.buckets[self.sent]
        self.times.setdefault("backward_comm_time_start", time.perf_counter_ns())
        if not self.has_batch:
            bucket.take_nothing()
        elif self.arrivals.missing[self.sent]:
            for number in bucket.parameters:
                if self.arrivals.left[number]:
                    self.take(number)
        self.send(bucket)
        self.sent += 1

    def send(self, bucket: AnyBucket) -> None:
        if self.hook is not None:
            bucket.sent = self.hook(GradBucket(bucket, bucket is self.buckets[-1]))
            return
        if bucket is self.counted:
            bucket.counts[...] = self.whose()
        bucket.sent = bucket.start_exchange(self.group)

    def whose(self) -> Any:
        """Which parameters were used since the last exchange, as an array."""
        return self.used | (self.arrivals.left != self.arrivals.awaited)

    def finish(self) -> None:
        """The pass has ended: send what is left, and give every parameter the mean."""
        with self.lock:
            self.armed = self.arrivals.is_open = False
            self.times["backward_compute_time_end"] = time.perf_counter_ns()
            if self.is_learning:
                self.knows_uses = True
                self.arrivals.expect(self.uses)
                self.order = [n for n in range(len(self.tensors))[::-1] if self.uses[n]]
            self.send_rest()
            self.settle(self.receive(), write=True)
            self.used[...] = False
            self.times["backward_comm_time_end"] = time.perf_counter_ns()
            self.passes += 1

    def shadow(self) -> None:
        """Enter into the exchanges of a pass of the others, with nothing."""
        with self.lock:
            self.start_pass()
            self.has_batch, self.used[...] = False, False
            self.send_rest()
            self.settle(self.receive(), write=False)
            self.has_batch = True

    def receive(self) -> Any:
        """Wait for all buckets, and divide the sums; in how many processes each parameter was used, as an array."""
        for bucket in self.buckets:
            found = bucket.sent.wait()
            if self.hook is None:
                bucket.receive(None, self.divisor)
            else:
                bucket.receive(found, None)
        if self.hook is None and self.counted is not None:
            return self.counted.counts
        used = Tensor(self.whose().astype(cpu.float32), cpu)
        all_reduce(used, group=self.group)
        return used._array

    def settle(self, counts: Any, write: bool) -> None:
        """Hand the means out.

        counts  in how many processes each parameter was used
        """
        all_came = cpu.count_nonzero(counts == counts.dtype.type(self.members)) == len(counts)
        if not all_came and not (self.find_unused or self.static_graph):
            self.refuse_unused()
        if write:
            unused = None if all_came else {n for n, count in enumerate(counts) if not count}
            for bucket in self.buckets:
                bucket.write_back(unused, self.as_view)
        self.rebuild(all_came and self.members == self.group.size())

    def refuse_unused(self) -> None:
        mine = [name for name, used in zip(self.names, self.whose(), strict=True) if not used]
        everywhere = everybodys("unused parameters", mine, self.group)
        lines = "\n".join([f"  rank {r}: {', '.join(names) or 'none'}" for r, names in enumerate(everywhere)])
        raise DistError(
            "Expected to have finished reduction: the backward pass left some parameters without gradient. Pass "
            "find_unused_parameters=True to DistributedDataParallel, or let the loss depend on all parameters. Without "
            f"gradient were:\n{lines}"
        )

    def rebuild(self, all_came: bool) -> None:
        """After the first pass: buckets in the order in which gradients came, in the first process.

        all_came  everywhere: all processes must agree on whether they exchange the order
        """
        is_first, self.is_rebuilt = not self.is_rebuilt, True
        if is_first and all_came and len(self.buckets) > 1:
            order = everybodys("the order of gradients", self.order, self.group)[0]
            if order != [n for bucket in self.buckets for n in bucket.parameters]:
                self.build(order)
                if self.as_view:
                    for bucket in self.buckets:
                        bucket.move_gradients()


def check_alike(group: ProcessGroup, names: Sequence[str], tensors: Sequence[Tensor]) -> None:
    """Refuse models that differ from process to process."""
    described = [f"{n} {t._array.dtype}{list(t.shape)}" for n, t in zip(names, tensors, strict=True)]
    for rank, theirs in enumerate(everybodys("DistributedDataParallel", described, group)):
        if theirs != described:
            other = next((t for t in theirs if t not in described), "fewer")
            raise DistError(
                f"DDP expects same model across all ranks: rank {group.rank()} has {len(described)} parameters, rank "
                f"{rank} has {len(theirs)}; only there: {other}"
            )

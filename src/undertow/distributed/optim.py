"""Optimizers whose parameters lie in several processes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from undertow.distributed.autograd.context import get_gradients
from undertow.distributed.data_parallel.zero_redundancy import ZeroRedundancyOptimizer as ZeroRedundancyOptimizer
from undertow.distributed.rpc import RRef, remote, wait_all
from undertow.scopes import held


class LocalOptimizer:
    """The optimizer of the parameters that one process has."""

    lock = threading.Lock()  # held while a step of any of them writes parameters: contexts may step at the same time

    def __init__(self, optim_cls: Any, params_rref: Sequence[RRef], args: tuple[Any, ...], kwargs: Any) -> None:
        self.parameters = [rref.local_value() for rref in params_rref]
        self.optimizer = optim_cls(self.parameters, *args, **kwargs)

    def check(self) -> None:
        """Called to raise what its constructor has raised."""

    def step(self, context_id: int) -> None:
        """One step with the gradients of a context; `.grad` is what it was, afterwards."""
        found = get_gradients(context_id)
        with held(self.lock):
            before = [p.grad for p in self.parameters]
            try:
                for p in self.parameters:
                    p.grad = found.get(p)
                self.optimizer.step()
            finally:
                for p, grad in zip(self.parameters, before, strict=True):
                    p.grad = grad


class DistributedOptimizer:
    """Steps of an optimizer, in all the processes that have parameters.

    optimizer_class  of undertow.optim; travels by its name
    params_rref      RRefs of the parameters
    args, kwargs     for the optimizer of each process

    In each process its own parameters are changed, with the gradients that a `distributed.autograd` context has there.
    """

    def __init__(self, optimizer_class: Any, params_rref: Sequence[RRef], *args: Any, **kwargs: Any) -> None:
        by_owner: dict[Any, list[RRef]] = {}
        for rref in params_rref:
            by_owner.setdefault(rref.owner(), []).append(rref)
        if not by_owner:
            raise ValueError("DistributedOptimizer: there are no parameters")
        self.remote_optimizers = [
            remote(owner, LocalOptimizer, args=(optimizer_class, rrefs, args, kwargs))
            for owner, rrefs in by_owner.items()
        ]
        wait_all([rref.rpc_async().check() for rref in self.remote_optimizers])

    def step(self, context_id: int) -> None:
        """Let every process make a step with the gradients of the context; all have when this returns."""
        wait_all([rref.rpc_async().step(context_id) for rref in self.remote_optimizers])

"""Programs whose shapes change all the time: what they keep on the GPU, and of the queue, does not grow."""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend.cuda import cudnn
from undertow.nn import functional as F

WARM, TURNS = 150, 450


def programs(rng: np.random.Generator) -> Any:
    weight, table = ut.randn(32, 32, device="cuda", requires_grad=True), ut.nn.Embedding(50, 32, sparse=True).to("cuda")
    steps, side = ut.optim.Adam([weight]), ut.cuda.Stream()

    def on_another_stream(x: Any) -> Any:
        side.wait_stream(ut.cuda.current_stream())
        with ut.cuda.stream(side):
            total = (x * 2).sum()
            x.record_stream(side)
        ut.cuda.current_stream().wait_stream(side)
        return (x @ weight).sum() * total

    cases = [
        lambda x: F.softmax(x @ weight, -1).square().mean(),
        lambda x: (x[: len(x) // 2 + 1] @ weight).sort(0)[0].sum(),
        lambda x: ut.cat([x @ weight, x], 0).relu().sum(),
        on_another_stream,
        lambda x: table(ut.tensor(rng.integers(0, 50, len(x)), device="cuda")).sum() + (x @ weight).sum(),
        lambda x: ut.linalg.inv(ut.eye(len(x) % 40 + 1, device="cuda") * 2).sum() + (x @ weight).sum(),
        lambda x: (x @ weight)[x[:, 0] > 0].sum(),
    ]

    def turn() -> None:
        x = ut.randn(int(rng.integers(1, 300)), 32, device="cuda")
        cases[rng.integers(len(cases))](x).backward()
        steps.step()
        steps.zero_grad()
        table.zero_grad()

    return turn


def test_changing_shapes_leave_nothing_behind() -> None:
    turn = programs(np.random.default_rng(0))
    seen = []
    for k in range(TURNS):
        turn()
        if k >= WARM and k % 50 == 0:
            gc.collect()
            ut.cuda.synchronize()
            seen.append((ut.cuda.memory_allocated(), ut.cuda.memory_reserved()))
    assert max(seen) == min(seen)
    assert ut.cuda.launch_stats()["remembered"] <= 1024


class Library:
    """What cudnn.py asks of cuDNN; it knows which descriptors there are."""

    def __init__(self) -> None:
        self.alive: dict[int, str] = {}
        self.numbers = itertools.count(1)

    def __getattr__(self, name: str) -> Callable[..., int]:
        def create(place: Any) -> int:
            place._obj.value = next(self.numbers)
            self.alive[place._obj.value] = name.removeprefix("cudnnCreate")
            return 0

        def destroy(descriptor: ctypes.c_void_p) -> int:
            assert self.alive.pop(descriptor.value or 0) == name.removeprefix("cudnnDestroy")
            return 0

        def advise(*given: Any) -> int:
            given[-2]._obj.value = 1
            return 0

        if name.startswith("cudnnGetConvolution"):
            return advise
        return create if "Create" in name else destroy if "Destroy" in name else lambda *given: 0


def test_plans_of_convolutions_are_dropped_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(cudnn, "library", lambda: (library, 1))
    monkeypatch.setattr(cudnn, "MOST_PLANS", 10)
    monkeypatch.setattr(cudnn, "_plans", {})
    for size in range(30):
        for which in (cudnn.FORWARD, cudnn.DATA, cudnn.FILTER):
            shapes = (1, 1, size + 3, 4), (1, 1, 3, 3), (1, 1, size + 1, 2)
            problem = cudnn.Problem(*shapes, (1, 1), (0, 0), (1, 1), 1, 0, 0, False, False)
            found = cudnn.plan(problem, which)
            assert found is cudnn.plan(problem, which) and found is not None
            assert set(found.descriptors) <= set(library.alive)
            assert [f"{kind}Descriptor" for kind in found.kinds] == [library.alive[d] for d in found.descriptors]
    assert len(library.alive) <= 40

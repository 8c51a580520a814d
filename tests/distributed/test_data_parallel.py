"""Training in several processes, and exchanges that gradients go through."""

from __future__ import annotations

import functools
import gc
import weakref
from pathlib import Path
from threading import RLock

import numpy as np
import pytest

import undertow as ut
from tests.distributed.conftest import Run
from undertow.distributed.data_parallel.arrivals import Arrivals, arrived, give, take


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_gradients_are_those_of_one_process(run: Run, ranks: int) -> None:
    done = run("ddp.py", ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(ranks)])


@pytest.mark.parametrize("program", ["uneven.py", "pipeline.py"])
def test_uneven_batches_divided_optimizers_and_pipelines(run: Run, program: str) -> None:
    done = run(program, ranks=3)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(3)])


def test_parameters_in_pieces_and_their_checkpoints(run: Run, tmp_path: Path) -> None:
    done = run("sharded.py", str(tmp_path / "checkpoint"), ranks=3)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(3)])


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_gradients_through_exchanges(run: Run, ranks: int) -> None:
    done = run("functional.py", ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(ranks)])


# ---- without processes


@pytest.mark.torch
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("count", "replicas"), [(10, 2), (11, 3), (2, 5), (7, 7)])
def test_the_sampler_is_pytorchs(torch, count: int, replicas: int, drop_last: bool) -> None:
    from torch.utils.data import DistributedSampler as Theirs

    for shuffle in (False, True):
        for rank in range(replicas):
            options = {"num_replicas": replicas, "rank": rank, "shuffle": shuffle, "seed": 3, "drop_last": drop_last}
            mine, theirs = ut.data.DistributedSampler(range(count), **options), Theirs(range(count), **options)
            for epoch in (0, 4):
                mine.set_epoch(epoch)
                theirs.set_epoch(epoch)
                assert list(mine) == list(theirs) and len(mine) == len(theirs)


def test_a_sampler_of_no_process() -> None:
    with pytest.raises(ValueError, match=r"Invalid rank 2, rank should be in the interval \[0, 1\]"):
        ut.data.DistributedSampler(range(4), num_replicas=2, rank=2)
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        ut.data.DistributedSampler(range(4))


def arrivals_of(count: int) -> tuple[Arrivals, list[object], list[ut.Tensor]]:
    """Parameters in buckets of two, what was called for them, and the parameters, with hooks."""
    called: list[object] = []
    made = Arrivals(count, lambda number, tensor: called.append(number), lambda: called.append("complete"), RLock())
    made.lay_out([[n, n + 1] for n in range(0, count, 2)])
    tensors = [ut.ones(2, 3, requires_grad=True) for _ in range(count)]
    for number, tensor in enumerate(tensors):
        tensor.register_post_accumulate_grad_hook(functools.partial(arrived, made, number))
    return made, called, tensors


def test_gradients_are_noted_as_they_come() -> None:
    made, called, tensors = arrivals_of(4)
    tensors[0].sum().backward()
    assert called == [0] and not made.came.any()  # it was not open yet
    made.is_open = True
    tensors[3].sum().backward()
    assert called == [0] and list(made.came) == [0, 0, 0, 1] and list(made.missing) == [2, 1]
    assert made.arrays[1] == [None, tensors[3].grad._array]
    tensors[2].sum().backward()
    assert called == [0, "complete"] and list(made.missing) == [2, 0]
    tensors[2].sum().backward()
    assert called == [0, "complete", 2] and list(made.missing) == [2, 0]
    made.start_pass()
    assert not made.came.any() and list(made.missing) == [2, 2] and made.arrays == [[None, None], [None, None]]


def test_a_model_that_is_dropped_is_gone() -> None:
    """Its parameters know what notes their gradients, and that knows them."""
    made, _, tensors = arrivals_of(2)
    made.unusual = tensors.append  # a circle, as with a Reducer
    ended = weakref.ref(tensors[0])
    del made, tensors
    gc.collect()
    assert ended() is None


@pytest.mark.parametrize("as_view", [False, True])
def test_gradients_of_a_bucket_are_moved(as_view: bool) -> None:
    rows = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    gradients = [rows + 1, np.asfortranarray(rows + 2), None, rows.astype(np.float64), rows + 5]
    tensors = [ut.ones(2, 3, requires_grad=True) for _ in gradients]
    flat = np.zeros((5, 2, 3), np.float32)
    views = list(flat)
    gradients[4] = views[4]
    views[4][...] = 7
    for tensor, gradient in zip(tensors, gradients, strict=True):
        if gradient is not None and gradient.dtype == np.float32:
            tensor.grad = ut.from_numpy(gradient)
    left = take(tensors, views, gradients, as_view)
    assert {2, 3} <= set(left) and 0 not in left and 4 not in left  # whether orders of memory may differ is its choice
    assert (flat[0] == rows + 1).all() and (flat[4] == 7).all() and not flat[2:4].any()
    assert (tensors[0].grad._array is views[0]) == as_view
    flat[...] = 9
    left = give(tensors, views)
    assert {2, 3} <= set(left) and 0 not in left and 4 not in left
    assert (tensors[0].grad == 9).all() and (tensors[4].grad == 9).all() and tensors[2].grad is None


def test_nothing_is_joined_unasked() -> None:
    assert not ut.distributed.is_initialized()
    for call in (ut.distributed.get_rank, ut.distributed.barrier, lambda: ut.distributed.all_reduce(ut.ones(2))):
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            call()
    with pytest.raises(ValueError, match="the backend is 'mpi', not 'nccl'"):
        ut.distributed.init_process_group("nccl")

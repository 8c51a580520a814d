"""Training in several processes, and exchanges that gradients go through."""

from __future__ import annotations

from pathlib import Path

import pytest

import undertow as ut
from tests.distributed.conftest import Run


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


def test_nothing_is_joined_unasked() -> None:
    assert not ut.distributed.is_initialized()
    for call in (ut.distributed.get_rank, ut.distributed.barrier, lambda: ut.distributed.all_reduce(ut.ones(2))):
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            call()
    with pytest.raises(ValueError, match="the backend is 'mpi', not 'nccl'"):
        ut.distributed.init_process_group("nccl")

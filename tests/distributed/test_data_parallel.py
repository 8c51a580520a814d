"""Training in several processes, and exchanges that gradients go through."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from threading import RLock

import numpy as np
import pytest

import undertow as ut
from tests.distributed.conftest import Run
from undertow.distributed import checkpoint
from undertow.distributed.data_parallel.arrivals import Arrival, Arrivals, give
from undertow.graph.hooks import add_last_hook


@pytest.mark.parametrize("ranks", [1, 2, *[pytest.param(ranks, marks=pytest.mark.slow) for ranks in (4, 8, 16)]])
def test_gradients_are_those_of_one_process(run: Run, ranks: int) -> None:
    done = run("ddp.py", ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(ranks)])


@pytest.mark.parametrize("program", ["uneven.py", "buffers.py", "pipeline.py"])
def test_uneven_batches_buffers_divided_optimizers_and_pipelines(run: Run, program: str) -> None:
    done = run(program, ranks=3)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(3)])


def test_parameters_in_pieces_and_their_checkpoints(run: Run, tmp_path: Path) -> None:
    done = run("sharded.py", str(tmp_path / "checkpoint"), ranks=3)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(3)])


def test_a_checkpoint_without_a_piece_of_what_is_asked_for_is_refused(tmp_path: Path) -> None:
    checkpoint.save({"a": ut.ones(4), "b": ut.ones(2)}, tmp_path)
    path = tmp_path / "metadata.json"
    path.write_text(path.read_text().replace("[[0, 0, 4]]", "[[0, 0, 1], [0, 2, 4]]"))
    checkpoint.load({"b": ut.zeros(2)}, tmp_path)
    with pytest.raises(checkpoint.CheckpointException, match=r"a is not there as a whole in .*: element 1 is missing"):
        checkpoint.load({"a": ut.zeros(4)}, tmp_path)


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


def arrivals_of(count: int, as_view: bool = False) -> tuple[Arrivals, list[object], list[ut.Tensor]]:
    """Parameters in buckets of two, what was called for them, and the parameters, with hooks."""
    called: list[object] = []
    made = Arrivals(
        count, as_view, lambda number, tensor: called.append(number), lambda: called.append("complete"), RLock()
    )
    made.lay_out([([n, n + 1], list(np.zeros((2, 2, 3), np.float32))) for n in range(0, count, 2)])
    tensors = [ut.ones(2, 3, requires_grad=True) for _ in range(count)]
    for number, tensor in enumerate(tensors):
        add_last_hook(tensor, Arrival(made, number))
    return made, called, tensors


def test_gradients_are_taken_as_they_come() -> None:
    made, called, tensors = arrivals_of(4)
    tensors[0].sum().backward()
    assert called == [0] and list(made.left) == [1, 1, 1, 1]  # it was not open yet
    made.is_open = True
    tensors[3].sum().backward()
    assert called == [0] and list(made.left) == [1, 1, 1, 0] and list(made.missing) == [2, 1]
    assert (made.views[3] == 1).all() and not made.views[2].any()
    tensors[2].sum().backward()
    assert called == [0, "complete"] and list(made.missing) == [2, 0]
    tensors[2].sum().backward()
    assert called == [0, "complete", 2] and list(made.missing) == [2, 0]
    made.start_pass()
    assert list(made.left) == [1, 1, 1, 1] and list(made.missing) == [2, 2]


def test_gradients_that_come_several_times_are_taken_the_last_time() -> None:
    made, called, tensors = arrivals_of(2)
    made.expect(np.array([3, 0]))
    made.is_open = True
    for left in (2, 1, 0):
        assert not made.views[0].any()
        (2 * tensors[0]).sum().backward()
        assert list(made.left) == [left, -1] and called == []
    assert (made.views[0] == 6).all() and list(made.missing) == [1]
    tensors[1].sum().backward()
    assert called == [1] and list(made.missing) == [1]


@pytest.mark.parametrize("as_view", [False, True])
def test_a_hook_that_is_registered_later_still_changes_what_is_sent(as_view: bool) -> None:
    def ten_times(tensor: ut.Tensor) -> None:
        tensor.grad *= 10

    made, called, tensors = arrivals_of(2, as_view)
    made.is_open = True
    for tensor in tensors:
        tensor.register_post_accumulate_grad_hook(ten_times)
        tensor.sum().backward()
    assert called == ["complete"] and all([(view == 10).all() for view in made.views])


@pytest.mark.parametrize("as_view", [False, True])
def test_gradients_lie_in_what_is_sent_if_they_are_to(as_view: bool) -> None:
    made, called, tensors = arrivals_of(2, as_view)
    for expected in (1, 2):
        made.start_pass()
        made.is_open = True
        tensors[0].sum().backward()
        assert (tensors[0].grad._array is made.views[0]) == as_view and (tensors[0].grad == expected).all()
        assert (made.views[0] == expected).all()
    tensors[0].grad = seen = ut.full((2, 3), 4.0)
    made.start_pass()
    tensors[0].sum().backward()
    assert (made.views[0] == 5).all() and (seen == 5).all() and seen._array is not made.views[0] and called == []


@pytest.mark.parametrize("as_view", [False, True])
def test_what_does_not_fit_is_left_to_python(as_view: bool) -> None:
    made, called, tensors = arrivals_of(4, as_view)
    made.is_open, made.views[0], made.views[2] = True, np.zeros((2, 3)), None
    tensors[0].sum().backward()
    tensors[2].sum().backward()
    assert called == [0, 2] and list(made.left) == [1, 1, 1, 1] and not made.views[0].any()


def test_a_model_that_is_dropped_is_gone() -> None:
    """Its parameters know what takes their gradients, and that knows them."""
    made, _, tensors = arrivals_of(2)
    made.unusual = tensors.append  # a circle, as with a Reducer
    ended = weakref.ref(tensors[0])
    del made, tensors
    gc.collect()
    assert ended() is None


def test_means_are_given_back() -> None:
    tensors = [ut.ones(2, 3, requires_grad=True) for _ in range(4)]
    views = list(np.full((4, 2, 3), 9, np.float32))
    views[2] = np.full((2, 3), 9.0)
    tensors[0].grad, tensors[2].grad, tensors[3].grad = ut.ones(2, 3), ut.ones(2, 3), ut.from_numpy(views[3])
    assert give(tensors, views) == [1, 2]
    assert (tensors[0].grad == 9).all() and (tensors[3].grad == 9).all() and tensors[1].grad is None


def test_nothing_is_joined_unasked() -> None:
    assert not ut.distributed.is_initialized()
    for call in (ut.distributed.get_rank, ut.distributed.barrier, lambda: ut.distributed.all_reduce(ut.ones(2))):
        with pytest.raises(ValueError, match="Default process group has not been initialized"):
            call()
    with pytest.raises(ValueError, match="the backend is 'mpi', not 'nccl'"):
        ut.distributed.init_process_group("nccl")

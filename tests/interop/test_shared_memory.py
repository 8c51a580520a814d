"""Memory that processes share: what moves along, what arrives, and what is left when processes are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.interop.shared_memory import blocks, moving

pytestmark = pytest.mark.skipif(not blocks.POSSIBLE, reason="needs file descriptors")


def sent(value: Any) -> Any:
    """A value as it arrives in another process; here it arrives in this one."""
    from undertow.multiprocessing.reductions import ForkingPickler

    return ForkingPickler.loads(ForkingPickler.dumps(value))


def test_what_shows_the_same_memory_moves_along() -> None:
    whole = ut.arange(6.0).reshape(2, 3)
    row, column, detached, data = whole[0], whole[:, 1], whole.detach(), whole.data
    backwards = whole.numpy()[::-1]
    assert not whole.is_shared()
    assert row.share_memory_() is row
    for alias in (whole, row, column, detached, data):
        assert alias.is_shared()
    column[0] = 10
    assert whole.tolist() == [[0, 10, 2], [3, 4, 5]] and row[1] == detached[0, 1] == data[0, 1] == 10
    assert column.stride() == (3,) and whole.untyped_storage().nbytes() == 24
    assert backwards[1, 1] == 1  # an array of NumPy's keeps the memory it has, as in PyTorch
    assert whole._version == row._version == 1


def test_graphs_and_optimizers_go_on() -> None:
    model = ut.nn.Linear(2, 2)
    optimizer = ut.optim.SGD(model.parameters(), lr=0.5)
    x = ut.ones(1, 2)
    loss = (model(x) ** 2).sum()
    expected = ut.autograd.grad(loss, model.weight, retain_graph=True)[0]
    before = model.weight.detach().clone()
    loss.backward(retain_graph=True)
    assert model.share_memory() is model
    assert model.weight.is_shared() and model.bias.is_shared() and model.weight.grad.is_shared()
    loss.backward()
    assert model.weight.grad.allclose(2 * expected)
    optimizer.step()
    assert model.weight.allclose(before - expected) and model.weight.is_shared()


@pytest.mark.parametrize(
    "made",
    [
        lambda: ut.ones(0, 3),
        lambda: ut.tensor(3),
        lambda: ut.ones(2, 2, dtype=ut.bfloat16),
        lambda: ut.arange(12).reshape(3, 4).T[1:],
        lambda: ut.from_numpy(np.arange(5.0)[::-1]),
        lambda: ut.ones(3, 1, dtype=ut.complex64).expand(3, 4),
        lambda: ut.zeros(1 << 17),  # with a block of its own
    ],
)
def test_any_dense_tensor_moves_and_arrives(made: Any) -> None:
    x = made()
    expected, strides = x.tolist(), x.stride()
    assert x.share_memory_().is_shared() and x.tolist() == expected and x.stride() == strides
    y = sent(x)
    assert y.tolist() == expected and y.stride() == strides and y.dtype is x.dtype and y.is_shared()
    assert y.data_ptr() == x.data_ptr()


def test_a_tensor_that_is_sent_is_moved_and_arrives_with_what_it_is() -> None:
    x, p = ut.zeros(2), ut.nn.Parameter(ut.ones(2))
    p.tag = "kept"
    y, part, q = sent((x, x[1:], p))
    x[1] = 5
    assert y.tolist() == [0, 5] and part.tolist() == [5] and x.is_shared()
    assert type(q) is ut.nn.Parameter and q.requires_grad and q.is_leaf and q.tag == "kept"
    with pytest.raises(RuntimeError, match=r"Cowardly refusing .* call detach\(\)"):
        sent(p * 2)


def test_tensors_alone_are_moved_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "tensors_of_program", lambda: pytest.fail("searched"))
    assert ut.zeros(3).share_memory_().is_shared()
    assert ut.nn.Linear(3, 3).share_memory().weight.is_shared()


def test_small_tensors_share_descriptors_which_are_closed_with_the_last() -> None:
    first = ut.zeros(3).share_memory_()
    segment = blocks.segment_of(first._array)
    assert segment is not None
    others = [ut.full((3,), float(k)).share_memory_() for k in range(200)]
    assert len({blocks.segment_of(x._array).block for x in others} | {segment.block}) <= 2
    assert [x[2].item() for x in others] == list(range(200)) and first.tolist() == [0, 0, 0]
    large = ut.zeros(1 << 17).share_memory_()
    descriptor = blocks.segment_of(large._array).block.descriptor
    os.fstat(descriptor)
    del large
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_what_cannot_be_shared_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for x in (ut.eye(2).to_sparse(), ut.ones(2, device="meta"), ut.ones(2, device="sim:0")):
        assert not x.is_shared()
        with pytest.raises(NotImplementedError, match=r"has no memory that processes could share\. Share dense"):
            x.share_memory_()
    monkeypatch.setattr(blocks, "POSSIBLE", False)
    with pytest.raises(NotImplementedError, match="cannot be handed to other processes on this system"):
        ut.ones(2).share_memory_()


PROCESSES = """
    import os
    import signal
    import undertow as ut
    import undertow.multiprocessing as mp

    def work(number, counts, model, results, end):
        counts[number] += number + 1
        with ut.no_grad():
            model.weight[number] = 10 + number
        results.put((number, ut.full((2,), float(number)), model.weight))
        end.wait(60)

    def leave(results):
        results.put(ut.ones(1))

    def wait(x, started):
        x += 1
        started.set()
        signal.pause()

    def main(method, count):
        context = mp.get_context(method)
        counts, model, end = ut.zeros(count).share_memory_(), ut.nn.Linear(2, 2).share_memory(), context.Event()
        results = context.Queue()
        arguments = counts, model, results, end
        running = mp.start_processes(work, arguments, nprocs=count, start_method=method, join=False)
        for number, x, weight in sorted([results.get(timeout=60) for _ in range(count)], key=lambda r: r[0]):
            assert x.tolist() == [number, number] and weight.data_ptr() == model.weight.data_ptr()
        end.set()
        while not running.join():
            pass
        assert counts.tolist() == [1, 2][:count] and model.weight[:count].tolist() == [[10, 10], [11, 11]][:count]

    def gone():
        context = mp.get_context("fork")
        results = context.SimpleQueue()
        process = context.Process(target=leave, args=(results,))
        process.start()
        process.join()
        try:
            results.get()
        except RuntimeError as error:
            assert f"the process {process.pid}, which has sent it, is gone" in str(error), error
        else:
            raise AssertionError("received")

    def killed():
        context = mp.get_context("fork")
        x, started = ut.zeros(1).share_memory_(), context.Event()
        process = context.Process(target=wait, args=(x, started))
        process.start()
        started.wait(60)
        process.kill()
        process.join()
        assert x.tolist() == [1] and x.add_(1).tolist() == [2]

    def fail_or_be_ended_for_it(number, both_are_there, first):
        both_are_there.wait()
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        first.wait(60)  # as a rank that hears of another's death
        os.kill(os.getpid(), signal.SIGTERM)

    def cause():
        context = mp.get_context("fork")
        both_are_there, first = context.Barrier(2), context.Event()
        running = mp.start_processes(
            fail_or_be_ended_for_it, (both_are_there, first), nprocs=2, start_method="fork", join=False
        )
        running.processes[1].join()
        first.set()
        running.processes[0].join()
        try:
            running.join()
        except mp.ProcessExitedException as error:
            assert (error.error_index, error.exit_code) == (1, -signal.SIGKILL), error
        else:
            raise AssertionError("both have failed")

    if __name__ == "__main__":
        cause()
        main("spawn", 1)
        main("fork", 2)
        gone()
        killed()
        print("done")
"""


def test_processes_see_the_same_memory_and_their_end_leaves_nothing(tmp_path: Path) -> None:
    program = tmp_path / "processes.py"
    program.write_text(dedent(PROCESSES))
    command = [sys.executable, "-W", "ignore", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr

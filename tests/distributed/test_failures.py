"""Nothing hangs in silence: whatever one rank does, all end within the limit of time, and say who did what where."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.distributed.conftest import Run
from undertow.distributed import last_words
from undertow.distributed.run import ended_well

#: case -> the limit of time, and what is said
MISMATCH = ["DistMismatchError", "rank 0", "rank 1", "the ranks disagree on exchange #2"]
CASES = {
    "raise in backward": (60, ["failures.py", "all 2 were stopped; its last words: ValueError: a bad gradient"]),
    "killed": (60, ["rank 1 (process ", ") ended by SIGKILL; all 2 were stopped; its last words: it goes on"]),
    "other order": (60, [*MISMATCH, "broadcast(float32[4], src=0)", "all_reduce(float32[4], SUM)"]),
    "other shape": (60, [*MISMATCH, "all_reduce(float32[4], SUM)", "all_reduce(float32[6], SUM)"]),
    "other dtype": (60, [*MISMATCH, "all_reduce(float32[4], SUM)", "all_reduce(float64[4], SUM)"]),
    "a batch less": (3, ["DistTimeoutError", "rank 1: HAS NOT COME", "its program is at its end"]),
    "early exit": (3, ["DistTimeoutError", "rank 1: HAS NOT COME", "exchange #2 all_reduce(float32[4], SUM)"]),
    "slow": (3, ["DistTimeoutError", "rank 1: HAS NOT COME", "failures.py"]),
    "interrupt": (60, ["KeyboardInterrupt"]),
    "nobody receives": (3, ["DistTimeoutError", "a message from rank 1", "failures.py"]),
    "longer message": (60, ["DistMismatchError: rank 1 receives float32[2], 8 bytes", "rank 0 has sent one of more"]),
    "shorter message": (60, ["DistMismatchError: rank 1 receives float32[2], 8 bytes", "has sent one of 4 bytes"]),
    "misread message": (60, ["DistMismatchError: rank 1 receives float32[2]", "rank 0 has sent one of float64"]),
    "other parts": (60, ["DistMismatchError: rank 0", "rank 1 sends 4 bytes to rank 0, which expects 8"]),
    "other parts of lists": (60, ["DistMismatchError: rank 0", "rank 1 sends 4 bytes to rank 0, which expects 8"]),
    "other dtype in a group": (
        60,
        ["DistMismatchError", "all_reduce(float32[4], SUM); now at failures.py", "all_reduce(float64[2], SUM)"],
    ),
    "evaluates alone in a pipeline": (
        60,
        [
            "DistMismatchError: rank 1: microbatch 0 of step() number 1 of 4 microbatches",
            "rank 0 has sent in eval() number 1 of 4",
        ],
    ),
    "other number in a pipeline": (60, ["DistMismatchError: rank 1", "rank 0 has sent in step() number 1 of 5"]),
    "goes on after an error in a pipeline": (
        60,
        ["DistMismatchError: rank 1: microbatch 0 of step() number 2", "rank 0 has sent in step() number 1 of 4"],
    ),
    "raises in a pipeline": (60, ["failures.py", "all 2 were stopped; its last words: ValueError: a bad microbatch"]),
    "dies in a pipeline": (60, ["rank 1 (process ", ") ended by SIGKILL; all 2 were stopped"]),
    "unused": (60, ["Expected to have finished reduction", "rank 0: none", "rank 1: 1.weight, 1.bias"]),
    "other models": (60, ["DDP expects same model across all ranks", "weight float32[3, 2]"]),
    "monitored": (3, ["Rank 0 timed out in monitoredBarrier", "Rank 1 failed to pass monitoredBarrier in 3000 ms"]),
}


#: the same with three ranks and so much data that they read each other's memory
READING = {
    "dies while it is read": (60, [") ended by SIGKILL; all 3 were stopped"]),
    "ends without a word": (60, ["rank 1 (process ", ") ended with code 0 while others went on", "all 3 were stopped"]),
    "stopped": (2, ["DistTimeoutError", "rank 1: IS STOPPED (process ", "HAS NOT COME", "failures.py"]),
    "other large shape": (
        60,
        [*MISMATCH, "rank 2", "all_reduce(float32[400000], SUM)", "all_reduce(float32[600000], SUM)"],
    ),
}


@pytest.mark.parametrize("case", READING)
def test_a_rank_that_goes_wrong_while_it_is_read(run: Run, case: str) -> None:
    limit, expected = READING[case]
    done = run("failures.py", case, str(limit), ranks=3)
    assert done.returncode != 0
    for text in expected:
        assert text in done.stderr, done.stderr


def test_who_ended_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mpiexec may return 0 after it has killed the others, which leave no note then, or that of a signal."""
    monkeypatch.setenv(last_words.FOLDER, str(tmp_path))
    for rank, status in enumerate((0, 0, -9)):
        monkeypatch.setenv("RANK", str(rank))
        assert not ended_well(list(last_words.notes(str(tmp_path))), 3) or not last_words.WATCHED
        last_words.note(status, "", 1000 + rank)
    endings = list(last_words.notes(str(tmp_path)))
    assert not ended_well(endings, 3) or not last_words.WATCHED
    assert ended_well([ending for ending in endings if not ending.status], 2)


@pytest.mark.parametrize("case", CASES)
def test_a_rank_that_goes_wrong(run: Run, case: str) -> None:
    limit, expected = CASES[case]
    done = run("failures.py", case, str(limit))
    assert done.returncode != 0
    for text in expected:
        assert text in done.stderr, done.stderr


def test_interrupted_waits_and_dropped_messages(run: Run) -> None:
    done = run("interrupted.py")
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(2)])


@pytest.mark.parametrize("way", ["exchanges", "calls"])
def test_children_that_the_program_forks_stop_nobody(run: Run, way: str) -> None:
    done = run("forked.py", way)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} is done" in done.stdout for r in range(2)])
    assert done.stderr.count("ValueError: of the child") == 2


def test_restarts_count(run: Run) -> None:
    done = run("restarts.py", options=("--max-restarts", "2"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("went on at start 1") == 2
    assert re.search(r"rank \d \(process \d+ on .*\) ended with code 3; all 2 were stopped; start 2 of 3", done.stderr)


def test_an_interrupt_leaves_nothing_behind(run: Run, tmp_path) -> None:
    """Ctrl-C at the launcher: the processes end, too."""
    import os
    import subprocess
    import sys

    from tests.distributed.conftest import PATIENCE, PROGRAMS

    notes = tmp_path / "pids"
    launcher = subprocess.Popen(
        [sys.executable, "-m", "undertow.distributed.run", "-n", "2", str(PROGRAMS / "waits.py"), str(notes)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    until = time.monotonic() + PATIENCE
    while len(found := list(tmp_path.glob("pids*"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(found) == 2
    os.killpg(launcher.pid, signal.SIGINT)  # a terminal interrupts the whole group
    launcher.wait(PATIENCE)
    for note in found:
        while os.path.isdir(f"/proc/{note.read_text()}") and time.monotonic() < until:
            time.sleep(0.05)
        assert not os.path.isdir(f"/proc/{note.read_text()}")


def test_the_end_of_processes_with_an_exchange_that_is_never_finished(run: Run) -> None:
    """It is on a thread, inside MPI, which would end under it."""
    for _ in range(3):
        done = run("unfinished.py", "2", ranks=3)
        assert "ends before an exchange that it takes part in" in done.stderr
        assert done.stdout.count("DistTimeoutError") == 2 and done.stdout.count("ended") == 3, done.stderr
        assert not re.search("SIGSEGV|SIGABRT|corrupted|Segmentation|Aborted", done.stderr), done.stderr

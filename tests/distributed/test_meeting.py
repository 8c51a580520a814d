"""Processes that no launcher has started: they meet at an address that all of them know."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import undertow as ut
from tests.distributed.conftest import PATIENCE, PROGRAMS

pytest.importorskip("mpi4py")


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return str(found.getsockname()[1])


def start(*arguments: str, **told: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(ut.__file__).parents[1]), "OMP_NUM_THREADS": "1", **told}
    command = [sys.executable, str(PROGRAMS / "spawned.py"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def rank(number: int, size: int, port: str, **told: str) -> subprocess.Popen[str]:
    """A process as PyTorch's launchers start it."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return start("environment", RANK=str(number), WORLD_SIZE=str(size), **address, **told)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def losses_of_one_process() -> str:
    code, out, err = finished(start("alone"))
    assert code == 0, err
    assert out.count(",") == 3
    return out


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_spawned_processes_train_as_one_does(method: str, losses_of_one_process: str) -> None:
    assert finished(start("spawn", method, free_port())) == (0, losses_of_one_process, "")


@pytest.mark.parametrize("size", [2, 4])
def test_processes_of_the_environment_train_as_one_does(size: int, losses_of_one_process: str) -> None:
    port = free_port()
    others = [rank(number, size, port) for number in reversed(range(1, size))]
    assert finished(rank(0, size, port)) == (0, losses_of_one_process, "")
    assert [finished(other) for other in others] == [(0, "", "")] * (size - 1)


def test_the_error_of_one_is_what_spawn_raises(losses_of_one_process: str) -> None:
    code, out, err = finished(start("spawn", "spawn", free_port(), "raise"))
    assert (code, out) == (1, losses_of_one_process)
    assert "Process 1 terminated with the following error" in err
    assert "ValueError: rank 1 has had enough" in err


def test_one_that_is_killed_ends_the_others(losses_of_one_process: str) -> None:
    code, out, err = finished(start("spawn", "fork", free_port(), "kill"))
    assert (code, out) == (1, losses_of_one_process)
    assert "process 1 terminated with exit code -9" in err


def test_a_rank_that_never_comes_is_named_in_time() -> None:
    port, limit = free_port(), {"UNDERTOW_DISTRIBUTED_TIMEOUT": "3"}
    for process in (rank(0, 3, port, **limit), rank(2, 3, port, **limit)):
        code, _, err = finished(process)
        assert code == 1
        assert "rank 1 of 3 did not come within 3 s" in err


def test_without_rank_0_nobody_is_there() -> None:
    port = free_port()
    code, _, err = finished(rank(1, 2, port, UNDERTOW_DISTRIBUTED_TIMEOUT="1"))
    assert code == 1
    assert f"rank 1 found nobody at 127.0.0.1:{port} within 1 s" in err


def test_a_second_process_of_a_rank_is_refused(losses_of_one_process: str) -> None:
    port = free_port()
    first = rank(0, 2, port)
    with socket.create_connection(("127.0.0.1", port)) if until_open(port) else socket.socket() as stranger:
        stranger.sendall(b"GET / HTTP/1.1\n")  # a stranger harms nobody
    code, _, err = finished(rank(1, 3, port))
    assert code == 1
    assert "rank 0 says that there are 2 processes, and rank 1 says 3" in err
    code, _, err = finished(rank(5, 2, port))
    assert code == 1
    assert "one process of each rank from 0 to 1" in err
    second = rank(1, 2, port)
    assert finished(first) == (0, losses_of_one_process, "")
    assert finished(second) == (0, "", "")


def until_open(port: str) -> bool:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        except OSError:
            pass


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = finished(rank(0, 2, str(taken.getsockname()[1])))
    assert code == 1
    assert "rank 0 cannot listen at 127.0.0.1" in err

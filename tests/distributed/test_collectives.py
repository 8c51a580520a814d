"""Exchanges among processes that MPI joins."""

from __future__ import annotations

import pytest

from tests.distributed.conftest import Run


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(8, marks=pytest.mark.slow)])
def test_every_exchange(run: Run, ranks: int) -> None:
    done = run("collectives.py", ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert all([f"rank {r} of {ranks} is done" in done.stdout for r in range(ranks)])


def test_ranks_are_compared_before_each_exchange(run: Run) -> None:
    done = run("collectives.py", ranks=2, options=("--debug", "DETAIL"))
    assert done.returncode == 0, done.stderr

"""Tests of kernels that are to give the same with any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import undertow as ut
from undertow.compiled import core


def each_with(*numbers: int) -> Callable[..., Any]:
    """A fixture that runs every test of a file with each of these numbers of threads."""

    @pytest.fixture(autouse=True, params=numbers)
    def threads(request: pytest.FixtureRequest) -> Iterator[None]:
        core.set_threads(request.param)
        yield
        ut.set_num_threads(ut.get_num_threads())

    return threads

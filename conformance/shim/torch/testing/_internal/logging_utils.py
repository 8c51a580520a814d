"""Tests that look at log records: undertow logs the nodes it runs to the logger `undertow.autograd`."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from .common_utils import TestCase


class LoggingTestCase(TestCase):
    pass


class _Collector(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]):
        super().__init__()
        self.records = records

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextlib.contextmanager
def _watch(name: str, level: int, records: list[logging.LogRecord]) -> Iterator[None]:
    logger = logging.getLogger(f"undertow.{name}")
    before, handler = logger.level, _Collector(records)
    logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def make_logging_test(**levels: int) -> Callable[[Any], Any]:
    """Call the test with a list that fills with the records of the named loggers."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run(self: Any) -> None:
            records: list[logging.LogRecord] = []
            with contextlib.ExitStack() as stack:
                for name, level in levels.items():
                    stack.enter_context(_watch(name, level, records))
                test(self, records)

        del run.__wrapped__
        return run

    return decorate

"""Tests of many small cases that count as one: a thousand of a millisecond take longer to be counted than to run."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from tests.seeds import seed_everything


def together(**choices: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Call a test with every combination of these arguments. A failure names the combination."""
    names = list(choices)
    rows = list(itertools.product(*choices.values()))

    def decorate(test: Callable[..., None]) -> Any:
        def of_all_rows(**fixtures: Any) -> None:
            for row in rows:
                seed_everything()
                arguments = dict(zip(names, row, strict=True))
                try:
                    test(**arguments, **fixtures)
                except Exception as error:
                    error.add_note(f"with {arguments}")
                    raise

        signature = inspect.signature(test)
        others = [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values() if p.name not in names]
        found: Any = functools.wraps(test)(of_all_rows)
        found.__signature__ = signature.replace(parameters=others)
        return found

    return decorate

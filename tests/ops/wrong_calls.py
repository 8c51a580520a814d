"""Calls that fail in both libraries, with the same words: what the test_errors.py of each family is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut

#: the words of the message, and the call of a library and of its neural-network functions
WrongCall = tuple[str, Callable[[Any, Any], Any]]

KINDS = (NotImplementedError, IndexError, ValueError, TypeError, RuntimeError)


def every(calls: list[WrongCall]) -> Any:
    ids = [f"{k}-{words[:40]}" for k, (words, _) in enumerate(calls)]
    return pytest.mark.parametrize(("words", "call"), calls, ids=ids)


def check(torch: Any, words: str, call: Callable[[Any, Any], Any]) -> None:
    """PyTorch refuses the call with these words, and undertow does, with an exception of the same kind."""
    with pytest.raises(Exception) as theirs:
        call(torch, torch.nn.functional)
    assert words in str(theirs.value)
    with pytest.raises((RuntimeError, ValueError, IndexError, TypeError)) as ours, np.errstate(all="ignore"):
        call(ut, ut)
    assert words in str(ours.value)
    assert isinstance(ours.value, next(kind for kind in KINDS if isinstance(theirs.value, kind)))


def long(library: Any, *shape: int) -> Any:
    return library.ones(*shape, dtype=library.int64)

"""Wrong calls of divisors and parts of numbers fail as in PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.ops.wrong_calls import WrongCall, check, every, long

CALLS: list[WrongCall] = [
    ("not implemented for 'Float'", lambda lib, F: lib.gcd(lib.ones(2), lib.ones(2))),
    ("frexp() only supports floating-point dtypes", lambda lib, F: lib.frexp(long(lib, 2))),
]  # fmt: skip


@every(CALLS)
def test_errors(torch: ModuleType, words: str, call: Any) -> None:
    check(torch, words, call)

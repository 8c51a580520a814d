"""Wrong calls of shuffled pixels and channels fail as in PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.ops.wrong_calls import WrongCall, check, every

CALLS: list[WrongCall] = [
    ("input.size(-3)=7 is not divisible by 4", lambda lib, F: lib.pixel_shuffle(lib.ones(1, 7, 2, 3), 2)),
    ("at least 3 dimensions", lambda lib, F: lib.pixel_shuffle(lib.ones(2, 3), 2)),
    ("expects a positive upscale_factor, but got -2", lambda lib, F: lib.pixel_shuffle(lib.ones(8, 2, 3), -2)),
    ("expects width to be divisible", lambda lib, F: lib.pixel_unshuffle(lib.ones(2, 4, 5), 2)),
    ("Got 5 channels and 2 groups", lambda lib, F: F.channel_shuffle(lib.ones(1, 5, 2, 2), 2)),
]  # fmt: skip


@every(CALLS)
def test_errors(torch: ModuleType, words: str, call: Any) -> None:
    check(torch, words, call)

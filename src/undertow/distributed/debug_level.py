"""How much is compared before each exchange."""

from __future__ import annotations

import enum
import os


class DebugLevel(enum.Enum):
    """OFF and INFO: nothing more; DETAIL: a small exchange before each says whether all are about to do the same.

    Example: `dist.DebugLevel.DETAIL`
    """

    OFF, INFO, DETAIL = range(3)


_level: DebugLevel | None = None  # not read yet


def get_debug_level() -> DebugLevel:
    """The level of this process; at first what UNDERTOW_DISTRIBUTED_DEBUG or TORCH_DISTRIBUTED_DEBUG says.

    Example: `dist.get_debug_level()`
    """
    if _level is None:
        set_debug_level_from_env()
    return _level  # type: ignore[return-value]


def set_debug_level(level: DebugLevel) -> None:
    """Set the level. All processes must: a comparison is an exchange.

    Example: `dist.set_debug_level(dist.DebugLevel.OFF)`
    """
    global _level
    _level = level


def set_debug_level_from_env() -> None:
    """Set the level to what the environment says.

    Example: `dist.set_debug_level_from_env()`
    """
    names = ("UNDERTOW_DISTRIBUTED_DEBUG", "TORCH_DISTRIBUTED_DEBUG")
    name, said = next(((n, os.environ[n]) for n in names if os.environ.get(n)), (names[0], "OFF"))
    if said.upper() not in DebugLevel.__members__:
        raise ValueError(f"{name} is {said!r}; it may be {', '.join(DebugLevel.__members__)}")
    set_debug_level(DebugLevel[said.upper()])

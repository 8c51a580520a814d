"""What programs ask before they train in several processes. There is one process, and the answers say so.

>>> import undertow as ut
>>> ut.distributed.is_available() and ut.distributed.is_initialized()
False
"""

from __future__ import annotations

from typing import Any, NoReturn

#: what the errors advise
INSTEAD = "undertow trains in one process: leave the launcher out. nn.DataParallel shares a batch among devices."


def is_available() -> bool:
    """Whether processes can be joined to a group: no."""
    return False


def is_initialized() -> bool:
    """Whether this process belongs to a group: no."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process: no."""
    return False


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(f"init_process_group: {INSTEAD}")


def _needs_a_group(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError(f"Default process group has not been initialized ({name}): {INSTEAD}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Needs a group of processes, and there is none."
    return function


all_gather = _needs_a_group("all_gather")
all_reduce = _needs_a_group("all_reduce")
barrier = _needs_a_group("barrier")
broadcast = _needs_a_group("broadcast")
destroy_process_group = _needs_a_group("destroy_process_group")
gather = _needs_a_group("gather")
get_rank = _needs_a_group("get_rank")
get_world_size = _needs_a_group("get_world_size")
reduce = _needs_a_group("reduce")

"""Lines of the program whose kernels check indices: each has words of its own, to which its kernels write.

So an index that is out of range is reported with the line that was running when the kernel was asked for, although the
error comes to light later; and the arguments of a kernel stay the same, step after step, which graphs need.
"""

from __future__ import annotations

from typing import Any

from undertow.backend.cuda import device
from undertow.backend.simulated.operations import described, launch_site

#: how many lines have words; all others share the first
MOST_SITES = 1024

_numbers: dict[tuple[Any, ...], int] = {}


def error_word() -> int:
    """The address of the words of the line that is running."""
    site = launch_site()
    number = _numbers.get(site)
    if number is None:
        number = len(_numbers) + 1 if len(_numbers) < MOST_SITES - 1 else 0
        if number:
            _numbers[site] = number
    found: int = device.extension().error_word(number)
    return found


def name(number: int) -> str:
    """Where a line is."""
    site = next((site for site, its_own in _numbers.items() if its_own == number), None)
    return "that has run since the program last waited for it" if site is None else described(site)

"""Deterministic sums: the switch that makes gradients bitwise reproducible, whatever order threads come in.

Floating-point addition depends on order, and gradients that come from several threads come in any order. When the
switch is on:

Within a pass, gradients that meet at a node are kept until the last has come, and are then added in the order of their
producers' sequence numbers: the order in which a single thread would have added them. It costs the memory of the
gradients that wait. A pass on one thread is reproducible anyway, and does not ask.

Between passes that end in the same leaf there is no such order: threads that record at the same time draw their
sequence numbers as they happen to run. So what passes add to a leaf is summed exactly: graph/exact_sums.py.
"""

from __future__ import annotations

from undertow.graph import exact_sums


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Let every run of the same program compute the same gradients, to the last bit.

    mode       on or off, for all threads
    warn_only  accepted for PyTorch's sake: no operation here lacks a deterministic form

    >>> import undertow as ut
    >>> ut.use_deterministic_algorithms(True)
    >>> ut.are_deterministic_algorithms_enabled()
    True
    >>> ut.use_deterministic_algorithms(False)
    """
    exact_sums.enable(bool(mode))


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` is on.

    >>> import undertow as ut
    >>> ut.are_deterministic_algorithms_enabled()
    False
    """
    return exact_sums.enabled()

"""What PyTorch's compiler knows while it traces a program: nothing is traced here."""

from __future__ import annotations

from typing import Any

from undertow.torch_names.missing import getter


def active_fake_mode() -> None:
    """The mode in which tensors have no numbers, if it is on: there is none."""


def detect_fake_mode(inputs: Any = None) -> None:
    """That mode, or the one in which the inputs were made: there is none."""


__getattr__ = getter("_guards")

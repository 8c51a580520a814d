"""Switches of libraries that PyTorch uses and undertow does not: programs set them, and nothing depends on them."""

from __future__ import annotations


class Library:
    """A library that is not there. Its switches can be set, as in a PyTorch without it."""

    enabled = False
    deterministic = False
    benchmark = False
    allow_tf32 = False

    def __init__(self, name: str) -> None:
        self.name = name

    def is_available(self) -> bool:
        """Whether undertow uses the library.

        >>> import undertow as ut
        >>> ut.backends.mps.is_available()
        False
        """
        return False

    def is_built(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self.name}, which undertow does not use>"


cudnn = Library("cuDNN")
mps = Library("Metal")
mkldnn = Library("oneDNN")

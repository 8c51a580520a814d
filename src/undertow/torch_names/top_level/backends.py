"""Switches of libraries that PyTorch uses and undertow does not: programs set them, and nothing depends on them."""

from __future__ import annotations

import sys
from types import ModuleType


class Library(ModuleType):
    """A library that is not there. Its switches can be set, as in a PyTorch without it."""

    enabled = False
    deterministic = False
    benchmark = False
    allow_tf32 = False

    def __init__(self, place: str, name: str) -> None:
        super().__init__(f"{__name__}.{place}", f"{name}, which undertow does not use.")
        self.name = name
        sys.modules[self.__name__] = self  # so that it can be imported

    def is_available(self) -> bool:
        """Whether undertow uses the library.

        >>> import undertow as ut
        >>> ut.backends.mps.is_available()
        False
        """
        return False

    def is_built(self) -> bool:
        return False

    def version(self) -> None:
        """The version of the library: None, because it is not there."""

    def __repr__(self) -> str:
        return f"<{self.name}, which undertow does not use>"


cudnn = Library("cudnn", "cuDNN")
mps = Library("mps", "Metal")
mkldnn = Library("mkldnn", "oneDNN")
mkl = Library("mkl", "MKL")
openmp = Library("openmp", "OpenMP")
cuda = Library("cuda", "CUDA")
cuda.matmul = Library("cuda.matmul", "cuBLAS")  # type: ignore[attr-defined]

"""Switches of libraries. Those of cuBLAS and cuDNN, which undertow uses on GPUs, do what they do in PyTorch; the others
are there because programs set them, and nothing depends on them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

#: how `flags()` sets what it is not given
OF_A_BLOCK = {"enabled": False, "benchmark": False, "deterministic": False, "allow_tf32": True}


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

    @contextmanager
    def flags(self, **switches: Any) -> Iterator[None]:
        """A block in which switches are set; those that are not named are as PyTorch's `flags` sets them: off, but for
        `allow_tf32`.

        >>> import undertow as ut
        >>> with ut.backends.cudnn.flags(enabled=True, deterministic=True):
        ...     ut.backends.cudnn.deterministic
        True
        """
        before = self.set_flags(**{**OF_A_BLOCK, **switches})
        try:
            yield
        finally:
            self.set_flags(**before)

    def set_flags(self, **switches: Any) -> dict[str, Any]:
        """Set switches, and return what they were."""
        before = {name: getattr(self, name, None) for name in switches}
        for name, value in switches.items():
            setattr(self, name, value)
        return before

    def __repr__(self) -> str:
        return f"<{self.name}, which undertow does not use>"


def flags_frozen() -> bool:
    """Whether switches may be set in `flags()` alone: never."""
    return False


def _precision() -> Any:
    return import_module("undertow.backend.cuda.precision")  # when a program asks, and not with undertow


def _switch(name: str, words: str) -> Any:
    def get(self: Any) -> bool:
        return bool(getattr(_precision().switches, name))

    def change(self: Any, value: bool) -> None:
        setattr(_precision().switches, name, bool(value))

    return property(get, change, doc=words)


class Cudnn(Library):
    """cuDNN, which computes convolutions on GPUs.

    >>> import undertow as ut
    >>> ut.backends.cudnn.allow_tf32
    True
    """

    enabled = True
    allow_tf32 = _switch("convolution_tf32", "Whether convolutions of float32 may be rounded to tf32: on.")
    deterministic = _switch("deterministic", "Whether sums of convolutions have the same order every time.")
    benchmark = _switch("benchmark", "Whether algorithms are tried out, once for each shape, for the fastest.")

    def is_available(self) -> bool:
        """Whether there is a GPU, and cuDNN."""
        from undertow import cuda

        return cuda.is_available() and import_module("undertow.backend.cuda.cudnn").library() is not None

    def is_built(self) -> bool:
        return self.is_available()

    def version(self) -> int | None:  # type: ignore[override]
        """The version of cuDNN, such as 91900; None where there is none."""
        return int(import_module("undertow.backend.cuda.cudnn").version()) if self.is_available() else None


class Products(Library):
    """Products of matrices on GPUs, by cuBLAS.

    >>> import undertow as ut
    >>> ut.backends.cuda.matmul.allow_tf32
    False
    """

    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 may be rounded to tf32, which is several times as fast: off."""
        return bool(_precision().switches.matmul_tf32)

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        _precision().allow_tf32_in_products(value)


class Cpu(Library):
    """The processor that undertow computes on."""

    enabled = True

    def is_available(self) -> bool:
        return True

    def is_built(self) -> bool:
        return True

    def get_cpu_capability(self) -> str:
        """What PyTorch calls the vectors that its kernels are made for: "DEFAULT", for there is one set of them."""
        return "DEFAULT"


class OptEinsum(Library):
    """opt_einsum, by whose plans PyTorch's `einsum` goes if it is installed. undertow's has plans of its own."""

    strategy: str | None = None

    def get_opt_einsum(self) -> None:
        """The package, if it is used: None."""

    def set_flags(self, _enabled: bool | None = None, _strategy: str | None = None, **switches: Any) -> dict[str, Any]:
        """Set switches, and return what they were."""
        given = {"enabled": _enabled, "strategy": _strategy}
        return super().set_flags(**{name: value for name, value in given.items() if value is not None}, **switches)


class FastAttention(Library):
    """PyTorch's second way to compute layers of attention without gradients. Here there is one."""

    def get_fastpath_enabled(self) -> bool:
        """Whether programs may take it, as they have set it."""
        return bool(self.enabled)

    def set_fastpath_enabled(self, value: bool) -> None:
        self.enabled = bool(value)


cpu = Cpu("cpu", "the CPU")
cudnn = Cudnn("cudnn", "cuDNN")
mps = Library("mps", "Metal")
mkldnn = Library("mkldnn", "oneDNN")
mkl = Library("mkl", "MKL")
openmp = Library("openmp", "OpenMP")
cuda = Library("cuda", "CUDA")
cuda.matmul = Products("cuda.matmul", "cuBLAS")  # type: ignore[attr-defined]
opt_einsum = OptEinsum("opt_einsum", "opt_einsum")
mha = FastAttention("mha", "the fast path of attention")
mha.enabled = True
nnpack = Library("nnpack", "NNPACK")
miopen = Library("miopen", "MIOpen")
kleidiai = Library("kleidiai", "KleidiAI")
cusparselt = Library("cusparselt", "cuSPARSELt")
quantized = Library("quantized", "a library of quantized kernels")
quantized.engine, quantized.supported_engines = "none", ["none"]  # type: ignore[attr-defined]

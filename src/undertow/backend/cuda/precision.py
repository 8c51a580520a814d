"""How far products and convolutions of float32 may be rounded: `backends.cuda.matmul.allow_tf32` and its like."""

from __future__ import annotations

from undertow.backend.cuda import device


class Switches:
    """What programs have set. Nothing is asked of a device before it is used."""

    #: products of matrices in tf32: off, as in PyTorch
    matmul_tf32 = False
    #: convolutions in tf32: on, as in PyTorch
    convolution_tf32 = True
    #: convolutions whose sums have the same order every time; and those that are tried out, for the fastest algorithm
    deterministic = False
    benchmark = False


switches = Switches()


def allow_tf32_in_products(allowed: bool) -> None:
    switches.matmul_tf32 = bool(allowed)
    if device.is_ready():
        tell_device()


def tell_device() -> None:
    """Tell a device that has just been made ready, or whose switches have changed."""
    device.extension().allow_tf32(switches.matmul_tf32)

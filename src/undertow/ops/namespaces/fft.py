"""`undertow.fft`: Fourier transforms under the names of torch.fft and numpy.fft."""

from __future__ import annotations

from undertow.ops.declare import REGISTRY
from undertow.ops.inplace.out_argument import namespace_function

#: the operations registered as `fft_<name>`
NAMES = {op.removeprefix("fft_"): op for op in REGISTRY if op.startswith("fft_")}

globals().update({name: namespace_function(op) for name, op in NAMES.items()})
__all__ = sorted(NAMES)
__name__ = "undertow.fft"  # as programs find it, and as errors tell it

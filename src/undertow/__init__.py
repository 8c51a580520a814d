"""undertow: PyTorch's autograd, rule for rule, on the arrays you already have.

>>> import undertow as ut
>>> x = ut.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> loss = (x.sin() * x).sum()
>>> loss.backward()
>>> x.grad
tensor([ 1.3818,  0.0770, -2.8289])
"""

from undertow import methods as _methods  # attaches the operators to Tensor
from undertow import ops as _ops
from undertow.autograd import graph as _graph
from undertow.backend import Device as device
from undertow.backend.dtypes import (
    bool_, complex64, complex128, dtype, float16, float32, float64, get_default_dtype, int8, int16, int32, int64,
    promote_types, set_default_dtype, uint8, uint16, uint32, uint64,
)  # fmt: skip
from undertow.errors import is_warn_always_enabled, set_warn_always
from undertow.interop.dlpack import from_dlpack
from undertow.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from undertow.ops.generator import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from undertow.tensor import Size, Tensor
from undertow.tensor.conversions import (
    contiguous_format, is_complex, is_floating_point, is_tensor, memory_format, numel, preserve_format,
)  # fmt: skip
from undertow.tensor.display import get_printoptions, printoptions, set_printoptions

__version__ = "0.1.0"

half, double, short, long, cfloat, cdouble = float16, float64, int16, int64, complex64, complex128
inf, nan, pi, e = float("inf"), float("nan"), 3.141592653589793, 2.718281828459045

globals().update({name: getattr(_ops, name) for name in _ops.__all__ if not name.startswith("_")})


def _register_own_code() -> None:
    """Let error messages pass over undertow's own frames. See graph/sites.py."""
    import sys

    from undertow.graph.sites import register_internal

    for name, module in list(sys.modules.items()):
        if name.startswith("undertow.") and module is not None:
            register_internal(module)


_register_own_code()

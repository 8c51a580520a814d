"""`undertow.special`: special functions under the names of torch.special, and some that SciPy has on top."""

from __future__ import annotations

from undertow.ops.declare import REGISTRY
from undertow.ops.inplace.out_argument import namespace_function

#: those that torch.special shares with the package itself, by the name they have there
SHARED = {
    "digamma": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expit": "expit",
    "expm1": "expm1", "gammainc": "igamma", "gammaincc": "igammac", "gammaln": "lgamma", "i0": "i0", "log1p": "log1p",
    "log_softmax": "log_softmax", "logit": "logit", "logsumexp": "logsumexp", "polygamma": "polygamma",
    "psi": "digamma", "round": "round", "sinc": "sinc", "softmax": "softmax", "xlogy": "xlogy",
}  # fmt: skip

#: the operations registered as `special_<name>`, and the shared ones
NAMES = {name: op for name, op in SHARED.items() if op in REGISTRY}
NAMES |= {op.removeprefix("special_"): op for op in REGISTRY if op.startswith("special_")}

globals().update({name: namespace_function(op) for name, op in NAMES.items()})
__all__ = sorted(NAMES)
__name__ = "undertow.special"  # as programs find it, and as errors tell it

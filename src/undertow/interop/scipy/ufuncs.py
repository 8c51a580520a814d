"""SciPy's special functions on tensors: its own kernels, with derivatives in terms of such functions again.

PARTIALS has the derivative of a ufunc by each of its arguments, a function of the result and the arguments; None where
no formula is known, which is an error if that derivative is asked for. As they are made of ufuncs on tensors, they can
be differentiated again, in every direction.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.autograd.function import Function
from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.interop.numpy.functions import ops
from undertow.ops.arguments.nested_data import adopt
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.autograd.function.under_vmap import VmapInfo

Partial = Callable[..., Any] | None

#: ufuncs that mean what the operation means; others of the same name may not (kl_div)
SPECIAL = {
    "beta": "special_beta", "betaln": "special_betaln", "cbrt": "cbrt", "digamma": "digamma", "entr": "special_entr",
    "erf": "erf", "erfc": "erfc", "erfcx": "special_erfcx", "erfinv": "erfinv", "exp2": "exp2", "expit": "sigmoid",
    "expm1": "expm1", "gamma": "special_gamma", "gammaln": "lgamma", "i0": "i0", "i0e": "special_i0e",
    "i1": "special_i1", "i1e": "special_i1e", "j0": "special_bessel_j0", "j1": "special_bessel_j1",
    "k0": "special_modified_bessel_k0", "k0e": "special_scaled_modified_bessel_k0",
    "k1": "special_modified_bessel_k1", "k1e": "special_scaled_modified_bessel_k1", "log1p": "log1p",
    "log_expit": "logsigmoid", "log_ndtr": "special_log_ndtr", "logit": "logit", "ndtr": "special_ndtr",
    "ndtri": "special_ndtri", "psi": "digamma", "xlog1py": "special_xlog1py", "xlogy": "xlogy",
    "y0": "special_bessel_y0", "y1": "special_bessel_y1",
}  # fmt: skip

#: ufuncs that do not change with small changes of their arguments
FLAT = {"gammasgn", "round"}


def special() -> Any:
    """scipy.special, which somebody has imported if one of its ufuncs is called."""
    return sys.modules["scipy.special"]


def operation_of(ufunc: Callable[..., Any]) -> Callable[..., Any] | None:
    """The operation that computes what a ufunc of SciPy does, or None."""
    name = ufunc.__name__
    if getattr(sys.modules.get("scipy.special"), name, None) is not ufunc:
        return None
    operation = ops.find(SPECIAL.get(name))
    if name in FLAT:
        return lambda *inputs: computed(ufunc, inputs)
    if name not in PARTIALS:
        return operation

    def choose(*inputs: Any) -> Any:
        """The operation, which takes no complex numbers where PyTorch's takes none."""
        is_complex = any([isinstance(x, complex) or (isinstance(x, Tensor) and x.dtype.kind == "c") for x in inputs])
        return ByUfunc.apply(ufunc, *inputs) if operation is None or is_complex else operation(*inputs)

    return choose


def computed(ufunc: Callable[..., Any], inputs: Sequence[Any]) -> Tensor:
    arrays = [x._array if isinstance(x, Tensor) else x for x in inputs]
    return Tensor(adopt(np.asarray(ufunc(*arrays))), cpu)


class ByUfunc(Function):
    """A ufunc of SciPy that is differentiated by its PARTIALS."""

    _is_tracked = False

    @staticmethod
    def forward(ufunc: Callable[..., Any], *inputs: Any) -> Tensor:
        return computed(ufunc, inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.ufunc, *arguments = inputs
        ctx.numbers = [None if isinstance(x, Tensor) else x for x in arguments]
        tensors = [x if isinstance(x, Tensor) else None for x in arguments]
        ctx.save_for_backward(output, *tensors)
        ctx.save_for_forward(output, *tensors)
        ctx.set_materialize_grads(False)  # a tangent of zeros asks for a derivative that may be unknown

    @staticmethod
    def backward(ctx: Any, grad: Array | None) -> tuple[Any, ...]:
        places = iter(range(len(ctx.numbers)))
        wanted = [n is None and ctx.wants_gradient(next(places)) and grad is not None for n in ctx.numbers]
        return None, *[grad * np.conj(slope(ctx, nr)) if w else None for nr, w in enumerate(wanted)]

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Array:
        parts = [t * slope(ctx, nr) for nr, t in enumerate(tangents) if t is not None]
        return sum(parts[1:], parts[0])

    @staticmethod
    def vmap(info: VmapInfo, in_dims: Any, ufunc: Callable[..., Any], *inputs: Any) -> tuple[Tensor, int]:
        pairs = list(zip(inputs, in_dims[1:], strict=True))
        rank = max([x.ndim - (d is not None) for x, d in pairs if isinstance(x, Tensor)])
        return ByUfunc.apply(ufunc, *[x if d is None else batch_first(x, d, rank) for x, d in pairs]), 0


def batch_first(value: Array, dim: int, rank: int) -> Array:
    """The examples in front, and dimensions of size one behind, so that all inputs broadcast as one example's do."""
    moved = ops.movedim(value, dim, 0)
    return ops.reshape(moved, (moved.shape[0], *[1] * (rank + 1 - moved.ndim), *moved.shape[1:]))


def slope(ctx: Any, nr: int) -> Array:
    """The derivative by one argument."""
    partial = PARTIALS[ctx.ufunc.__name__][nr]
    if partial is None:
        raise NotImplementedError(
            f"the derivative of scipy.special.{ctx.ufunc.__name__} by argument {nr} is not implemented: no formula is "
            "known. detach() that argument if its gradient is not needed."
        )
    output, *tensors = ctx.saved_tensors
    return partial(output, *[n if t is None else t for t, n in zip(tensors, ctx.numbers, strict=True)])


# ---- derivatives


def of_order(lower: float, upper: float, name: str) -> tuple[Partial, ...]:
    """Bessel functions f(v, x): lower * f(v - 1, x) + upper * f(v + 1, x)."""

    def partial(out: Array, v: Array, x: Array) -> Any:
        function = getattr(special(), name)
        return lower * function(v - 1, x) + upper * function(v + 1, x)

    return None, partial


def density_of_beta(a: Array, b: Array, x: Array) -> Array:
    return np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - special().betaln(a, b))


def density_of_gamma(a: Array, x: Array) -> Array:
    return np.exp((a - 1) * np.log(x) - x - special().gammaln(a))


def density_of_t(df: Any, t: Array) -> Array:
    log_scale = special().gammaln((df + 1) / 2) - special().gammaln(df / 2)
    return np.exp(log_scale - (df + 1) / 2 * np.log1p(t * t / df)) / np.sqrt(df * np.pi)


def log_gap(x: Array, y: Array) -> Array:
    return special().psi(x) - special().psi(y)


DEGREE = math.pi / 180
ROOT = math.sqrt(math.pi)

PARTIALS: dict[str, tuple[Partial, ...]] = {
    # errors and exponentials
    "erf": (lambda out, x: 2 / ROOT * np.exp(-x * x),),
    "erfc": (lambda out, x: -2 / ROOT * np.exp(-x * x),),
    "erfi": (lambda out, x: 2 / ROOT * np.exp(x * x),),
    "erfcinv": (lambda out, x: -ROOT / 2 * np.exp(out * out),),
    "dawsn": (lambda out, x: 1 - 2 * x * out,),
    "wofz": (lambda out, x: 2j / ROOT - 2 * x * out,),
    "ndtri_exp": (lambda out, x: np.exp(x + out * out / 2) * math.sqrt(2 * math.pi),),
    "owens_t": (
        lambda out, h, a: -np.exp(-h * h / 2) * special().erf(a * h / math.sqrt(2)) / (2 * math.sqrt(2 * math.pi)),
        lambda out, h, a: np.exp(-h * h * (1 + a * a) / 2) / (2 * np.pi * (1 + a * a)),
    ),
    "exp1": (lambda out, x: -np.exp(-x) / x,),
    "expi": (lambda out, x: np.exp(x) / x,),
    "expn": (None, lambda out, n, x: -special().expn(n - 1, x)),
    "exprel": (lambda out, x: (np.exp(x) - out) / x,),
    "exp10": (lambda out, x: out * math.log(10),),
    "spence": (lambda out, x: -1 / special().exprel(np.log(x)),),
    "wrightomega": (lambda out, x: out / (1 + out),),
    "cosm1": (lambda out, x: -np.sin(x),),
    "sindg": (lambda out, x: DEGREE * special().cosdg(x),),
    "cosdg": (lambda out, x: -DEGREE * special().sindg(x),),
    "tandg": (lambda out, x: DEGREE * (1 + out * out),),
    # gamma and beta
    "rgamma": (lambda out, x: -out * special().psi(x),),
    "loggamma": (lambda out, x: special().psi(x),),
    "poch": (lambda out, x, m: out * log_gap(x + m, x), lambda out, x, m: out * special().psi(x + m)),
    "binom": (
        lambda out, n, k: out * log_gap(n + 1, n - k + 1),
        lambda out, n, k: out * log_gap(n - k + 1, k + 1),
    ),
    "gammainc": (None, lambda out, a, x: density_of_gamma(a, x)),
    "gammaincc": (None, lambda out, a, x: -density_of_gamma(a, x)),
    "gammaincinv": (None, lambda out, a, y: 1 / density_of_gamma(a, out)),
    "gammainccinv": (None, lambda out, a, y: -1 / density_of_gamma(a, out)),
    "betainc": (None, None, lambda out, a, b, x: density_of_beta(a, b, x)),
    "betaincc": (None, None, lambda out, a, b, x: -density_of_beta(a, b, x)),
    "betaincinv": (None, None, lambda out, a, b, y: 1 / density_of_beta(a, b, out)),
    "betainccinv": (None, None, lambda out, a, b, y: -1 / density_of_beta(a, b, out)),
    # distributions
    "stdtr": (None, lambda out, df, t: density_of_t(df, t)),
    "stdtrit": (None, lambda out, df, p: 1 / density_of_t(df, out)),
    "chdtr": (None, lambda out, v, x: density_of_gamma(v / 2, x / 2) / 2),
    "chdtrc": (None, lambda out, v, x: -density_of_gamma(v / 2, x / 2) / 2),
    "pdtr": (None, lambda out, k, m: -density_of_gamma(np.floor(k) + 1, m)),
    "pdtrc": (None, lambda out, k, m: density_of_gamma(np.floor(k) + 1, m)),
    # entropies and losses
    "rel_entr": (lambda out, x, y: np.log(x / y) + 1, lambda out, x, y: -x / y),
    "kl_div": (lambda out, x, y: np.log(x / y), lambda out, x, y: 1 - x / y),
    "pseudo_huber": (
        lambda out, d, r: 2 * out / d - r * r / (d * np.sqrt(1 + (r / d) ** 2)),
        lambda out, d, r: r / np.sqrt(1 + (r / d) ** 2),
    ),
    "boxcox": (lambda out, x, k: x ** (k - 1), lambda out, x, k: (x**k * np.log(x) - out) / k),
    "boxcox1p": (
        lambda out, x, k: (1 + x) ** (k - 1),
        lambda out, x, k: ((1 + x) ** k * np.log1p(x) - out) / k,
    ),
    "inv_boxcox": (lambda out, y, k: out ** (1 - k), None),
    "inv_boxcox1p": (lambda out, y, k: (1 + out) ** (1 - k), None),
    # Bessel functions of any order
    "jv": of_order(0.5, -0.5, "jv"),
    "yv": of_order(0.5, -0.5, "yv"),
    "yn": of_order(0.5, -0.5, "yv"),
    "iv": of_order(0.5, 0.5, "iv"),
    "kv": of_order(-0.5, -0.5, "kv"),
    "kn": of_order(-0.5, -0.5, "kv"),
    "ive": (None, lambda out, v, x: (special().ive(v - 1, x) + special().ive(v + 1, x)) / 2 - np.sign(x) * out),
    "kve": (None, lambda out, v, x: out - (special().kve(v - 1, x) + special().kve(v + 1, x)) / 2),
    # hypergeometric and elliptic
    "hyp0f1": (None, lambda out, b, x: special().hyp0f1(b + 1, x) / b),
    "hyp1f1": (None, None, lambda out, a, b, x: a / b * special().hyp1f1(a + 1, b + 1, x)),
    "hyp2f1": (None, None, None, lambda out, a, b, c, x: a * b / c * special().hyp2f1(a + 1, b + 1, c + 1, x)),
    "hyperu": (None, None, lambda out, a, b, x: -a * special().hyperu(a + 1, b + 1, x)),
    "ellipk": (lambda out, m: (special().ellipe(m) / (1 - m) - out) / (2 * m),),
    "ellipe": (lambda out, m: (out - special().ellipk(m)) / (2 * m),),
}

"""Random tensors. `generator=` chooses where the numbers come from; by default all threads share one generator.

Drawing has no derivative with respect to the numbers drawn: as in PyTorch, the gradient of a sample with respect to its
parameters is zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, namespace_of
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.silence import quietly
from undertow.compiled import shortcut
from undertow.modes import Interceptor, current
from undertow.ops.arguments.sizes import as_int
from undertow.ops.create.creation import as_shape, float_dtype, leaf, sequence_shape
from undertow.ops.create.like import made_like
from undertow.ops.declare import composite, nondifferentiable, primitive
from undertow.ops.declare.rules import ELEMENTWISE, LOOP
from undertow.ops.inplace.forms import in_place
from undertow.ops.pointwise.unary import not_implemented
from undertow.ops.random import draw as draw
from undertow.ops.random.generator import as_generator, usual_stream
from undertow.scopes import common_lock
from undertow.tensor import Tensor, current_edge
from undertow.tensor.memory_formats import made_in_order

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.ops.random.generator import Generator


def _intercepted(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let vmap decide what a function that draws does in it."""

    @functools.wraps(function)
    def draw_or_ask(*args: Any, **kwargs: Any) -> Tensor:
        intercept = current().intercept
        if isinstance(intercept, Interceptor):
            return intercept.draw(draw_or_ask, args, kwargs)
        return function(*args, **kwargs)

    return draw_or_ask


# ---- a shape


def drawn_on(
    device: Device | str | int | None,
    shape: tuple[int, ...],
    dtype: DType,
    requires_grad: bool,
    numbers: Callable[[], Array],
) -> Tensor:
    """A new tensor of random numbers; on the meta device nothing is drawn."""
    xp = namespace_of(device)
    return leaf(xp.empty(shape, dtype) if xp.device.type == "meta" else quietly(numbers), xp, requires_grad)


@composite(out=True, random="new")
@shortcut(usual_stream, common_lock)
@_intercepted
def rand(
    *shape: Any,
    size: int | Sequence[int] | None = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Numbers drawn uniformly from [0, 1).

    *shape  the sizes, one by one or as one list
    size    the same by name

    >>> import undertow as ut
    >>> ut.rand(2, 3).shape
    undertow.Size([2, 3])
    """
    source, dtype = as_generator("rand", generator, namespace_of(device)), float_dtype(dtype, "rand")
    sizes = as_shape("rand", shape, size)
    return drawn_on(device, sizes, dtype, requires_grad, lambda: draw.unit_interval(source, sizes, dtype))


@composite(out=True, random="new")
@shortcut(usual_stream, common_lock)
@_intercepted
def randn(
    *shape: Any,
    size: int | Sequence[int] | None = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Numbers drawn from the normal distribution with mean 0 and variance 1.

    *shape  the sizes, one by one or as one list
    size    the same by name

    >>> import undertow as ut
    >>> ut.randn(2, 3, requires_grad=True).requires_grad
    True
    """
    source, dtype = as_generator("randn", generator, namespace_of(device)), float_dtype(dtype, "randn")
    sizes = as_shape("randn", shape, size)
    return drawn_on(device, sizes, dtype, requires_grad, lambda: draw.standard_normal(source, sizes, dtype))


def bounds(function: str, args: tuple[Any, ...], low: Any, high: Any) -> tuple[int, int]:
    """`high`, or `low, high`, by position or by name."""
    if len(args) == 2:
        low, high = args
    elif args:
        low, high = (args[0], high) if high is not None else (low, args[0])
    if high is None or len(args) > 2:
        raise TypeError(f"{function}() takes high, or low and high")
    return as_int(function, "low", 0 if low is None else low), as_int(function, "high", high)


@composite(out=True, random="new")
@shortcut(usual_stream, common_lock)
@_intercepted
def randint(
    *args: Any,
    low: Any = None,
    high: Any = None,
    size: int | Sequence[int] | None = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Integers from low (0 if left out), ..., high - 1: `randint(high, size)`, `randint(low, high, size)`.

    *args  the bounds, as above; `low` and `high` are their names

    >>> import undertow as ut
    >>> ut.randint(5, 6, (2,))
    tensor([5, 5])
    """
    if size is None:
        if not args:
            raise TypeError('randint() missing 1 required positional arguments: "size"')
        args, size = args[:-1], args[-1]
    shape = sequence_shape("randint", size)
    lowest, end = bounds("randint", args, low, high)
    dtype = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype, "randint")
    source = as_generator("randint", generator, namespace_of(device))
    return drawn_on(device, shape, dtype, requires_grad, lambda: draw.integers(source, shape, dtype, lowest, end))


@composite(out=True, random="new")
@shortcut(usual_stream, common_lock)
@_intercepted
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The integers 0, ..., n - 1 in random order.

    >>> import undertow as ut
    >>> ut.randperm(4).sort()[0]
    tensor([0, 1, 2, 3])
    """
    n = as_int("randperm", "n", n)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    dtype = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype, "randperm")
    source = as_generator("randperm", generator, namespace_of(device))
    return drawn_on(device, (n,), dtype, requires_grad, lambda: draw.permutation(source, n, dtype))


# ---- the shape of another tensor


def _drawn_like(
    xp: Namespace, input: Array, function: str, drawn_from: Any, sample: Callable[..., Any], dtype: DType, order: str
) -> Array:
    out = made_in_order(input, order, lambda source, order: xp.empty_like(source, dtype=dtype, order=order))
    source = as_generator(function, drawn_from, xp)
    out[...] = draw.in_memory_order(out, lambda shape: sample(source, shape, dtype, draw.in_order(out)))
    return out


_draw_like = nondifferentiable(
    "_draw_like",
    forward=_drawn_like,
    inputs=("input",),
    batch=ELEMENTWISE,
    half_precision="as_is",
    order="as_computed",
)


def _sample_like(
    name: str,
    generator: Generator | None,
    sample: Callable[..., Any],
    input: Array,
    dtype: DType | None,
    device: Device | str | int | None,
    requires_grad: bool,
    memory_format: Any,
) -> Tensor:
    """A tensor of `sample(source, shape, dtype, contiguous)`, with the shape of `input`, and its dtype or another."""
    make = lambda dtype, order: _draw_like(input, name, generator, sample, dtype, order)
    return made_like(name, input, make, dtype, device, requires_grad, memory_format)


@composite(random="like")
@_intercepted
def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`rand` with the shape, dtype and device of `input`.

    >>> import undertow as ut
    >>> ut.rand_like(ut.tensor([[1.0, 2.0], [3.0, 4.0]])).shape
    undertow.Size([2, 2])
    """
    sample = lambda source, shape, dtype, contiguous: draw.unit_interval(source, shape, dtype)
    return _sample_like("rand_like", generator, sample, input, dtype, device, requires_grad, memory_format)


@composite(random="like")
@_intercepted
def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`randn` with the shape, dtype and device of `input`.

    >>> import undertow as ut
    >>> ut.randn_like(ut.tensor([[1.0, 2.0], [3.0, 4.0]])).shape
    undertow.Size([2, 2])
    """
    sample = lambda source, shape, dtype, contiguous: draw.normal(source, shape, dtype, contiguous=contiguous)
    return _sample_like("randn_like", generator, sample, input, dtype, device, requires_grad, memory_format)


@composite(random="like")
@_intercepted
def randint_like(
    input: Tensor,
    *args: Any,
    low: Any = None,
    high: Any = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`randint` with the shape, dtype and device of `input`: `randint_like(t, high)`, `randint_like(t, low, high)`.

    *args  the bounds, as above; `low` and `high` are their names

    >>> import undertow as ut
    >>> ut.randint_like(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), 5).shape
    undertow.Size([2, 2])
    """
    lowest, end = bounds("randint_like", args, low, high)
    sample = lambda source, shape, dtype, contiguous: draw.integers(source, shape, dtype, lowest, end)
    return _sample_like("randint_like", generator, sample, input, dtype, device, requires_grad, memory_format)


# ---- parameters in tensors

_zero = lambda xp, g: xp.zeros_like(g)


def _bernoulli(xp: Namespace, input: Array, p: Any = None, *, generator: Generator | None = None) -> Array:
    source = as_generator("bernoulli", generator, xp)
    if p is None:
        return xp.asarray(draw.bernoulli(source, input.shape, input.dtype, input))
    return xp.asarray(draw.in_memory_order(input, lambda shape: draw.bernoulli(source, shape, input.dtype, p)))


#: bernoulli(input): 1 with the probabilities in `input`; bernoulli(input, p): with probability p, in the shape of input
bernoulli = primitive(
    "bernoulli",
    _bernoulli,
    vjp={"input": _zero},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    variants="function method",
    random="given",
    order="rows",
)

poisson = primitive(
    "poisson",
    forward=lambda xp, input, generator=None: xp.asarray(draw.poisson(as_generator("poisson", generator, xp), input)),
    vjp={"input": _zero},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    random="given",
    order="rows",
)

NOT_CONTINUOUS = "A count of successes is not continuous in what it is drawn from"

binomial = primitive(
    "binomial",
    forward=lambda xp, count, prob, generator=None: xp.asarray(
        draw.binomial(as_generator("binomial", generator, xp), *xp.broadcast_arrays(count, prob))
    ),
    vjp={"count": not_implemented("binomial", NOT_CONTINUOUS), "prob": not_implemented("binomial", NOT_CONTINUOUS)},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="NotImplemented",
    random="given",
    order="rows",
)

# ---- gamma variables, and what is made of them

SLOPE_OF_SLOPE = "The slope of a sample has no derivative here"

_standard_gamma = primitive(
    "_standard_gamma",
    forward=lambda xp, input, generator=None: xp.asarray(
        draw.standard_gamma(as_generator("_standard_gamma", generator, xp), input)
    ),
    vjp={"input": lambda xp, g, input, out: g * xp._standard_gamma_grad(input, out)},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    variants="function",
    random="given",
    order="rows",
)


def _slope_of_gamma(xp: Namespace, input: Array, output: Array) -> Array:
    from undertow.ops.pointwise.special.quantile_slopes import gamma_slope  # few programs need it

    return gamma_slope(xp, input, output)


_standard_gamma_grad = primitive(
    "_standard_gamma_grad",
    forward=_slope_of_gamma,
    vjp=dict.fromkeys(("input", "output"), not_implemented("_standard_gamma_grad", SLOPE_OF_SLOPE)),
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    variants="function",
    node="NotImplemented",
)

_sample_dirichlet = primitive(
    "_sample_dirichlet",
    forward=lambda xp, input, generator=None: xp.asarray(
        draw.dirichlet(as_generator("_sample_dirichlet", generator, xp), input)
    ),
    vjp={"input": not_implemented("_sample_dirichlet", "Dirichlet.rsample() has the derivative of samples")},
    jvp={"input": not_implemented("_sample_dirichlet", "Dirichlet.rsample() has the derivative of samples")},
    batch=LOOP,
    variants="function",
    node="NotImplemented",
    random="given",
)


def _slope_of_dirichlet(xp: Namespace, x: Array, alpha: Array, total: Array) -> Array:
    """How a beta variable with the parameters alpha and total - alpha moves with alpha, over 1 - x."""
    from undertow.ops.pointwise.special.quantile_slopes import beta_slope  # few programs need it

    return beta_slope(xp, x, alpha, total - alpha) / (1 - x)


_dirichlet_grad = primitive(
    "_dirichlet_grad",
    forward=_slope_of_dirichlet,
    vjp=dict.fromkeys(("x", "alpha", "total"), not_implemented("_dirichlet_grad", SLOPE_OF_SLOPE)),
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    variants="function",
    node="NotImplemented",
)

multinomial = nondifferentiable(
    "multinomial",
    forward=lambda xp, input, num_samples, replacement=False, *, generator=None: draw.multinomial(
        as_generator("multinomial", generator, xp), input, num_samples, replacement
    ),
    inputs=("input",),
    batch=LOOP,
    variants="function method",
    random="given",
)

_normal_of_mean = primitive(
    "_normal_of_mean",
    forward=lambda xp, mean, std, *, generator=None: xp.asarray(
        draw.normal(as_generator("normal", generator, xp), mean.shape, mean.dtype, mean, std)
    ),
    vjp={"mean": _zero},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="NormalBackward1",
    half_precision="as_is",
    random="given",
    order="rows",
)

_normal_of_std = primitive(
    "_normal_of_std",
    forward=lambda xp, mean, std, *, generator=None: xp.asarray(
        draw.normal(as_generator("normal", generator, xp), std.shape, std.dtype, mean, std)
    ),
    vjp={"std": _zero},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="NormalBackward2",
    half_precision="as_is",
    random="given",
    order="rows",
)

_normal_of_both = primitive(
    "_normal_of_both",
    forward=lambda xp, mean, std, *, generator=None: xp.asarray(
        draw.normal(
            as_generator("normal", generator, xp), xp.broadcast_shapes(mean.shape, std.shape), mean.dtype, mean, std
        )
    ),
    vjp={"mean": _zero, "std": _zero},
    jvp=ELEMENTWISE,
    batch=ELEMENTWISE,
    node="NormalBackward3",
    half_precision="as_is",
    random="given",
    order="rows",
)


@composite(out=True, random="given")
@_intercepted
def normal(
    mean: Array,
    std: Array = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Numbers drawn from normal distributions: `normal(mean, std)` with tensors, `normal(0.0, 1.0, size)` with numbers.

    >>> import undertow as ut
    >>> ut.normal(ut.zeros(3), 1.0).shape
    undertow.Size([3])
    """
    mean, std = [Tensor(v, cpu) if isinstance(v, cpu.ndarray) else v for v in (mean, std)]
    tensors = isinstance(mean, Tensor), isinstance(std, Tensor)
    if any(tensors) != (size is None):
        raise TypeError(
            "normal() received an invalid combination of arguments: it takes tensors for mean and/or std, or numbers "
            "for both and a size"
        )
    if not any(tensors):
        shape, dtype = sequence_shape("normal", size), float_dtype(dtype, "normal")
        source = as_generator("normal", generator, namespace_of(device))
        return drawn_on(device, shape, dtype, requires_grad, lambda: draw.normal(source, shape, dtype, mean, std))
    form = {(True, False): _normal_of_mean, (False, True): _normal_of_std, (True, True): _normal_of_both}[tensors]
    return form(mean, std, generator=generator)


# ---- in place


def _filler(name: str, sample: Callable[..., Any], node: str | None = None) -> Any:
    """The operation whose in-place form is `name`: it draws into the shape and dtype of its input."""
    node = node or "".join(part.capitalize() for part in name.strip("_").split("_")) + "Backward0"
    rules: dict[str, Any] = {"vjp": {"input": _zero}, "jvp": ELEMENTWISE, "batch": ELEMENTWISE}
    return primitive("_" + name.rstrip("_"), sample, node=node, half_precision="as_is", random="like", **rules)


def _uniform(
    xp: Namespace, input: Array, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None
) -> Array:
    source = as_generator("uniform_", generator, xp)
    return draw.in_memory_order(input, lambda shape: draw.uniform(source, shape, input.dtype, low, high))


def _normal(
    xp: Namespace, input: Array, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Array:
    source, ordered = as_generator("normal_", generator, xp), draw.in_order(input)
    return draw.in_memory_order(input, lambda shape: draw.normal(source, shape, input.dtype, mean, std, ordered))


def _exponential(xp: Namespace, input: Array, lambd: float = 1.0, *, generator: Generator | None = None) -> Array:
    source = as_generator("exponential_", generator, xp)
    return draw.in_memory_order(input, lambda shape: draw.exponential(source, shape, input.dtype, lambd))


def _cauchy(
    xp: Namespace, input: Array, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Array:
    source = as_generator("cauchy_", generator, xp)
    return draw.in_memory_order(input, lambda shape: draw.cauchy(source, shape, input.dtype, median, sigma))


def _log_normal(
    xp: Namespace, input: Array, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Array:
    source = as_generator("log_normal_", generator, xp)
    return draw.in_memory_order(input, lambda shape: draw.log_normal(source, shape, input.dtype, mean, std))


def _geometric(xp: Namespace, input: Array, p: float, *, generator: Generator | None = None) -> Array:
    source = as_generator("geometric_", generator, xp)
    return draw.in_memory_order(input, lambda shape: draw.geometric(source, shape, input.dtype, p))


def _random(xp: Namespace, input: Array, low: Any, high: Any, *, generator: Generator | None = None) -> Array:
    source, dtype = as_generator("random_", generator, xp), input.dtype
    lowest, end = draw.random_range(dtype, low, high)
    if low is None and high is None:
        return draw.in_memory_order(input, lambda shape: draw.any_integers(source, shape, dtype))
    return draw.in_memory_order(input, lambda shape: draw.integers(source, shape, dtype, lowest, end))


def _bernoulli_like(xp: Namespace, input: Array, p: Any, *, generator: Generator | None = None) -> Array:
    source = as_generator("bernoulli_", generator, xp)
    if isinstance(p, tuple):
        return draw.bernoulli(source, input.shape, input.dtype, xp.broadcast_to(p[0]._array, input.shape))
    return draw.in_memory_order(input, lambda shape: draw.bernoulli(source, shape, input.dtype, p))


def _filling(name: str, sample: Callable[..., Any], about: str) -> Any:
    """The in-place form of an operation that draws into its input, described."""
    change = in_place(name, _filler(f"{name}_", sample))
    change.__doc__ = about
    return change


_fill_random = in_place("random", _filler("random_", _random))
_fill_uniform = in_place("uniform", _filler("uniform_", _uniform))
_fill_bernoulli = in_place("bernoulli", _filler("bernoulli_like_", _bernoulli_like, node="BernoulliBackward2"))


def random_(self: Tensor, *bounds: Any, generator: Generator | None = None, **named: Any) -> Tensor:
    """Fill with integers: random_() all that the dtype holds, random_(to) below `to`, random_(from, to) between.

    *bounds  none, one or two integers, as above
    **named  or `from` and `to`

    >>> import undertow as ut
    >>> bool((ut.empty(5).random_(3) < 3).all())
    True
    """
    if len(bounds) > 2:
        raise TypeError(f"random_() takes at most from and to, got {len(bounds)} bounds")
    if named:
        bounds = _bounds("random_", bounds, named, None)
    low, high = (None, None, *bounds)[-2:]
    checked = [None if b is None else as_int("random_", n, b) for n, b in (("from", low), ("to", high))]
    return _fill_random(self, *checked, generator=generator)


@shortcut(usual_stream, common_lock)
def uniform_(self: Tensor, *bounds: Any, generator: Generator | None = None, **named: Any) -> Tensor:
    """Fill with numbers drawn uniformly from [from, to), which is [0, 1) unless given.

    *bounds  from and to
    **named  or `from` and `to` by name
    """
    if named:
        bounds = _bounds("uniform_", bounds, named, 0.0)
    return _fill_uniform(self, *bounds, generator=generator)


def _bounds(name: str, bounds: tuple[Any, ...], named: dict[str, Any], lowest: Any) -> tuple[Any, ...]:
    """The bounds in order, of which some were given by PyTorch's names; `from` is no name of a parameter in Python."""
    places = ("from", "to")[len(bounds) :]
    unknown = [n for n in named if n not in places]
    if unknown:
        raise TypeError(f"{name}() got an unexpected keyword argument '{unknown[0]}'; its bounds are from and to")
    found = dict(zip(("from", "to"), bounds, strict=False)) | named
    if lowest is None and "to" not in found:
        raise TypeError(f"{name}() takes from only together with to")
    return (found.get("from", lowest), found["to"]) if "to" in found else (found["from"],)


def bernoulli_(self: Tensor, p: Array = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 (with probability p, a number or a tensor that broadcasts) and 0."""
    if isinstance(p, Tensor) and current_edge(p) is not None:
        raise RuntimeError("bernoulli_(): p must not require grad: detach() it")
    # in a tuple, because an option that is a tensor is taken for a number
    return _fill_bernoulli(self, (p,) if isinstance(p, Tensor) else p, generator=generator)


#: attribute -> function; `methods.py` puts them on Tensor
METHODS = {
    "bernoulli_": bernoulli_,
    "cauchy_": _filling(
        "cauchy",
        _cauchy,
        "Fill with numbers of Cauchy distribution.\n\n"
        "*args, **kwargs  `median` (0) and `sigma` (1), half the width at half the height; `generator` by name",
    ),
    "exponential_": _filling(
        "exponential",
        _exponential,
        "Fill with exponentially distributed numbers, whose mean is 1 / `lambd`.\n\n"
        "*args, **kwargs  `lambd` (1); `generator` by name",
    ),
    "geometric_": _filling(
        "geometric",
        _geometric,
        "Fill with how many tries it takes to succeed, 1 or more.\n\n"
        "*args, **kwargs  `p`, the probability of success of each try; `generator` by name",
    ),
    "log_normal_": _filling(
        "log_normal",
        _log_normal,
        "Fill with numbers whose logarithms are normally distributed.\n\n"
        "*args, **kwargs  `mean` (1) and `std` (2) of the logarithms; `generator` by name",
    ),
    "normal_": shortcut(usual_stream, common_lock)(in_place("normal", _filler("normal_", _normal))),
    "random_": random_,
    "uniform_": uniform_,
}

"""Random arrays: each function draws one distribution in a given shape and dtype, after checking its arguments."""

from __future__ import annotations

from typing import Any

from undertow.backend import DeviceArray, cpu, dtypes
from undertow.ops.generator import Generator
from undertow.ops.operands import type_name

_SINGLE_OR_DOUBLE = {dtypes.float32: dtypes.float32, dtypes.float64: dtypes.float64}
_HALF_STEPS = 2**11


def unsupported(kernel: str, dtype: Any) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.SCALAR_NAMES[dtype]}'")


def standard(generator: Generator, distribution: str, shape: Any, dtype: Any) -> Any:
    """Draw in the dtype's own precision where NumPy can (float32, float64); in float32 otherwise."""
    drawn = generator.draw(distribution, shape, dtype=_SINGLE_OR_DOUBLE.get(dtype, dtypes.float32))
    return cpu.asarray(drawn, dtype=dtype)


def both_parts(draw: Any, generator: Generator, shape: Any, dtype: Any) -> Any:
    """A complex array whose real and imaginary parts are drawn alike."""
    return draw(generator, (*shape, 2), dtypes.real_of(dtype)).view(dtype).reshape(shape)


# ---- continuous


def unit_interval(generator: Generator, shape: Any, dtype: Any) -> Any:
    """Uniform in [0, 1), for complex dtypes in both parts."""
    if dtype.kind == "c":
        return both_parts(unit_interval, generator, shape, dtype)
    if dtype.kind != "f":
        raise unsupported("check_uniform_bounds", dtype)
    if dtype is dtypes.float16:  # a float32 draw just below 1 would round up to 1
        return cpu.asarray(generator.draw("integers", _HALF_STEPS, size=shape) / _HALF_STEPS, dtype=dtype)
    return standard(generator, "random", shape, dtype)


def uniform(generator: Generator, shape: Any, dtype: Any, low: float = 0.0, high: float = 1.0) -> Any:
    """Uniform in [low, high)."""
    if not low <= high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    drawn = unit_interval(generator, shape, dtype)
    limits = cpu.finfo(dtype)
    for name, bound in (("from", low), ("to", high)):
        if not limits.min <= bound <= limits.max:
            raise RuntimeError(f"{name} is out of bounds for {dtype}")
    if (low, high) == (0, 1):
        return drawn
    scaled = drawn * (high - low) + low
    return scaled if dtype.kind == "c" else keep_below(scaled, low, high)


def keep_below(values: Any, low: float, high: float) -> Any:
    """Undo what rounding did: no value may be `high` itself."""
    last = cpu.nextafter(values.dtype.type(high), values.dtype.type(low))
    return cpu.asarray(cpu.minimum(values, last))


def on_host(parameter: Any) -> Any:
    """Random numbers are drawn on the CPU, so parameters that lie on a device come there."""
    return parameter.to_host() if isinstance(parameter, DeviceArray) else parameter


def standard_normal(generator: Generator, shape: Any, dtype: Any) -> Any:
    """Normal with mean 0 and variance 1; the parts of a complex number share the variance."""
    if dtype.kind == "c":
        return both_parts(standard_normal, generator, shape, dtype) * dtypes.real_of(dtype).type(0.5**0.5)
    if dtype.kind != "f":
        raise unsupported("normal_kernel_cpu", dtype)
    return standard(generator, "standard_normal", shape, dtype)


def normal(generator: Generator, shape: Any, dtype: Any, mean: Any = 0.0, std: Any = 1.0) -> Any:
    """Normal; mean and std are numbers or arrays that broadcast to the shape."""
    mean, std = on_host(mean), on_host(std)
    if isinstance(std, cpu.ndarray):
        if std.dtype.kind == "c":
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if (std < 0).any():
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    return cpu.asarray(standard_normal(generator, shape, dtype) * std + mean, dtype=dtype)


def exponential(generator: Generator, shape: Any, dtype: Any, lambd: float = 1.0) -> Any:
    check_continuous("Exponential", dtype)
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return cpu.asarray(standard(generator, "standard_exponential", shape, dtype) / lambd, dtype=dtype)


def cauchy(generator: Generator, shape: Any, dtype: Any, median: float = 0.0, sigma: float = 1.0) -> Any:
    check_continuous("Cauchy", dtype)
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return cpu.asarray(median + sigma * generator.draw("standard_cauchy", shape), dtype=dtype)


def log_normal(generator: Generator, shape: Any, dtype: Any, mean: float = 1.0, std: float = 2.0) -> Any:
    if dtype.kind != "f":
        raise unsupported("log_normal_cpu", dtype)
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    return cpu.asarray(cpu.exp(mean + std * generator.draw("standard_normal", shape)), dtype=dtype)


def check_continuous(name: str, dtype: Any) -> None:
    if dtype.kind != "f":
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a floating point but you "
            f"specified {dtypes.SCALAR_NAMES[dtype]}"
        )


# ---- discrete


def bernoulli(generator: Generator, shape: Any, dtype: Any, p: Any) -> Any:
    """1 with probability p (a number or an array), else 0."""
    p = on_host(p)
    if dtype.kind == "c":
        raise unsupported("bernoulli_scalar_cpu_", dtype)
    if isinstance(p, cpu.ndarray):
        if p.dtype.kind != "f":
            raise unsupported("bernoulli_tensor_cpu_p_", p.dtype)
        if not ((p >= 0) & (p <= 1)).all():
            raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true: every probability must lie in [0, 1]")
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return cpu.asarray(generator.draw("random", shape) < p, dtype=dtype)


def geometric(generator: Generator, shape: Any, dtype: Any, p: float) -> Any:
    """The number of trials until the first success."""
    if dtype.kind in "cb":
        raise unsupported("geometric_cpu", dtype)
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return cpu.asarray(generator.draw("geometric", p, shape), dtype=dtype)


def poisson(generator: Generator, rate: Any) -> Any:
    rate = on_host(rate)
    if rate.dtype.kind != "f":
        raise unsupported("poisson_cpu", rate.dtype)
    if not (rate >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    return cpu.asarray(generator.draw("poisson", rate), dtype=rate.dtype)


def binomial(generator: Generator, count: Any, prob: Any) -> Any:
    count, prob = on_host(count), on_host(prob)
    for name, array in (("count", count), ("prob", prob)):
        if array.dtype.kind != "f":
            raise ValueError(f"binomial only supports floating-point dtypes for {name}, got: {type_name(array)}")
    if not ((prob >= 0) & (prob <= 1)).all() or not (count >= 0).all():
        raise RuntimeError("binomial expects prob in [0, 1] and count >= 0")
    return cpu.asarray(generator.draw("binomial", count.astype(dtypes.int64), prob), dtype=count.dtype)


def integers(generator: Generator, shape: Any, dtype: Any, low: int, high: int) -> Any:
    """Uniform in low, ..., high - 1."""
    if dtype.kind == "c":
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    lowest, highest = integer_bounds(dtype)
    for name, bound in (("from", low), ("to - 1", high - 1)):
        if not lowest <= bound <= highest:
            raise RuntimeError(f"{name} is out of bounds for {dtype}")
    if dtype.kind == "f":
        return cpu.asarray(generator.draw("integers", low, high, shape, dtype=dtypes.int64), dtype=dtype)
    return cpu.asarray(generator.draw("integers", low, high, shape, dtype=dtype))


def integer_bounds(dtype: Any) -> tuple[int, int]:
    """The least and the greatest integer that the dtype holds (and that is drawn, for a float dtype)."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind == "f":
        greatest = min(int(cpu.finfo(dtype).max), 2**63 - 1)
        return -greatest, greatest
    return int(cpu.iinfo(dtype).min), int(cpu.iinfo(dtype).max)


def random_range(dtype: Any, low: int | None, high: int | None) -> tuple[int, int]:
    """What `random_(low, high)` draws from: without bounds, all non-negative integers that the dtype holds exactly."""
    if dtype.kind == "c":
        raise unsupported("random_kernel_cpu", dtype)
    if high is None and low is None and dtype.kind == "f":
        return 0, 2 ** (cpu.finfo(dtype).nmant + 1) + 1
    if high is None:
        return low or 0, integer_bounds(dtype)[1] + 1
    return low or 0, high


def permutation(generator: Generator, n: int, dtype: Any) -> Any:
    if n and not integer_bounds(dtype)[1] >= n - 1:
        raise RuntimeError(f"value cannot be converted to type {dtype} without overflow: n is too large: {n}")
    return cpu.asarray(generator.draw("permutation", n), dtype=dtype)


# ---- weighted choice


def multinomial(generator: Generator, weights: Any, samples: int, replacement: bool) -> Any:
    """Indices along the last dimension, drawn with probabilities proportional to the weights."""
    check_weights(weights, samples, replacement)
    weights = weights.astype(dtypes.float64)
    if replacement:
        return with_replacement(generator, weights, samples)
    # the order in which exponential clocks of these rates ring is the order of draws without replacement
    clocks = generator.draw("standard_exponential", weights.shape)
    with cpu.errstate(divide="ignore", invalid="ignore"):
        rings = cpu.where(weights > 0, clocks / weights, cpu.inf)
    return cpu.argsort(rings, axis=-1, kind="stable")[..., :samples].astype(dtypes.int64)


def with_replacement(generator: Generator, weights: Any, samples: int) -> Any:
    sums = cpu.cumsum(weights, axis=-1)
    points = generator.draw("random", (*weights.shape[:-1], samples)) * sums[..., -1:]
    # a point that rounding put on the very end belongs to the last category with weight
    points = cpu.minimum(points, cpu.nextafter(sums[..., -1:], 0))
    return (points[..., None] >= sums[..., None, :]).sum(-1, dtype=dtypes.int64)


def check_weights(weights: Any, samples: int, replacement: bool) -> None:
    if weights.ndim not in (1, 2):
        raise RuntimeError(f"prob_dist must be 1 or 2 dim, got {weights.ndim}")
    if weights.dtype.kind != "f":
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {type_name(weights)}")
    if samples <= 0:
        raise RuntimeError(f"cannot sample n_sample <= 0 samples, got {samples}")
    if not replacement and samples > weights.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if not (cpu.isfinite(weights) & (weights >= 0)).all():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not (weights > 0).any(axis=-1).all():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if not replacement and ((weights > 0).sum(axis=-1) < samples).any():
        raise RuntimeError(
            "invalid multinomial distribution (with replacement=False, not enough non-negative category to sample): "
            f"{samples} samples need as many categories with a probability above 0"
        )

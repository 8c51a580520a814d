"""Random arrays: each function draws one distribution in a given shape and dtype, after checking its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from undertow.backend import DeviceArray, cpu, dtypes, namespace_of_array
from undertow.backend.interface import Array, DType
from undertow.ops.arguments.operands import type_name
from undertow.ops.random.generator import Generator
from undertow.ops.random.mersenne_twister import BLOCK, WIDE

#: what most numbers are drawn in, and computed in while they are drawn
USUAL = (dtypes.float32, dtypes.float64)


def unsupported(kernel: str, dtype: DType) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.SCALAR_NAMES[dtype]}'")


def drawn(generator: Generator, numbers: str, shape: Sequence[int], *args: Any) -> Array:
    return generator.draw(numbers, math.prod(shape), *args).reshape(shape)


def _precise(dtype: DType) -> DType:
    """What numbers of a dtype are computed in."""
    return dtype if dtype == dtypes.float64 else dtypes.float32


def parts(draw: Callable[..., Any], generator: Generator, shape: Sequence[int], dtype: DType, *args: Any) -> Array:
    """A complex array whose real and imaginary parts are drawn alike."""
    return draw(generator, (*shape, 2), dtypes.real_of(dtype), *args).view(dtype).reshape(shape)


def in_order(like: Array) -> bool:
    """Whether elements lie in memory in the order of their indices."""
    has_memory = isinstance(like, cpu.ndarray) or like.device.type == "cuda"
    return not has_memory or like.flags.c_contiguous


def in_memory_order(like: Array, sample: Callable[[Any], Any]) -> Array:
    """Numbers for the elements of an array: the first for the first in memory, as PyTorch fills tensors."""
    if isinstance(like, DeviceArray) and like.device.type == "meta":
        return like  # nothing is drawn for what has no values
    if in_order(like):
        return sample(like.shape)
    order = sorted(range(like.ndim), key=lambda dim: -abs(like.strides[dim]))
    numbers = sample(tuple(like.shape[dim] for dim in order))
    return numbers.transpose(sorted(range(like.ndim), key=order.__getitem__))


# ---- continuous


def unit_interval(generator: Generator, shape: Sequence[int], dtype: DType) -> Array:
    """Uniform in [0, 1), for complex dtypes in both parts."""
    if dtype in USUAL and not generator.is_of_gpu:
        return drawn(generator, "fractions", shape, dtype)
    return uniform(generator, shape, dtype)


def uniform(generator: Generator, shape: Sequence[int], dtype: DType, low: float = 0.0, high: float = 1.0) -> Array:
    """Uniform in [low, high)."""
    if not low <= high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    if dtype.kind == "c":
        return parts(uniform, generator, shape, dtype, low, high)
    if not dtypes.is_floating(dtype):
        raise unsupported("check_uniform_bounds", dtype)
    limits = dtypes.float_limits(dtype)
    for name, bound in (("from", low), ("to", high)):
        if not limits.min <= bound <= limits.max:
            raise RuntimeError(f"{name} is out of bounds for {dtype}")
    if generator.is_of_gpu:
        start, end = dtype.type(low), dtype.type(high)
        return generator.draw("fill", "uniform", shape, dtype, start, end, end - start)
    numbers = drawn(generator, "fractions", shape, _precise(dtype))
    if (low, high) == (0, 1) and dtype == numbers.dtype:
        return numbers
    start, end = numbers.dtype.type(low), numbers.dtype.type(high)
    numbers = cpu.asarray(scaled(numbers, end - start, start), dtype=dtype)
    # rounding may have reached the end, which does not belong to the interval
    return cpu.where(numbers == dtype.type(high), dtype.type(low), numbers)


def scaled(numbers: Array, factor: Array, start: Array) -> Array:
    """numbers * factor + start, rounded once, as processors do it."""
    if start == 0 and factor == 1:
        return numbers
    if numbers.dtype == dtypes.float64 or start == 0:
        return numbers * numbers.dtype.type(factor) + numbers.dtype.type(start)
    return (numbers * dtypes.float64.type(numbers.dtype.type(factor)) + numbers.dtype.type(start)).astype(numbers.dtype)


def _on_host(parameter: Array) -> Any:
    """What is drawn on the CPU needs its parameters there."""
    return parameter.to_host() if isinstance(parameter, DeviceArray) else parameter


def standard_normal(generator: Generator, shape: Sequence[int], dtype: DType) -> Array:
    """Normal with mean 0 and variance 1; the parts of a complex number share the variance."""
    if dtype not in USUAL or generator.is_of_gpu:
        return normal(generator, shape, dtype)
    if math.prod(shape) < BLOCK:
        return cpu.asarray(drawn(generator, "normals", shape), dtype=dtype)
    return drawn(generator, "normal_blocks", shape, dtype, False)


def normal(
    generator: Generator,
    shape: Sequence[int],
    dtype: DType,
    mean: Array = 0.0,
    std: Array = 1.0,
    contiguous: bool = True,
) -> Array:
    """Normal; mean and std are numbers or arrays that broadcast to the shape."""
    if not generator.is_of_gpu:
        mean, std = _on_host(mean), _on_host(std)
    _check_deviation(std)
    arrays = _is_array(mean), _is_array(std)
    if not any(arrays):
        return _normal_of_numbers(generator, shape, dtype, mean, std, contiguous)
    numbers = _normal_of_numbers(generator, shape, dtype, 0.0, 1.0 if arrays[1] else std, contiguous)
    return namespace_of_array(numbers).asarray((numbers * std if arrays[1] else numbers) + mean, dtype=dtype)


def _is_array(parameter: Array) -> bool:
    return isinstance(parameter, (cpu.ndarray, DeviceArray))


def _check_deviation(std: Array) -> None:
    if _is_array(std):
        if std.dtype.kind == "c":
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if (std < 0).any():
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")


def _normal_of_numbers(
    generator: Generator, shape: Sequence[int], dtype: DType, mean: float, std: float, contiguous: bool = True
) -> Array:
    if dtype.kind == "c":
        return parts(_normal_of_numbers, generator, shape, dtype, mean, std / math.sqrt(2), contiguous)
    if not dtypes.is_floating(dtype):
        raise unsupported("normal_kernel_cpu", dtype)
    if generator.is_of_gpu:
        return generator.draw("fill", "normal", shape, dtype, mean, std)
    if math.prod(shape) < BLOCK or not contiguous:
        numbers = drawn(generator, "normals", shape)
    else:
        numbers = drawn(generator, "normal_blocks", shape, _precise(dtype), dtype != _precise(dtype))
    return cpu.asarray(scaled(numbers, std, mean), dtype=dtype)


def exponential(generator: Generator, shape: Sequence[int], dtype: DType, lambd: float = 1.0) -> Array:
    _check_continuous("Exponential", dtype)
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    if generator.is_of_gpu:
        return generator.draw("fill", "exponential", shape, dtype, lambd, dtypes.float_limits(_precise(dtype)).eps / 2)
    return cpu.asarray(-1 / lambd * cpu.log1p(-drawn(generator, "doubles", shape)), dtype=dtype)


def cauchy(generator: Generator, shape: Sequence[int], dtype: DType, median: float = 0.0, sigma: float = 1.0) -> Array:
    _check_continuous("Cauchy", dtype)
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    if generator.is_of_gpu:
        return generator.draw("fill", "cauchy", shape, dtype, median, sigma, dtypes.float_limits(_precise(dtype)).eps)
    angle = math.pi * (drawn(generator, "doubles", shape) - 0.5)
    return cpu.asarray(median + sigma * cpu.tan(angle), dtype=dtype)


def log_normal(generator: Generator, shape: Sequence[int], dtype: DType, mean: float = 1.0, std: float = 2.0) -> Array:
    if not dtypes.is_floating(dtype):
        raise unsupported("log_normal_cpu", dtype)
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    if generator.is_of_gpu:
        return generator.draw("fill", "log_normal", shape, dtype, mean, std)
    return cpu.asarray(cpu.exp(mean + std * drawn(generator, "normals", shape)), dtype=dtype)


def _check_continuous(name: str, dtype: DType) -> None:
    if not dtypes.is_floating(dtype):
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a floating point but you "
            f"specified {dtypes.SCALAR_NAMES[dtype]}"
        )


# ---- discrete


def bernoulli(generator: Generator, shape: Sequence[int], dtype: DType, p: Array) -> Array:
    """1 with probability p (a number or an array), else 0."""
    if not generator.is_of_gpu:
        p = _on_host(p)
    if dtype.kind == "c":
        raise unsupported("bernoulli_scalar_cpu_", dtype)
    if _is_array(p):
        if not dtypes.is_floating(p.dtype):
            raise unsupported("bernoulli_tensor_cpu_p_", p.dtype)
        if not ((p >= 0) & (p <= 1)).all():
            raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true: every probability must lie in [0, 1]")
    elif not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    if generator.is_of_gpu:
        given = ("bernoulli", shape, dtype, p) if _is_array(p) else ("fill", "bernoulli", shape, dtype, p)
        return generator.draw(*given)
    numbers = "doubles" if not isinstance(p, cpu.ndarray) or p.dtype == dtypes.float64 else "singles"
    return cpu.asarray(drawn(generator, numbers, shape) < p, dtype=dtype)


def geometric(generator: Generator, shape: Sequence[int], dtype: DType, p: float) -> Array:
    """The number of trials until the first success."""
    if dtype.kind in "cb":
        raise unsupported("geometric_cpu", dtype)
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    if generator.is_of_gpu:
        return generator.draw("fill", "geometric", shape, dtype, p)
    with cpu.errstate(divide="ignore"):
        return cpu.ceil(cpu.log(drawn(generator, "doubles", shape)) / math.log1p(-p)).astype(dtype)


def poisson(generator: Generator, rate: Array) -> Array:
    rate = _on_host(rate)
    if not dtypes.is_floating(rate.dtype):
        raise unsupported("poisson_cpu", rate.dtype)
    if not (rate >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    if not (rate < math.inf).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be finite: an infinite one has no finite number")
    return _counted(generator, "poisson", rate.dtype, cpu.asarray(rate, dtype=dtypes.float64))


def _counted(generator: Generator, numbers: str, dtype: DType, *parameters: Array) -> Array:
    """Numbers with parameters in arrays; for a GPU, too, they are drawn on the host."""
    parameters = tuple(cpu.ascontiguousarray(parameter).reshape(parameter.shape) for parameter in parameters)
    if generator.is_of_gpu:
        return cpu.asarray(getattr(generator.draw("on_host"), numbers)(*parameters), dtype=dtype)
    return cpu.asarray(generator.draw(METHODS[numbers], *parameters), dtype=dtype)


#: what NumPy's generators call the numbers that methods of `Mersenne` draw
METHODS = {"poisson": "poissons", "binomial": "binomials", "standard_gamma": "gammas"}


def binomial(generator: Generator, count: Array, prob: Array) -> Array:
    count, prob = _on_host(count), _on_host(prob)
    for name, array in (("count", count), ("prob", prob)):
        if not dtypes.is_floating(array.dtype):
            raise ValueError(f"binomial only supports floating-point dtypes for {name}, got: {type_name(array)}")
    if not ((prob >= 0) & (prob <= 1)).all() or not ((count >= 0) & (count < math.inf)).all():
        raise RuntimeError("binomial expects prob in [0, 1] and count >= 0 (and finite)")
    if generator.is_of_gpu:
        return _counted(generator, "binomial", count.dtype, count.astype(dtypes.int64), prob)
    precise = _precise(count.dtype)
    both = (cpu.asarray(operand, dtype=precise) for operand in (count, prob))
    return _counted(generator, "binomial", count.dtype, *both)


def standard_gamma(generator: Generator, alpha: Array) -> Array:
    """Gamma variables of rate 1, none of which is 0."""
    alpha = _on_host(alpha)
    if not dtypes.is_floating(alpha.dtype):
        raise unsupported("gamma_cpu", alpha.dtype)
    drawn = _counted(generator, "standard_gamma", alpha.dtype, cpu.asarray(alpha, dtype=_precise(alpha.dtype)))
    return cpu.maximum(drawn, alpha.dtype.type(dtypes.float_limits(alpha.dtype).tiny))


def dirichlet(generator: Generator, alpha: Array) -> Array:
    """Gamma variables over the sum of their row, neither 0 nor 1."""
    alpha = _on_host(alpha)
    if not dtypes.is_floating(alpha.dtype):
        raise unsupported("dirichlet", alpha.dtype)
    limits, numbers = dtypes.float_limits(alpha.dtype), standard_gamma(generator, alpha.astype(dtypes.float64))
    shares = cpu.asarray(numbers / numbers.sum(axis=-1, keepdims=True), dtype=alpha.dtype)
    return cpu.minimum(cpu.maximum(shares, alpha.dtype.type(limits.tiny)), alpha.dtype.type(1 - limits.epsneg))


def integers(generator: Generator, shape: Sequence[int], dtype: DType, low: int, high: int) -> Array:
    """Uniform in low, ..., high - 1."""
    if dtype.kind == "c":
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    lowest, highest = _integer_bounds(dtype)
    for name, bound in (("from", low), ("to - 1", high - 1)):
        if not lowest <= bound <= highest:
            raise RuntimeError(f"{name} is out of bounds for {dtype}")
    if generator.is_of_gpu:
        name = "long integers" if high - low >= WIDE else "integers"
        return generator.draw("fill", name, shape, dtype, range=high - low, low=low)
    numbers = drawn(generator, "below", shape, high - low).astype(dtypes.int64)
    return (numbers + cpu.asarray(low).astype(dtypes.int64)).astype(dtype)


def any_integers(generator: Generator, shape: Sequence[int], dtype: DType) -> Array:
    """What `random_()` fills with: all non-negative integers that the dtype holds exactly."""
    end = random_range(dtype, None, None)[1]
    if generator.is_of_gpu:
        return generator.draw("fill", "long integers" if dtype.itemsize == 8 else "integers", shape, dtype, range=end)
    numbers = drawn(generator, "long_words" if dtype.itemsize == 8 else "words", shape)
    return (numbers % cpu.asarray(end, dtype=dtypes.uint64)).astype(dtype)


def _integer_bounds(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer that the dtype holds (and that is drawn, for a float dtype)."""
    if dtype.kind == "b":
        return 0, 1
    if dtypes.is_floating(dtype):
        greatest = min(int(dtypes.float_limits(dtype).max), 2**63 - 1)
        return -greatest, greatest
    return int(cpu.iinfo(dtype).min), int(cpu.iinfo(dtype).max)


def random_range(dtype: DType, low: int | None, high: int | None) -> tuple[int, int]:
    """What `random_(low, high)` draws from: without bounds, all non-negative integers that the dtype holds exactly."""
    if dtype.kind == "c":
        raise unsupported("random_kernel_cpu", dtype)
    if high is None and dtypes.is_floating(dtype):
        return low or 0, 2 ** (dtypes.float_limits(dtype).nmant + 1) + 1
    if high is None:
        return low or 0, _integer_bounds(dtype)[1] + 1
    return low or 0, high


def permutation(generator: Generator, n: int, dtype: DType) -> Array:
    if n and not _integer_bounds(dtype)[1] >= n - 1:
        raise RuntimeError(f"value cannot be converted to type {dtype} without overflow: n is too large: {n}")
    if generator.is_of_gpu:
        keys = generator.draw("fill", "long integers", (n,), dtypes.int64)
        return namespace_of_array(keys).argsort(keys).astype(dtype)
    return cpu.asarray(generator.draw("permutation", n), dtype=dtype)


# ---- weighted choice


def multinomial(generator: Generator, weights: Array, samples: int, replacement: bool) -> Array:
    """Indices along the last dimension, drawn with probabilities proportional to the weights."""
    if not generator.is_of_gpu:
        weights = _on_host(weights)
    xp = namespace_of_array(weights)
    _check_weights(weights, samples, replacement)
    if replacement and samples > 1:
        return _with_replacement(generator, xp.ascontiguousarray(weights), samples)
    # the order in which exponential clocks of these rates ring is the order of draws without replacement
    clocks = xp.maximum(exponential(generator, weights.shape, weights.dtype), dtypes.float_limits(weights.dtype).tiny)
    speeds = weights / clocks
    if samples == 1:
        return xp.argmax(speeds, axis=-1, keepdims=True)
    return xp.argsort(-speeds, axis=-1, kind="stable")[..., :samples].astype(dtypes.int64)


def _with_replacement(generator: Generator, weights: Array, samples: int) -> Array:
    xp = namespace_of_array(weights)
    sums = xp.cumsum(weights, axis=-1, dtype=_precise(weights.dtype))
    bounds = (sums / sums[..., -1:]).reshape(-1, weights.shape[-1])
    bounds[:, -1] = 1
    shape = (len(bounds), samples)
    points = unit_interval(generator, shape, dtypes.float64) if xp is not cpu else drawn(generator, "doubles", shape)
    found = [xp.searchsorted(row, point) for row, point in zip(bounds.astype(dtypes.float64), points, strict=True)]
    return xp.stack(found).reshape(*weights.shape[:-1], samples).astype(dtypes.int64)


def _check_weights(weights: Array, samples: int, replacement: bool) -> None:
    if weights.ndim not in (1, 2):
        raise RuntimeError(f"prob_dist must be 1 or 2 dim, got {weights.ndim}")
    if not dtypes.is_floating(weights.dtype):
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {type_name(weights)}")
    if samples <= 0:
        raise RuntimeError(f"cannot sample n_sample <= 0 samples, got {samples}")
    if not replacement and samples > weights.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if not (namespace_of_array(weights).isfinite(weights) & (weights >= 0)).all():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not (weights > 0).any(axis=-1).all():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if not replacement and ((weights > 0).sum(axis=-1) < samples).any():
        raise RuntimeError(
            "invalid multinomial distribution (with replacement=False, not enough non-negative category to sample): "
            f"{samples} samples need as many categories with a probability above 0"
        )

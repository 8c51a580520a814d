"""Formulas of declared operations whose declaration has no single expression, by the names of their arguments.

`g` is the gradient of the result `out`. They are expressions in undertow's own functions: a test evaluates each of them
and compares it with what the operation computes. The key of the value is "value".
"""

from __future__ import annotations

_NONE = "0 * g"
_PHI = "(1 + erf(input / sqrt(2))) / 2"

FORMULAS: dict[str, dict[str, str]] = {
    # arithmetic
    "add": {"value": "input + alpha * other"},
    "sub": {"value": "input - alpha * other"},
    "rsub": {"value": "other - alpha * input"},
    "neg": {"value": "-input"},
    "addcmul": {"value": "input + value * tensor1 * tensor2"},
    "addcdiv": {"value": "input + value * tensor1 / tensor2"},
    "lerp": {"value": "input + weight * (end - input)"},
    "pow": {
        "value": "input ** exponent",
        "input": "g * conj(exponent * input ** (exponent - 1))",
        "exponent": "g * conj(out * log(input))",
    },
    "floor_divide": {"value": "floor(input / other)"},
    "remainder": {"value": "input - other * floor(input / other)"},
    "fmod": {"value": "input - other * trunc(input / other)"},
    "ldexp": {"value": "input * 2 ** other", "input": "g * 2 ** other"},
    "xlogy": {
        "value": "where(input == 0, 0, input * log(other))",
        "input": "where((input == 0) & (other <= 0), 0, g * log(other))",
    },
    "special_xlog1py": {
        "value": "where(input == 0, 0, input * log1p(other))",
        "input": "where((input == 0) & (other <= -1), 0, g * log1p(other))",
    },
    "special_entr": {"value": "where(input == 0, 0, -input * log(input))"},
    "logaddexp": {"value": "log(exp(input) + exp(other))"},
    "logaddexp2": {"value": "log2(2 ** input + 2 ** other)"},
    "sigmoid": {"value": "1 / (1 + exp(-input))"},
    "logit": {"value": "log(input / (1 - input))", "input": "g / (input * (1 - input))"},
    "dist": {
        "value": "linalg.vector_norm(input - other, p)",
        "input": "g * sgn(input - other) * (abs(input - other) / out) ** (p - 1)",
    },
    # signs and roundings
    "sgn": {
        "value": "where(input == 0, 0, input / abs(input))",
        "input": "where(input == 0, 0, (g - out * real(conj(out) * g)) / abs(input))",
    },
    "sign": {"value": "where(input == 0, 0, input / abs(input))", "input": _NONE},
    "floor": {"input": _NONE},
    "ceil": {"input": _NONE},
    "trunc": {"input": _NONE},
    "round": {"value": "round(input * 10 ** decimals) / 10 ** decimals", "input": _NONE},
    "copysign": {"input": "g * sign(input) * sign(out)"},
    "nan_to_num": {"input": "where(isfinite(input), g, 0)"},
    "heaviside": {"value": "where(input == 0, values, input > 0)"},
    "complex": {"value": "real + 1j * imag"},
    "polar": {"value": "abs * exp(1j * angle)"},
    # choosing
    "maximum": {"value": "where(input > other, input, other)"},
    "minimum": {"value": "where(input < other, input, other)"},
    "clamp_min": {"value": "where(input > min, input, min)"},
    "clamp_max": {"value": "where(input < max, input, max)"},
    "lt": {"value": "input < other"},
    "le": {"value": "input <= other"},
    "gt": {"value": "input > other"},
    "ge": {"value": "input >= other"},
    # angles
    "atan2": {"input": "g * other / (input ** 2 + other ** 2)", "other": "-g * input / (input ** 2 + other ** 2)"},
    "acosh": {"input": "g / sqrt(input ** 2 - 1)"},
    "sinc": {"value": "sin(pi * input) / (pi * input)", "input": "g * (cos(pi * input) - out) / input"},
    # activations
    "relu": {"value": "where(input > 0, input, 0)"},
    "leaky_relu": {
        "value": "where(input > 0, input, negative_slope * input)",
        "input": "where(input > 0, g, negative_slope * g)",
    },
    "hardtanh": {"value": "clamp(input, min_val, max_val)"},
    "hardsigmoid": {"value": "clamp(input + 3, 0, 6) / 6"},
    "hardswish": {
        "value": "input * clamp(input + 3, 0, 6) / 6",
        "input": "where(input > 3, g, where(input < -3, 0, g * (2 * input + 3) / 6))",
    },
    "hardshrink": {"value": "where(abs(input) > lambd, input, 0)"},
    "softshrink": {"value": "where(abs(input) > lambd, input - lambd * sign(input), 0)"},
    "elu": {
        "value": "scale * where(input > 0, input, alpha * (exp(input_scale * input) - 1))",
        "input": "g * scale * where(input > 0, 1, alpha * input_scale * exp(input_scale * input))",
    },
    "celu": {"value": "where(input > 0, input, alpha * (exp(input / alpha) - 1))"},
    "silu": {"value": "input * sigmoid(input)", "input": "g * sigmoid(input) * (1 + input * (1 - sigmoid(input)))"},
    "softplus": {"value": "where(beta * input > threshold, input, log(1 + exp(beta * input)) / beta)"},
    "logsigmoid": {"value": "log(sigmoid(input))"},
    "mish": {
        "value": "input * tanh(log(1 + exp(input)))",
        "input": "g * (tanh(softplus(input)) + input * sigmoid(input) * (1 - tanh(softplus(input)) ** 2))",
    },
    "gelu": {"value": f"input * {_PHI}", "input": f"g * ({_PHI} + input * exp(-input ** 2 / 2) / sqrt(2 * pi))"},
    # special functions
    "erfc": {"value": "1 - erf(input)"},
    "special_erfcx": {"value": "exp(input ** 2) * erfc(input)"},
    "special_i0e": {"value": "exp(-abs(input)) * i0(input)"},
    "special_i1e": {"value": "exp(-abs(input)) * special.i1(input)"},
    "special_log_ndtr": {"value": "log(special.ndtr(input))"},
    "special_gamma": {"value": "exp(lgamma(input))"},
    "special_spherical_bessel_j0": {"value": "sin(input) / input", "input": "g * (cos(input) - out) / input"},
    "mvlgamma": {
        "value": "p * (p - 1) / 4 * log(pi) + sum(lgamma(input - i / 2) for i in range(p))",
        "input": "g * sum(digamma(input - i / 2) for i in range(p))",
    },
    # parts and places
    "cumsum": {"input": "flip(cumsum(flip(g, (dim,)), dim), (dim,))"},
    "cumprod": {"input": "flip(cumsum(flip(g * out, (dim,)), dim), (dim,)) / input"},
    "logcumsumexp": {"input": "exp(input) * flip(cumsum(flip(g * exp(-out), (dim,)), dim), (dim,))"},
    "gather": {"input": "zeros_like(input).scatter_add(dim, index, g)"},
    "index_select": {"input": "zeros_like(input).index_add(dim, index, g)"},
    "embedding": {"value": "weight[indices]", "weight": "zeros_like(weight).index_add(0, indices, g)"},
    "take": {"value": "input.flatten()[index]"},
    # products
    "dot": {"value": "sum(input * tensor)"},
    "vdot": {"value": "sum(conj(input) * other)"},
    "mm": {"value": "input @ mat2"},
    "mv": {"value": "input @ vec"},
    "bmm": {"value": "input @ mat2"},
    "addmm": {"value": "beta * input + alpha * mat1 @ mat2"},
    "addmv": {"value": "beta * input + alpha * mat @ vec"},
    "addr": {"value": "beta * input + alpha * outer(vec1, vec2)"},
    "baddbmm": {"value": "beta * input + alpha * batch1 @ batch2"},
    "addbmm": {"value": "beta * input + alpha * (batch1 @ batch2).sum(0)"},
    "trace": {"value": "sum(diagonal(input))"},
    "linear": {
        "value": "input @ weight.T + bias",
        "input": "g @ weight",
        "weight": "g.flatten(0, -2).T @ input.flatten(0, -2)",
    },
    # of layers
    "softmax": {"value": "exp(input) / sum(exp(input), dim, True)"},
    "log_softmax": {"value": "input - log(sum(exp(input), dim, True))"},
    "mse_loss": {"value": "mean((input - target) ** 2)"},
    "smooth_l1_loss": {
        "value": "mean(where(abs(input - target) < beta, (input - target) ** 2 / (2 * beta), "
        "abs(input - target) - beta / 2))"
    },
    "huber_loss": {
        "value": "mean(where(abs(input - target) < delta, (input - target) ** 2 / 2, "
        "delta * (abs(input - target) - delta / 2)))"
    },
}

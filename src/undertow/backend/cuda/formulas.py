"""The formulas of NumPy's elementwise functions, as kernels have them, by the kind of number they compute with.

Operands are a, b and c. A kind that is missing is computed on the host. Negative powers of whole numbers are PyTorch's:
0, or 1 and -1 of those two.
"""

from __future__ import annotations

#: NumPy's letters for kinds: b bool, u unsigned, i signed integers, f real, c complex
ALL, REAL, NUMBERS, INTEGERS = "buifc", "buif", "uifc", "ui"


def table(*rows: tuple[str, str, str]) -> dict[str, dict[str, str]]:
    """Rows of names, kinds and a formula; in the formula `@` is the function's own name."""
    found: dict[str, dict[str, str]] = {}
    for names, kinds, formula in rows:
        for name in names.split():
            found.setdefault(name, {}).update({kind: formula.replace("@", name) for kind in kinds})
    return found


FORMULAS = table(
    ("add", ALL, "a + b"),
    ("subtract", NUMBERS, "a - b"),
    ("multiply", ALL, "a * b"),
    ("divide true_divide", "fc", "a / b"),
    ("floor_divide", "f", "floor_quotient(a, b)"),
    ("floor_divide", INTEGERS, "integer_quotient(a, b)"),
    ("remainder mod", "f", "remainder_of(a, b)"),
    ("remainder mod", INTEGERS, "integer_remainder(a, b)"),
    ("fmod", "f", "m_fmod(a, b)"),
    ("fmod", "u", "b == 0 ? T(0) : T(a % b)"),
    ("fmod", "i", "b == 0 || b == T(-1) ? T(0) : T(a % b)"),
    ("gcd", INTEGERS, "greatest_divisor(a, b)"),
    ("lcm", INTEGERS, "least_multiple(a, b)"),
    ("negative", "ifc", "-a"),
    ("negative", "u", "T(0) - a"),
    ("positive", NUMBERS, "a"),
    ("square", NUMBERS, "a * a"),
    ("reciprocal", "f", "T(1) / a"),
    ("reciprocal", "c", "Cast<T, i32>::of(1) / a"),
    ("power pow float_power", "fc", "m_power(a, b)"),
    ("power pow", INTEGERS, "whole_power(a, b)"),
    ("absolute abs", "bu", "a"),
    ("absolute abs", "i", "a < 0 ? -a : a"),
    ("absolute abs fabs", "f", "m_fabs(a)"),
    ("absolute abs", "c", "m_absolute(a)"),
    ("sign", "u", "a > 0 ? 1 : 0"),
    ("sign", "i", "a > 0 ? 1 : a < 0 ? -1 : 0"),
    ("sign", "f", "a > 0 ? T(1) : a < 0 ? T(-1) : a == 0 ? T(0) : a"),
    ("sign", "c", "sign_of(a)"),
    ("conjugate conj", ALL, "conjugated(a)"),
    ("exp sqrt sin cos tan sinh cosh tanh", "fc", "m_@(a)"),
    ("log", "f", "m_@(a)"),
    ("exp2 expm1 log2 log10 log1p cbrt arcsin arccos arctan arcsinh arccosh arctanh", "f", "m_@(a)"),
    ("exp2 expm1 log log2 log10 log1p arcsin arccos arctan arcsinh arccosh arctanh", "c", "c_@(a)"),
    ("floor ceil trunc rint", "f", "m_@(a)"),
    ("floor ceil trunc", "bui", "a"),
    ("arctan2 hypot copysign nextafter", "f", "m_@(a, b)"),
    ("logaddexp", "f", "log_add(a, b)"),
    ("logaddexp2", "f", "log_add_2(a, b)"),
    ("deg2rad radians", "f", "a * T(0.017453292519943295)"),
    ("rad2deg degrees", "f", "a * T(57.295779513082320877)"),
    ("maximum", REAL, "a > b || a != a ? a : b"),
    ("minimum", REAL, "a < b || a != a ? a : b"),
    ("fmax", REAL, "a >= b || b != b ? a : b"),
    ("fmin", REAL, "a <= b || b != b ? a : b"),
    ("less", REAL, "a < b"),
    ("less_equal", REAL, "a <= b"),
    ("greater", REAL, "a > b"),
    ("greater_equal", REAL, "a >= b"),
    ("equal", ALL, "a == b"),
    ("not_equal", ALL, "a != b"),
    ("logical_and", ALL, "truth(a) && truth(b)"),
    ("logical_or", ALL, "truth(a) || truth(b)"),
    ("logical_xor", ALL, "truth(a) != truth(b)"),
    ("logical_not", ALL, "!truth(a)"),
    ("isnan", "fc", "is_nan(a)"),
    ("isinf", "fc", "is_inf(a)"),
    ("isfinite", "fc", "!is_nan(a) && !is_inf(a)"),
    ("isnan isinf", "bui", "false"),
    ("isfinite", "bui", "true"),
    ("signbit", "f", "m_copysign(T(1), a) < 0"),
    ("heaviside", "f", "a != a ? a : a == 0 ? b : a < 0 ? T(0) : T(1)"),
    ("bitwise_and", "bui", "a & b"),
    ("bitwise_or", "bui", "a | b"),
    ("bitwise_xor", "bui", "a ^ b"),
    ("invert bitwise_invert bitwise_not", "b", "!a"),
    ("invert bitwise_invert bitwise_not", INTEGERS, "~a"),
    ("left_shift bitwise_left_shift", INTEGERS, "shifted_left(a, b)"),
    ("right_shift bitwise_right_shift", INTEGERS, "shifted_right(a, b)"),
)

#: functions whose result is a real number or a bool where operands are complex
REAL_RESULTS = {"absolute", "abs"}

#: functions that are no ufuncs: how many operands they have, and their formula for every kind
OTHERS = {"copy": (1, "a"), "where": (3, "a ? b : c"), "real": (1, "a.re"), "imag": (1, "a.im")}

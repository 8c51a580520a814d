"""What every kernel begins with: types, casts and functions, in the C++ that both NVRTC and a host's compiler read.

Half precision is kept in two bytes and computed in float; complex numbers are a class of their own, because NVRTC comes
without headers. On the emulated device a kernel's threads run one after the other, and those that work together
(`cooperative`) are one per block.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from undertow.backend import dtypes

#: the dtypes that kernels know, at their numbers (csrc/cuda/cuda.h), and their names there; bfloat16 comes behind them
DTYPES: list[np.dtype[Any]] = [*dtypes.ALL]
NAMES = ["bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "Half", "float", "double", "Complex<float>",
         "Complex<double>", "BFloat"]  # fmt: skip

#: numbers that are no arrays have this bit in their code; Python's own have codes that no dtype has
NUMBER, PYTHON = 32, {16: int, 17: float, 18: complex}


def code_of(dtype: np.dtype[Any]) -> int:
    """The number of a dtype; NotImplementedError if kernels do not know it."""
    if dtype in DTYPES:
        return DTYPES.index(dtype)
    if dtypes.is_bfloat16(dtype):
        return len(DTYPES)
    raise NotImplementedError(f"arrays of {dtype} on cuda can be kept, and not computed with")


def dtype_of(code: int) -> np.dtype[Any]:
    code &= NUMBER - 1
    return DTYPES[code] if code < len(DTYPES) else dtypes.bfloat16()


def stored(dtype: np.dtype[Any]) -> str:
    """The type of the elements of an array."""
    return NAMES[code_of(dtype)]


def computed(dtype: np.dtype[Any]) -> str:
    """The type that formulas compute with."""
    return "float" if dtypes.is_narrow(dtype) else stored(dtype)


PRELUDE = r"""
typedef signed char i8; typedef unsigned char u8; typedef short i16; typedef unsigned short u16;
typedef int i32; typedef unsigned u32; typedef long long i64; typedef unsigned long long u64;
#ifdef __CUDACC__
#define FN __device__ __forceinline__
#define METHOD static __device__ __forceinline__
#define KERNEL(name, P) extern "C" __global__ void name(const __grid_constant__ P p)
#define RUNNER(name, P, threads)
#if __CUDA_ARCH__ >= 900
// a kernel may start before the one ahead of it has ended: it must wait before it reads
#define BEGIN asm volatile("griddepcontrol.wait;" ::: "memory"); asm volatile("griddepcontrol.launch_dependents;");
#else
#define BEGIN
#endif
#define ALONE 0
#define MATH(name) name
#else
#define FN static inline
#define METHOD static inline
#define __shared__ static
#define __syncthreads()
#define BEGIN
#define ALONE 1
#define MATH(name) __builtin_##name
struct Place { unsigned x, y, z; };
static Place blockIdx, threadIdx, blockDim, gridDim;
#define KERNEL(name, P) static void name(const P &p)
#define RUNNER(name, P, threads) \
extern "C" void name##_on_host(const void *given, unsigned gx, unsigned gy, unsigned gz, unsigned block) \
{ P p; __builtin_memcpy(&p, given, sizeof(p)); gridDim = {gx, gy, gz}; blockDim = {threads, 1, 1}; \
  for (unsigned z = 0; z < gz; z++) for (unsigned y = 0; y < gy; y++) for (unsigned x = 0; x < gx; x++) { \
    blockIdx = {x, y, z}; for (unsigned t = 0; t < blockDim.x; t++) { threadIdx = {t, 0, 0}; name(p); } } }
#endif

struct Half { u16 bits; };
struct BFloat { u16 bits; };
FN u32 bits_of(float v) { union { float f; u32 u; } x; x.f = v; return x.u; }
FN float float_of(u32 v) { union { float f; u32 u; } x; x.u = v; return x.f; }
FN double double_of(u64 v) { union { double f; u64 u; } x; x.u = v; return x.f; }
#ifdef __CUDACC__
FN float widened(Half h) { float v; asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h.bits)); return v; }
FN Half narrowed(float v) { Half h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(v)); return h; }
#else
FN float widened(Half h)
{
    u32 sign = (u32)(h.bits & 0x8000) << 16, rest = h.bits & 0x7fff;
    if (rest >= 0x7c00) return float_of(sign | 0x7f800000u | (rest & 0x3ff) << 13);
    if (rest < 0x400) { float small = (float)rest * float_of(0x33800000u); return sign ? -small : small; }
    return float_of(sign | ((rest << 13) + 0x38000000u));
}
FN Half narrowed(float v)
{
    u32 x = bits_of(v), sign = x >> 16 & 0x8000, rest = x & 0x7fffffff; Half h;
    if (rest > 0x7f800000u) h.bits = (u16)(sign | 0x7e00);
    else if (rest >= 0x477ff000u) h.bits = (u16)(sign | 0x7c00);
    else if (rest < 0x38800000u) { // too small for a full mantissa: the sum rounds
        float sum = float_of(rest) + 0.5f; h.bits = (u16)(sign | (bits_of(sum) - 0x3f000000u)); }
    else h.bits = (u16)(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13));
    return h;
}
#endif
FN float widened(BFloat b) { return float_of((u32)b.bits << 16); }
FN BFloat narrowed_to_bfloat(float v)
{
    BFloat b;
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b.bits) : "f"(v));
    return b;
#endif
    const u32 x = bits_of(v);
    b.bits = (u16)((x & 0x7fffffff) > 0x7f800000u ? (x >> 16 & 0x8000) | 0x7fc0 : (x + 0x7fff + (x >> 16 & 1)) >> 16);
    return b;
}

template <class T> struct Complex { T re, im; };
typedef Complex<float> C64; typedef Complex<double> C128;
#define C_ template <class T> FN
C_ Complex<T> made(T re, T im) { Complex<T> z; z.re = re; z.im = im; return z; }
C_ Complex<T> operator+(Complex<T> a, Complex<T> b) { return made(a.re + b.re, a.im + b.im); }
C_ Complex<T> operator-(Complex<T> a, Complex<T> b) { return made(a.re - b.re, a.im - b.im); }
C_ Complex<T> operator-(Complex<T> a) { return made(-a.re, -a.im); }
C_ Complex<T> operator*(Complex<T> a, Complex<T> b)
{ return made(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); }
C_ bool operator==(Complex<T> a, Complex<T> b) { return a.re == b.re && a.im == b.im; }
C_ bool operator!=(Complex<T> a, Complex<T> b) { return !(a == b); }
C_ T absolute(T v) { return v < 0 ? -v : v; }
C_ Complex<T> operator/(Complex<T> a, Complex<T> b)
{
    if (absolute(b.re) >= absolute(b.im)) {
        if (b.re == 0 && b.im == 0) return made(a.re / absolute(b.re), a.im / absolute(b.re));
        T ratio = b.im / b.re, scale = 1 / (b.re + b.im * ratio);
        return made((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale);
    }
    T ratio = b.re / b.im, scale = 1 / (b.im + b.re * ratio);
    return made((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale);
}

// ---- casts, as NumPy and PyTorch do them: real numbers go to unsigned integers by way of signed ones
template <class To, class From> struct Cast { METHOD To of(From v) { return (To)v; } };
template <class From> struct Cast<bool, From> { METHOD bool of(From v) { return v != From(0); } };
#define FROM_REAL(R) \
template <> struct Cast<u8, R> { METHOD u8 of(R v) { return (u8)(i64)v; } }; \
template <> struct Cast<i8, R> { METHOD i8 of(R v) { return (i8)(i32)v; } }; \
template <> struct Cast<u16, R> { METHOD u16 of(R v) { return (u16)(i64)v; } }; \
template <> struct Cast<i16, R> { METHOD i16 of(R v) { return (i16)(i32)v; } }; \
template <> struct Cast<u32, R> { METHOD u32 of(R v) { return (u32)(i64)v; } }; \
template <> struct Cast<u64, R> { METHOD u64 of(R v) { return v < 0 ? (u64)(i64)v : (u64)v; } };
FROM_REAL(float) FROM_REAL(double)
template <class T> struct Cast<T, Half> { METHOD T of(Half v) { return Cast<T, float>::of(widened(v)); } };
template <class T> struct Cast<T, BFloat> { METHOD T of(BFloat v) { return Cast<T, float>::of(widened(v)); } };
template <class T> struct Cast<Half, T> { METHOD Half of(T v) { return narrowed(Cast<float, T>::of(v)); } };
template <class T> struct Cast<BFloat, T> {
    METHOD BFloat of(T v) { return narrowed_to_bfloat(Cast<float, T>::of(v)); } };
#define SAME_CAST(T) template <> struct Cast<T, T> { METHOD T of(T v) { return v; } };
SAME_CAST(Half) SAME_CAST(BFloat)
template <> struct Cast<Half, BFloat> { METHOD Half of(BFloat v) { return narrowed(widened(v)); } };
template <> struct Cast<BFloat, Half> { METHOD BFloat of(Half v) { return narrowed_to_bfloat(widened(v)); } };
template <class R, class T> struct Cast<Complex<R>, T> {
    METHOD Complex<R> of(T v) { return made(Cast<R, T>::of(v), R(0)); } };
template <class T, class R> struct Cast<T, Complex<R> > { METHOD T of(Complex<R> v) { return Cast<T, R>::of(v.re); } };
template <class R, class S> struct Cast<Complex<R>, Complex<S> > {
    METHOD Complex<R> of(Complex<S> v) { return made((R)v.re, (R)v.im); } };
template <class R> struct Cast<bool, Complex<R> > {
    METHOD bool of(Complex<R> v) { return v.re != R(0) || v.im != R(0); } };
#define COMPLEX_HALF(H) \
template <class R> struct Cast<Complex<R>, H> { METHOD Complex<R> of(H v) { return made((R)widened(v), R(0)); } }; \
template <class R> struct Cast<H, Complex<R> > { METHOD H of(Complex<R> v) { return Cast<H, R>::of(v.re); } }; \
template <> struct Cast<bool, H> { METHOD bool of(H v) { return widened(v) != 0; } };
COMPLEX_HALF(Half) COMPLEX_HALF(BFloat)

// a number in the place of an array
struct Value { union { i64 i; double d; }; double imaginary; };
"""

#: functions of real numbers by the names they have here and in C
REAL_FUNCTIONS = {
    "fabs": "fabs", "sqrt": "sqrt", "cbrt": "cbrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log",
    "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin",
    "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint",
    "erf": "erf", "erfc": "erfc", "lgamma": "lgamma", "gamma": "tgamma", "j0": "j0", "j1": "j1", "y0": "y0", "y1": "y1",
}  # fmt: skip
REAL_FUNCTIONS_OF_TWO = {"power": "pow", "arctan2": "atan2", "hypot": "hypot", "copysign": "copysign", "fmod": "fmod",
                         "nextafter": "nextafter"}  # fmt: skip

FUNCTIONS = (
    "".join(
        f"FN float m_{n}(float a) {{ return MATH({c}f)(a); }} FN double m_{n}(double a) {{ return MATH({c})(a); }}\n"
        for n, c in REAL_FUNCTIONS.items()
    )
    + "".join(
        f"FN float m_{n}(float a, float b) {{ return MATH({c}f)(a, b); }} "
        f"FN double m_{n}(double a, double b) {{ return MATH({c})(a, b); }}\n"
        for n, c in REAL_FUNCTIONS_OF_TWO.items()
    )
    + r"""
C_ bool is_inf(T a) { return a == a && a - a != a - a; }
C_ bool is_nan(T a) { return a != a; }
C_ bool truth(T a) { return Cast<bool, T>::of(a); }
// quotient and remainder as Python has them
C_ T remainder_of(T a, T b)
{
    T r = m_fmod(a, b);
    if (b == 0) return r;
    return r != 0 ? ((b < 0) != (r < 0) ? r + b : r) : m_copysign(T(0), b);
}
C_ T floor_quotient(T a, T b)
{
    if (b == 0) return a / b;
    T r = m_fmod(a, b), q = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) q -= 1;
    if (q == 0) return m_copysign(T(0), a / b);
    T whole = m_floor(q);
    return q - whole > T(0.5) ? whole + 1 : whole;
}
C_ T integer_remainder(T a, T b)
{
    if (b == 0 || (b < 0 && b == T(-1))) return 0;
    T r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
C_ T integer_quotient(T a, T b)
{
    if (b == 0) return 0;
    if (b < 0 && b == T(-1)) return T(0) - a;
    T q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
C_ T shifted_left(T a, T b) { return b < 0 || (u64)b >= 8 * sizeof(T) ? T(0) : T((u64)a << b); }
C_ T shifted_right(T a, T b) { return b < 0 || (u64)b >= 8 * sizeof(T) ? (a < 0 ? T(-1) : T(0)) : T(a >> b); }
C_ T log_add(T a, T b)
{
    if (a == b) return a + T(0.69314718055994530942);
    T d = a - b;
    return d > 0 ? a + m_log1p(m_exp(-d)) : d <= 0 ? b + m_log1p(m_exp(d)) : d;
}
C_ T log_add_2(T a, T b)
{
    if (a == b) return a + 1;
    T d = a - b, scale = T(1.44269504088896340736);
    return d > 0 ? a + scale * m_log1p(m_exp2(-d)) : d <= 0 ? b + scale * m_log1p(m_exp2(d)) : d;
}
// gradients of activations, from x and the value of the curve inside
C_ T slope_of_silu(T x, T sigmoid) { return sigmoid * (T(1) + x * (T(1) - sigmoid)); }
C_ T slope_of_gelu(T x, T tanh)
{
    const T inner = (T(1) + x * x * T(3 * 0.044715)) * T(0.79788456080286535588);
    return (tanh + T(1)) * T(0.5) + x * (T(1) - tanh * tanh) * inner * T(0.5);
}
// ---- of complex numbers
C_ bool is_nan(Complex<T> a) { return a.re != a.re || a.im != a.im; }
C_ bool is_inf(Complex<T> a) { return is_inf(a.re) || is_inf(a.im); }
C_ Complex<T> conjugated(Complex<T> a) { return made(a.re, -a.im); }
C_ T conjugated(T a) { return a; }
C_ T m_absolute(Complex<T> a) { return m_hypot(a.re, a.im); }
C_ Complex<T> sign_of(Complex<T> a)
{
    T r = m_hypot(a.re, a.im);
    return r == 0 ? made(T(0), T(0)) : is_inf(r) && !is_inf(a.re) ? made(T(0), m_copysign(T(1), a.im))
        : is_inf(r) && !is_inf(a.im) ? made(m_copysign(T(1), a.re), T(0)) : made(a.re / r, a.im / r);
}
C_ Complex<T> m_exp(Complex<T> a)
{ T r = m_exp(a.re); return a.im == 0 ? made(r, a.im) : made(r * m_cos(a.im), r * m_sin(a.im)); }
C_ Complex<T> m_log(Complex<T> a) { return made(m_log(m_hypot(a.re, a.im)), m_arctan2(a.im, a.re)); }
C_ Complex<T> m_sqrt(Complex<T> a)
{
    if (a.re == 0 && a.im == 0) return made(T(0), a.im);
    T r = m_sqrt((m_fabs(a.re) + m_hypot(a.re, a.im)) * T(0.5));
    return a.re >= 0 ? made(r, a.im / (2 * r)) : made(m_fabs(a.im) / (2 * r), m_copysign(r, a.im));
}
C_ Complex<T> m_sin(Complex<T> a) { return made(m_sin(a.re) * m_cosh(a.im), m_cos(a.re) * m_sinh(a.im)); }
C_ Complex<T> m_cos(Complex<T> a) { return made(m_cos(a.re) * m_cosh(a.im), -(m_sin(a.re) * m_sinh(a.im))); }
C_ Complex<T> m_sinh(Complex<T> a) { return made(m_sinh(a.re) * m_cos(a.im), m_cosh(a.re) * m_sin(a.im)); }
C_ Complex<T> m_cosh(Complex<T> a) { return made(m_cosh(a.re) * m_cos(a.im), m_sinh(a.re) * m_sin(a.im)); }
C_ Complex<T> m_tanh(Complex<T> a)
{
    if (m_fabs(a.re) > 20)
        return made(m_copysign(T(1), a.re), 4 * m_sin(a.im) * m_cos(a.im) * m_exp(-2 * m_fabs(a.re)));
    T t = m_tan(a.im), s = m_sinh(a.re), b = 1 + t * t, c = m_cosh(a.re), d = 1 + b * s * s;
    return made(b * c * s / d, t / d);
}
C_ Complex<T> m_tan(Complex<T> a)
{ Complex<T> t = m_tanh(made(-a.im, a.re)); return made(t.im, -t.re); }
C_ Complex<T> m_power(Complex<T> a, Complex<T> b)
{
    if (b.re == 0 && b.im == 0) return made(T(1), T(0));
    if (a.re == 0 && a.im == 0 && b.re > 0 && b.im == 0) return made(T(0), T(0));
    if (b.im == 0 && b.re == m_floor(b.re) && m_fabs(b.re) < 100) {
        Complex<T> power = made(T(1), T(0)), base = a;
        for (int n = (int)m_fabs(b.re); n; n >>= 1) { if (n & 1) power = power * base; base = base * base; }
        return b.re < 0 ? made(T(1), T(0)) / power : power;
    }
    return m_exp(b * m_log(a));
}
"""
)

#: functions of complex numbers that few kernels mention, whose text only those begin with: `c_arcsin` and its like.
#: Inverse functions are Kahan's, by square roots on both sides of the branch cuts; far from zero they are logarithms,
#: which have no infinite products.
COMPLEX_FUNCTIONS = r"""
C_ bool is_far(Complex<T> a)
{ const T far = sizeof(T) == 4 ? T(1e5) : T(1e9); return m_fabs(a.re) > far || m_fabs(a.im) > far; }
C_ T log_of_twice(Complex<T> a) { return m_log(m_hypot(a.re / 2, a.im / 2)) + T(2 * 0.69314718055994530942); }
C_ Complex<T> scaled(Complex<T> a, T by) { return made(a.re * by, a.im * by); }
C_ Complex<T> turned(Complex<T> a) { return made(a.im, a.re); }
C_ Complex<T> c_exp2(Complex<T> a) { return m_exp(scaled(a, T(0.69314718055994530942))); }
C_ Complex<T> c_expm1(Complex<T> a)
{ const T half = m_sin(a.im / 2);
  return made(m_expm1(a.re) * m_cos(a.im) - 2 * half * half, m_exp(a.re) * m_sin(a.im)); }
// near the unit circle the logarithm of the size has the digits that the size itself would have lost
C_ Complex<T> c_log(Complex<T> a)
{
    const T x = m_fabs(a.re), y = m_fabs(a.im), size = m_hypot(x, y), high = x > y ? x : y, low = x > y ? y : x;
    const T log = size > T(0.5) && size < 2 ? m_log1p((high - 1) * (high + 1) + low * low) / 2 : m_log(size);
    return made(log, m_arctan2(a.im, a.re));
}
C_ Complex<T> c_log2(Complex<T> a) { return scaled(c_log(a), T(1.44269504088896340736)); }
C_ Complex<T> c_log10(Complex<T> a) { return scaled(c_log(a), T(0.43429448190325182765)); }
C_ Complex<T> c_log1p(Complex<T> a)
{
    const T x = a.re, y = a.im, angle = m_arctan2(y, x + 1);
    if (m_fabs(x) < T(0.5) && m_fabs(y) < T(0.5)) return made(m_log1p(x * (x + 2) + y * y) / 2, angle);
    return made(m_log(m_hypot(x + 1, y)), angle);
}
C_ Complex<T> c_arcsin(Complex<T> a)
{
    if (is_far(a)) return made(m_arctan2(a.re, m_fabs(a.im)), m_copysign(log_of_twice(a), a.im));
    const Complex<T> under = m_sqrt(made(1 - a.re, -a.im)), over = m_sqrt(made(1 + a.re, a.im));
    return made(m_arctan2(a.re, under.re * over.re - under.im * over.im),
                m_arcsinh(under.re * over.im - under.im * over.re));
}
C_ Complex<T> c_arccos(Complex<T> a)
{
    if (is_far(a)) return made(m_arctan2(m_fabs(a.im), a.re), m_copysign(log_of_twice(a), -a.im));
    const Complex<T> under = m_sqrt(made(1 - a.re, -a.im)), over = m_sqrt(made(1 + a.re, a.im));
    return made(2 * m_arctan2(under.re, over.re), m_arcsinh(over.re * under.im - over.im * under.re));
}
C_ Complex<T> c_arcsinh(Complex<T> a) { return turned(c_arcsin(turned(a))); }
C_ Complex<T> c_arccosh(Complex<T> a)
{
    if (is_far(a)) return made(log_of_twice(a), m_arctan2(a.im, a.re));
    const Complex<T> under = m_sqrt(made(a.re - 1, a.im)), over = m_sqrt(made(a.re + 1, a.im));
    return made(m_arcsinh(under.re * over.re + under.im * over.im), 2 * m_arctan2(under.im, over.re));
}
C_ Complex<T> c_arctanh(Complex<T> a)
{
    const T x = m_fabs(a.re), y = a.im, left = 1 - x;
    if (is_far(a)) {
        const T size = m_hypot(a.re, y);
        return made(m_copysign(x / size / size, a.re), m_copysign(T(1.57079632679489661923), y));
    }
    return made(m_copysign(m_log1p(4 * x / (left * left + y * y)) / 4, a.re),
                m_arctan2(2 * y, left * (1 + x) - y * y) / 2);
}
C_ Complex<T> c_arctan(Complex<T> a) { return turned(c_arctanh(turned(a))); }
"""

#: the same of parts of real numbers
PARTS_FUNCTIONS = r"""
FN float m_frexp(float a, int *e) { return MATH(frexpf)(a, e); }
FN double m_frexp(double a, int *e) { return MATH(frexp)(a, e); }
C_ T fraction_of(T a) { int e; return a - a == 0 ? m_frexp(a, &e) : a; }
C_ int exponent_of(T a) { int e = 0; if (a - a == 0) m_frexp(a, &e); return e; }
"""

#: the same of whole numbers
INTEGER_FUNCTIONS = r"""
C_ T greatest_divisor(T a, T b)
{ while (b != 0) { const T rest = b < 0 && b == T(-1) ? T(0) : T(a % b); a = b; b = rest; } return a < 0 ? T(-a) : a; }
C_ T least_multiple(T a, T b)
{ const T common = greatest_divisor(a, b); const T found = common == 0 ? T(0) : T(a / common * b);
  return found < 0 ? T(-found) : found; }
C_ T whole_power(T a, T b)
{
    if (b < 0) return a == 1 ? T(1) : a == T(-1) ? (b & 1 ? T(-1) : T(1)) : T(0);
    T found = 1;
    for (; b; b >>= 1) { if (b & 1) found = T(found * a); a = T(a * a); }
    return found;
}
"""


def head_of(text: str) -> str:
    """What the text of kernels is put behind."""
    seldom = [
        (r"\bc_\w", COMPLEX_FUNCTIONS),
        (r"\b(greatest_divisor|least_multiple|whole_power)\b", INTEGER_FUNCTIONS),
        (r"\b(fraction_of|exponent_of)\b", PARTS_FUNCTIONS),
    ]
    return "".join([PRELUDE, FUNCTIONS, *[functions for names, functions in seldom if re.search(names, text)]])

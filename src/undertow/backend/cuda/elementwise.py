"""Kernels of elementwise functions: text made from formulas for the dtypes that a program uses.

NumPy says what the operands are computed in and what the result is (`ufunc.resolve_dtypes`), so dtypes are NumPy's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.backend import dtypes
from undertow.backend.cpu import cpu
from undertow.backend.cuda import device
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.formulas import FORMULAS
from undertow.backend.cuda.kernel_text import NUMBER, PYTHON, code_of, computed, dtype_of, stored
from undertow.backend.interface import Array

if TYPE_CHECKING:
    from undertow.backend.interface import DType

MOST_LOOP = 12  # as in csrc/cuda/cuda.h
INNER = 16  # of kernels whose vectors lie side by side in the last dimension alone
LETTERS = "abcdefgh"
DTypes = tuple[np.dtype[Any], ...]


class Formula:
    """An elementwise function: `resolve(kinds)` gives the dtypes of operands and result, `code(dtypes)` the formula."""

    def __init__(self, nin: int, resolve: Callable[[tuple[Any, ...]], DTypes], code: Callable[[DTypes], str]) -> None:
        self.nin, self.resolve, self.code = nin, resolve, code

    def compile(self, codes: tuple[int, ...]) -> tuple[np.dtype[Any], int, int, tuple[int, ...]]:
        """For operands of these codes: the result's dtype, two kernels, and the codes they are computed in."""
        dtypes = self.resolve(tuple([kind_of(code) for code in codes]))
        text = Text(codes, dtypes, self.code(dtypes))
        entries = [Entry("plain", "Alike"), Entry("strided", "Strided")]
        plain, strided = compile_kernels(f"{text.head()}{text.plain()}{text.strided()}", entries)
        return dtypes[-1], plain, strided, tuple([code_of(d) for d in dtypes[:-1]])

    def compile_vector(self, codes: tuple[int, ...], singles: int) -> int:
        """The kernel for large arrays; `singles` are the bits of operands that are a single element, and INNER."""
        dtypes = self.resolve(tuple([kind_of(code) for code in codes]))
        text = Text(codes, dtypes, self.code(dtypes))
        body, entry = text.vector(singles), Entry("vector", "Alike")
        if singles & INNER:
            body, entry = text.inner(singles & INNER - 1), Entry("inner", "Strided")
        return compile_kernels(f"{text.head()}{body}", [entry])[0]


def kind_of(code: int) -> Any:
    """What promotion asks of an operand: its dtype, or the class of a Python number."""
    return PYTHON[code - NUMBER] if code - NUMBER in PYTHON else dtype_of(code)


class Text:
    """The text of the kernels of one formula, for operands of some codes, computed in some dtypes."""

    def __init__(self, codes: Sequence[int], dtypes: DTypes, code: str) -> None:
        self.codes, self.dtypes, self.code = codes, dtypes, code
        self.nin = len(codes)

    def head(self) -> str:
        output = self.dtypes[-1]
        common = f"char *out; const char *x[{self.nin}]; Value s[{self.nin}]; i64 n;"
        return (
            f"typedef {stored(output)} O; typedef {computed(output)} R;\n"
            f"{self.function('formula')}"
            f"struct Alike {{ {common} i64 step[{self.nin}]; }};\n"
            f"struct Strided {{ {common} i64 nd, dims[{MOST_LOOP}], steps[{self.nin + 1}][{MOST_LOOP}]; }};\n"
        )

    def function(self, name: str) -> str:
        """The formula as a function of a name of its own: T is the type of its last operand, R that of its result."""
        types = [computed(d) for d in self.dtypes]
        given = ", ".join([f"{t} {letter}" for t, letter in zip(types[:-1], LETTERS, strict=False)])
        names = f"typedef {types[-2]} T; typedef {types[-1]} R;"
        return f"FN {types[-1]} {name}({given}) {{ {names} return (R)({self.code}); }}\n"

    def number(self, k: int, place: str) -> str:
        """The k-th operand, a number that is found in a place, in the type it is computed in."""
        code, to = self.codes[k] - NUMBER, computed(self.dtypes[k])
        if code == 18 or (code < 16 and dtype_of(code).kind == "c"):
            return f"Cast<{to}, C128>::of(made({place}.d, {place}.imaginary))"
        if code == 17 or (code < 16 and dtype_of(code).kind == "f"):
            return f"Cast<{to}, double>::of({place}.d)"
        if code < 16 and dtype_of(code).kind == "u":
            return f"Cast<{to}, u64>::of((u64){place}.i)"
        return f"Cast<{to}, i64>::of({place}.i)"

    def element(self, k: int, element: str) -> str:
        return f"Cast<{computed(self.dtypes[k])}, {stored(dtype_of(self.codes[k]))}>::of({element})"

    def arrays(self) -> list[int]:
        return [k for k, code in enumerate(self.codes) if code < NUMBER]

    def values(self, element: Callable[[int], str]) -> str:
        """The formula on one element of each array."""
        found = [self.element(k, element(k)) if self.codes[k] < NUMBER else f"n{k}" for k in range(self.nin)]
        return f"Cast<O, R>::of(formula({', '.join(found)}))"

    def numbers(self) -> str:
        found = [k for k, code in enumerate(self.codes) if code >= NUMBER]
        return "".join([f"const {computed(self.dtypes[k])} n{k} = {self.number(k, f'p.s[{k}]')}; " for k in found])

    def of_array(self, k: int) -> str:
        return f"(const {stored(dtype_of(self.codes[k]))} *)"

    def plain(self) -> str:
        body = self.values(lambda k: f"({self.of_array(k)}p.x[{k}])[i * p.step[{k}]]")
        return f"""KERNEL(plain, Alike) {{ BEGIN {self.numbers()}
    i64 i = (i64)blockIdx.x * (4 * blockDim.x) + threadIdx.x;
    for (int j = 0; j < 4; j++, i += blockDim.x) if (i < p.n) ((O *)p.out)[i] = {body}; }}
"""

    def walk(self, arrays: Sequence[int]) -> str:
        """From the number i of an element to where it lies: o in the result, and o0, o1, ... in operands."""
        offsets = "".join([f", o{k} = 0" for k in arrays])
        steps = "".join([f" o{k} += r * p.steps[{self.nin - k}][d];" for k in arrays])
        loop = "for (int d = (int)p.nd - 1; d >= 0; d--) { "
        return f"""
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, o = 0{offsets}; if (i >= p.n) return;
    if (p.n <= 0x7fffffff) {{ u32 rest = (u32)i;
        {loop}u32 size = (u32)p.dims[d], q = rest / size; i64 r = rest - q * size; rest = q;
            o += r * p.steps[0][d];{steps} }} }}
    else {{ i64 rest = i;
        {loop}i64 size = p.dims[d], q = rest / size, r = rest - q * size; rest = q; o += r * p.steps[0][d];{steps} }} }}
"""

    def strided(self) -> str:
        body = self.values(lambda k: f"*{self.of_array(k)}(p.x[{k}] + o{k})")
        return f"""KERNEL(strided, Strided) {{ BEGIN {self.numbers()}{self.walk(self.arrays())}
    *(O *)(p.out + o) = {body}; }}
"""

    def pieces(self, singles: int) -> tuple[int, list[int], str, str, list[str]]:
        """Of kernels that take vectors: their length, which operands have them, types, numbers, and elements."""
        wide = 16 // self.dtypes[-1].itemsize
        arrays = [k for k in self.arrays() if not singles >> k & 1]
        alone = [k for k in self.arrays() if singles >> k & 1]
        aligned: Callable[[int], int] = lambda k: min(16, wide * dtype_of(self.codes[k]).itemsize)
        types = [
            f"struct alignas({aligned(k)}) V{k} {{ {stored(dtype_of(self.codes[k]))} v[{wide}]; }};" for k in arrays
        ]
        types.append(f"struct alignas(16) VO {{ O v[{wide}]; }};\n")
        first = [
            f"const {computed(self.dtypes[k])} e{k} = {self.element(k, f'*{self.of_array(k)}p.x[{k}]')}; "
            for k in alone
        ]
        operands = [
            f"n{k}" if code >= NUMBER else f"e{k}" if k in alone else self.element(k, f"v{k}[u].v[w]")
            for k, code in enumerate(self.codes)
        ]
        return wide, arrays, " ".join(types), self.numbers() + "".join(first), operands

    def inner(self, singles: int) -> str:
        """Sixteen bytes of the result at a time, which lie side by side, and so do those of operands."""
        wide, arrays, types, numbers, operands = self.pieces(singles)
        fetch = "".join([f"const V{k} v{k}[1] = {{*(const V{k} *)(p.x[{k}] + o{k})}}; " for k in arrays])
        return f"""{types}KERNEL(inner, Strided) {{ BEGIN {numbers}{self.walk(arrays)}
    {fetch}VO result; const int u = 0;
    for (int w = 0; w < {wide}; w++) result.v[w] = Cast<O, R>::of(formula({", ".join(operands)}));
    *(VO *)(p.out + o) = result; }}
"""

    def vector(self, singles: int) -> str:
        """Sixteen bytes of the result at a time, twice for each thread."""
        wide, arrays, types, numbers, operands = self.pieces(singles)
        places = "".join([f"V{k} v{k}[2]; " for k in arrays])
        fetch = "".join([f"v{k}[u] = ((const V{k} *)p.x[{k}])[at + u * blockDim.x]; " for k in arrays])
        return f"""{types}KERNEL(vector, Alike) {{ BEGIN {numbers}{places}
    i64 n = p.n / {wide}, at = (i64)blockIdx.x * 2 * blockDim.x + threadIdx.x;
    for (int u = 0; u < 2; u++) if (at + u * blockDim.x < n) {{ {fetch} }}
    for (int u = 0; u < 2; u++) if (at + u * blockDim.x < n) {{ VO o;
        for (int w = 0; w < {wide}; w++) o.v[w] = Cast<O, R>::of(formula({", ".join(operands)}));
        ((VO *)p.out)[at + u * blockDim.x] = o; }} }}
"""


# ---- NumPy's functions


def resolved(ufunc: Array, kinds: tuple[DType, ...]) -> DTypes:
    """NumPy's dtypes of operands and result; NotImplementedError where operands would be computed in different ones.

    Half precision is promoted as float32 is, and the result is rounded where nothing else was there.
    """
    given, narrow = kinds, {k for k in kinds if isinstance(k, np.dtype) and dtypes.is_narrow(k)}
    if narrow:
        kinds = tuple([dtypes.float32 if k in narrow else k for k in kinds])
    found: DTypes = ufunc.resolve_dtypes((*kinds, None))
    if len({d for d in found[:-1]}) > 1 or any([d.kind not in "buifc" for d in found]):
        raise NotImplementedError(f"{ufunc.__name__} of these dtypes on cuda")
    return narrowed(given, found)


def narrowed(kinds: tuple[DType, ...], found: DTypes) -> DTypes:
    """The dtypes of operands of half precision, from those that they have in float32."""
    floating = {k for k in kinds if isinstance(k, np.dtype) and dtypes.is_floating(k)}
    if len(floating) != 1 or not dtypes.is_narrow(*floating):
        return found
    (half,) = floating
    return tuple([half if d == dtypes.float32 else d for d in found])


def code_for(name: str, dtypes: DTypes) -> str:
    kind = "f" if dtypes[0].kind == "V" else dtypes[0].kind
    code = FORMULAS[name].get(kind)
    if code is None:
        raise NotImplementedError(f"{name} of {dtypes[0]} on cuda")
    return code


def formula_of(ufunc: Array) -> Formula:
    return Formula(ufunc.nin, functools.partial(resolved, ufunc), functools.partial(code_for, ufunc.__name__))


def same(kinds: tuple[DType, ...]) -> DTypes:
    return kinds[0], kinds[0]


#: functions of real numbers whose result is none
GIVE_BOOLS = frozenset(
    "less less_equal greater greater_equal equal not_equal logical_and logical_or logical_xor logical_not isnan isinf "
    "isfinite signbit".split()
)


def all_alike(kinds: tuple[DType, ...]) -> DTypes:
    """One dtype of real numbers for all operands, beside which Python's numbers have nothing to say."""
    found = {k for k in kinds if isinstance(k, np.dtype)}
    if len(found) != 1 or complex in kinds or not all([dtypes.is_floating(d) for d in found]):
        raise NotImplementedError("operands of several dtypes, or of other ones, in one kernel")
    (dtype,) = found
    return (dtype,) * (len(kinds) + 1)


def filled(kinds: tuple[DType, ...]) -> DTypes:
    """Those of an array and a number that is written everywhere."""
    return kinds[0], kinds[0], kinds[0]


def chosen(kinds: tuple[DType, ...]) -> DTypes:
    """Those of `where`."""
    values = [k if isinstance(k, np.dtype) else k(0) for k in kinds[1:]]
    dtype = values[0] if values[0] == values[1] and isinstance(values[0], np.dtype) else np.result_type(*values)
    return np.dtype(bool), dtype, dtype, dtype


def part(kinds: tuple[DType, ...]) -> DTypes:
    return kinds[0], kinds[0].type(0).real.dtype


def kernel(name: str, formula: Formula, slow: Callable[..., Any]) -> Any:
    """The kernel of a formula; `slow(operands, out)` computes what it cannot."""
    made = KernelFunction(name, formula.nin, formula.compile, formula.compile_vector, slow)
    made.formula = formula
    return made


@functools.cache
def kernel_class() -> Any:
    """The class of kernels that pass for ufuncs: what else is asked of a ufunc is asked of NumPy's."""

    class KernelFunction(device.extension().Elementwise):  # type: ignore[misc]
        ufunc: Any = None
        formula: Any = None
        #: what computes `reduce` of arrays of the device, without NumPy's detour
        reducer: Any = None

        def reduce(self, array: Array, *args: Any, **options: Any) -> Any:
            if self.reducer is not None and self.ufunc is not None and isinstance(array, device.extension().Array):
                return self.reducer(self.ufunc, array, *args, **options)
            return self.ufunc.reduce(array, *args, **options)

        @property
        def __name__(self) -> str:
            return str(self.name)

        def with_options(self, *args: Any, **options: Any) -> Any:
            """A call with `where=`, `dtype=` and the like."""
            if self.ufunc is None:
                raise TypeError(f"{self.name} on cuda takes {self.nin} operands, and no {', '.join(options)}")
            return self.ufunc(*args, **options)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") or self.ufunc is None:
                raise AttributeError(f"the kernel of {self.name} has no attribute {name!r}")
            return getattr(self.ufunc, name)

    return KernelFunction


def KernelFunction(*args: Any) -> Any:
    return kernel_class()(*args)


def ufunc_kernels(slow: Callable[[Any], Callable[..., Any]]) -> dict[str, Any]:
    """A kernel for each of NumPy's functions that has a formula; `slow(ufunc)` gives what computes the rest."""
    found = {}
    for name in FORMULAS:
        ufunc = getattr(cpu, name, None)
        if isinstance(ufunc, np.ufunc):
            made = found[name] = kernel(name, formula_of(getattr(np, name)), slow(ufunc))
            made.ufunc = ufunc
    return found

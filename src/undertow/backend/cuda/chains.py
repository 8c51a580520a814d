"""Kernels of chains: elementwise launches that follow each other, done in one. csrc/cuda/chains.c says which, and when.

What one formula hands to the next stays in registers, rounded to the dtype that its array would have had, so the bits
are those of single launches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from undertow.backend.cuda import reading
from undertow.backend.cuda.compile import Entry, compile_kernels
from undertow.backend.cuda.elementwise import Text, kind_of
from undertow.backend.cuda.kernel_text import NUMBER, computed, dtype_of, stored
from undertow.backend.interface import DType


class Piece(NamedTuple):
    """A launch: its formula, and where its operands come from: an array (its number), or a piece (~ its number)."""

    text: Text
    sources: tuple[int, ...]
    is_stored: bool


def make(launches: tuple[Any, ...], arrays: tuple[tuple[int, int], ...], wide: int, end: int) -> int:
    """The address of the kernel of a chain.

    `launches` are (kernel, codes, sources, whether the result is written), `arrays` (code, whether it is a single
    element) of what is read, `wide` elements are read at a time, and `end` is the address of the kernel that reads what
    the last launch makes, or 0.
    """
    pieces = [piece_of(*launch) for launch in launches]
    functions = "".join([piece.text.function(f"formula{p}") for p, piece in enumerate(pieces)])
    if not end:
        return compile_kernels(functions + kernel_of(pieces, arrays, wide), [Entry("chain", "P")])[0]
    before, behind, entry = reading.readers[end]
    return compile_kernels(functions + before + take_of(pieces, arrays, wide) + behind, [entry])[0]


def piece_of(kernel: Any, codes: tuple[int, ...], sources: tuple[int, ...], is_stored: int) -> Piece:
    dtypes = kernel.formula.resolve(tuple([kind_of(code) for code in codes]))
    return Piece(Text(codes, dtypes, kernel.formula.code(dtypes)), sources, bool(is_stored))


def kernel_of(pieces: list[Piece], arrays: tuple[tuple[int, int], ...], wide: int) -> str:
    """Vectors of what is read, twice for each thread; then element by element all formulas; then what is written."""
    places = [p for p, piece in enumerate(pieces) if piece.is_stored]
    numbers = numbers_of(pieces)
    types = [vector(f"V{k}", dtype_of(code), wide) for k, (code, _) in enumerate(arrays)]
    types += [vector(f"W{p}", pieces[p].text.dtypes[-1], wide) for p in places]
    values = f"Value s[{len(numbers)}]; " if numbers else ""
    many = [k for k, (_, is_single) in enumerate(arrays) if not is_single]
    before = "".join(
        [f"{numbers[place]} " for place in numbers] + [first_of(k, c) for k, (c, one) in enumerate(arrays) if one]
    )
    declared = "".join([f"V{k} v{k}[2]; " for k in many])
    fetch = "".join([f"v{k}[u] = ((const V{k} *)p.x[{k}])[at + u * blockDim.x]; " for k in many])
    results = "".join([f"W{p} w{p}; " for p in places])
    steps = "".join([f"            {step(p, piece, arrays)}\n" for p, piece in enumerate(pieces)])
    keep = "".join([f"w{p}.v[w] = t{p}; " for p in places])
    write = "".join([f"((W{p} *)p.out[{n}])[at + u * blockDim.x] = w{p}; " for n, p in enumerate(places)])
    return f"""{" ".join(types)}
struct P {{ char *out[{len(places)}]; const char *x[{len(arrays)}]; {values}i64 n; }};
KERNEL(chain, P) {{ BEGIN {before}{declared}
    const i64 at = (i64)blockIdx.x * 2 * blockDim.x + threadIdx.x;
    for (int u = 0; u < 2; u++) if (at + u * blockDim.x < p.n) {{ {fetch}}}
    for (int u = 0; u < 2; u++) if (at + u * blockDim.x < p.n) {{ {results}
        for (int w = 0; w < {wide}; w++) {{
{steps}            {keep}}}
        {write}}} }}
"""


def take_of(pieces: list[Piece], arrays: tuple[tuple[int, int], ...], wide: int) -> str:
    """What reading.py says of `take`, by all formulas; what somebody keeps is written on the way."""
    places = [p for p, piece in enumerate(pieces) if piece.is_stored]
    numbers = numbers_of(pieces)
    fields = [f"char *out[{len(places)}]; "] if places else []
    fields += [f"const char *x[{len(arrays)}]; "] if arrays else []
    fields += [f"Value s[{len(numbers)}];"] if numbers else []
    types = [some(f"V{k}", dtype_of(code)) for k, (code, is_single) in enumerate(arrays) if not is_single]
    types += [some(f"W{p}", pieces[p].text.dtypes[-1]) for p in places]
    before = [f"    {line}\n" for line in numbers.values()]
    for k, (code, is_single) in enumerate(arrays):
        word = stored(dtype_of(code))
        before.append(f"    {first_of(k, code)}\n" if is_single
                      else f"    const V{k} v{k} = *(const V{k} *)((const {word} *)p.x[{k}] + i);\n")  # fmt: skip
    before += [f"    W{p} w{p};\n" for p in places]
    steps = "".join([f"        {step(p, piece, arrays, 'v{}.v[w]')}\n" for p, piece in enumerate(pieces)])
    keep = "".join([f"w{p}.v[w] = t{p}; " for p in places])
    words = {p: stored(pieces[p].text.dtypes[-1]) for p in places}
    write = "".join([f"    *(W{p} *)(({words[p]} *)p.out[{n}] + i) = w{p};\n" for n, p in enumerate(places)])
    return f"""struct Chain {{ {"".join(fields)} }};
struct Arguments : P {{ Chain chain; }};
template <int N> FN void compute(const Arguments &given, i64 i, S *to)
{{
    const Chain &p = given.chain; {" ".join(types)}
{"".join(before)}    for (int w = 0; w < N; w++) {{
{steps}        {keep}to[w] = t{len(pieces) - 1};
    }}
{write}}}
template <int N> FN void take(const Arguments &p, i64 i, S *to)
{{
    const int some = N < {wide} ? N : {wide};
    for (int k = 0; k < N; k += some) compute<some>(p, i + k, to + k);
}}
"""


def some(name: str, dtype: DType) -> str:
    """N elements of an array: no more bytes than an array's address is a multiple of."""
    return f"struct alignas(N * {dtype.itemsize}) {name} {{ {stored(dtype)} v[N]; }};"


def vector(name: str, dtype: DType, wide: int) -> str:
    return f"struct alignas({wide * dtype.itemsize}) {name} {{ {stored(dtype)} v[{wide}]; }};"


def numbers_of(pieces: list[Piece]) -> dict[tuple[int, int], str]:
    """(piece, operand) of each number -> the line that reads it."""
    found: dict[tuple[int, int], str] = {}
    for p, piece in enumerate(pieces):
        for k, code in enumerate(piece.text.codes):
            if code >= NUMBER:
                to, value = computed(piece.text.dtypes[k]), piece.text.number(k, f"p.s[{len(found)}]")
                found[p, k] = f"const {to} n{p}_{k} = {value};"
    return found


def first_of(k: int, code: int) -> str:
    """The line that reads an array of a single element."""
    word = stored(dtype_of(code))
    return f"const {word} e{k} = *(const {word} *)p.x[{k}]; "


def step(p: int, piece: Piece, arrays: tuple[tuple[int, int], ...], place: str = "v{}[u].v[w]") -> str:
    """The line that computes one element of a piece's result; `place` is where that of an array is."""
    operands = []
    for k, (code, source) in enumerate(zip(piece.text.codes, piece.sources, strict=True)):
        if code >= NUMBER:
            operands.append(f"n{p}_{k}")
        else:
            value = f"t{~source}" if source < 0 else f"e{source}" if arrays[source][1] else place.format(source)
            operands.append(piece.text.element(k, value))
    output = piece.text.dtypes[-1]
    call = f"formula{p}({', '.join(operands)})"
    return f"const {stored(output)} t{p} = Cast<{stored(output)}, {computed(output)}>::of({call});"

"""Which operations cost most beside PyTorch's? `python -m benchmarks.survey` measures many, on small arrays.

Two ratios for each: the recorded operation alone, and with the backward pass of its sum. The worst come first.
`--sizes 10 1000 100000 10000000 --slower` asks for arrays of about so many numbers, and shows what takes longer here.
`--plain` measures what has no gradient: tensors made, asked and converted, changed in place, compared; integers.
`--every` measures every operation that the tests have a row for (tests/samples), on the small arrays of its first row.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from typing import Any

from benchmarks import report
from benchmarks.measure import libraries
from benchmarks.models import layer_functions
from benchmarks.sampling import Figures, interleave, statement
from benchmarks.threads import one_thread

#: a, b: (rows, columns); s: (columns, columns), t: two of these, c: (rows, 1); v: (columns,); x: images; w: windows;
#: k: class numbers (rows,); m: a mask like a; all but k and m are results
EXPRESSIONS = """
a + b; a - b; a * b; a / b; a + c; a * v; a * 2.0; 2.0 / a; a ** 2; -a; a.abs(); a.exp(); a.log1p(); a.sqrt(); a.sin()
a.tanh(); a.sigmoid(); a.relu(); f.gelu(a); f.silu(a); f.softplus(a); a.clamp(0.2, 0.8); lib.maximum(a, b)
lib.where(m, a, b); a.masked_fill(m, 0.0); lib.addcmul(a, a, b); lib.lerp(a, b, 0.3)
a.sum(); a.sum(0); a.sum(1, keepdim=True); a.mean(); a.mean(1); a.var(1); a.std(); a.prod(1); a.max(); a.amax(1)
a.max(1)[0]; a.norm(); a.logsumexp(1); a.cumsum(1); a.sort(1)[0]; a.topk(2, 1)[0]
f.softmax(a, 1); f.log_softmax(a, 1); f.cross_entropy(a, k); f.nll_loss(a, k); f.mse_loss(a, b); f.l1_loss(a, b)
f.layer_norm(a, a.shape[1:]); f.linear(a, s, v); lib.addmm(v, a, s); a @ s; s @ v; v @ v; lib.bmm(t, t); t @ s
lib.einsum("ij,jk->ik", a, s); lib.outer(v, v); s.inverse(); lib.linalg.solve(s, v)
a.T; a.t(); a.transpose(0, 1); a.permute(1, 0); a.reshape(2, -1); a.view(-1); a.flatten(); a.unsqueeze(1); a.squeeze()
a.expand(2, *a.shape); c.expand(*a.shape); a[0]; a[1:3]; a[:, 2]; a[..., None]; a[k]; a[k, k]; a[m]; a.select(1, 2)
a.narrow(1, 2, 3); a.index_select(0, k); a.gather(1, k.unsqueeze(1)); a.flip(0); a.roll(1, 1); a.tril(); a.diagonal()
a.chunk(2, 1)[0]; a.split(4, 1)[0]; a.unbind()[0]; lib.cat([a, b]); lib.stack([a, b]); a.repeat(2, 1); a.clone()
a.contiguous(); a.double(); f.pad(a, (1, 1)); a ** b; lib.erf(a); lib.exp2(a); lib.rsqrt(a); lib.nan_to_num(a)
a.amax(); a.cumprod(1); a.cummax(1)[0]; a.std(1); lib.lerp(a, b, c); lib.kron(c, v); f.elu(a); f.hardswish(a)
f.smooth_l1_loss(a, b); f.huber_loss(a, b); f.binary_cross_entropy_with_logits(a, b); f.normalize(a)
x.sum((0, 2, 3)); x.mean((2, 3)); f.conv2d(x, w); f.max_pool2d(x, 2); f.avg_pool2d(x, 2)
f.interpolate(x, scale_factor=2); f.batch_norm(x, None, None, training=True)
f.group_norm(x, 2); f.dropout(a, 0.3); a.scatter_add(1, k.unsqueeze(1), b)
"""

#: p, q: as a, without a gradient, and h in half precision; i, j: whole numbers; n: of elements, shape: of a
PLAIN = """
lib.empty(shape); lib.zeros(shape); lib.ones(shape); lib.full(shape, 2.0); lib.zeros(n, dtype=lib.int64)
lib.arange(n); lib.zeros_like(p); lib.ones_like(p); lib.empty_like(p); lib.full_like(p, 2.0); p.new_zeros(shape)
lib.tensor([1.0, 2.0]); lib.rand(shape); lib.randn(shape); lib.randint(0, 9, shape); lib.randperm(n)
lib.linspace(0, 1, n); lib.eye(8); p.to(lib.float32); p.to(lib.float64); p.to("cpu"); p.to(q)
p.to(device="cpu", dtype=lib.float64); p.long(); h.float(); p.shape; p.size(0); p.dim(); p.numel(); p.dtype
p.device; p.stride(); p.data_ptr(); p.is_contiguous(); p.detach(); p.data; p.add_(0.0); p.mul_(1.0)
p.add_(q, alpha=0.0); p.copy_(q); p.fill_(0.5); p.zero_(); p.clamp_(0.1, 0.9); p.relu_()
p.addcmul_(q, q, value=0.0); p.lerp_(q, 0.5); p.masked_fill_(m, 0.5); p.normal_(); p.uniform_(); p.sigmoid_()
p.round_(); p < q; p == q; m & m; ~m; m.any(); m.all(); m.sum(); p.argmax(1); p.argsort(1); lib.isfinite(p)
lib.allclose(p, p); i + j; i * 2; i // 2; i % j; i / j; i + 1.0; i.sum(); i.max(); i.cumsum(1); i.clamp(2, 5)
i.float(); lib.unique(i); h + h; h * 2; h.relu(); h.sum(); h.softmax(1); lib.nonzero(m); lib.bincount(k)
f.one_hot(k, 10)
"""


def shape_of(size: int) -> tuple[int, int]:
    """Rows and columns of about so many numbers."""
    columns = 8 if size < 10_000 else 256
    return max(4, size // columns), columns


def operands(lib: Any, size: int = 32) -> dict[str, Any]:
    lib.manual_seed(0)
    n, m = shape_of(size)
    sizes = {"a": (n, m), "b": (n, m), "s": (m, m), "c": (n, 1), "v": (m,), "t": (2, m, m)}
    # between 0 and 1, so that every operation is defined
    made = {name: lib.rand(*shape).requires_grad_() * 0.9 + 0.05 for name, shape in sizes.items()}
    channels, side = (2, 4) if size < 1000 else (8, 16)
    images = {"x": (max(1, size // (channels * side * side)), channels, side, side), "w": (channels, channels, 3, 3)}
    made |= {name: lib.rand(*shape).requires_grad_() * 1.0 for name, shape in images.items()}
    plain = {"p": made["a"].detach().clone(), "q": made["b"].detach().clone(), "n": n * m, "shape": (n, m)}
    whole = {"k": (lib.arange(n) * 3 + 3) % 4, "m": lib.rand(n, m) > 0.5}
    whole |= {name: lib.randint(1, 9, (n, m)) for name in "ij"}
    return {**made, **plain, **whole, "h": plain["p"].half(), "lib": lib, "f": layer_functions(lib)}


def expressions(text: str = EXPRESSIONS) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(";")]


def first_rows(part: str) -> list[Any]:
    """The first row of the tests for every operation whose name contains this."""
    from tests.samples import all_samples  # here: `one_thread` wants to be there before NumPy is

    rows: dict[str, Any] = {}
    for sample in all_samples():
        if part in sample.op and not sample.complex_only:
            rows.setdefault(sample.op, sample)
    return list(rows.values())


def call_of(sample: Any, lib: Any) -> tuple[str, dict[str, Any]]:
    """A statement that calls the operation of a row with its arguments, and the names in it."""
    import numpy as np

    from tests.samples import Array
    from undertow.ops import REGISTRY

    rng = np.random.default_rng(0)
    ours = lib.__name__ == "undertow"

    def given(value: Any) -> Any:
        if not isinstance(value, Array):
            return [given(v) for v in value] if isinstance(value, list) else value
        array = value.make(rng)
        made = lib.tensor(array.astype("float32") if array.dtype.kind == "f" else array)
        return made.requires_grad_() * 1.0 if value.differentiable and made.dtype.is_floating_point else made

    args, kwargs = [given(a) for a in sample.args], {k: given(v) for k, v in sample.kwargs.items()}
    call = sample.call or (None if ours else sample.reference)
    if call is not None:
        return "function(lib, *args, **kwargs)", {"function": call, "lib": lib, "args": args, "kwargs": kwargs}
    function = REGISTRY[sample.op].function if ours else getattr(lib, sample.op)
    return "function(*args, **kwargs)", {"function": function, "args": args, "kwargs": kwargs}


def survey_every(found: list[Any], options: Any) -> tuple[list[tuple[str, Figures]], list[str]]:
    """The figures of every operation alone, the worst first; and what cannot be compared."""
    rows, failed = [], []
    for sample in first_rows(options.only):
        try:
            samplers = [statement(*call_of(sample, lib), seconds=0.002) for lib in found]
            figures = interleave(samplers[0], samplers[1] if len(samplers) > 1 else None, options.repeats)
        except Exception as error:  # PyTorch has no operation of that name, or calls it in another way
            failed.append(f"{sample.op}: {type(error).__name__}")
            continue
        if not options.slower or (figures.ratio or 0) > 1:
            rows.append((sample.op, figures))
        print(".", end="", file=sys.stderr, flush=True)
    return sorted(rows, key=lambda row: -(row[1].ratio or row[1].ours)), failed


def compare(code: str, found: list[Any], repeats: int, seconds: float, size: int = 32) -> Figures | str:
    """The figures of a statement, or what is wrong with it in undertow."""
    try:
        samplers = [statement(code, operands(lib, size), seconds=seconds) for lib in found]
    except Exception as error:  # whatever it is, the survey goes on
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return interleave(samplers[0], samplers[1] if len(samplers) > 1 else None, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survey", description=__doc__)
    parser.add_argument("--only", default="", help="only expressions that contain this")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of samples (default 5)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[32], help="numbers of an array (default 32)")
    parser.add_argument("--every", action="store_true", help="every operation that the tests have a row for")
    parser.add_argument("--plain", action="store_true", help="what has no gradient")
    parser.add_argument("--slower", action="store_true", help="only what takes longer than PyTorch's")
    options = parser.parse_args()
    one_thread("benchmarks.survey")
    found = libraries(1)
    gc.collect()
    gc.freeze()  # what is imported need not be looked at before every sample
    if options.every:
        every, failed = survey_every(found, options)
        header = [f"{len(every)} operations", "recorded", "torch", "ratio"]
        print("\n" + report.as_text([header, *[[name, *cells(figures)] for name, figures in every]]))
        print(f"not compared: {', '.join(failed)}" if failed else "")
        return
    for size in options.sizes:
        rows, failed = survey(found, size, options)
        header = [f"{size:,} numbers", "recorded", "torch", "ratio", "and backward", "torch", "ratio"]
        header = header[:4] if options.plain else header
        print("\n" + report.as_text([header, *[[code, *cells(alone), *cells(both)] for code, alone, both in rows]]))
        print("".join(f"failed: {line}\n" for line in failed), end="", flush=True)


def survey(found: list[Any], size: int, options: Any) -> tuple[list[tuple[str, Figures, Figures | None]], list[str]]:
    """The figures of every expression, the worst first; and what is wrong with the others."""
    rows, failed = [], []
    for code in [code for code in expressions(PLAIN if options.plain else EXPRESSIONS) if options.only in code]:
        alone, both = compare(code, found, options.repeats, 0.004, size), None
        if not options.plain:
            both = compare(f"({code}).sum().backward(retain_graph=True)", found, options.repeats, 0.008, size)
        if isinstance(alone, str) or isinstance(both, str):
            failed.append(f"{code}: {alone if isinstance(alone, str) else both}")
        elif not options.slower or max(alone.ratio or 0, (both and both.ratio) or 0) > 1:
            rows.append((code, alone, both))
        print(".", end="", file=sys.stderr, flush=True)
    return sorted(rows, key=lambda row: -(row[1].ratio or row[1].ours)), failed


def cells(figures: Figures | None) -> list[str]:
    if figures is None:
        return []
    theirs = "-" if figures.theirs is None else report.duration(figures.theirs)
    return [report.duration(figures.ours), theirs, "-" if figures.ratio is None else f"{figures.ratio:.2f}"]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()

"""Which operations cost most beside PyTorch's? `python -m benchmarks.survey` measures many, on small arrays.

Two ratios for each: the recorded operation alone, and with the backward pass of its sum. The worst come first.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from benchmarks import report
from benchmarks.measure import libraries
from benchmarks.models import functions
from benchmarks.sampling import Figures, interleave, statement
from benchmarks.threads import one_thread

#: a, b: (4, 8); s: (8, 8), c: (4, 1); v: (8,); k: class numbers (4,); m: a mask (4, 8); all but k and m are results
EXPRESSIONS = """
a + b; a - b; a * b; a / b; a + c; a * v; a * 2.0; 2.0 / a; a ** 2; -a; a.abs(); a.exp(); a.log1p(); a.sqrt(); a.sin()
a.tanh(); a.sigmoid(); a.relu(); f.gelu(a); f.silu(a); f.softplus(a); a.clamp(0.2, 0.8); lib.maximum(a, b)
lib.where(m, a, b); a.masked_fill(m, 0.0); lib.addcmul(a, a, b); lib.lerp(a, b, 0.3)
a.sum(); a.sum(0); a.sum(1, keepdim=True); a.mean(); a.mean(1); a.var(1); a.std(); a.prod(1); a.max(); a.amax(1)
a.max(1)[0]; a.norm(); a.logsumexp(1); a.cumsum(1); a.sort(1)[0]; a.topk(2, 1)[0]
f.softmax(a, 1); f.log_softmax(a, 1); f.cross_entropy(a, k); f.nll_loss(a, k); f.mse_loss(a, b); f.l1_loss(a, b)
f.layer_norm(a, (8,)); f.linear(a, s, v); lib.addmm(v, a, s); a @ s; s @ v; v @ v; lib.bmm(t, t); t @ s
lib.einsum("ij,jk->ik", a, s); lib.outer(v, v); s.inverse(); lib.linalg.solve(s, v)
a.T; a.t(); a.transpose(0, 1); a.permute(1, 0); a.reshape(8, 4); a.view(32); a.flatten(); a.unsqueeze(1); a.squeeze()
a.expand(2, 4, 8); c.expand(4, 8); a[0]; a[1:3]; a[:, 2]; a[..., None]; a[k]; a[k, k]; a[m]; a.select(1, 2)
a.narrow(1, 2, 3); a.index_select(0, k); a.gather(1, k.unsqueeze(1)); a.flip(0); a.roll(1, 1); a.tril(); a.diagonal()
a.chunk(2, 1)[0]; a.split(4, 1)[0]; a.unbind()[0]; lib.cat([a, b]); lib.stack([a, b]); a.repeat(2, 1); a.clone()
a.contiguous(); a.double(); f.pad(a, (1, 1))
"""


def operands(lib: Any) -> dict[str, Any]:
    lib.manual_seed(0)
    sizes = {"a": (4, 8), "b": (4, 8), "s": (8, 8), "c": (4, 1), "v": (8,), "t": (2, 8, 8)}
    # between 0 and 1, so that every operation is defined
    made = {name: lib.rand(*size).requires_grad_() * 0.9 + 0.05 for name, size in sizes.items()}
    classes, mask = lib.tensor([3, 0, 2, 1]), lib.rand(4, 8) > 0.5
    return {**made, "k": classes, "m": mask, "lib": lib, "f": functions(lib)}


def expressions() -> list[str]:
    return [part.strip() for line in EXPRESSIONS.strip().splitlines() for part in line.split(";")]


def compare(code: str, found: list[Any], repeats: int, seconds: float) -> Figures | str:
    """The figures of a statement, or what is wrong with it in undertow."""
    try:
        samplers = [statement(code, operands(lib), seconds=seconds) for lib in found]
    except Exception as error:  # whatever it is, the survey goes on
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return interleave(samplers[0], samplers[1] if len(samplers) > 1 else None, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survey", description=__doc__)
    parser.add_argument("--only", default="", help="only expressions that contain this")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of samples (default 5)")
    options = parser.parse_args()
    one_thread("benchmarks.survey")
    found = libraries(1)
    rows, failed = [], []
    for code in [code for code in expressions() if options.only in code]:
        alone = compare(code, found, options.repeats, 0.004)
        both = compare(f"({code}).sum().backward(retain_graph=True)", found, options.repeats, 0.008)
        if isinstance(alone, str) or isinstance(both, str):
            failed.append(f"{code}: {alone if isinstance(alone, str) else both}")
        else:
            rows.append((code, alone, both))
        print(".", end="", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: -(row[1].ratio or row[1].ours))
    header = ["", "recorded", "torch", "ratio", "and backward", "torch", "ratio"]
    print("\n" + report.as_text([header, *[[code, *cells(alone), *cells(both)] for code, alone, both in rows]]))
    print("".join(f"failed: {line}\n" for line in failed), end="")


def cells(figures: Figures) -> list[str]:
    theirs = "-" if figures.theirs is None else report.duration(figures.theirs)
    return [report.duration(figures.ours), theirs, "-" if figures.ratio is None else f"{figures.ratio:.2f}"]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main()

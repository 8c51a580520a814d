"""undertow against PyTorch on PyTorch's own samples of arguments: ``python -m conformance.samples [NAME ...]``.

PyTorch's package describes its functions in a database (OpInfo), with samples of arguments and with arguments that it
refuses. Each function that undertow has by the same name is compared on all of them; CHECKS names the comparisons. The
differences are written to `sample-differences.txt`, one to a line. The database needs the package `expecttest`.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import operator
import re
import signal
import sys
import tomllib
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import undertow as ut

CHECKS = {
    "values": "values and dtypes, in float64, complex128 and float32",
    "strides": "strides, in the layout of the sample",
    "layouts": "values and strides in six other layouts",
    "in place": "values of the form that changes its operand",
    "first": "gradients",
    "second": "gradients of gradients",
    "tangents": "forward mode",
    "vmap": "`vmap` over each tensor, and over all, against the loop",
    "errors": "arguments that PyTorch refuses",
    "dtypes": "values and dtypes, in all other dtypes that PyTorch computes in",
    "modules": "modules: results, gradients, buffers, state, `repr`",
    "module errors": "modules: arguments that PyTorch refuses",
    "optimizers": "optimizers: ten steps, with and without schedules; state",
    "optimizer errors": "optimizers: arguments that PyTorch refuses",
}

#: relative to the largest number of a result
TOLERANCE = {"float64": 1e-7, "complex128": 1e-7, "float32": 5e-4, "complex64": 5e-4}
#: of two results that were rounded from time to time, to eleven and to eight bits
NARROW = {"float16": 1e-2, "bfloat16": 4e-2}

#: dtypes that NumPy does not have
ABSENT_DTYPES = {"complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}

SECONDS_PER_FUNCTION = 300

KINDS = ["functions", "modules", "optimizers"]

#: Differences that docs/conformance.md and docs/memory-order.md state: patterns, by reason.
STATED = Path(__file__).with_name("stated.toml")


@functools.cache
def _stated() -> Any:
    with STATED.open("rb") as file:
        patterns = [entry["pattern"] for entry in tomllib.load(file)["stated"]]
    return re.compile("|".join([f"(?:{p})" for p in patterns]))


def is_stated(line: str) -> bool:
    return bool(_stated().match(line))


class Outcome(Exception):
    """What came of a comparison, if it is no agreement."""


# ---- from PyTorch's arguments to undertow's


class Translation:
    """Arguments for undertow: tensors keep their strides, whose memory they share, and whether they require grad; a
    tensor given twice is one tensor again.
    """

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[Any, Any]] = {}  # by id: the tensor there, so that it stays, and the one here
        self.memories: dict[int, Any] = {}  # by address: the memory here, and the one there, so that it stays

    def of(self, value: Any) -> Any:
        torch = _torch()
        if isinstance(value, torch.Tensor):
            if id(value) not in self.tensors:
                self.tensors[id(value)] = value, self.tensor(value).requires_grad_(value.requires_grad)
            return self.tensors[id(value)][1]
        if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
            return getattr(ut, str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, torch.Size):
            return tuple(value)
        if isinstance(value, list | tuple):
            made = [self.of(v) for v in value]
            return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
        if isinstance(value, dict):
            return {key: self.of(v) for key, v in value.items()}
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
            return rebound(value)
        if isinstance(value, torch.nn.Module):  # one without parameters: a function with options
            made = getattr(ut.nn, type(value).__name__)()
            made.__dict__.update({key: v for key, v in vars(value).items() if not key.startswith("_")})
            return made
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: self.of(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return getattr(ut.nn, type(value).__name__)(**fields)
        return value

    def tensor(self, value: Any) -> Any:
        torch = _torch()
        plain = value.detach().resolve_conj().resolve_neg()
        if plain.layout == torch.sparse_csr:
            parts = plain.crow_indices(), plain.col_indices(), plain.values()
            return ut.sparse_csr_tensor(*[self.tensor(t) for t in parts], size=tuple(plain.shape))
        if plain.layout == torch.sparse_coo:
            return ut.sparse_coo_tensor(self.tensor(plain._indices()), self.tensor(plain._values()), tuple(plain.shape))
        if plain.dtype == torch.bfloat16:
            return ut.tensor(plain.float().numpy()).to(ut.bfloat16)
        if not plain.numel():
            return ut.tensor(plain.numpy())
        storage = plain.untyped_storage()
        key = storage.data_ptr()
        if key not in self.memories:
            whole = torch.empty(0, dtype=plain.dtype).set_(storage, 0, (storage.nbytes() // plain.itemsize,))
            self.memories[key] = ut.tensor(whole.numpy()), storage
        return self.memories[key][0].as_strided(tuple(plain.shape), plain.stride(), plain.storage_offset()).detach()


def translated(value: Any) -> Any:
    return Translation().of(value)


def _torch() -> Any:
    import torch

    return torch


def _without_seed(function: Any, *positional: Any, **named: Any) -> Any:
    return function(*positional, **named)


def rebound(function: Any) -> Any:
    """A helper of PyTorch's database that calls undertow where it would call torch."""
    if not isinstance(function, types.FunctionType) or not function.__module__.startswith("torch.testing"):
        return _by_name(function) or function
    wanted = _names_in(function.__code__)
    names = {n: v for n, v in function.__globals__.items() if n in wanted}
    spaces = {n: ut if n == "torch" else rebound(v) if callable(v) else v for n, v in names.items()}
    if "wrapper_set_seed" in names:
        spaces["wrapper_set_seed"] = _without_seed
    cells = tuple([types.CellType(rebound(c.cell_contents)) for c in function.__closure__ or ()])
    made = types.FunctionType(
        function.__code__, {"__builtins__": __builtins__, **spaces}, "f", function.__defaults__, cells
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _names_in(code: types.CodeType) -> set[str]:
    """The names that a function and those inside of it use."""
    return {*code.co_names, *[n for c in code.co_consts if isinstance(c, types.CodeType) for n in _names_in(c)]}


def _by_name(function: Any) -> Any:
    """undertow's function of the name that one of PyTorch's has."""
    module = getattr(function, "__module__", None) or ""
    if not (module.startswith("torch") or isinstance(function, types.MethodDescriptorType | types.BuiltinMethodType)):
        return None
    return found(getattr(function, "__name__", ""))


def found(name: str) -> Any:
    for place in (ut, ut.nn.functional, ut.Tensor, ut.nn, ut.optim.lr_scheduler):
        try:
            value = operator.attrgetter(name)(place)
        except AttributeError:
            continue
        if place is ut.Tensor or callable(value) or not hasattr(ut.Tensor, name):  # `cfloat`: a dtype, and a method
            return value
    return None


def counterpart(info: Any) -> Any:
    """undertow's form of the function of an entry; None if there is none."""
    if isinstance(info.op, types.FunctionType) and info.op.__module__.startswith("torch.testing"):
        return rebound(info.op) if found(info.name) or found(info.name + "_") else None
    return found(info.name)


# ---- comparing


def flat(value: Any) -> list[Any]:
    """The tensors of a result, in their order."""
    if isinstance(value, list | tuple):
        return [t for v in value for t in flat(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in flat(v)]
    return [value]


def array(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | complex):
        return np.asarray(0.0 if value is None else value)
    value = value.detach()
    if hasattr(value, "resolve_conj"):
        value = value.resolve_conj()
    if "sparse" in str(value.layout):
        value = value.to_dense()
    if str(value.dtype).endswith("bfloat16"):
        value = value.float()
    if type(value).__module__.startswith("torch"):
        value = value.resolve_neg()
        return np.zeros(value.shape) if value._is_zerotensor() else value.numpy()
    return value.numpy()


def compare(mine: Any, torchs: Any, dtypes: bool = True, least: float = 0.0) -> None:
    """Raise Outcome unless two results agree."""
    mine, torchs = flat(mine), flat(torchs)
    if len(mine) != len(torchs):
        raise Outcome(f"{len(mine)} results for {len(torchs)}")
    for k, (a, b) in enumerate(zip(mine, torchs, strict=True)):
        if isinstance(b, str) or (b.__class__.__module__ == "builtins" and a == b):
            continue
        _compare_arrays(k, array(a), array(b), dtypes, least)


def _compare_arrays(k: int, a: Any, b: Any, dtypes: bool, least: float) -> None:
    if a.shape != b.shape and (dtypes or (a.any() or b.any())):
        raise Outcome(f"result {k} has shape {a.shape} for {b.shape}")
    if dtypes and a.dtype != b.dtype:
        raise Outcome(f"result {k} is {a.dtype} for {b.dtype}")
    if a.size and not dtypes and a.shape != b.shape:
        return
    tolerance = max(least, TOLERANCE.get(str(b.dtype), 1e-2 if b.dtype.kind == "f" else 0))
    finite = b[np.isfinite(b)] if b.dtype.kind in "fc" else b
    scale = max(1.0, float(np.abs(finite).max())) if finite.size else 1.0
    with np.errstate(all="ignore"):
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            gap = np.abs(np.nan_to_num(a.astype(complex)) - np.nan_to_num(b.astype(complex))).max()
            raise Outcome(f"result {k} differs by {gap:.3g} (of {scale:.3g})")


def compare_strides(mine: Any, torchs: Any) -> None:
    for k, (a, b) in enumerate(zip(flat(mine), flat(torchs), strict=True)):
        if not hasattr(a, "stride") or b.layout != _torch().strided:
            continue
        mine_, torchs_ = (_meaningful(t) for t in (a, b))
        if mine_ != torchs_:
            raise Outcome(f"result {k} of {tuple(b.shape)} has strides {tuple(a.stride())} for {tuple(b.stride())}")


def _meaningful(tensor: Any) -> list[int]:
    """Strides of dimensions in which there is something to step over."""
    return [] if not tensor.numel() else [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1]


# ---- one entry of a database


class Tally:
    """Counts comparisons, and notes what differs in which."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: list[str] = []
        self.where = ""

    def check(self, kind: str, judge: Callable[[], None]) -> None:
        """Count one comparison, and note what it found."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                judge()
        except Skip:
            return
        except TimeoutError:
            raise
        except Outcome as outcome:
            self.note(kind, str(outcome))
        except Exception as error:
            self.note(kind, f"refused: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        self.counts[kind] += 1

    def note(self, kind: str, what: str) -> None:
        line = f"{kind}: {self.where}: {what}"
        self.counts[kind + (" stated" if is_stated(line) else " differ")] += 1
        self.differences.append(line)


class Judge(Tally):
    """Runs the samples of one function, and counts."""

    def __init__(self, info: Any, most: int | None = None) -> None:
        super().__init__()
        self.info, self.mine, self.most = info, counterpart(info), most
        self.random = False

    def run(self) -> None:
        torch = _torch()
        dtypes = [d for d in (torch.float64, torch.complex128, torch.float32) if d in self.info.dtypes]
        for dtype in dtypes or list(self.info.dtypes)[:1]:
            for number, sample in enumerate(itertools.islice(self.samples(dtype), self.most)):
                self.where = f"{self.info.name}.{self.info.variant_test_name} {str(dtype)[6:]} sample {number}"
                self.judge(sample, deep=dtype != torch.float32)
        self.judge_other_dtypes(set(dtypes or list(self.info.dtypes)[:1]))
        self.judge_errors()

    def samples(self, dtype: Any) -> Iterator[Any]:
        needs = self.info.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
        yield from self.info.sample_inputs("cpu", dtype, requires_grad=needs)

    def judge_other_dtypes(self, done: set[Any]) -> None:
        for dtype in sorted(set(self.info.dtypes) - done, key=str):
            if str(dtype)[6:] in ABSENT_DTYPES:
                continue
            for number, sample in enumerate(itertools.islice(self.samples(dtype), self.most)):
                self.where = f"{self.info.name}.{self.info.variant_test_name} {str(dtype)[6:]} sample {number}"
                self.judge_dtype(sample)

    def judge_dtype(self, sample: Any) -> None:
        arguments = ((sample.input, *sample.args), sample.kwargs)
        theirs, error = attempt(lambda: self.info.op(*arguments[0], **arguments[1]))
        if error is not None or any([str(getattr(t, "dtype", ""))[6:] in ABSENT_DTYPES for t in flat(theirs)]):
            return
        self.random = self.is_random(arguments, theirs)
        self.least = max([NARROW.get(str(t.dtype)[6:], 0.0) for t in _tensors(arguments)], default=0.0)
        self.process = rebound(sample.output_process_fn_grad), sample.output_process_fn_grad
        self.check("dtypes", lambda: self.judge_values(arguments, theirs))

    def judge(self, sample: Any, deep: bool) -> None:
        arguments = ((sample.input, *sample.args), sample.kwargs)
        theirs, error = attempt(lambda: self.info.op(*arguments[0], **arguments[1]))
        if error is not None or any([str(getattr(t, "dtype", ""))[6:] in ABSENT_DTYPES for t in flat(theirs)]):
            return
        self.random = self.is_random(arguments, theirs)
        narrow = [t for t in _tensors(arguments) if t.dtype == _torch().float32]
        self.least = TOLERANCE["float32"] if narrow else 0.0
        self.process = rebound(sample.output_process_fn_grad), sample.output_process_fn_grad
        self.check("values", lambda: self.judge_values(arguments, theirs))
        self.check("strides", lambda: compare_strides(self.call(arguments), theirs))
        if not deep:
            return
        self.judge_layouts(arguments)
        self.judge_in_place(sample)
        if self.info.supports_autograd and not self.random:
            self.judge_gradients(arguments)
        if self.info.supports_forward_ad and not self.random:
            self.check("tangents", lambda: self.judge_tangents(arguments))
        if not self.random:
            self.judge_vmap(arguments)

    def is_random(self, arguments: Any, result: Any) -> bool:
        again, _ = attempt(lambda: self.info.op(*arguments[0], **arguments[1]))
        seeded = "wrapper_set_seed" in getattr(getattr(self.info.op, "__code__", None), "co_names", ())
        return seeded or "empty" in self.info.name or not _alike(result, again)

    def call(self, arguments: Any) -> Any:
        positional, named = arguments
        positional, named = translated([positional, named])
        return self.mine(*positional, **named)

    def judge_values(self, arguments: Any, theirs: Any) -> None:
        mine = self.call(arguments)
        if self.random:
            return _compare_shapes(mine, theirs)
        compare(self.process[0](mine), self.process[1](theirs), least=self.least)

    def judge_layouts(self, arguments: Any) -> None:
        for name, layout in LAYOUTS.items():
            laid, changed = _laid_out(arguments, layout)
            if not changed:
                continue
            theirs, error = attempt(lambda laid=laid: self.info.op(*laid[0], **laid[1]))
            if error is None:
                self.check("layouts", lambda laid=laid, theirs=theirs, name=name: self.judge_layout(name, laid, theirs))

    def judge_layout(self, name: str, laid: Any, theirs: Any) -> None:
        mine = self.call(laid)
        try:
            if not self.random and name != "expanded":  # equal rows: singular matrices, ties
                compare(self.process[0](mine), self.process[1](theirs))
            compare_strides(mine, theirs)
        except Outcome as outcome:
            raise Outcome(f"{name}: {outcome}") from None

    def judge_in_place(self, sample: Any) -> None:
        form = self.info.inplace_variant
        mine = getattr(ut.Tensor, getattr(form, "__name__", ""), None)
        if form is None or mine is None or self.random or not isinstance(sample.input, _torch().Tensor):
            return

        def changed(form: Any, first: Any, rest: Any, named: Any) -> Any:
            first = first.clone()
            form(first, *rest, **named)
            return first

        theirs, error = attempt(lambda: changed(form, sample.input, sample.args, sample.kwargs))
        if error is None:
            given = translated((sample.input, list(sample.args), sample.kwargs))
            self.check("in place", lambda: compare(changed(mine, *given), theirs))

    def judge_gradients(self, arguments: Any) -> None:
        torch = _torch()
        inputs = [t for t in _tensors(arguments) if t.requires_grad]
        if not inputs:
            return
        theirs, error = attempt(lambda: derivatives(torch, self.info.op, arguments, self.process[1]))
        if error is not None:
            return
        mine: list[Any] = []

        def first() -> None:
            mine.append(derivatives(ut, self.mine, translated(arguments), self.process[0]))
            compare(mine[0][0], theirs[0], dtypes=False, least=self.least)

        self.check("first", first)
        if theirs[1] is not None and mine:
            self.check("second", lambda: _compare_seconds(mine[0], theirs, self.least))

    def judge_tangents(self, arguments: Any) -> None:
        theirs, error = attempt(lambda: tangents(_torch(), self.info.op, arguments, self.process[1]))
        if error is not None or not theirs:
            raise Skip
        mine = tangents(ut, self.mine, translated(arguments), self.process[0])
        compare(mine, theirs, dtypes=False, least=self.least)

    def judge_vmap(self, arguments: Any) -> None:
        count = len(_tensors(arguments))
        choices = {(k,) for k in range(count)} | {tuple(range(count))} if count else set()
        for chosen in sorted(choices):
            self.check("vmap", lambda chosen=chosen: self.judge_choice(arguments, chosen))

    def judge_choice(self, arguments: Any, chosen: tuple[int, ...]) -> None:
        examples = [_scaled(arguments, chosen, factor) for factor in (1.0, 0.875)]
        mine = [translated(e) for e in examples]
        looped, error = attempt(lambda: [flat(self.mine(*p, **n)) for p, n in mine])
        if error is not None or any([not isinstance(t, ut.Tensor) for t in looped[0]]):
            raise Skip
        if [t.shape for t in looped[0]] != [t.shape for t in looped[1]]:
            raise Skip
        try:
            batched = _mapped(ut, self.mine, mine, chosen)
        except Exception:
            _, refused = attempt(lambda: _mapped(_torch(), self.info.op, examples, chosen))
            if refused is not None:
                raise Skip from None
            raise
        expected = [ut.stack([a, b]) for a, b in zip(*looped, strict=True)]
        mine, loop = [self.process[0](r[0] if len(r) == 1 else tuple(r)) for r in (batched, expected)]
        if not _alike(mine, loop):  # it may depend on how tensors lie in memory, which stacking changes
            compare(mine, self.process[1](tuple(_mapped(_torch(), self.info.op, examples, chosen))))

    def judge_errors(self) -> None:
        if self.info.error_inputs_func is None:
            return
        for number, item in enumerate(self.info.error_inputs("cpu")):
            sample = item.sample_input
            arguments = ((sample.input, *sample.args), sample.kwargs)
            self.where = f"{self.info.name}.{self.info.variant_test_name} error {number}"
            _, refused = attempt(lambda arguments=arguments: self.info.op(*arguments[0], **arguments[1]))
            if refused is not None:
                self.check("errors", lambda arguments=arguments, refused=refused: self.judge_error(arguments, refused))

    def judge_error(self, arguments: Any, refused: Exception) -> None:
        try:
            given = translated(arguments)
        except Exception:
            raise Skip from None
        _, error = attempt(lambda: self.mine(*given[0], **given[1]))
        if error is None:
            raise Outcome(f"accepted; PyTorch: {type(refused).__name__}: {str(refused).splitlines()[0]}")


class Skip(Exception):
    """There is nothing to compare."""


def attempt(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(), None
    except TimeoutError:
        raise
    except Exception as error:
        return None, error


def _alike(a: Any, b: Any) -> bool:
    try:
        compare(a, b)
    except Outcome:
        return False
    return True


def _compare_shapes(mine: Any, torchs: Any) -> None:
    for a, b in zip(flat(mine), flat(torchs), strict=True):
        if hasattr(b, "shape") and (tuple(a.shape) != tuple(b.shape) or str(b.dtype)[6:] not in str(a.dtype)):
            raise Outcome(f"shape {tuple(a.shape)}, {a.dtype} for {tuple(b.shape)}, {b.dtype}")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, ut.Tensor | _torch().Tensor)


def _tensors(arguments: Any) -> list[Any]:
    return [t for t in flat([arguments[0], arguments[1]]) if _is_tensor(t)]


def _replaced(value: Any, tensors: Iterator[Any]) -> Any:
    """The same nest with the next tensors in place of its own."""
    if _is_tensor(value):
        return next(tensors)
    if isinstance(value, list | tuple) and not hasattr(value, "numel"):
        return type(value)([_replaced(v, tensors) for v in value])
    if isinstance(value, dict):
        return {key: _replaced(v, tensors) for key, v in value.items()}
    return value


# ---- derivatives


def _weight(library: Any, tensor: Any, number: int) -> Any:
    """What a gradient or a tangent begins with: the same numbers in both libraries."""
    rng = np.random.default_rng([number, *tensor.shape])
    values = rng.uniform(0.5, 1.5, tuple(tensor.shape))
    if "complex" in str(tensor.dtype):
        values = values + 1j * rng.uniform(-1, 1, tuple(tensor.shape))
    return library.tensor(values, dtype=tensor.dtype)


def derivatives(library: Any, function: Any, arguments: Any, process: Any) -> tuple[list[Any], list[Any] | None]:
    """The gradients of a weighted sum of the results, and of a weighted sum of those."""
    inputs = [t for t in _tensors(arguments) if t.requires_grad]
    results = [t for t in flat(process(function(*arguments[0], **arguments[1]))) if _is_tensor(t) and t.requires_grad]
    first = _gradients(library, results, inputs, 0, create_graph=True)
    live = [(k, g) for k, g in enumerate(first) if g is not None and g.requires_grad]
    if not live:
        return first, None
    second, error = attempt(
        lambda: _gradients(library, [g for _, g in live], inputs, 100, numbers=[k for k, _ in live])
    )
    if error is not None and library is ut:
        raise error
    return first, second


def _gradients(
    library: Any, results: Any, inputs: Any, start: int, create_graph: bool = False, numbers: Any = None
) -> list[Any]:
    numbers = range(len(results)) if numbers is None else numbers
    weights = [_weight(library, t, start + k) for k, t in zip(numbers, results, strict=True)]
    options = {"allow_unused": True, "create_graph": create_graph, "retain_graph": True}
    return list(library.autograd.grad(results, inputs, weights, **options))


def _compare_seconds(mine: Any, theirs: Any, least: float) -> None:
    """Where a gradient does not depend on anything, it does not require grad here, and its derivatives are 0."""
    zeros = [None] * len(theirs[1])
    compare(zeros if mine[1] is None else mine[1], theirs[1], dtypes=False, least=least)


def tangents(library: Any, function: Any, arguments: Any, process: Any) -> list[Any]:
    forward_ad = library.autograd.forward_ad
    with forward_ad.dual_level():
        numbers = itertools.count()
        duals = [
            forward_ad.make_dual(t.detach(), _weight(library, t, next(numbers))) if t.requires_grad else t
            for t in _tensors(arguments)
        ]
        given = _replaced(list(arguments), iter(duals))
        results = flat(process(function(*given[0], **given[1])))
        found = [forward_ad.unpack_dual(t).tangent for t in results if _is_tensor(t) and _differentiable(t)]
    return [t for t in found] if any([t is not None for t in found]) else []


def _differentiable(tensor: Any) -> bool:
    return "float" in str(tensor.dtype) or "complex" in str(tensor.dtype)


# ---- batches


def _scaled(arguments: Any, chosen: tuple[int, ...], factor: float) -> Any:
    tensors = [t.detach() for t in _tensors(arguments)]
    made = [t * factor if k in chosen and _differentiable(t) and factor != 1 else t for k, t in enumerate(tensors)]
    return _replaced(list(arguments), iter(made))


def _mapped(library: Any, function: Any, examples: Any, chosen: tuple[int, ...]) -> list[Any]:
    pairs = zip(*[_tensors(e) for e in examples], strict=True)
    stacked = [library.stack(pair) if k in chosen else pair[0] for k, pair in enumerate(pairs)]

    def call(*tensors: Any) -> Any:
        given = _replaced(list(examples[0]), iter(tensors))
        return tuple(flat(function(*given[0], **given[1])))

    dims = tuple(0 if k in chosen else None for k in range(len(stacked)))
    return list(library.vmap(call, in_dims=dims)(*stacked))


# ---- layouts


def _channels_last(t: Any) -> Any:
    torch = _torch()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats[t.ndim]) if t.ndim in formats else t


def _stepped(t: Any) -> Any:
    return _torch().stack([t, t], -1)[..., 0] if t.ndim else t


def _reversed(t: Any) -> Any:
    return t.permute(tuple(range(t.ndim)[::-1]))


def _sliced(t: Any) -> Any:
    return _torch().cat([t, t], -1).narrow(-1, 0, t.shape[-1]) if t.ndim else t


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.ndim > 1 else t,
    "reversed": lambda t: _reversed(_reversed(t).contiguous()),
    "channels last": _channels_last,
    "sliced": _sliced,
    "stepped": _stepped,
    "expanded": lambda t: t[:1].expand(t.shape) if t.ndim and len(t) else t,
}


def _laid_out(arguments: Any, layout: Callable[[Any], Any]) -> tuple[Any, bool]:
    before = [t.detach() for t in _tensors(arguments)]
    after = [layout(t) if t.layout == _torch().strided else t for t in before]
    changed = any(
        [a.stride() != b.stride() for a, b in zip(after, before, strict=True) if a.layout == _torch().strided]
    )
    return _replaced(list(arguments), iter(after)), changed


# ---- all of it


def judge(place: tuple[str, int], most: int | None = None) -> tuple[str, dict[str, int], list[str]]:
    """Judge one entry of a database, in a process of a pool."""
    kind, position = place
    judged = judge_of(kind, database(kind)[position], most)
    if judged.mine is None:
        return name_of(judged.info), {"absent": 1}, []
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS_PER_FUNCTION)
    try:
        judged.run()
    except Exception as error:
        judged.note("values", f"the comparison ended: {type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
    return name_of(database(kind)[position]), dict(judged.counts), judged.differences


def judge_of(kind: str, info: Any, most: int | None) -> Any:
    if kind == "functions":
        return Judge(info, most)
    from . import stateful_samples

    return (stateful_samples.ModuleJudge if kind == "modules" else stateful_samples.OptimizerJudge)(info)


def name_of(info: Any) -> str:
    named: str = info.name if hasattr(info, "name") else info.optim_cls.__name__
    return named


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"took more than {SECONDS_PER_FUNCTION} s")


def database(kind: str = "functions") -> list[Any]:
    if kind == "functions":
        from torch.testing._internal.common_methods_invocations import op_db as found
    elif kind == "modules":
        from torch.testing._internal.common_modules import module_db as found
    else:
        from torch.testing._internal.common_optimizers import optim_db as found
    return list(found)


def as_page(figures: dict[str, Any]) -> str:
    lines = ["| compared | comparisons | differ as stated | differ otherwise |", "|---|---:|---:|---:|"]
    counts = figures["counts"]
    for check, words in CHECKS.items():
        numbers = [counts.get(check + end, 0) for end in ("", " stated", " differ")]
        lines.append(f"| {words} | " + " | ".join([f"{n:,}" for n in numbers]) + " |")
    absent = ", ".join([f"`{name}`" for name in figures["absent"]])
    return "\n".join(lines) + f"\n\n{figures['entries']} entries of the databases; absent here: {absent}."


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.samples", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these functions, as PyTorch's database calls them")
    parser.add_argument("--of", nargs="+", choices=KINDS, default=KINDS, help="which of PyTorch's databases")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--most", type=int, help="no more samples of a function and dtype than this")
    parser.add_argument("--report", type=Path, default=Path("sample-differences.txt"))
    parser.add_argument("--update", action="store_true", help="write the figures to docs/figures and into the page")
    options = parser.parse_args(argv)
    chosen = [
        (kind, k)
        for kind in options.of
        for k, info in enumerate(database(kind))
        if not options.names or name_of(info) in options.names
    ]
    counts: Counter[str] = Counter()
    differences: list[str] = []
    absent: list[str] = []
    with ProcessPoolExecutor(options.processes) as pool:
        for name, found_counts, found_differences in pool.map(judge, chosen, itertools.repeat(options.most)):
            counts.update(found_counts)
            differences += found_differences
            absent += [name] if "absent" in found_counts else []
            print(name, *found_differences, sep="\n  ", flush=True)
    options.report.write_text("\n".join(differences) + "\n", encoding="utf-8")
    figures = {"entries": len(chosen), "counts": dict(sorted(counts.items())), "absent": sorted(set(absent))}
    print(as_page(figures))
    if options.update:
        from tools.figures import store

        most = "" if options.most is None else f" --most {options.most}"
        store("samples", "samples", f"python -m conformance.samples{most} --update", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())

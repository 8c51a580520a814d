"""What test_systems.py needs to put one sample row through every check.

A Case is a row with real or with complex inputs. It runs the row's operation on plain arrays, in undertow and
in PyTorch, and keeps what several checks ask for. A Call is one call of a declared primitive, caught while a
Case ran.
"""

from __future__ import annotations

import functools
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import undertow as ut
from tests import samples
from tests.rows import rows
from tests.samples import Array, Sample, all_samples
from undertow import ops
from undertow.autograd.backward import grad
from undertow.backend import cpu
from undertow.modes import current, no_grad, set_state
from undertow.ops.declare import Op
from undertow.tensor import LEAF, Tensor

NumpyArray = np.ndarray[Any, Any]
STEP = 1e-5  # of central differences


def cases() -> list[Case]:
    """The cases of this run: all of them, or with `--quick` the first of each operation."""
    if not samples.first_rows_only:
        return all_cases()
    first: dict[str, Case] = {}
    for case in all_cases():
        first.setdefault(case.sample.op, case)
    return list(first.values())


@functools.cache  # what a case has computed serves the tests of all modules
def all_cases() -> list[Case]:
    """Every row, with real inputs and, where it says so, with complex ones; ids are unique."""
    seen: dict[str, int] = {}
    found = []
    for sample in all_samples():
        seen[sample.id] = seen.get(sample.id, 0) + 1
        name = sample.id if seen[sample.id] == 1 else f"{sample.id}-{seen[sample.id]}"
        if not sample.complex_only:
            found.append(Case(sample, False, name))
        if sample.complex or sample.complex_only:
            found.append(Case(sample, True, f"{name}-complex"))
    return found


def every(cases: Sequence[Case]) -> Callable[[Callable[..., None]], Any]:
    """Run a test for every one of these cases."""
    return rows("case", cases, ids=lambda case: case.id)


# ---- structures


def substitute(value: Any, replace: Callable[[Array], Any]) -> Any:
    """`value` with every Array in it (also inside lists, tuples and dicts) replaced."""
    if isinstance(value, Array):
        return replace(value)
    if isinstance(value, list | tuple):
        return type(value)(substitute(v, replace) for v in value)
    if isinstance(value, dict):
        return {k: substitute(v, replace) for k, v in value.items()}
    return value


def flatten(result: Any) -> list[Any]:
    """The results of a call in a row, however nested."""
    return [r for part in result for r in flatten(part)] if isinstance(result, list | tuple) else [result]


def as_array(value: Any) -> Any:
    """The array of a tensor of either library; other values as they are."""
    if isinstance(value, Tensor):
        return value._array
    return value.numpy(force=True) if hasattr(value, "resolve_conj") else value


def leaf(array: NumpyArray, requires_grad: bool = True) -> Tensor:
    return Tensor(np.asarray(array), cpu, LEAF if requires_grad else None)


def is_float(array: Any) -> bool:
    return getattr(array, "dtype", np.dtype(bool)).kind in "fc"


def like(rng: np.random.Generator, array: NumpyArray) -> NumpyArray:
    """Normal values in the shape and dtype of `array`."""
    values = rng.standard_normal(array.shape)
    if array.dtype.kind == "c":
        values = values + 1j * rng.standard_normal(array.shape)
    return np.asarray(values, dtype=array.dtype)


def inner(a: Sequence[Any], b: Sequence[Any]) -> float:
    """The real inner product of two lists of arrays; None counts as zero."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return float(sum(np.sum(np.real(np.conj(x) * y)) for x, y in pairs))


def assert_same(got: Any, expected: Any, rtol: float, atol: float, what: str) -> None:
    """Equal values, shapes and dtypes, for arrays; equality for anything else."""
    if not isinstance(expected, np.ndarray):
        assert got == expected, what
        return
    assert isinstance(got, np.ndarray), f"{what}: got {type(got).__name__}, expected an array"
    assert got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}"
    assert got.dtype == expected.dtype, f"{what}: dtype {got.dtype}, expected {expected.dtype}"
    if expected.dtype in (np.float32, np.complex64) and rtol:  # integers become single precision
        rtol, atol = max(rtol, 1e-6), max(atol, 1e-7)
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol, err_msg=what)


def assert_close(got: float, expected: float, what: str, rtol: float = 2e-5, atol: float = 1e-6) -> None:
    """The default tolerances are for finite differences. At poles, both must be infinite or not a number."""
    if np.isfinite(got) or np.isfinite(expected):
        limit = atol + rtol * max(abs(got), abs(expected))
        assert abs(got - expected) <= limit, f"{what}: {got}, expected {expected}"


def differentiate(torch: Any, roots: Any, inputs: Any, seeds: Any, create_graph: bool) -> list[Any]:
    """torch.autograd.grad over those roots that have a gradient."""
    used = [(r, s) for r, s in zip(roots, seeds, strict=True) if r is not None and r.requires_grad]
    if not used:
        return [None] * len(inputs)
    roots, seeds = zip(*used, strict=True)
    return list(torch.autograd.grad(roots, inputs, seeds, create_graph=create_graph, allow_unused=True))


def all_finite(arrays: Sequence[Any]) -> bool:
    return all(np.all(np.isfinite(a)) for a in arrays if is_float(a))


def or_zeros(found: Sequence[Any], likes: Sequence[NumpyArray]) -> list[NumpyArray]:
    """The arrays found, with zeros in the place of None."""
    return [np.zeros_like(x) if f is None else as_array(f) for f, x in zip(found, likes, strict=True)]


# ---- one row


class Case:
    """A sample with real or complex inputs. Its arrays are made once; `fill` puts others in their places."""

    def __init__(self, sample: Sample, complex_: bool, id: str) -> None:
        self.sample, self.complex, self.id = sample, complex_, id
        self.specs: list[Array] = []
        substitute([sample.args, sample.kwargs], self.specs.append)

    def __repr__(self) -> str:
        return self.id

    def rng(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(f"{self.id} {purpose}".encode()))

    @cached_property
    def arrays(self) -> list[NumpyArray]:
        rng = self.rng("inputs")
        return [np.asarray(spec.make(rng, self.complex)) for spec in self.specs]

    @cached_property
    def differentiable(self) -> list[int]:
        """Which of the arrays can have a gradient."""
        pairs = enumerate(zip(self.specs, self.arrays, strict=True))
        return [k for k, (spec, array) in pairs if spec.differentiable and is_float(array)]

    def chosen(self, values: Sequence[Any]) -> list[Any]:
        return [values[k] for k in self.differentiable]

    def fill(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call, with `values` in the places of the arrays."""
        remaining = iter(values)
        args, kwargs = substitute([self.sample.args, self.sample.kwargs], lambda spec: next(remaining))
        return args, kwargs

    # ---- undertow

    def call(self, values: Sequence[Any]) -> list[Any]:
        """The operation's results, flattened."""
        args, kwargs = self.fill(values)
        if self.sample.call is not None:
            return flatten(self.sample.call(ut, *args, **kwargs))
        return flatten(getattr(ops, self.sample.op)(*args, **kwargs))

    def forward(self, arrays: Sequence[NumpyArray]) -> list[Any]:
        with no_grad():
            return [as_array(r) for r in self.call([leaf(a, False) for a in arrays])]

    @cached_property
    def result(self) -> list[Any]:
        return self.forward(self.arrays)

    def recorded(self, arrays: Sequence[NumpyArray], needed: Sequence[int]) -> tuple[list[Tensor], dict[int, Tensor]]:
        """Leaves for all arrays, of which the needed ones require a gradient; the results that have one."""
        leaves = [leaf(a, k in needed) for k, a in enumerate(arrays)]
        results = enumerate(self.call(leaves))
        return leaves, {k: r for k, r in results if isinstance(r, Tensor) and r._edge is not None}

    @cached_property
    def differentiable_results(self) -> list[int]:
        """Which of the results have a gradient."""
        return list(self.recorded(self.arrays, self.differentiable)[1])

    @cached_property
    def cotangents(self) -> list[NumpyArray]:
        rng = self.rng("cotangents")
        return [like(rng, self.result[k]) for k in self.differentiable_results]

    @cached_property
    def directions(self) -> list[NumpyArray]:
        rng = self.rng("directions")
        return [like(rng, a) for a in self.chosen(self.arrays)]

    def gradient_at(
        self,
        arrays: Sequence[NumpyArray],
        cotangents: Sequence[NumpyArray],
        needed: Sequence[int] | None = None,
        create_graph: bool = False,
    ) -> list[Any]:
        """The gradients (None where there is none) for the needed arrays."""
        needed = self.differentiable if needed is None else needed
        leaves, outputs = self.recorded(arrays, needed)
        if not outputs:
            return [None] * len(needed)
        given = dict(zip(self.differentiable_results, cotangents, strict=True))
        seeds = [leaf(given[k], False) for k in outputs]
        inputs = [leaves[k] for k in needed]
        found = grad(list(outputs.values()), inputs, seeds, create_graph=create_graph, allow_unused=True)
        return [None if g is None else as_array(g) for g in found]

    @cached_property
    def gradient(self) -> list[Any]:
        return self.gradient_at(self.arrays, self.cotangents)

    def has_gradient(self) -> bool:
        return bool(self.differentiable) and bool(self.differentiable_results)

    # ---- second derivatives: of the inner product of the gradient with `directions`

    @cached_property
    def second_gradient(self) -> list[NumpyArray]:
        """With respect to the differentiable arrays, then the cotangents."""
        leaves, outputs = self.recorded(self.arrays, self.differentiable)
        seeds = [leaf(c) for c in self.cotangents]
        inputs = self.chosen(leaves)
        first = grad(list(outputs.values()), inputs, seeds, create_graph=True, allow_unused=True)
        likes = [*self.chosen(self.arrays), *self.cotangents]
        pairs = [
            (g, leaf(d, False))
            for g, d in zip(first, self.directions, strict=True)
            if g is not None and g._edge is not None
        ]
        if not pairs:
            return or_zeros([None] * len(likes), likes)
        roots, weights = zip(*pairs, strict=True)
        return or_zeros(grad(roots, [*inputs, *seeds], weights, allow_unused=True), likes)

    # ---- PyTorch

    def torch_call(self, torch: Any, values: Sequence[Any]) -> list[Any]:
        args, kwargs = self.fill(values)
        reference = self.sample.reference
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if reference is not None:
                return flatten(reference(torch, *args, **kwargs))
            return flatten(getattr(torch, self.sample.op)(*args, **kwargs))

    def torch_leaves(self, torch: Any, arrays: Sequence[NumpyArray], requires_grad: bool) -> list[Any]:
        leaves = [torch.from_numpy(np.array(a)) for a in arrays]
        for k in self.differentiable if requires_grad else ():
            leaves[k].requires_grad_()
        return leaves

    def torch_forward(self, torch: Any, arrays: Sequence[NumpyArray]) -> list[Any]:
        return [as_array(r) for r in self.torch_call(torch, self.torch_leaves(torch, arrays, False))]

    def torch_gradient(self, torch: Any) -> list[NumpyArray]:
        """What `gradient` should be."""
        _, _, first = self.torch_first(torch, False)
        return or_zeros(first, self.chosen(self.arrays))

    def torch_second_gradient(self, torch: Any) -> list[NumpyArray]:
        """What `second_gradient` should be."""
        inputs, seeds, first = self.torch_first(torch, True)
        weights = [torch.from_numpy(d.copy()) for d in self.directions]
        found = differentiate(torch, first, [*inputs, *seeds], weights, create_graph=False)
        return or_zeros(found, [*self.chosen(self.arrays), *self.cotangents])

    def torch_first(self, torch: Any, create_graph: bool) -> tuple[list[Any], list[Any], list[Any]]:
        leaves = self.torch_leaves(torch, self.arrays, True)
        results = self.torch_call(torch, leaves)
        roots = [results[k] for k in self.differentiable_results]
        seeds = [torch.from_numpy(c.copy()).requires_grad_(create_graph) for c in self.cotangents]
        inputs = self.chosen(leaves)
        return inputs, seeds, differentiate(torch, roots, inputs, seeds, create_graph)

    # ---- its primitives

    @cached_property
    def calls(self) -> list[Call]:
        """The calls of declared operations that the row leads to, with a caught copy of their arguments."""
        found: list[Call] = []
        outer = current()

        def catch(function: Any, args: tuple[Any, ...]) -> Any:
            op: Op = function.op
            values = op.by_name(args)
            set_state(outer)
            try:
                result = function(**values)
            finally:
                set_state(inside)
            found.append(Call(op, substitute_tensors(values, lambda t: t._array), self))
            return result

        inside = outer.with_grad(False).replace(intercept=catch)
        set_state(inside)
        try:
            self.call([leaf(a, False) for a in self.arrays])
        finally:
            set_state(outer)
        return found


def substitute_tensors(values: dict[str, Any], change: Callable[[Tensor], Any]) -> dict[str, Any]:
    """The arguments with every tensor (also in lists of them) changed."""

    def one(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        if isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value):
            return [one(v) for v in value]
        return value

    return {n: one(v) for n, v in values.items()}


# ---- one call of one primitive


@dataclass
class Call:
    """A call of a declared operation: its arguments by name, tensors as arrays."""

    op: Op
    values: dict[str, Any]
    case: Case

    def rng(self, purpose: str) -> np.random.Generator:
        return self.case.rng(f"{self.op.name} {purpose}")

    def places(self, floats: bool = False) -> Iterator[tuple[str, int | None]]:
        """Where its tensor arguments are: (name, None), or (name, place) inside a list of tensors.

        floats: only those that can have a gradient.
        """
        for name in self.op.edges if floats else self.op.inputs:
            value = self.values[name]
            for place, array in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(array, np.ndarray) and (is_float(array) or not floats):
                    yield name, place

    def get(self, where: tuple[str, int | None]) -> NumpyArray:
        name, place = where
        found: NumpyArray = self.values[name] if place is None else self.values[name][place]
        return found

    def replaced(self, arrays: dict[tuple[str, int | None], Any]) -> dict[str, Any]:
        """The arguments with other values in some places."""
        values = {n: list(v) if isinstance(v, list) else v for n, v in self.values.items()}
        for (name, place), array in arrays.items():
            if place is None:
                values[name] = array
            else:
                values[name][place] = array
        return values

    def tensors(self, needed: Sequence[tuple[str, int | None]] = ()) -> dict[str, Any]:
        """The arguments with tensors in the place of arrays, of which the needed ones require a gradient."""
        return self.replaced({w: leaf(self.get(w), w in needed) for w in self.places()})

    def run(self, arrays: dict[tuple[str, int | None], Any] | None = None) -> list[NumpyArray]:
        """The outputs as arrays, with other values in some places."""
        arrays = {w: self.get(w) for w in self.places()} | (arrays or {})
        values = self.replaced({w: leaf(a, False) for w, a in arrays.items()})
        with no_grad():
            return [as_array(r) for r in flatten(self.op.function(**values))]

    @cached_property
    def out(self) -> list[NumpyArray]:
        return self.run()

    @property
    def is_double(self) -> bool:
        """Whether it computes in double precision, so that comparisons can be sharp."""
        arrays = [self.get(w) for w in self.places(floats=True)] + self.out
        return all(a.dtype not in (np.float16, np.float32, np.complex64) for a in arrays)


def unflatten(op: Op, arrays: list[Any]) -> Any:
    """The outputs as rules see them: one, or a tuple."""
    return arrays[0] if op.outputs is None else tuple(arrays)

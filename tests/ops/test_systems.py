"""Every sample row against every system: values, first and second derivatives, jvp, batching, lifetime.

A row that fails names the operation and the case: `pytest tests/ops/test_systems.py -k gather-negative_dim`.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.ops.batching import apply_batch
from tests.ops.node_names import OTHER_NAMES
from tests.ops.systems import (
    STEP,
    Call,
    Case,
    all_finite,
    as_array,
    assert_close,
    assert_same,
    cases,
    every,
    flatten,
    inner,
    leaf,
    like,
    or_zeros,
)
from undertow.autograd.backward import grad
from undertow.errors import NotDifferentiableError
from undertow.modes import no_grad
from undertow.ops.declare import REGISTRY, Joint
from undertow.ops.declare.rules.apply_jvp import apply_jvp
from undertow.tensor import Tensor

CASES = cases()
REFERENCED = [c for c in CASES if c.sample.reference is not False]
SMOOTH = [c for c in CASES if not c.sample.kink]
TWICE = [c for c in CASES if c.sample.gradgrad]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Values at kinks and poles are checked too: NumPy need not remark on them."""
    with np.errstate(all="ignore"):
        yield


# ---- values


@every(REFERENCED)
def test_values(torch: ModuleType, case: Case) -> None:
    expected = case.torch_forward(torch, case.arrays)
    assert len(case.result) == len(expected)
    for k, (got, wanted) in enumerate(zip(case.result, expected, strict=True)):
        assert_same(got, wanted, 1e-10, 1e-12, f"output {k}")


@every([c for c in REFERENCED if c.differentiable or c.specs])
def test_single_precision(torch: ModuleType, case: Case) -> None:
    arrays = [single(a) for a in case.arrays]
    results = zip(case.forward(arrays), case.torch_forward(torch, arrays), strict=True)
    for k, (got, wanted) in enumerate(results):
        assert_same(got, wanted, 2e-4, 2e-5, f"output {k}")
    cotangents = [single(c) for c in case.cotangents]
    for k, (got, array, wanted) in enumerate(
        zip(case.gradient_at(arrays, cotangents), case.chosen(arrays), case.gradient, strict=True)
    ):
        assert (got is None) == (wanted is None)
        if got is not None:
            assert_same(got, wanted.astype(array.dtype), 2e-3, 2e-3, f"gradient {k}")


def single(array: Any) -> Any:
    return array.astype({"f": "f4", "c": "c8"}[array.dtype.kind]) if array.dtype.kind in "fc" else array


#: views that exist only for some memory layouts
LAYOUT_BOUND = {"view", "view_as", "view_as_complex", "as_strided", "as_strided_copy", "as_strided_scatter",
                "view_as_complex_copy"}  # fmt: skip


def bound_to_memory(call: Call) -> bool:
    """Whether the call speaks of memory beyond its tensor's, which other inputs would not have."""
    return call.op.name == "as_strided" and any(call.get(w).base is not None for w in call.places())


@every([c for c in CASES if c.specs and c.sample.op not in LAYOUT_BOUND])
def test_memory_layout_does_not_matter(case: Case) -> None:
    for layout in (transposed, strided):
        arrays = [layout(a) for a in case.arrays]
        for got, wanted in zip(case.forward(arrays), case.result, strict=True):
            assert_same(got, wanted, 1e-10, 1e-12, layout.__name__)
        cotangents = [layout(c) for c in case.cotangents]
        for got, wanted in zip(case.gradient_at(arrays, cotangents), case.gradient, strict=True):
            assert_same(got, wanted, 1e-10, 1e-12, f"gradient, {layout.__name__}")


def transposed(array: Any) -> Any:
    return np.array(array.T, order="C").T


def strided(array: Any) -> Any:
    """The same values, every second one of a larger array, counted backwards."""
    if array.ndim == 0:
        return array
    spaced = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    spaced[..., ::-2] = array
    return spaced[..., ::-2]


@every([c for c in CASES if c.specs and c.sample.call is None and REGISTRY[c.sample.op].kind != "composite"])
def test_arrays_are_accepted(case: Case) -> None:
    for got, wanted in zip(case.call(case.arrays), case.result, strict=True):
        assert_same(as_array(got), wanted, 0, 0, "from NumPy arrays")


# ---- first derivatives


@every([c for c in REFERENCED if c.differentiable])
def test_gradient(torch: ModuleType, case: Case) -> None:
    got = or_zeros(case.gradient, case.chosen(case.arrays))
    for k, (found, wanted) in enumerate(zip(got, case.torch_gradient(torch), strict=True)):
        assert_same(found, wanted, 1e-8, 1e-10, f"gradient {k}")


@every([c for c in REFERENCED if c.differentiable])
def test_the_same_results_require_a_gradient(torch: ModuleType, case: Case) -> None:
    results = case.torch_call(torch, case.torch_leaves(torch, case.arrays, True))
    wanted = [k for k, r in enumerate(results) if getattr(r, "requires_grad", False)]
    if (case.sample.op, "NoneType") not in OTHER_NAMES:
        assert case.differentiable_results == wanted


@every([c for c in SMOOTH if c.differentiable])
def test_gradient_against_differences(case: Case) -> None:
    if not case.has_gradient():
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*near(case), strict=True))
        return
    if not all_finite(case.result):
        return  # there are no differences of infinities
    down, up = near(case)
    differences = [(up[k] - down[k]) / (2 * STEP) for k in case.differentiable_results]
    wanted = inner(case.cotangents, differences)
    assert_close(inner(case.gradient, case.directions), wanted, "along a direction")


def near(case: Case) -> list[list[Any]]:
    """The results a step before and a step behind the row's point."""
    return [case.forward(moved(case, s)) for s in (-STEP, STEP)]


def moved(case: Case, step: float) -> list[Any]:
    arrays = list(case.arrays)
    for k, d in zip(case.differentiable, case.directions, strict=True):
        arrays[k] = arrays[k] + step * d
    return arrays


@every([c for c in CASES if c.differentiable])
def test_array_and_recorded_rules_agree(case: Case) -> None:
    recorded_gradient = case.gradient_at(case.arrays, case.cotangents, create_graph=True)
    for got, wanted in zip(recorded_gradient, case.gradient, strict=True):
        assert_same(got, wanted, 1e-12, 1e-14, "under create_graph")


@every([c for c in CASES if len(c.differentiable) > 1])
def test_each_input_alone(case: Case) -> None:
    for k, wanted in zip(case.differentiable, case.gradient, strict=True):
        alone = case.gradient_at(case.arrays, case.cotangents, [k])
        array = [case.arrays[k]]
        assert_same(*or_zeros(alone, array), *or_zeros([wanted], array), 1e-12, 1e-14, f"input {k} alone")


@every(CASES)
def test_nothing_is_recorded_without_need(case: Case) -> None:
    _, outputs = case.recorded(case.arrays, [])
    assert not outputs


@every([c for c in CASES if c.specs])
def test_inputs_are_left_alone(case: Case) -> None:
    arrays, cotangents = [a.copy() for a in case.arrays], [c.copy() for c in case.cotangents]
    for create_graph in (False, True):
        case.gradient_at(arrays, cotangents, create_graph=create_graph)
    for given, before in zip([*arrays, *cotangents], [*case.arrays, *case.cotangents], strict=True):
        assert_same(given, before, 0, 0, "an input was changed")


# ---- second derivatives


#: operations whose second derivative PyTorch does not have
NOT_IN_PYTORCH = {"cdist", "embedding_bag", "pdist"}


@every([c for c in TWICE if c in REFERENCED and c.differentiable and c.sample.op not in NOT_IN_PYTORCH])
def test_second_gradient(torch: ModuleType, case: Case) -> None:
    if case.has_gradient():
        wanted = case.torch_second_gradient(torch)
        for k, (got, expected) in enumerate(zip(case.second_gradient, wanted, strict=True)):
            assert_same(got, expected, 1e-7, 1e-9, f"second gradient {k}")


@every([c for c in TWICE if c in SMOOTH and c.differentiable])
def test_second_gradient_against_differences(case: Case) -> None:
    if case.has_gradient():
        rng = case.rng("second directions")
        of_inputs = [like(rng, a) for a in case.chosen(case.arrays)]
        of_cotangents = [like(rng, c) for c in case.cotangents]
        slopes = []
        for step in (-STEP, STEP):
            arrays = list(case.arrays)
            for k, d in zip(case.differentiable, of_inputs, strict=True):
                arrays[k] = arrays[k] + step * d
            cotangents = [c + step * d for c, d in zip(case.cotangents, of_cotangents, strict=True)]
            slopes.append(inner(case.gradient_at(arrays, cotangents), case.directions))
        got = inner(case.second_gradient, [*of_inputs, *of_cotangents])
        assert_close(got, (slopes[1] - slopes[0]) / (2 * STEP), "along a direction")


# ---- forward mode


@every(CASES)
def test_jvp(case: Case) -> None:
    for call in case.calls:
        if call.op.name in REFUSING:
            with pytest.raises(NotDifferentiableError):
                check_jvp(call)
        elif any(call.get(w).size for w in call.places(floats=True)) and not (bound_to_memory(call) or is_gauged(call)):
            check_jvp(call)


#: operations that record that they were called, and have no derivative
REFUSING = {"_geqrf", "_histogram", "_ldl_factor", "binomial"}

#: factorisations whose vectors are free up to a phase or a rotation: test_eigen.py has their tangents
GAUGED = {"_svd", "_eigh", "_eig"}


def is_gauged(call: Call) -> bool:
    is_complex = any(a.dtype.kind == "c" for a in call.out)
    return call.op.name in GAUGED and (is_complex or call.values.get("full_matrices", False))


def check_jvp(call: Call) -> None:
    rng = call.rng("tangents")
    tangents = {w: tangent_of(call, rng, call.get(w)) for w in call.places(floats=True)}
    got = jvp_of(call, tangents)
    if call.is_double and not call.case.sample.kink and all_finite(call.out):
        check_jvp_against_differences(call, tangents, got)
    check_jvp_against_vjp(call, tangents, got)
    alone = [jvp_of(call, {w: t}) for w, t in tangents.items()]
    for k, tangent in enumerate(got):
        if tangent is not None:
            total = sum(part[k] for part in alone if part[k] is not None)
            limit = 1e-9 if call.is_double else 1e-5
            np.testing.assert_allclose(total, tangent, limit, limit, err_msg=f"{call.op.name}: parts")


#: operations on Hermitian matrices: they read one triangle, and their rules are for Hermitian tangents
HERMITIAN = {"_cholesky_lower", "_eigh", "_eigvalsh"}


def tangent_of(call: Call, rng: np.random.Generator, array: Any) -> Any:
    tangent = like(rng, array)
    return tangent + np.conj(np.swapaxes(tangent, -1, -2)) if call.op.name in HERMITIAN else tangent


def jvp_of(call: Call, tangents: dict[Any, Any]) -> list[Any]:
    named = by_name(call, {w: leaf(t, False) for w, t in tangents.items()})
    with no_grad():
        found = flatten(apply_jvp(call.op, call.tensors(), named))
    return [None if t is None else as_array(t) for t in found]


def by_name(call: Call, tangents: dict[Any, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for (name, place), tangent in tangents.items():
        if place is None:
            named[name] = tangent
        else:
            named.setdefault(name, [None] * len(call.values[name]))[place] = tangent
    return named


def check_jvp_against_differences(call: Call, tangents: dict[Any, Any], got: list[Any]) -> None:
    down, up = (call.run({w: call.get(w) + s * t for w, t in tangents.items()}) for s in (-STEP, STEP))
    rng = call.rng("weights")
    for tangent, after, before in zip(got, up, down, strict=True):
        if tangent is not None:
            assert tangent.shape == after.shape and tangent.dtype == after.dtype, call.op.name
            weight = [like(rng, tangent)]
            wanted = inner(weight, [(after - before) / (2 * STEP)])
            assert_close(inner(weight, [tangent]), wanted, f"{call.op.name}, by differences")


def check_jvp_against_vjp(call: Call, tangents: dict[Any, Any], got: list[Any]) -> None:
    tensors = call.tensors(list(tangents))
    outputs = flatten(call.op.function(**tensors))
    kept = [(o, g) for o, g in zip(outputs, got, strict=True) if o._edge is not None]
    assert all(g is None for o, g in zip(outputs, got, strict=True) if o._edge is None), call.op.name
    if kept:
        rng = call.rng("cotangents")
        cotangents = [like(rng, o._array) for o, _ in kept]
        inputs = [tensors[n] if p is None else tensors[n][p] for n, p in tangents]
        seeds = [leaf(c, False) for c in cotangents]
        found = grad([o for o, _ in kept], inputs, seeds, allow_unused=True)
        forward = inner(cotangents, [g for _, g in kept])
        backward = inner([None if f is None else f._array for f in found], list(tangents.values()))
        tolerance = 1e-9 if call.is_double else 1e-4
        assert_close(forward, backward, f"{call.op.name}: <v, J t> against <J* v, t>", tolerance, tolerance)


# ---- batching


@every(CASES)
def test_batching(case: Case) -> None:
    for call in case.calls:
        if not bound_to_memory(call):
            for in_dims in batchings(call):
                check_batching(call, in_dims)


def batchings(call: Call) -> Iterator[dict[Any, int]]:
    """Which arguments are batched, and where: all in front, all behind, each alone."""
    places = list(call.places())
    yield dict.fromkeys(places, 0)
    if call.op.name not in LAYOUT_BOUND:
        yield {w: call.get(w).ndim for w in places}
    if len(places) > 1:
        yield from ({w: min(1, call.get(w).ndim)} for w in places)


def check_batching(call: Call, in_dims: dict[Any, int]) -> None:
    size = 3
    examples = [{w: example(call.get(w), k) for w in in_dims} for k in range(size)]
    wanted = [call.run(e) for e in examples]
    if any(a.shape != b.shape for row in wanted for a, b in zip(row, wanted[0], strict=True)):
        return  # the shape depends on the data: there is nothing to stack
    stacked = {w: np.stack([e[w] for e in examples], axis=d) for w, d in in_dims.items()}
    arrays = {w: call.get(w) for w in call.places()} | stacked
    values = call.replaced({w: leaf(a, False) for w, a in arrays.items()})
    out, out_dims = apply_batch(call.op, *positional(call, values, in_dims))
    where = out_dims if isinstance(out_dims, tuple) else (out_dims,)
    for k, (got, dim) in enumerate(zip(flatten(out), where, strict=True)):
        expected = np.stack([row[k] for row in wanted])
        what = f"{call.op.name}, batched {in_dims}"
        assert_same(np.moveaxis(got._array, dim, 0), expected, 1e-9, 1e-11, what)


def positional(call: Call, values: dict[str, Any], in_dims: dict[Any, int]) -> tuple[Any, Any, Any]:
    """The arguments as apply_batch takes them."""
    dims = by_name(call, in_dims)
    leading = [n for n in values if n not in call.op.keyword_only]
    keywords = {n: values[n] for n in call.op.keyword_only}
    return [values[n] for n in leading], [dims.get(n) for n in leading], keywords


def example(array: Any, k: int) -> Any:
    """The k-th of several inputs like `array`: a little smaller, or the same integers turned around."""
    return array * (1 - 0.02 * k) if array.dtype.kind in "fc" else np.roll(array, k)


# ---- what is kept, and for how long


@every([c for c in CASES if c.differentiable])
def test_only_what_rules_name_is_saved(case: Case) -> None:
    for call in case.calls:
        for where in call.places(floats=True):
            outputs = flatten(call.op.function(**call.tensors([where])))
            nodes = [o.grad_fn for o in outputs if o._edge is not None]
            if nodes:
                check_saved(call, where, nodes[0])


def check_saved(call: Call, where: tuple[str, int | None], node: Any) -> None:
    op, (name, place) = call.op, where
    saved = saved_tensors(node)
    if place is not None:
        assert not saved or node.saves_tensors
        return
    named = op.rule_names()["*" if isinstance(op.vjp, Joint) else name]
    outputs = op.outputs if isinstance(op.outputs, tuple) else ("out",)
    given = {n for n in op.inputs if call.values[n] is not None and not is_plain_number(call, n)}
    expected = (given | set(outputs)) & set(named)
    assert len(saved) == len(expected), f"{op.name} saved {len(saved)} tensors for {name}, not {expected}"


def saved_tensors(node: Any) -> list[Any]:
    """Every tensor or array in the node's slots, once."""
    slots = {slot for kind in type(node).__mro__ for slot in getattr(kind, "__slots__", ())}
    values = [getattr(node, slot, None) for slot in slots - {"__weakref__"}]
    values += [v for value in values if isinstance(value, tuple) for v in value]
    return list({id(v): v for v in values if isinstance(v, Tensor | np.ndarray)}.values())


def is_plain_number(call: Call, name: str) -> bool:
    return name == call.op.number and type(call.values[name]) in (int, float)


@every([c for c in CASES if c.differentiable])
def test_reference_counting_frees_the_graph(case: Case) -> None:
    gc.disable()
    leaves, outputs = case.recorded(case.arrays, case.differentiable)
    alive = [weakref.ref(o) for o in outputs.values() if not is_one_of(o, leaves)]
    alive += [weakref.ref(o.grad_fn) for o in outputs.values() if o.grad_fn is not None]
    if outputs:
        seeds = [leaf(c, False) for c in case.cotangents]
        first = grad(list(outputs.values()), case.chosen(leaves), seeds, create_graph=True, allow_unused=True)
        alive += [weakref.ref(g) for g in first if g is not None and not is_one_of(g, [*leaves, *seeds])]
        del first, seeds
    del outputs
    assert [r() for r in alive if r() is not None] == []


@every([c for c in REFERENCED if c.differentiable])
def test_node_names(torch: ModuleType, case: Case) -> None:
    results = case.call([leaf(a, k in case.differentiable) for k, a in enumerate(case.arrays)])
    expected = case.torch_call(torch, case.torch_leaves(torch, case.arrays, True))
    for result, wanted in zip(results, expected, strict=True):
        if isinstance(result, Tensor) and result.grad_fn is not None:
            name = type(wanted.grad_fn).__name__
            assert type(result.grad_fn).__name__ in OTHER_NAMES.get((case.sample.op, name), name).split(" or ")


def is_one_of(tensor: Tensor, tensors: list[Tensor]) -> bool:
    return any(tensor is t for t in tensors)

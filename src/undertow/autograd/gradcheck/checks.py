"""What gradcheck checks of a function, in order. The comparisons themselves are in reverse.py and forward.py."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.autograd.backward import grad, internal_edge
from undertow.autograd.gradcheck.forward import ForwardComparison, check_batched_tangents, check_undefined_tangents
from undertow.autograd.gradcheck.perturbation import dense
from undertow.autograd.gradcheck.reverse import Comparison, Settings, as_tuple, differentiable, requires_grad
from undertow.autograd.gradient_edge import GradientEdge
from undertow.backend.interface import Array, Namespace
from undertow.backend.sparse.compressed import form_of
from undertow.backend.sparse.coo import AnySparse
from undertow.errors import GradcheckError
from undertow.graph.accumulate import gradient_edge
from undertow.graph.node import Node
from undertow.ops import REGISTRY
from undertow.tensor import LEAF, Tensor

if TYPE_CHECKING:
    from undertow.graph.edges import Edge
    from undertow.graph.saved import Freed


# ---- arguments


def check_inputs(inputs: Sequence[Any]) -> None:
    chosen = [(k, x) for k, x in enumerate(inputs) if requires_grad(x)]
    if not chosen:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have "
            "requires_grad=True."
        )
    for index, tensor in chosen:
        array = tensor._array
        if array.dtype.name not in ("float64", "complex128"):
            warnings.warn(
                f"Input #{index} requires gradient and is not a double precision floating point or complex "
                f"({array.dtype}). This check will likely fail if all the inputs are not of double "
                "precision.",
                stacklevel=3,
            )
        strides = () if isinstance(array, AnySparse) else zip(array.strides, array.shape, strict=True)
        overlapping = any(stride == 0 and size > 1 for stride, size in strides)
        if overlapping and array.size:
            raise RuntimeError(
                f"The {index}th input has a dimension with stride 0. gradcheck changes one element at a "
                "time, so elements must not share memory. Call .contiguous() on the input first."
            )


def random_seeds(outputs: Sequence[Tensor], non_contiguous: bool) -> tuple[Tensor, ...]:
    """Leaves with values in [-1, 1), shaped as the outputs. The user's random state is not touched."""
    seeds = []
    rng: Any = outputs[0]._xp.module.random.default_rng(0) if outputs else None
    for output in outputs:
        shape, dtype = output._array.shape, output._array.dtype
        size = (*shape[:-1], 2 * shape[-1]) if non_contiguous and shape else shape
        values = rng.uniform(-1, 1, size)
        if dtype.kind == "c":
            values = values + 1j * rng.uniform(-1, 1, size)
        array = output._xp.asarray(values, dtype=dtype)
        seeds.append(Tensor(array if size == shape else array[..., ::2], output._xp, LEAF))
    return tuple(seeds)


# ---- analytical against numerical


def check_forward(
    func: Callable[..., Any], inputs: tuple[Any, ...], settings: Settings, undefined: bool, batched: bool
) -> None:
    ForwardComparison(func, inputs, settings).run()
    if undefined:
        check_undefined_tangents(func, inputs)
    if batched:
        check_batched_tangents(func, inputs)


def check_backward(func: Callable[..., Any], inputs: tuple[Any, ...], settings: Settings) -> tuple[Tensor, ...]:
    """Compare; returns the outputs that have a gradient."""
    results = as_tuple(func(*inputs))
    if any(isinstance(r._array, AnySparse) for r in results):
        raise ValueError(
            "Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of "
            "fn for gradcheck."
        )
    outputs = differentiable(results)
    if not any(r._array.dtype.kind == "c" for r in results):
        Comparison(func, inputs, settings).run()
        return outputs
    complex_outputs = [k for k, o in enumerate(outputs) if o._array.dtype.kind == "c"]
    for part, pick in (("imaginary", REGISTRY["imag"].function), ("real", REGISTRY["real"].function)):
        Comparison(_part_of(func, pick), inputs, settings, part, complex_outputs).run()
    return outputs


def _part_of(func: Callable[..., Any], pick: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def part(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple(pick(o) if o._array.dtype.kind == "c" else o for o in as_tuple(func(*inputs)))

    return part


# ---- what else a backward pass must get right


def check_around(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    outputs: tuple[Tensor, ...],
    batched: bool,
    undefined: bool,
    masked: bool,
) -> None:
    if batched:
        for index, output in enumerate(outputs):
            _check_batched(differentiable(inputs), output, index)
    _check_zero_in_zero_out(outputs, differentiable(inputs), masked)
    if undefined:
        _check_undefined(func, inputs, len(outputs))


BATCHED_FAILED = """gradcheck or gradgradcheck failed while testing batched gradient computation:
autograd.grad(..., is_grads_batched=True) must give what one call for each output gradient gives.
If the function cannot do that, pass check_batched_grad=False."""


def _check_batched(targets: tuple[Tensor, ...], output: Tensor, index: int) -> None:
    xp = output._xp
    seeds = [s._array for s in random_seeds([output, output], False)]
    derive = functools.partial(grad, output, targets, retain_graph=True, allow_unused=True)
    rows = [[_array_or_zeros(g, x) for g, x in zip(derive(Tensor(s, xp)), targets, strict=True)] for s in seeds]
    try:
        found = derive(Tensor(xp.stack(seeds), xp), is_grads_batched=True)
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{BATCHED_FAILED}") from error
    for k, (gradient, target) in enumerate(zip(found, targets, strict=True)):
        expected = xp.stack([row[k] for row in rows])
        got = xp.zeros((2, *target._array.shape)) if gradient is None else gradient._array
        if got.shape != expected.shape or not xp.allclose(got, expected):
            raise GradcheckError(
                f"For output {index} and input {k}:\n\n{BATCHED_FAILED}\n\nGot:\n{got}\n\nExpected:\n{expected}"
            )


def _array_or_zeros(gradient: Tensor | None, target: Tensor) -> Array:
    return target._xp.zeros_like(dense(target._array)) if gradient is None else dense(gradient._array)


def _check_zero_in_zero_out(outputs: tuple[Tensor, ...], targets: tuple[Tensor, ...], masked: bool) -> None:
    seeds = [Tensor(o._xp.zeros_like(o._array), o._xp) for o in outputs]
    for gradient, target in zip(grad(outputs, targets, seeds, allow_unused=True), targets, strict=True):
        if gradient is None:
            continue
        _check_layout(gradient._array, target._array)
        found, xp = dense(gradient._array), target._xp
        if not (xp.allclose(found, 0) if masked else (found == 0).all()):
            raise GradcheckError("backward not multiplied by grad_output: for a zero gradient it returns non-zero")
        for fact, name in (("dtype", "type"), ("shape", "size")):
            if getattr(found, fact) != getattr(target._array, fact):
                raise GradcheckError(f"grad is incorrect {name}")


def _check_layout(gradient: Array, target: Array) -> None:
    """A sparse gradient is for a sparse input of the same layout, with the same sparse dimensions."""
    if not isinstance(gradient, AnySparse):
        return
    found, wanted = form_of(gradient).layout, form_of(target).layout
    if found != wanted:
        raise GradcheckError(f"grad is incorrect layout (undertow.{found} is not undertow.{wanted})")
    if gradient.sparse_dim != target.sparse_dim:
        raise GradcheckError(
            f"grad is sparse tensor, but has incorrect sparse_dim {gradient.sparse_dim}, expected {target.sparse_dim}"
        )


class _UndefinedGrad(Node):
    """Passes no gradient on, whatever arrives."""

    __slots__ = ()

    def __init__(self, tensor: Tensor) -> None:
        array = tensor._array
        super().__init__([gradient_edge(tensor)], shape=array.shape, dtype=array.dtype, spaces=[tensor._xp])

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Freed) -> list[Any]:
        return [None]


def _undefined(tensor: Tensor) -> Tensor:
    """The tensor, behind a node that lets no gradient through."""
    return Tensor(tensor._array, tensor._xp, internal_edge(GradientEdge(_UndefinedGrad(tensor), 0)))


def _check_undefined(func: Callable[..., Any], inputs: tuple[Any, ...], count: int) -> None:
    """Undefined gradients for all outputs, and for one at a time, must act as zeros."""
    choices = [range(count), *([k] for k in range(count) if count > 1)]
    for chosen in choices:
        outputs = differentiable(as_tuple(func(*inputs)))
        cut = [_undefined(o) if k in chosen else o for k, o in enumerate(outputs)]
        seeds = [Tensor(o._xp.zeros_like(o._array), o._xp) for o in outputs]
        try:
            found = grad(cut, differentiable(inputs), seeds, allow_unused=True)
        except RuntimeError as error:
            _warn_undefined()
            raise GradcheckError(
                f"Expected backward function to handle undefined output grads, but it raised: {error}\n"
                "A gradient that nothing flowed into is None, and stands for zeros."
            ) from error
        if any(g is not None and not (dense(g._array) == 0).all() for g in found):
            _warn_undefined()
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined or zero."
            )


def _warn_undefined() -> None:
    warnings.warn(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but "
        "it may break existing callers of this function. If this is true for you, you can call this function "
        'with "check_undefined_grad=False" to disable the feature',
        stacklevel=2,
    )

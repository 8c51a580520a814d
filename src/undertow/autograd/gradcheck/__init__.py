"""gradcheck and gradgradcheck: gradients against finite differences.

The comparison itself is in gradcheck/reverse.py. A complex output is checked as two functions, its real and its
imaginary part.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.autograd.backward import grad, internal_edge
from undertow.autograd.gradcheck.forward import ForwardComparison, check_batched_tangents, check_undefined_tangents
from undertow.autograd.gradcheck.perturbation import dense
from undertow.autograd.gradcheck.reverse import Comparison, Settings, as_tuple, basis, differentiable, requires_grad
from undertow.autograd.gradcheck.reverse import GradcheckError as GradcheckError
from undertow.autograd.gradient_edge import GradientEdge
from undertow.autograd.tensor_attributes import requires_grad_ as set_requires_grad
from undertow.backend.interface import Array, Namespace
from undertow.backend.sparse.compressed import form_of
from undertow.backend.sparse.coo import AnySparse
from undertow.graph.accumulate import gradient_edge
from undertow.graph.node import Node
from undertow.ops import REGISTRY
from undertow.tensor import LEAF, Tensor

if TYPE_CHECKING:
    from undertow.graph.saved import Freed


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compare the gradients of `func` at `inputs` with central differences; True, or GradcheckError.

    eps, atol, rtol       step of the differences; tolerances of the comparison, made for double precision
    raise_exception       False: return False instead of raising GradcheckError
    nondet_tol            how much two backward passes over the same graph may differ
    check_undefined_grad  also check that undefined output gradients are treated as zeros
    check_grad_dtypes     also check that gradients have the dtypes of their inputs
    check_batched_grad    also check gradients computed for a batch of output gradients
    check_forward_ad      also check forward mode
    check_batched_forward_grad    also check forward mode under vmap
    check_backward_ad     False: leave out everything that needs a backward pass
    fast_mode             compare the Jacobians along random vectors instead of element by element
    masked                True: only the elements that a sparse input has are moved, and its gradient must be zero
                          elsewhere; False: all of them. True also lets rounding pass as zero when the gradient for
                          a zero output gradient is checked

    >>> import undertow as ut
    >>> x = ut.tensor([0.5, 1.5], dtype=ut.float64, requires_grad=True)
    >>> gradcheck(ut.sin, (x,))
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    settings = Settings(eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode, bool(masked))
    tensors = as_tuple(inputs)
    _check_inputs(tensors)
    try:
        outputs = _check_backward(func, tensors, settings) if check_backward_ad else ()
        if check_forward_ad:
            _check_forward(func, tensors, settings, check_undefined_grad, check_batched_forward_grad)
        if outputs:
            _check_around(func, tensors, outputs, check_batched_grad, check_undefined_grad, bool(masked))
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Compare the second derivatives of `func` with differences of the first; True, or GradcheckError.

    grad_outputs                  the gradients with respect to the outputs; random ones if not given
    gen_non_contig_grad_outputs   let the random ones not be contiguous
    check_fwd_over_rev            check forward mode over a backward pass too
    check_rev_over_rev            False: leave out backward over backward
    The other arguments are those of `gradcheck`.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    tensors = as_tuple(inputs)
    if grad_outputs is None:
        found = differentiable(as_tuple(func(*tensors)))
        seeds = _random_seeds(found, gen_non_contig_grad_outputs)
    else:
        seeds = as_tuple(grad_outputs)
    places = [k for k, x in enumerate(tensors) if requires_grad(x)]

    def gradient_of(*args: Any) -> tuple[Tensor, ...]:
        points, weights = list(args[: len(tensors)]), args[len(tensors) :]
        for k in places:
            if not requires_grad(points[k]):  # forward mode is checked on tensors without history
                points[k] = set_requires_grad(points[k])
        outputs = differentiable(as_tuple(func(*points)))
        if not outputs:
            return ()
        chosen = [points[k] for k in places]
        gradients = grad(outputs, chosen, weights, create_graph=True, allow_unused=True)
        return tuple(g for g in gradients if g is not None)

    return gradcheck(
        gradient_of,
        (*tensors, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


# ---- arguments


def _check_inputs(inputs: Sequence[Any]) -> None:
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


def _random_seeds(outputs: Sequence[Tensor], non_contiguous: bool) -> tuple[Tensor, ...]:
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


def _check_forward(
    func: Callable[..., Any], inputs: tuple[Any, ...], settings: Settings, undefined: bool, batched: bool
) -> None:
    ForwardComparison(func, inputs, settings).run()
    if undefined:
        check_undefined_tangents(func, inputs)
    if batched:
        check_batched_tangents(func, inputs)


def _check_backward(func: Callable[..., Any], inputs: tuple[Any, ...], settings: Settings) -> tuple[Tensor, ...]:
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


def _check_around(
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
    seeds = [s._array for s in _random_seeds([output, output], False)]
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

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Any, ...], keep: Freed) -> list[Any]:
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


# ---- deprecated


def _deprecated(name: str) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and is kept for programs that came to use it. Use "
        "`undertow.autograd.functional.jacobian` or `gradcheck`.",
        FutureWarning,
        stacklevel=3,
    )


def _expect_unit(name: str, grad_out: float) -> None:
    if grad_out != 1.0:
        raise ValueError(f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0.")


def _expect_real(name: str, outputs: Sequence[Tensor]) -> None:
    if any(o._array.dtype.kind == "c" for o in outputs):
        raise ValueError(
            f"Expected output to be non-complex. {name} no longer supports functions that return complex outputs."
        )


def get_numerical_jacobian(
    fn: Callable[[Any], Any], inputs: Any, target: Tensor | None = None, eps: float = 1e-3, grad_out: float = 1.0
) -> tuple[Tensor, ...]:
    """Deprecated: the numerical Jacobian of the first output of `fn(inputs)` for each target, by default each
    input."""
    _deprecated("get_numerical_jacobian")
    _expect_unit("get_numerical_jacobian", grad_out)
    tensors = as_tuple(inputs)
    _expect_real("get_numerical_jacobian", as_tuple(fn(tensors)))
    settings = Settings(eps, 0, 0, 0, False, False)
    comparison = Comparison(lambda *values: fn(values), tensors, settings)
    targets = differentiable(tensors if target is None else as_tuple(target))
    return tuple(Tensor(comparison.numerical_jacobians(t)[0], t._xp) for t in targets)


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """Deprecated: the Jacobians of `output` for each input; are they reentrant, of right size and dtype?"""
    _deprecated("get_analytical_jacobian")
    _expect_unit("get_analytical_jacobian", grad_out)
    _expect_real("get_analytical_jacobian", [output])
    comparison = Comparison(lambda *values: output, as_tuple(inputs), Settings(0, 0, 0, nondet_tol, False, False))
    first, again = (comparison.gradients(output, basis(output)) for _ in range(2))
    reentrant = not any(a.size and abs(a - b).max() > nondet_tol for a, b in zip(first, again, strict=True))
    right = all(a.dtype == t._array.dtype for a, t in zip(first, comparison.targets, strict=True))
    return tuple(Tensor(a, output._xp) for a in first), reentrant, True, right

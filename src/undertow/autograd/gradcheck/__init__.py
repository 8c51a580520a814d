"""gradcheck and gradgradcheck: gradients against finite differences.

What is checked is in gradcheck/checks.py, which the first call loads. A complex output is checked as two functions,
its real and its imaginary part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.autograd.backward import grad
from undertow.autograd.tensor_attributes import requires_grad_ as set_requires_grad
from undertow.errors import GradcheckError as GradcheckError
from undertow.lazy_names import loaded_when_used as _loaded_when_used
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.autograd.gradcheck.deprecated import get_analytical_jacobian as get_analytical_jacobian
    from undertow.autograd.gradcheck.deprecated import get_numerical_jacobian as get_numerical_jacobian
else:
    _DEPRECATED = {"undertow.autograd.gradcheck.deprecated": "get_numerical_jacobian get_analytical_jacobian"}
    __getattr__, __dir__ = _loaded_when_used(__name__, names=_DEPRECATED)


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
    from undertow.autograd.gradcheck import checks

    settings = checks.Settings(eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode, bool(masked))
    tensors = checks.as_tuple(inputs)
    checks.check_inputs(tensors)
    try:
        outputs = checks.check_backward(func, tensors, settings) if check_backward_ad else ()
        if check_forward_ad:
            checks.check_forward(func, tensors, settings, check_undefined_grad, check_batched_forward_grad)
        if outputs:
            checks.check_around(func, tensors, outputs, check_batched_grad, check_undefined_grad, bool(masked))
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

    inputs                        the arguments of `func`, a tensor or a tuple
    grad_outputs                  the gradients with respect to the outputs; random ones if not given
    gen_non_contig_grad_outputs   let the random ones not be contiguous
    check_fwd_over_rev            check forward mode over a backward pass too
    check_rev_over_rev            False: leave out backward over backward

    `eps`, `atol`, `rtol`, `raise_exception`, `nondet_tol`, `check_undefined_grad`, `check_grad_dtypes`,
    `check_batched_grad`, `fast_mode` and `masked` are those of `gradcheck`.

    >>> import undertow as ut
    >>> x = ut.ones(2, dtype=ut.float64, requires_grad=True)
    >>> ut.autograd.gradgradcheck(lambda x: x**3, (x,))
    True
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    from undertow.autograd.gradcheck.checks import as_tuple, differentiable, random_seeds

    tensors = as_tuple(inputs)
    if grad_outputs is None:
        seeds = random_seeds(differentiable(as_tuple(func(*tensors))), gen_non_contig_grad_outputs)
    else:
        seeds = as_tuple(grad_outputs)
    return gradcheck(
        gradient_of(func, tensors),
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


def gradient_of(func: Callable[..., Any], inputs: tuple[Any, ...]) -> Callable[..., tuple[Tensor, ...]]:
    """The gradients of `func` for those of `inputs` that require grad, as a function of inputs and output gradients."""
    from undertow.autograd.gradcheck.checks import as_tuple, differentiable, requires_grad

    places = [k for k, x in enumerate(inputs) if requires_grad(x)]

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        points, weights = list(args[: len(inputs)]), args[len(inputs) :]
        for k in places:
            if not requires_grad(points[k]):  # forward mode is checked on tensors without history
                points[k] = set_requires_grad(points[k])
        outputs = differentiable(as_tuple(func(*points)))
        if not outputs:
            return ()
        found = grad(outputs, [points[k] for k in places], weights, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradients

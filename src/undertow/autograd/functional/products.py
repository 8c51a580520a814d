"""Products of derivatives with vectors, without the matrices: vjp, jvp, vhp, hvp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.autograd.alias import differentiable_alias
from undertow.autograd.functional.arguments import (
    INDEPENDENT_GRADIENT,
    INDEPENDENT_JACOBIAN,
    Tensors,
    as_tensors,
    check_first_gradients,
    check_outputs,
    filled,
    finished,
    grad_or_none,
    prepared,
    unpacked,
    vector_for,
)
from undertow.autograd.functional.recording import recording
from undertow.ops import REGISTRY
from undertow.tensor import Tensor

Function = Callable[..., Any]
OUTPUTS = "outputs of the user-provided function"
FROM_INPUT = "input to the user-provided function is"


def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """The outputs of `func(*inputs)`, and the product of `v` with its Jacobian: one reverse pass.

    v             a vector in the shape of the outputs; may be left out for a single element
    create_graph  let the results be differentiated
    strict        raise if an output does not depend on an input, instead of returning zeros

    >>> import undertow as ut
    >>> out, product = vjp(lambda x: x.exp(), ut.zeros(2), ut.tensor([1.0, 2.0]))
    >>> product
    tensor([1., 2.])
    """
    with recording():
        several, given = as_tensors(inputs, "inputs", "vjp")
        points = prepared(given, create_graph, leaves=True)
        several_outputs, outputs = as_tensors(func(*points), OUTPUTS, "vjp")
        check_outputs(outputs, strict)
        vectors = vector_for(v, outputs, several_outputs, "vjp", create_graph, "user-provided function returns")
    found = grad_or_none(outputs, points, vectors, create_graph)
    absent = "The output of the user-provided function is independent of input {}. This is not allowed in strict mode."
    product = filled(found, points, strict, create_graph, absent, "jacobian")
    return (
        unpacked(finished(outputs, create_graph), several_outputs),
        unpacked(finished(product, create_graph), several),
    )


def jvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """The outputs of `func(*inputs)`, and the product of its Jacobian with `v`, by two reverse passes.

    The first pass is linear in the gradient it starts from; the second transposes it. `undertow.func.jvp` computes
    the same in one forward pass, if all operations have a forward derivative.

    strict  raise if an output does not depend on an input, instead of giving zeros

    >>> import undertow as ut
    >>> ut.autograd.functional.jvp(lambda x: x**2, ut.tensor([1.0, 2.0]), ut.ones(2))[1]
    tensor([2., 4.])
    """
    with recording():
        several, given = as_tensors(inputs, "inputs", "jvp")
        points = prepared(given, create_graph, leaves=True)
        vectors = vector_for(v, points, several, "jvp", create_graph, FROM_INPUT)
        several_outputs, outputs = as_tensors(func(*points), OUTPUTS, "jvp")
        check_outputs(outputs, strict)
        seeds = zero_leaves(outputs)
        gradients = grad_or_none(outputs, points, seeds, create_graph=True)
        check_first_gradients(gradients, strict, INDEPENDENT_GRADIENT)
    found = grad_or_none(gradients, seeds, vectors, create_graph)
    absent = (
        "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the double "
        "backward trick to compute forward mode gradients. This is not allowed in strict mode."
    )
    product = filled(found, outputs, strict, create_graph, absent, "jacobian")
    return (
        unpacked(finished(outputs, create_graph), several_outputs),
        unpacked(finished(product, create_graph), several_outputs),
    )


def vhp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """The output of `func(*inputs)`, a single element, and the product of `v` with its Hessian.

    strict  raise if an output does not depend on an input, instead of giving zeros

    >>> import undertow as ut
    >>> ut.autograd.functional.vhp(lambda x: (x**3).sum(), ut.tensor([1.0, 2.0]), ut.ones(2))[1]
    tensor([ 6., 12.])
    """
    return _vhp(func, inputs, v, create_graph, strict, "vhp")


def _vhp(func: Function, inputs: Any, v: Any, create_graph: bool, strict: bool, name: str) -> Any:
    several, points, vectors, output, gradients = _gradient(func, inputs, v, create_graph, strict, name)
    found = grad_or_none(gradients, points, vectors, create_graph)
    absent = (
        "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode."
    )
    product = filled(found, points, strict, create_graph, absent, "hessian")
    return finished(output, create_graph), unpacked(finished(product, create_graph), several)


def hvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """The output of `func(*inputs)`, a single element, and the product of its Hessian with `v`.

    The Hessian is symmetric, so this is what `vhp` computes. Only `strict` takes the long way, a third reverse pass, to
    tell what depends on what.

    >>> import undertow as ut
    >>> ut.autograd.functional.hvp(lambda x: (x**3).sum(), ut.tensor([1.0, 2.0]), ut.ones(2))[1]
    tensor([ 6., 12.])
    """
    if not strict:
        return _vhp(func, inputs, v, create_graph, strict, "hvp")
    several, points, vectors, output, gradients = _gradient(func, inputs, v, create_graph, strict, "hvp")
    with recording():
        seeds = zero_leaves(points)
        seconds = grad_or_none(gradients, points, seeds, create_graph=True)
        check_first_gradients(seconds, strict, HESSIAN_CONSTANT)
    found = grad_or_none(seconds, seeds, vectors, create_graph)
    absent = (
        "The hessian of the user-provided function is independent of entry {} in the grad_jacobian. This is not "
        "allowed in strict mode as it prevents from using the double backward trick to replace forward mode AD."
    )
    product = filled(found, points, strict, create_graph, absent, "hessian")
    return finished(output, create_graph), unpacked(finished(product, create_graph), several)


HESSIAN_CONSTANT = (
    "The hessian of the user-provided function with respect to input {} is independent of the input. This is not "
    "allowed in strict mode. You should ensure that your function is thrice differentiable and that the hessian "
    "depends on the inputs."
)


def _gradient(
    func: Function, inputs: Any, v: Any, create_graph: bool, strict: bool, name: str
) -> tuple[bool, Tensors, Tensors | None, Tensor, tuple[Any, ...]]:
    """Where to differentiate, along what, the output there, and its gradient with history."""
    with recording():
        several, given = as_tensors(inputs, "inputs", name)
        points = prepared(given, create_graph, leaves=True)
        vectors = vector_for(v, points, several, name, create_graph, FROM_INPUT)
        several_outputs, outputs = as_tensors(func(*points), OUTPUTS, name)
        check_outputs(outputs, strict)
        check_scalar(outputs, several_outputs, name)
        gradients = grad_or_none(outputs, points, create_graph=True)
        check_first_gradients(gradients, strict, INDEPENDENT_JACOBIAN)
    return several, points, vectors, outputs[0], gradients


def check_scalar(outputs: Tensors, several: bool, name: str) -> None:
    if several:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0]._array.size != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")


def zero_leaves(tensors: Tensors) -> Tensors:
    """Zeros to start a reverse pass from that is itself differentiated with respect to them."""
    return tuple([differentiable_alias(REGISTRY["zeros_like"].function(t), connected=False) for t in tensors])

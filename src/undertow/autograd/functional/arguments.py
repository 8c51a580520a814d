"""Arguments and results of the functional API: tensors or tuples of them, checked, with or without history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undertow.autograd.alias import differentiable_alias
from undertow.autograd.backward import grad
from undertow.autograd.tensor_attributes import detached, get_requires_grad
from undertow.ops import REGISTRY
from undertow.tensor import Tensor

Tensors = tuple[Tensor, ...]


def as_tensors(value: Any, what: str, function: str) -> tuple[bool, Tensors]:
    """Whether a tuple was given, and the tensors."""
    several = isinstance(value, tuple)
    values = value if several else (value,)
    for index, item in enumerate(values):
        if not isinstance(item, Tensor):
            which = f"the value at index {index}" if several else f"the given {what}"
            raise TypeError(
                f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but {which} has type "
                f"{type(item)}."
            )
    return several, values


def prepared(tensors: Sequence[Tensor], create_graph: bool, leaves: bool) -> Tensors:
    """New tensor objects to differentiate with respect to, so that those a function captures are not mistaken for them.

    create_graph  gradients shall flow back to the given tensors
    leaves        the new ones require grad
    """
    if not leaves:
        return tuple([t if create_graph else detached(t) for t in tensors])
    return tuple([differentiable_alias(t, connected=create_graph) for t in tensors])


def copies(points: Sequence[Tensor]) -> Tensors:
    """Copies of the arguments of a function that is called again, and might change them."""
    return tuple([REGISTRY["clone"].function(p) for p in points])


def finished(value: Any, create_graph: bool) -> Any:
    """Results (a tensor, or nested tuples of them) without history, unless the caller wants it."""
    if isinstance(value, tuple):
        return tuple([finished(v, create_graph) for v in value])
    return value if create_graph else detached(value)


def unpacked(results: tuple[Any, ...], several: bool) -> Any:
    """A tuple if a tuple was given, else its only element."""
    return results if several else results[0]


def check_vector(v: Tensors, like: Tensors, several: bool) -> None:
    """Raise unless `v` has the sizes of `like`."""
    if len(v) != len(like):
        if several:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for index, (given, wanted) in enumerate(zip(v, like, strict=True)):
        if given.shape != wanted.shape:
            entry = f"Entry {index} in " if several else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {wanted.shape} but got {given.shape}.")


def vector_for(v: Any, like: Tensors, several: bool, function: str, create_graph: bool, what: str) -> Tensors | None:
    """The vector given, ready to use; None stands for 1, if there is a single element."""
    if v is None:
        if len(like) != 1 or like[0]._array.size != 1:
            raise RuntimeError(f"The vector v can only be None if the {what} a single Tensor with a single element.")
        return None
    vectors = prepared(as_tensors(v, "v", function)[1], create_graph, leaves=False)
    check_vector(vectors, like, several)
    return vectors


def grad_or_none(
    outputs: Sequence[Any], inputs: Tensors, seeds: Any = None, create_graph: bool = False, retain_graph: Any = None
) -> tuple[Any, ...]:
    """grad() that passes over outputs without gradient; None for inputs that none of the others depend on."""
    given = (None,) * len(outputs) if seeds is None else seeds
    used = [(o, s) for o, s in zip(outputs, given, strict=True) if o is not None and get_requires_grad(o)]
    if not used:
        return (None,) * len(inputs)
    roots, weights = zip(*used, strict=True)
    return grad(roots, inputs, weights, retain_graph, create_graph, allow_unused=True)


# ---- strict mode: what does not depend on the inputs is an error


def check_outputs(outputs: Sequence[Tensor], strict: bool) -> None:
    for index, output in enumerate(outputs):
        if strict and not get_requires_grad(output):
            raise RuntimeError(
                f"Output {index} of the user-provided function does not require gradients. The outputs must be "
                "computed in a differentiable manner from the input when running in strict mode."
            )


def check_first_gradients(gradients: Sequence[Any], strict: bool, message: str) -> None:
    """`message` (with {} for the number) says what a gradient that is independent of the inputs means."""
    for index, gradient in enumerate(gradients):
        if strict and gradient is None:
            raise RuntimeError(
                f"The output of the user-provided function is independent of input {index}. This is not allowed in "
                "strict mode."
            )
        if strict and not get_requires_grad(gradient):
            raise RuntimeError(message.format(index))


INDEPENDENT_GRADIENT = (
    "The gradient with respect to input {} is independent of the inputs of the user-provided function. This is not "
    "allowed in strict mode."
)

INDEPENDENT_JACOBIAN = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is "
    "independent of the input. This is not allowed in strict mode. You should ensure that your function is twice "
    "differentiable and that the jacobian depends on the inputs (this would be violated by a linear function for "
    "example)."
)


def filled(
    found: Sequence[Any], like: Sequence[Tensor], strict: bool, create_graph: bool, absent: str, order: str
) -> Tensors:
    """The gradients, zeros where there is none.

    absent  (strict) what a missing one means, with {} for its number
    order   "jacobian" or "hessian": what is constant if one has no history (strict, create_graph)
    """
    results = []
    for index, (gradient, tensor) in enumerate(zip(found, like, strict=True)):
        if gradient is None:
            if strict:
                raise RuntimeError(absent.format(index))
            gradient = REGISTRY["zeros_like"].function(tensor)
        elif strict and create_graph and not get_requires_grad(gradient):
            raise RuntimeError(
                f"The {order} of the user-provided function is independent of input {index}. This is not allowed in "
                "strict mode when create_graph=True."
            )
        results.append(gradient)
    return tuple(results)

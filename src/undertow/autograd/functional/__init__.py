"""Jacobians, Hessians and their products with vectors, of functions of tensors that return tensors.

>>> import undertow as ut
>>> from undertow.autograd import functional
>>> functional.jacobian(lambda x: x**2, ut.tensor([1.0, 2.0]))
tensor([[2., 0.],
        [0., 4.]])
"""

from undertow.autograd.functional.jacobians import hessian as hessian
from undertow.autograd.functional.jacobians import jacobian as jacobian
from undertow.autograd.functional.jacobians import standard_basis
from undertow.autograd.functional.products import hvp as hvp
from undertow.autograd.functional.products import jvp as jvp
from undertow.autograd.functional.products import vhp as vhp
from undertow.autograd.functional.products import vjp as vjp
from undertow.autograd.functional.sparse.jacobians import SparsityError as SparsityError
from undertow.autograd.functional.sparse.patterns import SparsityPattern as SparsityPattern
from undertow.autograd.functional.sparse.patterns import sparsity_pattern as sparsity_pattern

_construct_standard_basis_for = standard_basis


def _as_tuple(inp: object, arg_name: str | None = None, fn_name: str | None = None) -> tuple[bool, tuple[object, ...]]:
    """Whether it is a tuple, and it as one."""
    return (True, inp) if isinstance(inp, tuple) else (False, (inp,))


def _tuple_postprocess(res: tuple[object, ...], to_unpack: bool | tuple[bool, ...]) -> object:
    """The only value of a tuple where one was given, or the tuple."""
    if isinstance(to_unpack, tuple):
        inner = tuple([_tuple_postprocess(part, to_unpack[1]) for part in res])  # type: ignore[arg-type]
        return inner if to_unpack[0] else inner[0]
    return res if to_unpack else res[0]


def _grad_postprocess(inputs: object, create_graph: bool) -> object:
    """Without their history, unless it is wanted."""
    if isinstance(inputs, tuple):
        return tuple([_grad_postprocess(part, create_graph) for part in inputs])
    return inputs if create_graph else inputs.detach()  # type: ignore[attr-defined]

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

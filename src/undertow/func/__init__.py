"""Transformations of functions: each takes a function and returns one, and they can be nested in any order.

>>> import undertow as ut
>>> from undertow.func import grad, vmap
>>> vmap(grad(lambda x: x**3))(ut.tensor([1.0, 2.0]))
tensor([ 3., 12.])
"""

from undertow.autograd.vmap import vmap as vmap
from undertow.func.forward import hessian as hessian
from undertow.func.forward import jacfwd as jacfwd
from undertow.func.forward import jvp as jvp
from undertow.func.forward import linearize as linearize
from undertow.func.modules import functional_call as functional_call
from undertow.func.modules import replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_
from undertow.func.modules import stack_module_state as stack_module_state
from undertow.func.mutations import functionalize as functionalize
from undertow.func.reverse import grad as grad
from undertow.func.reverse import grad_and_value as grad_and_value
from undertow.func.reverse import jacrev as jacrev
from undertow.func.reverse import per_sample_grad as per_sample_grad
from undertow.func.reverse import value_and_grad as value_and_grad
from undertow.func.reverse import vjp as vjp

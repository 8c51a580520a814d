"""Derivatives by reverse mode: grad, vjp and jacrev."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from undertow import pytree
from undertow.autograd.alias import differentiable_alias
from undertow.autograd.backward import grad as autograd_grad
from undertow.autograd.batched_tensor import BatchedTensor
from undertow.autograd.functional.jacobians import standard_basis
from undertow.autograd.functional.recording import recording
from undertow.autograd.functional.sparse.jacobians import plan_rows_or_columns
from undertow.autograd.tensor_attributes import get_requires_grad
from undertow.autograd.vmap import vmap
from undertow.func.arguments import (
    Argnums,
    check_outputs,
    check_tensors,
    checked_argnums,
    reaches_others,
    released,
    replaced,
    split_aux,
    zeros_like,
)
from undertow.func.complex_jacobians import as_one_complex, imaginary
from undertow.func.sparse import Products, Sparse, blocks_of, pattern_of
from undertow.graph.accumulate import gradient_edge
from undertow.graph.edges import Edge
from undertow.modes import is_grad_enabled
from undertow.ops import REGISTRY
from undertow.tensor import LEAF, Tensor

Function = Callable[..., Any]


def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The function that computes the gradient of `func`, which returns a single element.

    argnums  with respect to which arguments; a tuple of numbers gives a tuple of gradients
    has_aux  `func` returns (output, more); then (gradient, more) is returned

    >>> import undertow as ut
    >>> grad(grad(lambda x: x**3))(ut.tensor(2.0))
    tensor(12.)
    """

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = _grad_and_value(func, argnums, has_aux, args, kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The function that computes (gradient, value); with has_aux, (gradient, (value, more)). See `grad`.

    func  a function of tensors, of one element

    >>> import undertow as ut
    >>> ut.func.grad_and_value(lambda x: (x * x).sum())(ut.tensor([1.0, 2.0]))
    (tensor([2., 4.]), tensor(5.))
    """

    @functools.wraps(func)
    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        return _grad_and_value(func, argnums, has_aux, args, kwargs)

    return gradient_and_value


def value_and_grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The function that computes (value, gradient); with has_aux, ((value, more), gradient). See `grad`.

    func  a function of tensors, of one element

    >>> import undertow as ut
    >>> ut.func.value_and_grad(lambda x: (x * x).sum())(ut.tensor([1.0, 2.0]))
    (tensor(5.), tensor([2., 4.]))
    """

    @functools.wraps(func)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = _grad_and_value(func, argnums, has_aux, args, kwargs)
        return value, found

    return value_and_gradient


def per_sample_grad(
    func: Function, argnums: Argnums = 0, has_aux: bool = False, *, in_dims: Any = None, chunk_size: int | None = None
) -> Function:
    """The function that computes the gradient for every example, the arguments in `argnums` being the same for all.

    The other arguments have the examples in their first dimension; `in_dims` says otherwise.

    func  a function of one example, of one element

    >>> import undertow as ut
    >>> loss = lambda w, x, y: ((x @ w - y) ** 2).sum()
    >>> per_sample_grad(loss)(ut.ones(2), ut.eye(2), ut.zeros(2))
    tensor([[2., 0.],
            [0., 2.]])
    """

    @functools.wraps(func)
    def gradients(*args: Any) -> Any:
        fixed = checked_argnums(argnums, len(args))
        dims = tuple([None if k in fixed else 0 for k in range(len(args))]) if in_dims is None else in_dims
        return vmap(grad(func, argnums, has_aux), dims, chunk_size=chunk_size)(*args)

    return gradients


def entry_of(alias: Tensor) -> Edge | None:
    """Where the gradient of an argument arrives, if it has a history that a change in place could exchange."""
    while type(alias) is BatchedTensor:
        alias = alias._value
    return None if alias._edge is LEAF else gradient_edge(alias)


def check_entry(alias: Tensor, entry: Edge | None) -> None:
    """Refuse to differentiate with respect to an argument whose history the function has exchanged."""
    if entry is not None and entry is not entry_of(alias):
        raise RuntimeError(
            "a Variable that requires grad is being used in an in-place operation: the function changed an argument "
            "that it is differentiated with respect to, inside of another gradient. Let it change a clone() of it."
        )


class _RecordedCall:
    """A function called on aliases of its arguments, which it was recorded with.

    primals   the arguments, as a tuple of trees; own: the aliases of their leaves
    """

    def __init__(self, func: Function, primals: tuple[Any, ...], has_aux: bool, api: str) -> None:
        self.was_recording, self.has_aux = is_grad_enabled(), has_aux
        leaves, self.spec = pytree.flatten(primals)
        check_tensors(leaves, api, "inputs")
        with recording():
            self.own = [differentiable_alias(leaf) for leaf in leaves]
            self.entries = [entry_of(x) for x in self.own]
            self.output, self.aux = split_aux(func(*self.spec.unflatten(self.own)), has_aux, api)
        self.outputs, self.out_spec = pytree.flatten(self.output)

    def gradients(self, cotangents: Sequence[Any], create_graph: bool | None = None) -> list[Tensor]:
        """The gradients for all leaves of the primals; zeros where the outputs do not depend on one."""
        pairs = [(o, c) for o, c in zip(self.outputs, cotangents, strict=True) if get_requires_grad(o)]
        if not pairs:
            return [zeros_like(x) for x in self.own]
        roots, seeds = zip(*pairs, strict=True)
        if create_graph is None:
            given = [s for s in seeds if s is not None and get_requires_grad(s)]
            create_graph = is_grad_enabled() and (bool(given) or reaches_others(roots, self.own))
        for alias, entry in zip(self.own, self.entries, strict=True):
            check_entry(alias, entry)
        found = autograd_grad(roots, self.own, seeds, retain_graph=True, create_graph=create_graph, allow_unused=True)
        return [zeros_like(x) if g is None else g for g, x in zip(found, self.own, strict=True)]

    def released(self, tree: Any) -> Any:
        return released(tree, self.own, self.was_recording)


def _grad_and_value(func: Function, argnums: Argnums, has_aux: bool, args: tuple[Any, ...], kwargs: Any) -> Any:
    numbers = checked_argnums(argnums, len(args))

    def chosen(*values: Any) -> Any:
        return func(*replaced(args, numbers, values), **kwargs)

    call = _RecordedCall(chosen, tuple([args[n] for n in numbers]), has_aux, "grad_and_value(f)(*args)")
    output = call.output
    if not isinstance(output, Tensor):
        raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a tensor, got {type(output)}")
    if output.ndim != 0:
        raise RuntimeError(
            "grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor, got tensor with "
            f"{output.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
        )
    found = call.spec.unflatten(call.gradients([None]))
    value = call.released(output)
    gradients = found if isinstance(argnums, tuple) else found[0]
    return gradients, ((value, call.released(call.aux)) if has_aux else value)


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """`func(*primals)`, and the function that multiplies vectors with its Jacobian: (output, vjp_fn[, more]).

    `vjp_fn(cotangents)`, of the structure of the output, returns a tuple with a gradient for each primal. It can be
    called again and again: the forward pass ran once.

    >>> import undertow as ut
    >>> output, vjp_fn = vjp(ut.sin, ut.zeros(2))
    >>> vjp_fn(ut.ones(2))
    (tensor([1., 1.]),)
    """
    call = _RecordedCall(func, primals, has_aux, "vjp(f, *primals)")
    check_outputs(call.outputs, "vjp(f, *primals)")

    def vjp_fn(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> tuple[Any, ...]:
        given = cotangents[0] if len(cotangents) == 1 and call.out_spec != pytree.flatten(cotangents)[1] else cotangents
        leaves, spec = pytree.flatten(given)
        if spec != call.out_spec:
            raise RuntimeError(
                "vjp_fn: Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {spec}, primal output: {call.out_spec}"
            )
        return tuple(call.spec.unflatten(call.gradients(leaves, create_graph)))

    output = call.released(call.output)
    return (output, vjp_fn, call.released(call.aux)) if has_aux else (output, vjp_fn)


def jacrev(
    func: Function,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    sparsity: Any = None,
    verify: bool = True,
    triplets: bool = False,
) -> Function:
    """The function that computes the Jacobian of `func` by reverse mode, a pass for each element of the output.

    All passes run at once, or `chunk_size` of them at a time. The result is a tree like the output of trees like the
    arguments in `argnums`, with tensors of shape (*output.shape, *input.shape).

    Complex tensors: if both sides are complex, the function must be holomorphic, and the result is df/dz; else see
    func/complex_jacobians.py.

    sparsity  where the Jacobian, as a matrix with a row for each element of all outputs and a column for each of all
              chosen arguments, may have entries: as in `autograd.functional.jacobian`. Then rows without a common
              place share a pass, and the tensors of the result are matrices, sparse arrays of SciPy
    verify    raise if there are entries outside of the pattern; takes one pass more
    triplets  (rows, columns, values) as tensors instead of a sparse array: these nest in other transformations

    >>> import undertow as ut
    >>> jacrev(ut.sin)(ut.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    >>> jacrev(ut.sin, sparsity=ut.eye(2), triplets=True)(ut.zeros(2))
    (tensor([0, 1]), tensor([0, 1]), tensor([1., 1.]))
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    wanted = Sparse(sparsity, verify, triplets, chunk_size)

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = checked_argnums(argnums, len(args))

        def chosen(*values: Any) -> Any:
            return func(*replaced(args, numbers, values), **kwargs)

        call = _RecordedCall(chosen, tuple([args[n] for n in numbers]), has_aux, "jacrev(f)(*args)")
        check_outputs(call.outputs, "jacrev(f)(*args), by vjp(f, *primals)")
        if sparsity is None:
            rows: list[Any] = [_rows(call, nr, chunk_size) for nr in range(len(call.outputs))]
        else:
            rows = _sparse_rows(call, chosen, wanted)
        trees = [call.spec.unflatten(row) for row in rows]
        found = call.out_spec.unflatten([t if isinstance(argnums, tuple) else t[0] for t in trees])
        return (found, call.released(call.aux)) if has_aux else found

    return jacobian


def _rows(call: _RecordedCall, nr: int, chunk_size: int | None) -> list[Tensor]:
    """The Jacobian of one output, for every leaf of the inputs."""
    output = call.outputs[nr]
    size = output.shape.numel()
    (basis,) = standard_basis((output,), (size,))
    seeds = REGISTRY["reshape"].function(basis, (size, *output.shape))

    def pull(seed: Tensor) -> list[Tensor]:
        return call.gradients([seed if k == nr else zeros_like(o) for k, o in enumerate(call.outputs)])

    batched = vmap(pull, chunk_size=chunk_size)
    found = batched(seeds)
    twice = batched(imaginary(seeds)) if output.dtype.kind == "c" else found
    joined = [as_one_complex(a, b, output, x, "reverse") for a, b, x in zip(found, twice, call.own, strict=True)]
    return [REGISTRY["reshape"].function(j, (*output.shape, *x.shape)) for j, x in zip(joined, call.own, strict=True)]


def _sparse_rows(call: _RecordedCall, func: Function, wanted: Sparse) -> list[Any]:
    """A sparse matrix for every output and every leaf of the inputs."""

    def leaves(*points: Tensor) -> list[Tensor]:
        return pytree.flatten(split_aux(func(*call.spec.unflatten(points)), call.has_aux, "jacrev(f)(*args)")[0])[0]

    pattern = pattern_of(leaves, call.own, call.outputs, wanted)
    plan = plan_rows_or_columns(pattern, "reverse-mode")
    products = Products(lambda *seeds: call.gradients(seeds), call.outputs, call.own)
    return blocks_of(products, plan, pattern, wanted).rows(call.outputs, call.own)

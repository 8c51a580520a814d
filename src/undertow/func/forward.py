"""Derivatives by forward mode: jvp, jacfwd, linearize, and the Hessian as forward over reverse."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from undertow import pytree
from undertow.autograd import forward_ad
from undertow.autograd.alias import differentiable_alias
from undertow.autograd.backward import grad as autograd_grad
from undertow.autograd.functional.arguments import copies
from undertow.autograd.functional.jacobians import standard_basis
from undertow.autograd.functional.recording import recording
from undertow.autograd.functional.sparse.jacobians import plan_rows_or_columns, plan_symmetric, with_mirror_images
from undertow.autograd.tensor_attributes import get_requires_grad
from undertow.autograd.vmap import vmap
from undertow.func.arguments import (
    Argnums,
    check_outputs,
    check_tensors,
    checked_argnums,
    reaches_others,
    replaced,
    split_aux,
    zeros_like,
)
from undertow.func.complex_jacobians import as_one_complex, imaginary
from undertow.func.reverse import _RecordedCall, grad, jacrev
from undertow.func.sparse import Products, Sparse, blocks_of, pattern_of
from undertow.modes import is_grad_enabled, set_grad_enabled
from undertow.ops import REGISTRY
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.pytree import Spec

Function = Callable[..., Any]


def jvp(
    func: Function,
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
    track_tangent_grad: bool = True,
) -> Any:
    """`func(*primals)`, and the product of its Jacobian with the tangents: (output, tangent[, more]).

    strict              raise if an output does not depend on the primals, instead of returning zeros
    track_tangent_grad  False: the tangent has no history, also where the output has one; saves memory

    >>> import undertow as ut
    >>> jvp(ut.sin, (ut.zeros(2),), (ut.tensor([1.0, 2.0]),))
    (tensor([0., 0.]), tensor([1., 2.]))
    """
    api = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{api}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    points, spec = pytree.flatten(primals)
    directions, other = pytree.flatten(tangents)
    if spec != other:
        raise RuntimeError(
            f"{api}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with {other}"
        )
    if not points:
        raise RuntimeError(f"{api}: Expected at least one Tensor in primals, got {primals!r}.")
    for what, leaves in (("primals", points), ("tangents", directions)):
        if not all([isinstance(leaf, Tensor) for leaf in leaves]):
            raise RuntimeError(
                f"{api}: Expected {what} to only contain Tensors, got unsupported types {list(map(type, leaves))}"
            )
    output, tangent, aux = push(func, points, directions, spec, has_aux, strict, track_tangent_grad)
    return (output, tangent, aux) if has_aux else (output, tangent)


def push(
    func: Function,
    points: Sequence[Tensor],
    directions: Sequence[Tensor],
    spec: Spec,
    has_aux: bool,
    strict: bool,
    track_tangent_grad: bool = True,
) -> tuple[Any, Any, Any]:
    """Call a function on dual tensors: outputs, their tangents, and what else it returns."""
    with forward_ad.own_level(track_tangent_grad=track_tangent_grad):
        duals = [forward_ad.make_dual(p, t) for p, t in zip(points, directions, strict=True)]
        output, aux = split_aux(func(*spec.unflatten(duals)), has_aux, "jvp(f, primals, tangents)")
        leaves, out_spec = pytree.flatten(output)
        check_outputs(leaves, "jvp(f, primals, tangents)")
        pairs = [forward_ad.unpack_dual(leaf) for leaf in leaves]
        if strict:
            check_dependence([tangent for _, tangent in pairs])
        tangents = [zeros_like(primal) if tangent is None else tangent for primal, tangent in pairs]
        aux = pytree.tree_map(lambda a: forward_ad.primal_of(a) if isinstance(a, Tensor) else a, aux)
        return out_spec.unflatten([p for p, _ in pairs]), out_spec.unflatten(tangents), aux


def check_dependence(tangents: Sequence[Tensor | None]) -> None:
    # outside of the block: Python 3.14 makes a loop of `any`, see Note [Loops in blocks]
    if any(tangent is None for tangent in tangents):
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
            "allowed with strict=True."
        )


def jacfwd(
    func: Function,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
    sparsity: Any = None,
    verify: bool = True,
    triplets: bool = False,
) -> Function:
    """The function that computes the Jacobian of `func` by forward mode, a pass for each element of the inputs.

    The result is as that of `jacrev`, with a `sparsity` too: columns without a common place then share a pass. What
    does not depend on the direction is computed once for all of them.

    randomness        whether random numbers are an "error", the "same" in all passes, or "different"
    verify, triplets  of a `sparsity`, as `jacrev` takes them

    >>> import undertow as ut
    >>> jacfwd(ut.sin)(ut.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    wanted = Sparse(sparsity, verify, triplets, chunk_size, randomness)

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        numbers = checked_argnums(argnums, len(args))

        def chosen(*values: Any) -> Any:
            return func(*replaced(args, numbers, values), **kwargs)

        call = _Columns(chosen, tuple([args[n] for n in numbers]), has_aux, wanted)
        if sparsity is None:
            rows: Iterable[Any] = zip(*call.columns(), strict=True)
        else:
            rows = call.sparse(wanted, symmetric=False)
        trees = [call.spec.unflatten(row) for row in rows]
        found = call.out_spec.unflatten([t if isinstance(argnums, tuple) else t[0] for t in trees])
        return (found, call.aux) if has_aux else found

    return jacobian


class _Columns:
    """The columns of a Jacobian; the function's outputs are known once some were computed.

    Where the function is called more than once, it gets copies of its arguments, which it may change.
    """

    def __init__(self, func: Function, primals: tuple[Any, ...], has_aux: bool, wanted: Sparse) -> None:
        self.func, self.has_aux = func, has_aux
        self.points, self.spec = pytree.flatten(primals)
        check_tensors(self.points, "jacfwd(f)(*args)", "inputs")
        self.out_spec: Any = None
        self.aux: Any = None
        self.outputs: list[Tensor] = []
        self.called_once = wanted.sparsity is None and wanted.chunk_size is None
        self.batched = functools.partial(vmap, randomness=wanted.randomness, chunk_size=wanted.chunk_size)

    def run(self, *points: Tensor) -> list[Tensor]:
        """The function of the leaves, without derivatives."""
        output = self.func(*self.spec.unflatten(copies(points)))
        output, self.aux = split_aux(output, self.has_aux, "jacfwd(f)(*args)")
        leaves, self.out_spec = pytree.flatten(output)
        check_outputs(leaves, "jacfwd(f)(*args), by jvp(f, primals, tangents)")
        return leaves

    def push(self, *directions: Tensor) -> list[Tensor]:
        """The tangents of the outputs along directions for all leaves."""
        points = self.points if self.called_once else copies(self.points)
        output, tangent, self.aux = push(self.func, points, directions, self.spec, self.has_aux, False)
        self.outputs, self.out_spec = pytree.flatten(output)
        return pytree.flatten(tangent)[0]

    def sparse(self, wanted: Sparse, symmetric: bool) -> list[Any]:
        """A sparse matrix for every output and every leaf of the inputs."""
        outputs = self.run(*self.points)
        pattern = pattern_of(self.run, self.points, outputs, wanted)
        if symmetric:
            pattern = with_mirror_images(pattern)
        plan = (plan_symmetric if symmetric else plan_rows_or_columns)(pattern, "forward-mode")
        products = Products(self.push, self.points, outputs)
        return blocks_of(products, plan, pattern, wanted).rows(outputs, self.points)

    def columns(self) -> list[list[Tensor]]:
        """For each leaf of the inputs, the Jacobians of all outputs with respect to it.

        All are one batch: a function that changes its arguments, or draws random numbers, is called once.
        """
        turned = [k for k, p in enumerate(self.points) if p.dtype.kind == "c"]
        spans = [*self.points, *[self.points[k] for k in turned]]
        sizes = [p.shape.numel() for p in spans]
        bases, starts = list(standard_basis(spans, sizes)), [sum(sizes[:k]) for k in range(len(sizes))]
        imaginary_of = {k: len(self.points) + nr for nr, k in enumerate(turned)}
        for k, other in imaginary_of.items():
            bases[k] = REGISTRY["add"].function(bases[k], imaginary(bases[other]))
        directions = [
            REGISTRY["reshape"].function(b, (sum(sizes), *p.shape)) for b, p in zip(bases, spans, strict=True)
        ]
        found = self.batched(self.push)(*directions[: len(self.points)])

        def rows(column: Tensor, k: int) -> Tensor:
            return REGISTRY["narrow"].function(column, 0, starts[k], sizes[k])

        return [
            [
                self.block(rows(f, k), rows(f, imaginary_of.get(k, k)), o, p)
                for f, o in zip(found, self.outputs, strict=True)
            ]
            for k, p in enumerate(self.points)
        ]

    def block(self, along_real: Tensor, along_imag: Tensor, output: Tensor, point: Tensor) -> Tensor:
        """The Jacobian of an output with respect to a leaf, from the tangents along its unit vectors."""
        joined = as_one_complex(along_real, along_imag, output, point, "forward")
        moved = REGISTRY["movedim"].function(joined, 0, -1)
        return REGISTRY["reshape"].function(moved, (*moved.shape[:-1], *point.shape))


def hessian(
    func: Function,
    argnums: Argnums = 0,
    *,
    chunk_size: int | None = None,
    sparsity: Any = None,
    verify: bool = True,
    triplets: bool = False,
) -> Function:
    """The function that computes the Hessian of `func`, forward mode over reverse mode.

    sparsity, verify, triplets  as in `jacrev`. The symmetry of the matrix saves passes, so that a `sparsity` may leave
                                out one of two entries that mirror each other

    >>> import undertow as ut
    >>> hessian(lambda x: (x**3).sum())(ut.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    if sparsity is None:
        return jacfwd(jacrev(func, argnums), argnums, chunk_size=chunk_size)
    wanted = Sparse(sparsity, verify, triplets, chunk_size)

    @functools.wraps(func)
    def sparse_hessian(*args: Any, **kwargs: Any) -> Any:
        numbers = checked_argnums(argnums, len(args))
        gradient = grad(lambda *args: _single(func(*args, **kwargs)), numbers)

        def chosen(*values: Any) -> Any:
            return gradient(*replaced(args, numbers, values))

        call = _Columns(chosen, tuple([args[n] for n in numbers]), False, wanted)
        trees = [call.spec.unflatten(row) for row in call.sparse(wanted, symmetric=True)]
        found = call.out_spec.unflatten([t if isinstance(argnums, tuple) else t[0] for t in trees])
        return found if isinstance(argnums, tuple) else found[0]

    return sparse_hessian


def _single(output: Any) -> Tensor:
    """The output of a function that has a Hessian matrix: a tensor with one element."""
    if not isinstance(output, Tensor) or output.shape.numel() != 1:
        what = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else str(type(output))
        raise RuntimeError(
            f"hessian(f, sparsity=...)(*args): Expected f(*args) to return a tensor with a single element, got {what}: "
            "only such a function has a Hessian matrix. Leave sparsity out, or take the sum of the output."
        )
    return REGISTRY["reshape"].function(output, ())


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """`func(*primals)`, and the linear function that multiplies its Jacobian there with tangents: (output, jvp_fn).

    The forward pass runs once, also if `jvp_fn(*tangents)` is called many times: it transposes a recorded reverse pass.

    >>> import undertow as ut
    >>> output, jvp_fn = linearize(ut.exp, ut.zeros(2))
    >>> jvp_fn(ut.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    call = _RecordedCall(func, primals, False, "linearize(f, *primals)")
    check_outputs(call.outputs, "linearize(f, *primals)")
    with recording():
        seeds = [differentiable_alias(zeros_like(o), connected=False) for o in call.outputs]
        gradients = call.gradients(seeds, create_graph=True)
    used = [k for k, g in enumerate(gradients) if get_requires_grad(g)]

    def jvp_fn(*tangents: Any) -> Any:
        leaves, spec = pytree.flatten(tangents)
        if spec != call.spec:
            raise RuntimeError(
                f"linearize: Expected the tangents to have the same structure as the primals, got {spec}, expected "
                f"{call.spec}"
            )
        for leaf, primal in zip(leaves, call.own, strict=True):
            if leaf.shape != primal.shape:
                raise RuntimeError(f"linearize: a tangent has shape {leaf.shape}, its primal {primal.shape}")
        found: Sequence[Any] = [None] * len(seeds)
        if used:
            create_graph = is_grad_enabled() and (
                any(get_requires_grad(t) for t in leaves) or reaches_others(call.outputs, call.own)
            )
            with set_grad_enabled(is_grad_enabled()):
                found = autograd_grad([gradients[k] for k in used], seeds, [leaves[k] for k in used], retain_graph=True,
                                      create_graph=create_graph, allow_unused=True)  # fmt: skip
        products = [zeros_like(o) if t is None else t for t, o in zip(found, call.outputs, strict=True)]
        return call.out_spec.unflatten(products)

    return call.released(call.output), jvp_fn

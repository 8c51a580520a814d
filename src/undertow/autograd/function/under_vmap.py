"""Custom Functions under vmap: their own `vmap` rule, or one made from their forward, backward and jvp.

The made rule runs the user's forward on BatchedTensors inside one Function of ours, whose backward and jvp run the
user's on BatchedTensors again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.autograd.batched_tensor import BatchedTensor
from undertow.autograd.function import Function, bind_arguments
from undertow.autograd.function.call import call_jvp
from undertow.autograd.function.intermediates import needed_inputs, note_intermediates, tracking_for
from undertow.autograd.interceptors.stack import Transforms, active, beneath, under, with_beneath
from undertow.modes import current
from undertow.ops import REGISTRY
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.autograd.vmap.level import VmapLevel


class VmapInfo(NamedTuple):
    """What a Function's `vmap` rule is told."""

    batch_size: int
    randomness: str


def apply_batched_function(level: Any, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stack: Any) -> Tensor:
    own_rule = cls.vmap is not Function.vmap
    if own_rule and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overriden vmap "
            "staticmethod. Please set generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid "
            "ambiguity."
        )
    if not own_rule and not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement "
            "the vmap staticmethod or set generate_vmap_rule=True."
        )
    args = bind_arguments(cls, args, kwargs)
    pairs = [level.unwrap(a) for a in args]
    values, dims = [v for v, _ in pairs], tuple([d for _, d in pairs])
    if not own_rule:
        plan = Plan(level, cls, dims, args)
        return plan.wrap_outputs(under(stack.without(level), MadeRule.apply, plan, *values))
    info = VmapInfo(level.size, level.randomness)
    values, dims = (
        [in_structure(a, v) for a, v in zip(args, values, strict=True)],
        tuple([in_structure(a, d) for a, d in zip(args, dims, strict=True)]),
    )
    found = under(stack.without(level), cls.vmap, info, dims, *values)
    if not isinstance(found, tuple) or len(found) != 2:
        raise RuntimeError(
            f"Expected the vmap staticmethod of {cls.__name__} to have two returns: the outputs, and their out_dims."
        )
    output, out_dims = found
    check_out_dims(cls, output, out_dims)
    return level.wrap(output, out_dims)


def in_structure(given: Any, found: Any) -> Any:
    """What was found for an argument, nested as that is: a tuple of tensors gives tuples of values and of dims."""
    if type(given) not in (tuple, list):
        return found
    parts = found if isinstance(found, (tuple, list)) else [found] * len(given)
    return type(given)([in_structure(g, f) for g, f in zip(given, parts, strict=True)])


def check_out_dims(cls: Any, output: Any, out_dims: Any) -> None:
    """Raise unless there is a dimension, or None, for each output."""
    several = isinstance(output, tuple | list)
    fits = out_dims is None or isinstance(out_dims, int)
    if several and not fits:
        fits = isinstance(out_dims, type(output)) and len(output) == len(out_dims)
    if not fits:
        raise RuntimeError(
            f"The vmap staticmethod of {cls.__name__} returned an incompatible (output, out_dims) tuple: "
            f"{len(output) if several else 'one'} outputs ({type(output).__name__}), and out_dims={out_dims!r}. Return "
            "a number or None for all outputs, or one for each, in a tuple like that of the outputs."
        )


class Plan:
    """One call of a Function under vmap: the level, the class, where the batch dimensions are."""

    def __init__(self, level: VmapLevel, cls: Any, dims: tuple[Any, ...], args: tuple[Any, ...]) -> None:
        self.level, self.cls, self.dims = level, cls, dims
        self.single = True
        self.out_dims: list[Any] = []
        self.saved_dims: list[Any] = []

    def inside(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function under this vmap, whether or not it still runs."""
        now = active()
        inside = Transforms(now.duals, (*now.vmaps, self.level))
        return under(with_beneath(current().intercept, inside), function, *args)

    def wrap(self, value: Any, dim: Any) -> Any:
        return BatchedTensor(value, dim, self.level) if isinstance(value, Tensor) and dim is not None else value

    def wrap_outputs(self, outputs: Any) -> Any:
        if self.single:
            return self.wrap(outputs, self.out_dims[0])
        return tuple([self.wrap(o, d) for o, d in zip(outputs, self.out_dims, strict=True)])

    def summed(self, gradient: Tensor | None, dim: Any) -> Tensor | None:
        """A gradient as the argument's value wants it: batched in the same place, or summed over the examples."""
        if not isinstance(gradient, Tensor):
            return gradient
        front = self.level.front(gradient)
        if dim is None:
            return REGISTRY["sum"].function(front, 0)
        return REGISTRY["movedim"].function(front, 0, dim)


class MadeRule(Function):
    """The batch of calls, as one Function on tensors with all examples."""

    generate_vmap_rule = True
    _is_tracked = False

    @staticmethod
    def forward(ctx: Any, plan: Plan, *values: Any) -> Any:
        cls = plan.cls
        ctx.plan, ctx.inner = plan, cls._backward_cls()
        ctx.inner.needs_input_grad = ctx.needs_input_grad[1:]
        args = [plan.wrap(v, d) for v, d in zip(values, plan.dims, strict=True)]
        output = MadeRule.followed(ctx, plan, args)
        plan.single = not isinstance(output, tuple)
        outputs = (output,) if plan.single else output
        if ctx.inner._dirty:
            raise RuntimeError(
                f"{cls.__name__}: mark_dirty is not supported together with generate_vmap_rule. Write a vmap "
                "staticmethod."
            )
        pairs = [plan.level.unwrap(o) for o in outputs]
        plan.out_dims = [d for _, d in pairs]
        MadeRule.keep(ctx, plan)
        marked = [v for (v, _), o in zip(pairs, outputs, strict=True)
                  if any(o is n for n in ctx.inner._non_differentiable)]  # fmt: skip
        ctx.mark_non_differentiable(*marked)
        return pairs[0][0] if plan.single else tuple([v for v, _ in pairs])

    @staticmethod
    def followed(ctx: Any, plan: Plan, args: list[Any]) -> Any:
        """The user's forward on a batch, tracked for intermediates. See intermediates.py."""
        inner, cls = ctx.inner, plan.cls
        inner.next_edges = ctx.next_edges
        inputs = [a for a in args if isinstance(a, Tensor)]
        needed = needed_inputs(inputs, recording=bool(ctx.next_edges)) if cls._is_tracked else ()
        tracking = tracking_for(cls, inputs, needed)
        intercept = current().intercept
        lowest = beneath(intercept) if tracking is None else tracking
        output = under(with_beneath(intercept, lowest), plan.inside, call_forward, cls, inner, args)
        if needed:
            note_intermediates(inner, inputs, needed, output, tracking)
        return output

    @staticmethod
    def keep(ctx: Any, plan: Plan) -> None:
        """Save what the user's context saves, with all examples."""
        saved = [plan.level.unwrap(t) for t in ctx.inner._to_save]
        for_jvp = [plan.level.unwrap(t) for t in ctx.inner._saved_for_forward]
        plan.saved_dims = [d for _, d in saved]
        ctx.jvp_dims = [d for _, d in for_jvp]
        ctx.save_for_backward(*[t for t, _ in saved])
        ctx.save_for_forward(*[t for t, _ in for_jvp])
        ctx.set_materialize_grads(ctx.inner.materialize_grads)
        ctx.inner._to_save = ctx.inner._saved_for_forward = ()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        plan, inner = ctx.plan, ctx.inner
        inner._to_save = tuple([plan.wrap(t, d) for t, d in zip(ctx.saved_tensors, plan.saved_dims, strict=True)])
        inner.saved = ()
        wrapped = [plan.wrap(g, d) for g, d in zip(grads, plan.out_dims, strict=True)]
        found = plan.inside(inner._call_backward, wrapped)
        found = found if isinstance(found, tuple) else (found,)
        return (None, *[plan.inside(plan.summed, g, d) for g, d in zip(found, plan.dims, strict=False)])

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        plan, inner = ctx.plan, ctx.inner
        inner._saved_for_forward = tuple(
            [plan.wrap(t, d) for t, d in zip(ctx.saved_tensors, ctx.jvp_dims, strict=True)]
        )
        wrapped = [plan.wrap(t, d) for t, d in zip(tangents, plan.dims, strict=True)]
        found = plan.inside(call_jvp, inner, wrapped)
        found = found if isinstance(found, tuple) else (found,)
        moved = [plan.inside(plan.summed, t, 0 if d is None else d) if d is not None else t
                 for t, d in zip(found, plan.out_dims, strict=True)]  # fmt: skip
        return moved[0] if plan.single else tuple(moved)


def call_forward(cls: Any, ctx: Any, args: list[Any]) -> Any:
    if cls.setup_context is Function.setup_context:
        return cls.forward(ctx, *args)
    output = cls.forward(*args)
    cls.setup_context(ctx, tuple(args), output)
    return output

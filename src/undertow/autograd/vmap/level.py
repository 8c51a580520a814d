"""VmapLevel: one vmap that is running. What an operation, a change in place and a custom Function do to a batch."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn

from undertow import pytree
from undertow.autograd.batched_tensor import BatchedTensor, VmapError, batch, refuse
from undertow.autograd.forward.tangents import set_tangent, tangent_of
from undertow.autograd.forward.unknown_tangent import UnknownTangent
from undertow.autograd.function.under_vmap import apply_batched_function
from undertow.autograd.interceptors.stack import Transforms, active, under
from undertow.compiled import core
from undertow.errors import warn_once
from undertow.ops import REGISTRY
from undertow.ops.declare.rules import LOOP
from undertow.ops.declare.rules.apply_batching import apply_to_batch
from undertow.ops.inplace.methods import copy_
from undertow.tensor import Tensor, without_history

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op


#: what no level has anything to do with
PLAIN = frozenset([float, int, bool, str, NoneType])


class VmapLevel:
    """number: from 1, the outermost first; size: how many examples; randomness: 'error', 'different' or 'same'.

    has_spread  a batch was made of a tensor that is the same for all examples (see Note [Gradients inside vmap])
    """

    __slots__ = ("has_spread", "number", "randomness", "size")

    def __init__(self, number: int, size: int, randomness: str) -> None:
        self.number, self.size, self.randomness = number, size, randomness
        self.has_spread = False

    def spread(self, tensor: Tensor) -> Tensor:
        self.has_spread = True
        spread: Tensor = self.wrap(self.front(tensor), 0)
        return spread

    # ---- batches

    def is_batched(self, tensor: Any) -> bool:
        return type(tensor) is BatchedTensor and tensor._level is self

    def holds(self, tensor: Any) -> bool:
        """Whether a tensor has the examples of this level, at the top or within those of levels above."""
        return type(tensor) is BatchedTensor and (tensor._level is self or self.holds(tensor._value))

    def concerns(self, args: Any) -> bool:
        """Whether one of the arguments of a call is a batch of this level."""
        for value in args:
            kind = type(value)
            if kind is BatchedTensor:
                if value._level is self:
                    return True
            elif (kind is list or kind is tuple) and self.concerns(value):
                return True
        return False

    def carries(self, tensor: Tensor) -> bool:
        """Whether a tensor that is not batched here has a tangent that is."""
        if type(tensor) is BatchedTensor:
            return tensor._level is self or self.carries(tensor._value)
        if tensor._extra is None:
            return False
        tangents = [tangent_of(tensor, d) for d in active().duals]
        return any([t is not None and self.carries(t) for t in tangents])

    def unwrap(self, value: Any) -> tuple[Any, Any]:
        """The value with all examples and the number of the batch dimension (None: the same for all examples)."""
        kind = type(value)
        if kind is BatchedTensor and value._level is self:
            return value._value, value._dim
        if kind in PLAIN:
            return value, None
        if kind in (list, tuple) and any([isinstance(v, Tensor) for v in value]):
            pairs = [self.unwrap(v) for v in value]
            dims = [d for _, d in pairs]
            return [v for v, _ in pairs], dims if any([d is not None for d in dims]) else None
        if isinstance(value, Tensor) and self.carries(value):
            return self.front(value), 0
        return value, None

    def front(self, tensor: Tensor) -> Tensor:
        """The tensor with all examples, the batch in front, also if it is the same for every example."""
        if self.is_batched(tensor):
            value, dim = tensor._value, tensor._dim
            return value if dim == 0 else under(active().without(self), REGISTRY["movedim"].function, value, dim, 0)
        if type(tensor) is BatchedTensor:
            return BatchedTensor(self.front(tensor._value), tensor._dim + 1, tensor._level)
        shape = (self.size, *tensor._array.shape)
        expanded: Tensor = under(None, REGISTRY["broadcast_to"].function, tensor, shape)
        for dual in active().duals:
            tangent = None if tensor._extra is None else tangent_of(tensor, dual)
            if tangent is not None:
                unknown = type(tangent) is UnknownTangent
                set_tangent(expanded, dual, tangent.of(expanded) if unknown else self.front(tangent))
        return expanded

    def wrap(self, value: Any, dim: Any) -> Any:
        if type(value) is Tensor and type(dim) is int and dim >= 0:
            return batch(value, dim, self)
        if isinstance(value, tuple | list):
            dims = dim if isinstance(dim, tuple | list) else [dim] * len(value)
            return tuple([self.wrap(v, d) for v, d in zip(value, dims, strict=True)])
        if dim is None or not isinstance(value, Tensor):
            return value
        dim = dim % value.ndim
        if type(value) is BatchedTensor and value._level.number > self.number:  # the innermost vmap goes outside
            inside = dim + (dim >= value._dim)
            return BatchedTensor(self.wrap(value._value, inside), value._dim - (value._dim > inside), value._level)
        return batch(value, dim, self)

    # ---- operations

    def run(self, function: Any, args: tuple[Any, ...], stack: Transforms) -> Any:
        op = function.op
        if op.batch is None or op.batch is LOOP:
            warn_loop(op.name)
        values, dims = zip(*[self.unwrap(a) for a in args], strict=True)
        out, out_dim = under(stack.without(self), apply_to_batch, op, values, dims)
        return self.wrap(out, out_dim)

    def in_place(
        self,
        name: str,
        function: Callable[..., Any],
        tensor: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        stack: Transforms,
    ) -> Any:
        result = function(REGISTRY["clone"].function(tensor), *args, **kwargs)
        self.check_shared(name, tensor, result)
        if not self.is_batched(tensor):
            return under(stack.without(self), copy_, tensor, result)
        if tuple(result.shape) != tuple(tensor.shape):
            raise RuntimeError(
                f"output with shape {list(tensor.shape)} doesn't match the broadcast shape {list(result.shape)}: "
                f"{name} cannot enlarge the tensor it changes"
            )
        value = self.front(result)
        under(stack.without(self), self.write, tensor, value)
        return tensor

    def check_shared(self, name: str, tensor: Tensor, result: Any) -> None:
        """Refuse to write a batch into what is the same for all examples."""
        if self.is_batched(result) and not self.is_batched(tensor):
            raise VmapError(
                f"vmap: inplace arithmetic({name}) is not possible because there exists a Tensor `other` in extra_args "
                "that has more elements than `self`: `self` is the same for all examples, and the result is not. Use "
                "the out-of-place form, or make `self` from a batched tensor (new_zeros, zeros_like)."
            )

    def write(self, tensor: BatchedTensor, value: Tensor) -> None:
        copy_(tensor._value, value if tensor._dim == 0 else REGISTRY["movedim"].function(value, 0, tensor._dim))

    def look_again(self, tensor: BatchedTensor, view: Tensor) -> BatchedTensor:
        """Let a batch look at its memory as a view of it does."""
        tensor._value, tensor._dim, tensor._array = view._value, view._dim, view._array
        return tensor

    def refuse_out(self, name: str) -> None:
        raise VmapError(f"vmap: {name} with out= is not supported inside of vmap: use the form without out=")

    def apply_function(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stack: Transforms) -> Any:
        return apply_batched_function(self, cls, args, kwargs, stack)

    # ---- functions that look at values

    def whole_or_in_turn(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stack: Transforms) -> Any:
        """All examples at once or, if it reads a value, which then is another for each of them, one after the other."""
        try:
            return function.__wrapped__(*args, **kwargs)
        except VmapError:
            if not self.size:
                raise
        name = function.op.name if hasattr(function, "op") else function.__name__
        warn_loop(name)
        below = stack.without(self)
        calls = [self.pick(args, kwargs, k) for k in range(self.size)]
        rows = [pytree.flatten(under(below, function, *given, **named)) for given, named in calls]
        if not all([isinstance(leaf, Tensor) for leaf in rows[0][0]]):
            refuse(f"{name}, which returns a Python value,")
        columns = zip(*[leaves for leaves, _ in rows], strict=True)
        return rows[0][1].unflatten([self.stacked(list(column), below) for column in columns])

    def stacked(self, rows: list[Tensor], below: Callable[..., Any] | None) -> Tensor:
        return BatchedTensor(under(below, REGISTRY["stack"].function, rows), 0, self)

    # ---- random numbers

    def draw(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stack: Transforms) -> Any:
        """A function that draws: refused, drawn once for all examples, or once for each."""
        if self.randomness == "error":
            refuse_randomness()
        below = stack.without(self)
        if self.randomness == "same":
            given = args, kwargs
            if self.concerns((*args, *kwargs.values())):
                given = self.without_examples(function.op, args, kwargs)
            return under(below, draw_again, function, *self.settled(*given))
        rows = [under(below, draw_again, function, *self.pick(args, kwargs, k)) for k in range(self.size)]
        if rows and isinstance(rows[0], tuple):
            return tuple([self.stacked(list(column), below) for column in zip(*rows, strict=True)])
        return self.stacked(rows, below)

    def without_examples(self, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of a function that takes nothing but a shape from a batch, or a batch that was spread."""
        shaped_like = op.random == "like" or (op.name == "bernoulli" and args[1] is not None)
        others = (*args[1:], *kwargs.values())
        distributions = others if shaped_like else (args[0], *others)
        if not self.size or not all([self.has_equal_examples(value) for value in distributions]):
            raise VmapError(
                "vmap: Vmap does not currently support same randomness with a batched tensor input: the same numbers "
                "for all examples are not possible for a distribution that depends on the example. Use "
                "randomness='different'."
            )
        return self.pick(args, kwargs, 0)

    def has_equal_examples(self, value: Any) -> bool:
        if type(value) in (list, tuple):
            return all([self.has_equal_examples(v) for v in value])
        if not self.is_batched(value):
            return not self.concerns((value,))
        if not self.has_spread:
            return False
        equal = under(active().without(self), REGISTRY["eq"].function, self.front(value), self.example(value, 0))
        while type(equal) is BatchedTensor:
            equal = equal._value
        return bool(equal._array.all())

    def check_fill(self, tensor: Tensor) -> None:
        """Raise if a tensor that is the same for all examples is not to be filled with random numbers."""
        if self.holds(tensor):
            return
        if self.randomness == "error":
            refuse_randomness()
        if self.randomness == "different":
            raise VmapError(
                "vmap: We do not yet support different inplace randomness on an unbatched tensor, which has room for "
                "the numbers of one example. Use the out-of-place form, or make it from a batched tensor (new_zeros)."
            )

    def settled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments without tangents that are batches: what is drawn has none."""
        return tuple(map(self.without_batch, args)), {name: self.without_batch(a) for name, a in kwargs.items()}

    def without_batch(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not self.carries(value):
            return value
        if type(value) is BatchedTensor:
            return BatchedTensor(self.without_batch(value._value), value._dim, value._level)
        return without_history(value)

    def pick(self, args: tuple[Any, ...], kwargs: dict[str, Any], k: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of one example."""
        return tuple([self.example(a, k) for a in args]), {n: self.example(a, k) for n, a in kwargs.items()}

    def example(self, value: Any, k: int) -> Any:
        if type(value) in (list, tuple):
            return type(value)([self.example(v, k) for v in value])
        if not self.is_batched(value):
            return self.without_batch(value)
        return under(active().without(self), REGISTRY["select"].function, value._value, value._dim, k)


if core is not None:
    core.bind(Transforms=Transforms, VmapLevel=VmapLevel)


def warn_loop(name: str) -> None:
    warn_once(
        f"vmap-loop-{name}",
        f"There is a performance drop because {name} has no batching rule: vmap calls it once for each example.",
    )


def draw_again(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A composite, or an operation with all its arguments in order."""
    op = function.op
    return function(*args, **kwargs) if op.kind == "composite" else op.by_position(*args)


def refuse_randomness() -> NoReturn:
    raise VmapError(
        "vmap: We do not yet support calling random operations inside of vmap unless it is told what they shall do "
        "(called random operation while in randomness error mode). Please either use the 'same' or 'different' "
        "randomness flags on vmap, or perform the random operation outside of vmap."
    )

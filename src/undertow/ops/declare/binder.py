"""Binder: the arguments of a call, given by position, by name or by NumPy's names, in the order of the declaration.

An option that is a scalar of NumPy's becomes a Python number here: in NumPy's promotion `np.log(2)`, a float64, would
decide the dtype of a result, and a Python number does not. So does a tensor without dimensions, as in PyTorch, unless
it requires grad: there is no gradient for an option.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.errors import warn_once
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Array

#: NumPy's spelling of two parameters
SPELLINGS = {"axis": "dim", "keepdims": "keepdim"}

#: operations whose factors may also stand among the tensors, in front of those that they are for: PyTorch's old order
FACTORS = {
    **dict.fromkeys(("add", "sub"), ("alpha",)),
    **dict.fromkeys(("addcmul", "addcdiv"), ("value",)),
    **dict.fromkeys(("addmm", "addmv", "addr", "addbmm", "baddbmm"), ("beta", "alpha")),
}


def with_factors_by_name(name: str, args: tuple[Any, ...], most: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `x.add_(-lr, grad)` as those of `x.add_(grad, alpha=-lr)`; others as they are."""
    wanted = len(args) - most
    places = [k for k, a in enumerate(args[:-1]) if is_factor(a) and (k or not isinstance(a, Tensor))][:wanted]
    factors = FACTORS.get(name, ())[: len(places)]
    tensors = tuple([a for k, a in enumerate(args) if k not in places])
    if len(factors) != wanted or not all([isinstance(a, Tensor) for a in tensors]):
        return args, {}
    warn_once(
        f"factors-{name}",
        f"This overload of {name} is deprecated: numbers in front of tensors. Give them by name: "
        f"{name}(..., {', '.join([f'{factor}=...' for factor in factors])}).",
    )
    return tensors, {factor: args[k] for factor, k in zip(factors, places, strict=True)}


def is_factor(value: Array) -> bool:
    """Whether it is a number, or a tensor that may stand for one."""
    if isinstance(value, Tensor):
        return not value._array.ndim and not requires_grad(value)
    return isinstance(value, int | float | complex | cpu.generic)


class Binder:
    """Puts what a function was called with into the order of its arguments, with defaults for what is missing."""

    def __init__(
        self,
        name: str,
        ordered: list[str],
        defaults: dict[str, Any],
        keyword_only: Collection[str],
        options: Collection[str],
        number: str | None,
    ) -> None:
        self.name, self.ordered, self.defaults = name, ordered, defaults
        #: the places of options, and which values become Python numbers there; `number` may be a tensor as well
        self.options = [
            (k, (cpu.generic,) if n == number else (cpu.generic, Tensor))
            for k, n in enumerate(ordered)
            if n in options or n == number
        ]
        self.most = len(ordered) - len(keyword_only)
        required = [k for k, n in enumerate(ordered) if n not in defaults]
        least = required[-1] + 1 if required else 0
        #: the defaults to append to n positional arguments, for each n for which that gives all
        self.tails = {n: tuple([defaults[m] for m in ordered[n:]]) for n in range(least, self.most + 1)}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if not kwargs and len(args) in self.tails:
            return self.with_numbers(args + self.tails[len(args)])
        if len(args) > self.most and not kwargs:
            args, kwargs = with_factors_by_name(self.name, args, self.most)
        if len(args) > self.most:
            raise TypeError(f"{self.name}() takes {self.most} positional arguments but {len(args)} were given")
        found = {**self.defaults, **dict(zip(self.ordered, args, strict=False))}
        for name, value in kwargs.items():
            self.add(found, len(args), name, value)
        for name in self.ordered:
            if name not in found:
                raise TypeError(f"{self.name}() missing 1 required positional argument: {name!r}")
        return self.with_numbers(tuple([found[name] for name in self.ordered]))

    def with_numbers(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with Python numbers in the place of options that are NumPy's scalars, or tensors."""
        scalars = [k for k, kinds in self.options if isinstance(args[k], kinds)]
        if not scalars:
            return args
        return tuple([self.as_number(k, value) if k in scalars else value for k, value in enumerate(args)])

    def as_number(self, k: int, value: Array) -> Any:
        if isinstance(value, Tensor) and (value._array.ndim or requires_grad(value)):
            raise TypeError(
                f"{self.name}(): argument {self.ordered[k]!r} must be Number, not Tensor: an option has no "
                "gradient. Give a number, or a tensor without dimensions that does not require grad."
            )
        return value.item()

    def add(self, found: dict[str, Any], positional: int, name: str, value: Any) -> None:
        """Note an argument that was given by its name, or by NumPy's name for it."""
        own = name if name in self.ordered else SPELLINGS.get(name, name)
        if own not in self.ordered:
            raise TypeError(f"{self.name}() got an unexpected keyword argument {name!r}")
        if own == name and self.ordered.index(own) < positional:
            raise TypeError(f"{self.name}() got multiple values for argument {name!r}")
        if own == name or value is not None:
            found[own] = value

"""gradcheck's forward-mode side: tangents against central differences, zero tangents, batches of tangents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.autograd import forward_ad
from undertow.autograd.gradcheck.reverse import Comparison, Settings, as_tuple, requires_grad
from undertow.autograd.tensor_attributes import detached
from undertow.autograd.vmap import vmap
from undertow.backend import dtypes
from undertow.errors import GradcheckError
from undertow.ops import REGISTRY
from undertow.ops.inplace.methods import copy_
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array


class ForwardComparison:
    """Tangents of one function, computed by forward mode and by differences, along the same directions."""

    def __init__(self, func: Callable[..., Any], inputs: tuple[Any, ...], settings: Settings) -> None:
        self.func, self.inputs, self.settings = func, inputs, settings
        self.places = [k for k, x in enumerate(inputs) if requires_grad(x)]
        self.numerical = Comparison(func, inputs, settings)
        self.xp: Any = inputs[self.places[0]]._xp

    def run(self) -> None:
        """Raise GradcheckError if a tangent is not what it should be."""
        rng = self.xp.module.random.default_rng(0)
        # the differences first: a function may behave differently inside of a dual level
        pushes = {k: [(d, self.slopes(self.inputs[k], d)) for d in self.directions(self.inputs[k], rng)]
                  for k in self.places}  # fmt: skip
        with forward_ad.dual_level():
            duals = {k: forward_ad.make_dual(detached(self.inputs[k]), zeros_like(self.inputs[k])) for k in self.places}
            tangents: dict[int, Any] = {k: forward_ad.unpack_dual(dual).tangent for k, dual in duals.items()}
            for number, k in enumerate(self.places):
                for direction, slopes in pushes[k]:
                    copy_(tangents[k], direction)
                    self.compare(number, self.tangents_of(duals), slopes)
                copy_(tangents[k], 0)

    def directions(self, tensor: Tensor, rng: Array) -> list[Any]:
        """One random direction, or (slow mode) every element in turn; for complex tensors both parts."""
        array, xp = tensor._array, self.xp
        complex_ = array.dtype.kind == "c"
        if self.settings.fast_mode:
            vector = rng.random(array.shape) + (1j * rng.random(array.shape) if complex_ else 0)
            rows = [vector / (xp.linalg.norm(vector) or 1)]
        else:
            rows = [row.reshape(array.shape) for row in xp.eye(array.size)]
            rows += [1j * row for row in rows] if complex_ else []
        return [Tensor(xp.asarray(row, dtype=array.dtype), xp) for row in rows]

    def tangents_of(self, duals: dict[int, Tensor]) -> list[Any]:
        """The tangents of the outputs of floating point; None where an output has none."""
        args = [duals.get(k, x) for k, x in enumerate(self.inputs)]
        return [forward_ad.unpack_dual(o).tangent for o in as_tuple(self.func(*args)) if is_float(o)]

    def slopes(self, tensor: Tensor, direction: Tensor) -> list[Any]:
        """The differences of the outputs of floating point."""
        found = self.numerical.difference(tensor, self.settings.eps * direction._array, "")
        return [f for f in found if f is not None]

    def compare(self, number: int, found: Sequence[Any], wanted: Sequence[Any]) -> None:
        for nr, (tangent, slope) in enumerate(zip(found, wanted, strict=True)):
            array = self.xp.zeros_like(slope) if tangent is None else tangent._array.reshape(-1)
            if not self.xp.allclose(array, slope, self.settings.rtol, self.settings.atol):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {nr} with respect to input {number},\n"
                    f"numerical:{slope}\nanalytical:{array}\n"
                )


def is_float(value: Array) -> bool:
    return isinstance(value, Tensor) and dtypes.is_differentiable(value._array.dtype)


def zeros_like(tensor: Tensor) -> Tensor:
    return Tensor(tensor._xp.zeros_like(tensor._array), tensor._xp)


def random_like(tensor: Tensor, rng: Array) -> Tensor:
    array = tensor._array
    values = rng.random(array.shape) + (1j * rng.random(array.shape) if array.dtype.kind == "c" else 0)
    return Tensor(tensor._xp.asarray(values, dtype=array.dtype), tensor._xp)


# ---- a zero tangent, and none


def check_undefined_tangents(func: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """A tangent of zeros for one input must give what no tangent for it gives."""
    places = [k for k, x in enumerate(inputs) if requires_grad(x)]
    rng: Any = inputs[places[0]]._xp.module.random.default_rng(0)
    with forward_ad.dual_level():
        args = list(inputs)
        for k in places:
            args[k] = forward_ad.make_dual(detached(inputs[k]), random_like(inputs[k], rng))
        for k in places:
            zero = forward_ad.make_dual(detached(inputs[k]), zeros_like(inputs[k]))
            with_zeros = as_tuple(func(*args[:k], zero, *args[k + 1 :]))
            without = as_tuple(func(*args[:k], detached(inputs[k]), *args[k + 1 :]))
            for nr, pair in enumerate(zip(with_zeros, without, strict=True)):
                _compare_undefined(nr, *pair)


def _compare_undefined(nr: int, one: Tensor, other: Array) -> None:
    if not is_float(one):
        return
    tangents = [forward_ad.unpack_dual(o).tangent for o in (one, other)]
    arrays = [
        o._xp.zeros_like(o._array) if t is None else t._array for o, t in zip((one, other), tangents, strict=True)
    ]
    if not one._xp.allclose(*arrays):
        raise GradcheckError(
            f"Mismatch in tangent values for output with index: {nr}: a tangent of zeros for an input gives another "
            "tangent than no tangent for it."
        )


# ---- batches of tangents

BATCHED_FAILED = """gradcheck failed while testing batched forward gradient computation: vmap over forward mode must
give what one call for each tangent gives. If the function cannot do that, pass check_batched_forward_grad=False."""


def check_batched_tangents(func: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    for k in [k for k, x in enumerate(inputs) if requires_grad(x)]:
        _check_batch(func, inputs, k)


def _check_batch(func: Callable[..., Any], inputs: tuple[Any, ...], place: int) -> None:
    primal = detached(inputs[place])
    rng: Any = primal._xp.module.random.default_rng(0)
    # no other input shall require a gradient while forward mode is checked
    args = [detached(x) if isinstance(x, Tensor) else x for x in inputs]

    def push(tangent: Tensor) -> tuple[Tensor, ...]:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(primal, tangent)
            outputs = [o for o in as_tuple(func(*args[:place], dual, *args[place + 1 :])) if is_float(o)]
            return tuple(
                [t if t is not None else REGISTRY["zeros_like"].function(p)
                 for p, t in map(forward_ad.unpack_dual, outputs)]
            )  # fmt: skip

    tangents = [random_like(primal, rng) for _ in range(2)]
    rows = [push(t) for t in tangents]
    try:
        found = vmap(push)(REGISTRY["stack"].function(tangents))
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{BATCHED_FAILED}") from error
    for nr, batch in enumerate(found):
        expected = primal._xp.stack([row[nr]._array for row in rows])
        if not primal._xp.allclose(batch._array, expected):
            raise GradcheckError(
                f"For output {nr} and input {place}:\n\n{BATCHED_FAILED}\n\nGot:\n{batch._array}\n\n"
                f"Expected:\n{expected}"
            )

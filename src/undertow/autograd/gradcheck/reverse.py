"""Gradients in two ways, by backward passes and by central differences: the comparison inside gradcheck.

The numerical side perturbs the inputs' memory in place and calls the function again, so that a function which
reaches an input through a closure is followed too. Jacobians are matrices with a row for each element of the
input and a column for each element of the output. With respect to a complex input z = x + iy, the gradient of
a real s is ds/dx + i ds/dy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from undertow.autograd.backward import grad
from undertow.autograd.gradcheck.perturbation import complete, dense, memory_of, places_in, spread
from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.errors import GradcheckError
from undertow.long_loops import long_loop
from undertow.ops.random.generator import Generator
from undertow.tensor import Tensor, current_edge


class Settings(NamedTuple):
    """What of gradcheck's arguments the comparison needs."""

    eps: float
    atol: float = 0.0
    rtol: float = 0.0
    nondet_tol: float = 0.0
    check_grad_dtypes: bool = False
    fast_mode: bool = False
    masked: bool = False


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def requires_grad(value: Array) -> bool:
    return isinstance(value, Tensor) and current_edge(value) is not None


def differentiable(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(v for v in values if requires_grad(v))


class Comparison:
    """The gradients of one function with real outputs, computed in both ways.

    part, complex_outputs   which part of which complex outputs the function was made from, for messages
    """

    def __init__(
        self,
        func: Callable[..., Any],
        inputs: tuple[Any, ...],
        settings: Settings,
        part: str = "",
        complex_outputs: Sequence[int] = (),
    ) -> None:
        self.func, self.inputs, self.settings = func, inputs, settings
        self.part, self.complex_outputs = part, complex_outputs
        self.targets = differentiable(inputs)
        self.moved_inputs = inputs if settings.masked else tuple([complete(x) for x in inputs])
        self.moved = differentiable(self.moved_inputs)  # what is perturbed for each target: itself, if it is dense
        results = as_tuple(func(*inputs))
        self.outputs = differentiable(results)
        self.unperturbed = [dense(r._array) for r in results]
        self.places = [k for k, r in enumerate(results) if requires_grad(r)]
        self.xp: Any = self.targets[0]._xp

    def run(self) -> None:
        """Raise GradcheckError if the two differ."""
        if not self.outputs:
            self.expect_zeros()
        elif self.settings.fast_mode:
            self.run_fast()
        else:
            self.run_slow()

    def run_slow(self) -> None:
        numerical = [self.numerical_jacobians(x) for x in self.moved]
        for o, output in enumerate(self.outputs):
            for i, found in enumerate(self.analytical(output, basis(output))):
                wanted = numerical[i][self.places[o]]
                if not self.close(found, wanted, self.settings.atol):
                    raise GradcheckError(self.mismatch(o, i, wanted, found))

    def run_fast(self) -> None:
        """Compare v^T J u for random u and v."""
        chance = Generator()  # of its own, so that the user's random state is not touched
        directions = [_directions(x, chance) for x in self.moved]
        weights = [_unit_vector(o, chance) for o in self.outputs]
        numerical = [self.numerical_products(x, u) for x, u in zip(self.moved, directions, strict=True)]
        for o, (output, v) in enumerate(zip(self.outputs, weights, strict=True)):
            seed = output._xp.asarray(v.reshape(output._array.shape), dtype=output._array.dtype)
            for i, gradient in enumerate(self.analytical(output, [seed])):
                found, scale = _product(gradient.reshape(-1), *directions[i])
                wanted = numerical[i][self.places[o]] @ v
                if not self.close(found, wanted, self.settings.atol * scale * float(v.sum())):
                    raise GradcheckError(self.mismatch(o, i, wanted, found) + self.slow_report(o, i))

    def close(self, found: Array, wanted: Array, atol: float) -> bool:
        found, wanted = cpu.take_over(found), cpu.take_over(wanted)  # an output may be on another device than the input
        return bool(cpu.allclose(found, wanted, self.settings.rtol, atol))

    # ---- numerical

    def values(self) -> list[Any]:
        return [dense(o._array).copy() for o in as_tuple(self.func(*self.moved_inputs))]

    def difference(self, tensor: Tensor, delta: Array, where: str) -> list[Any]:
        """The flat change of every output when the tensor's memory moves by delta, over 2 eps.

        None for an output that is not of floating point.
        """
        array = memory_of(tensor)
        before = array.copy()
        try:
            array[...] = before - delta
            low = self.values()
            array[...] = before + delta
            high = self.values()
        finally:
            array[...] = before
        for value, a, b in zip(self.unperturbed, low, high, strict=True):
            _check_same_metadata(value, a, self.settings.eps, where)
            _check_same_metadata(value, b, self.settings.eps, where)
        width = 2 * self.settings.eps
        return [
            ((b - a) / width).reshape(-1) if dtypes.is_differentiable(a.dtype) else None
            for a, b in zip(low, high, strict=True)
        ]

    def slope(self, tensor: Tensor, real: Array, imaginary: Array, where: str = "") -> list[Any]:
        """The derivative of every output along a direction: ds/dx, for a complex input ds/dx + i ds/dy."""
        along_x = self.difference(tensor, self.settings.eps * real, where)
        if tensor._array.dtype.kind != "c":
            return along_x
        along_y = self.difference(tensor, 1j * self.settings.eps * imaginary, where)
        return [None if x is None else x + 1j * y for x, y in zip(along_x, along_y, strict=True)]

    def numerical_jacobians(self, tensor: Tensor) -> list[Any]:
        """One for each output (None for those that are not of floating point)."""
        array, xp = memory_of(tensor), tensor._xp
        rows = []
        for index in long_loop(xp.ndindex(array.shape), array.size, "gradcheck"):
            unit = xp.zeros(array.shape)
            unit[index] = 1
            rows.append(self.slope(tensor, unit, unit, f"on index {index} "))
        if not rows:
            return [xp.zeros((tensor._array.size, v.size)) for v in self.values()]
        found = [None if column[0] is None else xp.stack(column) for column in zip(*rows, strict=True)]
        places = places_in(tensor)
        return [spread(jacobian, places, tensor._array.size) for jacobian in found]

    def numerical_products(self, tensor: Tensor, direction: tuple[Any, Any]) -> list[Any]:
        places = places_in(tensor)
        moves = [u if places is None else u[places] for u in direction]
        real, imaginary = (u.reshape(memory_of(tensor).shape) for u in moves)
        return self.slope(tensor, real, imaginary)

    def expect_zeros(self) -> None:
        chance = Generator()
        fast, limit = self.settings.fast_mode, self.settings.nondet_tol if self.settings.fast_mode else 0
        for x in self.moved:
            found = self.numerical_products(x, _directions(x, chance)) if fast else self.numerical_jacobians(x)
            if any(f is not None and f.size and abs(f).max() > limit for f in found):
                raise GradcheckError(
                    "Numerical gradient for function expected to be zero: no output of the function requires "
                    "grad, yet its values change with the inputs."
                )

    # ---- analytical

    def analytical(self, output: Tensor, seeds: Sequence[Any]) -> list[Any]:
        """For each target, its gradients for the given seeds as the columns of a matrix; checked."""
        first, again = self.gradients(output, seeds), self.gradients(output, seeds)
        if not self.reentrant(first, again):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple "
                "times gives different values, although analytical gradient matches numerical gradient. The "
                f"tolerance for nondeterminism was {self.settings.nondet_tol}. If the function is random by "
                "nature, pass a larger nondet_tol."
            )
        return first

    def reentrant(self, first: list[Any], again: list[Any]) -> bool:
        tolerance = self.settings.nondet_tol
        return not any(a.size and abs(a - b).max() > tolerance for a, b in zip(first, again, strict=True))

    def gradients(self, output: Tensor, seeds: Sequence[Any]) -> list[Any]:
        columns = [self.gradient(output, seed) for seed in long_loop(seeds, len(seeds), "gradcheck")]
        if not columns:
            return [self.xp.zeros((x._array.size, 0), x._array.dtype) for x in self.targets]
        return [self.xp.stack(rows, axis=1) for rows in zip(*columns, strict=True)]

    def gradient(self, output: Tensor, seed: Array) -> list[Any]:
        found = grad(output, self.targets, Tensor(seed, output._xp), retain_graph=True, allow_unused=True)
        flat = []
        for target, gradient in zip(self.targets, found, strict=True):
            array = dense(self.xp.zeros_like(target._array) if gradient is None else gradient._array)
            if array.shape != target._array.shape:
                raise GradcheckError("Analytical gradient has incorrect size")
            if array.dtype != target._array.dtype and self.settings.check_grad_dtypes:
                raise GradcheckError("Gradient has dtype mismatch")
            flat.append(array.reshape(-1))
        return flat

    # ---- messages

    def mismatch(self, output: int, target: int, numerical: Array, analytical: Array) -> str:
        of_part = self.part and output in self.complex_outputs
        prefix = f"While considering the {self.part} part of complex outputs only, " if of_part else ""
        return (
            f"{prefix}Jacobian mismatch for output {output} with respect to input {target},\n"
            f"numerical:{numerical}\nanalytical:{analytical}\n"
        )

    def slow_report(self, output: int, target: int) -> str:
        """The Jacobians that lie behind a mismatch of the fast mode."""
        numerical = self.numerical_jacobians(self.moved[target])[self.places[output]]
        analytical = self.gradients(self.outputs[output], basis(self.outputs[output]))[target]
        report = (
            "\nThe above quantities are products of the Jacobians with random vectors, as fast mode compares "
            f"them. The Jacobians themselves:\n\nNumerical:\n{numerical}\nAnalytical:\n{analytical}\n\n"
            f"The max per-element difference (slow mode) is: {abs(numerical - analytical).max()}.\n"
        )
        if self.close(analytical, numerical, self.settings.atol):
            report += "Fast gradcheck failed but element-wise differences are small: try fast_mode=False.\n"
        return report


def basis(output: Tensor) -> list[Any]:
    """One array for each element of the output: one there, zero elsewhere."""
    array, xp = output._array, output._xp
    return [xp.asarray(row.reshape(array.shape), dtype=array.dtype) for row in xp.eye(array.size)]


def _unit_vector(tensor: Tensor, chance: Generator) -> Array:
    """A random vector of length one, without negative entries, as long as the tensor has elements: PyTorch's."""
    vector = chance.draw("fractions", tensor._array.size, dtypes.default_dtype()).astype(dtypes.float64)
    places = places_in(tensor)
    if places is not None:
        vector = spread(vector[places], places, len(vector))
    return vector / (float((vector * vector).sum()) ** 0.5 or 1)


def _directions(tensor: Tensor, chance: Generator) -> tuple[Any, Any]:
    """Where to move the real and the imaginary part."""
    real = _unit_vector(tensor, chance)
    return real, _unit_vector(tensor, chance) if tensor._array.dtype.kind == "c" else real


def _product(gradient: Array, real: Array, imaginary: Array) -> tuple[Any, float]:
    """The gradient along a direction, and by how much errors in its elements add up in that."""
    if gradient.dtype.kind != "c":
        return gradient @ real, float(real.sum())
    return gradient.real @ real + 1j * (gradient.imag @ imaginary), float(real.sum() + imaginary.sum())


def _check_same_metadata(a: Array, b: Array, eps: float, where: str) -> None:
    for fact in ("shape", "dtype"):
        if getattr(a, fact) != getattr(b, fact):
            raise AssertionError(
                f"Expected `func` to return outputs with the same {fact} when inputs are perturbed {where}by "
                f"{eps}, but got: {fact}s {getattr(a, fact)} and {getattr(b, fact)}."
            )

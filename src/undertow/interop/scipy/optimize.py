"""For SciPy's optimizers: a function of tensors as functions of flat NumPy vectors, with all their derivatives.

SciPy itself is not imported: its functions take any callable. See docs/numpy.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.autograd.backward import grad
from undertow.autograd.functional.jacobians import jacobian
from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.long_loops import long_loop
from undertow.modes import enable_grad
from undertow.ops import REGISTRY
from undertow.pytree import flatten
from undertow.tensor import Tensor
from undertow.tensor.tensor import requires_grad


def value_and_jac(f: Callable[..., Any], example: Any = None, *, allow_nan: bool = False) -> FlatFunction:
    """`f` for SciPy's optimizers: called with a flat vector, it gives the value and the gradient (or the Jacobian).

    example    the parameters that `f` takes: a tensor, an array, a number, or any tuples, lists and dicts of them,
               whose shapes and dtypes the parts of the flat vector get; without one, `f` takes the vector itself
    allow_nan  hand NaN on to the optimizer instead of raising FloatingPointError

    >>> import numpy as np
    >>> from undertow.interop import value_and_jac
    >>> function = value_and_jac(lambda x: (x**2).sum())
    >>> function(np.array([1.0, 2.0]))
    (5.0, array([2., 4.]))
    >>> function.hessp(np.array([1.0, 2.0]), np.array([1.0, 0.0]))
    array([2., 0.])
    """
    return FlatFunction(f, example, allow_nan)


class FlatFunction:
    """A function of tensors as one of a flat float64 vector.

    x0            the parameters of the example, as a flat vector
    fun(x)        the value: a float, or a vector
    jac(x)        the gradient of a number, the Jacobian of a vector
    hessp(x, v)   the Hessian of a number, times a vector
    hess(x)       the Hessian of a number; hess(x, v) that of the sum of a vector's elements times v
    unflatten(x)  the parameters in the form of the example, as arrays
    function(x)   fun(x) and jac(x) together, for `jac=True`
    allow_nan     whether results may have NaN

    Further arguments, as from the optimizer's `args=`, go to `f` behind the parameters.

    >>> import undertow as ut
    >>> f = ut.interop.value_and_jac(lambda x: (x * x).sum())
    >>> f.jac([1.0, 2.0])
    array([2., 4.])
    """

    def __init__(self, f: Callable[..., Any], example: Any, allow_nan: bool) -> None:
        self.f = f
        self.allow_nan = allow_nan
        self.leaves: Any = None
        self.spec: Any = None
        if example is not None:
            leaves, self.spec = flatten(example)
            self.leaves = [as_parameter(leaf) for leaf in leaves]
            self.x0 = np.concatenate([leaf.ravel() for leaf in self.leaves] or [np.zeros(0)]).astype(np.float64)

    # ---- what optimizers call

    def __call__(self, x: Array, *args: Any) -> tuple[Any, Any]:
        point, value = self.evaluate(x, args)
        return self.plain(value), self.derivative(point, value, args)

    def fun(self, x: Any, *args: Any) -> Any:
        return self.plain(self.evaluate(x, args)[1])

    def jac(self, x: Any, *args: Any) -> Array:
        point, value = self.evaluate(x, args)
        return self.derivative(point, value, args)

    def hessp(self, x: Array, v: Array, *args: Any) -> Array:
        point, value = self.evaluate(x, args)
        slope = self.recorded_gradient(point, scalar(value))
        return self.checked("the Hessian-vector product", product(slope, point, vector(v, point._array.size, "v")))

    def hess(self, x: Array, *args: Any) -> Array:
        weights = None
        if args and self.evaluate(x, args[1:])[1]._array.ndim:
            weights, args = args[0], args[1:]
        point, value = self.evaluate(x, args)
        if weights is not None:
            value = (value * Tensor(vector(weights, value._array.size, "v"), cpu)).sum()
        slope = self.recorded_gradient(point, scalar(value))
        size = point._array.size
        rows = [product(slope, point, unit) for unit in long_loop(np.eye(size), size, "hessian")]
        return self.checked("the Hessian", np.array(rows).reshape(size, size))

    # ---- parameters

    def unflatten(self, x: Any) -> dict[str, Any]:
        """The parameters in the form of the example.

        x  a flat vector
        """
        x = vector(x, self.x0.size, "x") if self.leaves is not None else vector(x, None, "x")
        return x if self.leaves is None else self.spec.unflatten(self.parts(x, lambda part, leaf: part))

    def parts(self, x: Array, make: Callable[[Any, Any], Any]) -> list[Any]:
        """The pieces of the flat vector, each in the shape and dtype of its leaf.

        x     a flat vector
        make  what is made of each piece
        """
        ends = np.cumsum([leaf.size for leaf in self.leaves])
        pieces = [x[end - leaf.size : end] for end, leaf in zip(ends.tolist(), self.leaves, strict=True)]
        return [make(cast(p, leaf), leaf) for p, leaf in zip(pieces, self.leaves, strict=True)]

    def parameters(self, point: Array) -> Any:
        if self.leaves is None:
            return point
        return self.spec.unflatten(self.parts(point, lambda part, leaf: part))

    # ---- values and derivatives

    def evaluate(self, x: Array, args: Any) -> tuple[Any, Any]:
        """The flat vector as a leaf, and the recorded value of the function there.

        x     a flat vector
        args  further arguments of the function
        """
        x = vector(x, None if self.leaves is None else self.x0.size, "x")
        point = REGISTRY["tensor"].function(x, requires_grad=True)
        value = self.value_at(point, args)
        self.check("the value", value._array)
        return point, value

    def value_at(self, point: Array, args: Any) -> Array:
        value = self.raw_value(point, args)
        if not isinstance(value, Tensor):
            raise TypeError(
                f"the function returned {type(value).__name__}, not a tensor: its derivatives are unknown. Compute the "
                "value with operations on the parameters it is given."
            )
        if value._array.ndim > 1 or value._array.dtype.kind != "f":
            raise ValueError(
                f"the function returned a tensor of shape {tuple(value._array.shape)} and dtype {value._array.dtype}: "
                "an optimizer wants a real number, or a vector of them"
            )
        if not requires_grad(value):
            raise RuntimeError(
                "the value does not require grad and does not have a grad_fn: it does not depend on the parameters, or "
                "the dependence was lost (detach(), numpy(), no_grad())"
            )
        return value

    def raw_value(self, point: Array, args: Any) -> Array:
        with enable_grad():
            return self.f(self.parameters(point), *args)

    def derivative(self, point: Array, value: Array, args: Any) -> Array:
        if value._array.ndim == 0:
            found = grad(value, point, allow_unused=True, materialize_grads=True)[0]._array
            return self.checked("the gradient", found)
        rows, columns = value._array.size, point._array.size
        if rows <= columns:
            found = grad(value, point, np_eye(rows, value), is_grads_batched=True, materialize_grads=True)[0]._array
        else:
            call = lambda at: self.raw_value(at, args)
            found = jacobian(call, point.detach(), vectorize=True, strategy="forward-mode")._array
        return self.checked("the Jacobian", found)

    def recorded_gradient(self, point: Array, value: Array) -> Array:
        return grad(value, point, create_graph=True, materialize_grads=True)[0]

    def plain(self, value: Array) -> Any:
        array = value._array
        return float(array) if array.ndim == 0 else array.astype(np.float64)

    def checked(self, what: str, array: Array) -> Array:
        """An array of the caller's own: optimizers may write into it, and read it as contiguous memory.

        what  what it is, for the error if it has a NaN
        """
        self.check(what, array)
        return np.array(array, dtype=np.float64, order="C")

    def check(self, what: str, array: Array) -> None:
        if not self.allow_nan and np.isnan(array).any():
            raise FloatingPointError(
                f"{what} is NaN at this point. Keep the optimizer away from it (bounds, a smaller first step), make "
                "the function defined there, or pass allow_nan=True."
            )


# ---- small things


def as_parameter(leaf: Array) -> Array:
    """A leaf of the example as an array."""
    array = np.asarray(leaf.detach() if isinstance(leaf, Tensor) else leaf)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"a parameter has dtype {array.dtype}, but optimizers work on real numbers: give the real and the "
            "imaginary part as parameters of their own"
        )
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def cast(part: Array, leaf: Array) -> Array:
    part = part.reshape(leaf.shape)
    if part.dtype == leaf.dtype:
        return part
    return part.to(leaf.dtype) if isinstance(part, Tensor) else part.astype(leaf.dtype)


def vector(x: Any, size: int | None, name: str) -> Array:
    array = np.asarray(x, dtype=np.float64)
    if array.ndim != 1 or (size is not None and array.size != size):
        wanted = "a flat vector" if size is None else f"a flat vector of {size} elements"
        raise ValueError(f"{name} has shape {array.shape}, but must be {wanted}")
    return array


def scalar(value: Array) -> Array:
    if value._array.ndim:
        raise ValueError(
            f"the function returns {value._array.size} numbers: give hess(x, v) their weights v, or sum them up first"
        )
    return value


def product(slope: Array, point: Array, v: Array) -> Array:
    """The derivative of the recorded gradient along v; zero where the gradient is constant."""
    if not requires_grad(slope):
        return np.zeros_like(v)
    return grad(slope, point, Tensor(v, cpu), retain_graph=True, materialize_grads=True)[0]._array


def np_eye(n: int, like: Array) -> Array:
    return Tensor(np.eye(n, dtype=like._array.dtype), cpu)

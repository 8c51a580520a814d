"""Making tensors in the likeness of others: `zeros_like(t)` with its shape, `t.new_zeros(2, 3)` with another one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, namespace_of
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.large_arrays import fill as fill_array
from undertow.modes import current
from undertow.ops.create.creation import (
    as_number,
    empty,
    empty_strided,
    fit,
    full,
    leaf,
    new_from,
    ones,
    zeros,
)
from undertow.ops.declare import adapter, composite, nondifferentiable
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.ops.pointwise.arithmetic import add
from undertow.ops.views.clone import clone
from undertow.tensor import Size, Tensor, share_memory
from undertow.tensor.memory_formats import as_memory_format, has_strides_of, made_in_order
from undertow.tensor.tensor import requires_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Device


def _filled(xp: Namespace, input: Array, fill_value: Any, dtype: DType, order: str) -> Array:
    out = made_in_order(input, order, lambda source, order: xp.empty_like(source, dtype=dtype, order=order))
    fill_array(out, fill_value)
    return out


# an operation, so that it sees what vmap and forward mode make of its input; the values of the input play no part
_full_like = nondifferentiable("_full_like", forward=_filled, inputs=("input",), batch=ELEMENTWISE, order="as_computed")


# ---- the same shape


def like(name: str, default_fill: Any = None) -> Any:
    """`zeros_like`, `ones_like` or `empty_like`."""

    def function(
        input: Tensor,
        *,
        dtype: DType | None = None,
        layout: Any = None,
        device: Device | str | int | None = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        return _fill_like(name, input, default_fill, dtype, device, requires_grad, memory_format)

    function.__name__ = function.__qualname__ = name
    shape = ".shape" if name == "empty_like" else ""  # what is in its memory may be anything
    function.__doc__ = (
        f"`{name.removesuffix('_like')}` with the shape, dtype and device of `input`.\n\n"
        f"Example: `ut.{name}(ut.tensor([1, 2])){shape}`"
    )
    return composite(function)


def _fill_like(
    name: str,
    input: Array,
    fill: Any,
    dtype: DType | None,
    device: Device | str | int | None,
    requires_grad: bool,
    memory_format: Any,
) -> Tensor:
    if device is memory_format is None and type(input) is Tensor and not current().unusual:
        array = input._array
        # the usual case, in half the time; where a size is 1 an array may be in rows and in another order, too
        if type(array) is cpu.ndarray and array.flags.c_contiguous and 1 not in array.shape:
            dtype = array.dtype if dtype is None else dtypes.as_dtype(dtype, name)
            out = (
                cpu.full(array.shape, fit(fill, dtype), dtype)
                if name != "empty_like"
                else cpu.empty(array.shape, dtype)
            )
            return leaf(out, cpu, requires_grad)
    if isinstance(input, Tensor) and device is not None and namespace_of(device) is not input._xp:
        input = _blank(input, namespace_of(device))
    make = lambda dtype, order: _full_like(input, fit(fill, dtype), dtype, order)
    return made_like(name, input, make, dtype, device, requires_grad, memory_format)


def _blank(input: Tensor, xp: Namespace) -> Tensor:
    """A tensor without history, shaped and laid out as `input`, on another device; its values are not copied."""
    array = input._array
    order = sorted(range(array.ndim), key=lambda dim: (-abs(array.strides[dim]), dim))
    made = xp.empty([array.shape[dim] for dim in order], array.dtype)
    return Tensor(made.transpose([order.index(dim) for dim in range(array.ndim)]), xp)


def made_like(
    name: str,
    input: Array,
    make: Callable[..., Any],
    dtype: DType | None,
    device: Device | str | int | None,
    requires_grad: bool,
    memory_format: Any,
) -> Tensor:
    """`make(dtype, order)`, with the dtype of `input` unless another is given."""
    if isinstance(input, cpu.ndarray):
        input = Tensor(input, cpu)
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if device is not None and namespace_of(device) is not input._xp:
        raise RuntimeError(f"{name}(): the input is on {input._xp.device}; move it to {device} first")
    dtype = input._array.dtype if dtype is None else dtypes.as_dtype(dtype, name)
    format = as_memory_format(memory_format)
    made: Tensor = make(dtype, format.order)
    if format.dims is not None and not has_strides_of(made._array, format):
        made = clone(made, memory_format=format)
    return leaf(made._array, made._xp, True) if requires_grad else made


zeros_like = like("zeros_like", 0)
ones_like = like("ones_like", 1)
empty_like = like("empty_like", 0)


@composite
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`full` with the shape, dtype and device of `input`.

    >>> import undertow as ut
    >>> ut.full_like(ut.tensor([[1.0, 2.0], [3.0, 4.0]]), 7.0)
    tensor([[7., 7.],
            [7., 7.]])
    """
    number = as_number("full_like", "fill_value", fill_value)
    return _fill_like("full_like", input, number, dtype, device, requires_grad, memory_format)


adapter("zeros_like")(zeros_like)
adapter("ones_like")(ones_like)
adapter("full_like")(full_like)


# ---- another shape


@composite(variants="method")
def new_tensor(
    input: Tensor, data: Any, *, dtype: DType = None, device: Any = None, requires_grad: bool = False, **ignored: Any
) -> Tensor:
    """`tensor(data)` with the dtype and device of `input`.

    **ignored  accepted, without effect

    >>> import undertow as ut
    >>> ut.ones(1).new_tensor([1, 2])
    tensor([1., 2.])
    """
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than tensor.new_tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
    dtype = input._array.dtype if dtype is None else dtypes.as_dtype(dtype, "new_tensor")
    return new_from(data, dtype, input._xp.device if device is None else device, requires_grad)


def _options_of(input: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a `new_*` call, with the dtype and device of `input` where none is given."""
    given = {name: value for name, value in options.items() if value is not None}
    return {"dtype": input._array.dtype, "device": input._xp.device, **given}


def _in_each_example(input: Tensor, made: Tensor) -> Tensor:
    """A new tensor; under vmap one for each example, if `input` is a batch, so that it can be changed in place."""
    if not isinstance(getattr(input, "_dim", None), int) or requires_grad(made):
        return made
    nothing = recorded.sum(zeros_like(input))
    return add(made, recorded.astype(nothing, made._array.dtype))


@composite(variants="method")
def new_empty(input: Tensor, *shape: Any, **options: Any) -> Tensor:
    """`empty` with the dtype and device of `input`.

    *shape     the sizes, one by one or as one list
    **options  `dtype`, `device` and the like, where they differ

    >>> import undertow as ut
    >>> ut.ones(1).new_empty((2, 3)).shape
    undertow.Size([2, 3])
    """
    return _in_each_example(input, empty(*shape, **_options_of(input, options)))


@composite(variants="method")
def new_zeros(input: Tensor, *shape: Any, **options: Any) -> Tensor:
    """`zeros` with the dtype and device of `input`.

    *shape     the sizes, one by one or as one list
    **options  `dtype`, `device` and the like, where they differ

    >>> import undertow as ut
    >>> ut.ones(1, dtype=ut.float64).new_zeros(2)
    tensor([0., 0.], dtype=undertow.float64)
    """
    return _in_each_example(input, zeros(*shape, **_options_of(input, options)))


@composite(variants="method")
def new_ones(input: Tensor, *shape: Any, **options: Any) -> Tensor:
    """`ones` with the dtype and device of `input`.

    *shape     the sizes, one by one or as one list
    **options  `dtype`, `device` and the like, where they differ

    >>> import undertow as ut
    >>> ut.ones(1, dtype=ut.float64).new_ones(2)
    tensor([1., 1.], dtype=undertow.float64)
    """
    return _in_each_example(input, ones(*shape, **_options_of(input, options)))


@composite(variants="method")
def new_full(input: Tensor, size: int | Sequence[int], fill_value: Any, **options: Any) -> Tensor:
    """`full` with the dtype and device of `input`.

    size       the shape
    **options  `dtype`, `device` and the like, where they differ

    >>> import undertow as ut
    >>> ut.ones(1).new_full((2,), 7.0)
    tensor([7., 7.])
    """
    return _in_each_example(input, full(size, fill_value, **_options_of(input, options)))


@composite(variants="method")
def new_empty_strided(input: Tensor, size: int | Sequence[int], stride: int | Sequence[int], **options: Any) -> Tensor:
    """`empty_strided` with the dtype and device of `input`.

    size, stride  one number for each dimension
    **options     `dtype`, `device` and the like, where they differ

    >>> import undertow as ut
    >>> ut.ones(1).new_empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    return empty_strided(size, stride, **_options_of(input, options))


def new(input: Tensor, *args: Any) -> Tensor:
    """The legacy constructor: sizes give an uninitialised tensor, a sequence its data, nothing an empty tensor.

    *args  sizes, one sequence, or nothing

    >>> import undertow as ut
    >>> ut.ones(2).new([3.0])
    tensor([3.])
    """
    if len(args) == 1 and isinstance(args[0], (list, tuple)) and not isinstance(args[0], Size):
        return new_tensor(input, args[0])
    if len(args) == 1 and isinstance(args[0], Tensor):
        alias = leaf(args[0]._array, args[0]._xp, False)
        share_memory(args[0], alias)
        return alias
    return new_empty(input, *(args or (0,)))


#: attribute -> function; `methods.py` puts them on Tensor
METHODS = {"new": new}

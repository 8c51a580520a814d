"""Turning what a user passed into the arrays an operation computes with."""

from __future__ import annotations

from typing import Any

from undertow.backend import ArrayNamespace, cpu, dtypes
from undertow.backend.interface import Array, DType
from undertow.backend.silence import quietly
from undertow.compiled import core
from undertow.ops.arguments.sizes import broadcast_problem
from undertow.tensor import Extra, Tensor, torch_function

NUMBERS = (bool, int, float, complex)


def number_tensor(number: Any) -> Tensor:
    """A Python number as a 0-d tensor that yields to every other operand in type promotion."""
    category = dtypes.NUMBER_CATEGORY[next(t for t in NUMBERS if isinstance(number, t))]
    dtype = {2: dtypes.float64, 3: dtypes.complex128}.get(category, dtypes.number_dtype(category))
    tensor = Tensor(quietly(cpu.asarray, number, dtype), cpu)
    tensor._extra = Extra()
    tensor._extra.is_number = True
    return tensor


def require_tensor(name: str, **operands: Any) -> None:
    """Refuse numbers where none of the operands is anything else, which NumPy or `math` would compute."""
    if all([isinstance(value, NUMBERS) for value in operands.values()]):
        raise TypeError(f"{name}(): one of the arguments {' and '.join(operands)} must be Tensor, not a number")


def require_list(name: str, tensors: Any) -> None:
    """Refuse one tensor in the place of several, whose rows a loop would take for them."""
    if isinstance(tensors, Tensor):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}. "
            "For the parts of one tensor, give tensor.unbind(0)."
        )


#: operations that are operators -> what Python calls on the right operand when the left one gives up
REFLECTED = {
    "add": "__radd__", "sub": "__rsub__", "mul": "__rmul__", "true_divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "pow": "__rpow__", "eq": "__eq__", "ne": "__ne__",
    "lt": "__gt__", "le": "__ge__", "gt": "__lt__", "ge": "__le__", "matmul": "__rmatmul__",
    "bitwise_and": "__rand__", "bitwise_or": "__ror__", "bitwise_xor": "__rxor__",
}  # fmt: skip


#: what Python repeats: `[0] * tensor(3)` has three elements
REPEATED = (list, tuple, str, bytes)


def is_count(value: Any) -> bool:
    return isinstance(value, Tensor) and value._array.size == 1 and value._array.dtype.kind in "iub"


class ForeignOperandError(TypeError):
    """An operand that is no tensor, of a class that may know what to do instead.

    It has `__undertow_function__`; or, as the labelled arrays of xarray, `__array_ufunc__` and operators of its own.
    """

    def __init__(self, message: str, value: Array) -> None:
        super().__init__(message)
        self.value = value

    def answer(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operand's class makes of the operation; this error if nothing."""
        kind = type(self.value)
        if hasattr(kind, "__undertow_function__"):
            result = kind.__undertow_function__(name, args, kwargs)
        else:
            result = self.reflected(name, **kwargs) if name in REFLECTED and not args else NotImplemented
        if result is NotImplemented:
            raise self
        return result

    def reflected(
        self, name: str, input: Array, other: Array | None = None, alpha: Any = 1, exponent: Any = None
    ) -> Any:
        right = exponent if name == "pow" else other
        if name == "mul" and isinstance(right, REPEATED):
            return right * int(input) if is_count(input) else NotImplemented
        if right is not self.value or alpha != 1 or not isinstance(input, Tensor):
            return NotImplemented
        operator = getattr(type(right), REFLECTED[name], None)
        return NotImplemented if operator is None else operator(right, input)


def as_operand(op: str, name: str, value: Array) -> Tensor:
    """`value` as a tensor: tensors as they are, arrays without copying, Python numbers as 0-d tensors."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, NUMBERS):
        return number_tensor(value)
    if isinstance(value, cpu.generic):
        return number_tensor(value.item())
    if isinstance(value, cpu.ndarray):
        if not dtypes.is_storable(value.dtype):
            raise TypeError(f"{op}(): argument '{name}' has dtype {value.dtype}, which no tensor can have")
        return Tensor(value, cpu)
    if torch_function.own_function(type(value)) is not None and not torch_function.FUNCTIONS_ASK:
        torch_function.enable()
        raise TypeError(
            f"{op}() was given {foreign_name(value)}, the first object whose class has __torch_function__: undertow "
            "asks such classes from now on. Do it again, or call undertow.overrides.enable() before the first time."
        )
    message = f"{op}(): argument '{name}' must be Tensor, not {foreign_name(value)}"
    turned = message if message.endswith(".") else f"{message}. Turn it into a Tensor first."
    if hasattr(value, "__undertow_function__") or getattr(type(value), "__array_ufunc__", None) is not None:
        raise ForeignOperandError(turned, value)
    if has_operator(type(value), REFLECTED.get(op, "")) or (op == "mul" and isinstance(value, REPEATED)):
        raise ForeignOperandError(turned, value)
    raise TypeError(message)


def has_operator(kind: type, name: str) -> bool:
    """Whether a class of the program's has an operator of its own, which Python asks when the left operand gives up."""
    found = getattr(kind, name, None)
    return found is not None and found is not getattr(object, name, None) and kind.__module__ != "builtins"


def foreign_name(value: Any) -> str:
    """The name of a class that is none of ours; where the classes have one name, with its module, and a way over."""
    kind = type(value)
    if kind.__name__ not in (Tensor.__name__, "Parameter"):
        return kind.__name__
    package = kind.__module__.partition(".")[0]
    cure = " Take its memory over first: undertow.from_dlpack(x)." if hasattr(value, "__dlpack__") else ""
    return f"{package}.{kind.__name__}.{cure}"


def as_operands(op: str, names: tuple[str, ...], values: tuple[Any, ...], optional: tuple[str, ...]) -> list[Any]:
    return [
        None if value is None and name in optional else as_operand(op, name, value)
        for name, value in zip(names, values, strict=True)
    ]


def same_device(op: str, tensors: tuple[Tensor, ...]) -> ArrayNamespace:
    """The namespace that all operands share; a CPU 0-d tensor goes anywhere."""
    spaces = {id(t._xp): t._xp for t in tensors if t._array.ndim or t._xp is not cpu}
    if len(spaces) > 1:
        devices = ", ".join(str(xp.device) for xp in spaces.values())
        raise RuntimeError(
            f"{op}(): Expected all tensors to be on the same device, but found at least two devices, {devices}. "
            "Move one of them with .to(device)."
        )
    return next(iter(spaces.values()), cpu)


def type_name(array: Array) -> str:
    """PyTorch's name of an array's dtype: Long, ComplexFloat, ..."""
    return dtypes.SCALAR_NAMES[array.dtype]


def require_kinds(kernel: str, array: Array, kinds: str, cure: str = "convert the input with .to(dtype)") -> None:
    """Refuse, under the kernel's name in PyTorch, what has a dtype of another kind than `kinds`."""
    if dtypes.kind_of(array.dtype) not in kinds:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{type_name(array)}': {cure}")


def require_float(op: str, name: str, value: Any) -> None:
    """Refuse what cannot be a float, before it is compared with one."""
    if isinstance(value, complex | str):
        raise TypeError(f"{op}(): argument '{name}' must be float, not {type(value).__name__}")


def require_order(kernel: str, array: Array) -> None:
    if array.dtype.kind == "c":
        require_kinds(kernel, array, "biuf", "complex numbers have no order. Take abs(), real or imag first.")


def explain(error: Exception, op: str, arrays: tuple[Array, ...]) -> None:
    """Raise PyTorch's error for what NumPy refused in an elementwise operation, if there is one."""
    arrays = tuple(a for a in arrays if a is not None)
    problem = broadcast_problem([a.shape for a in arrays])
    if problem is not None:
        shapes = " and ".join(str(list(array.shape)) for array in arrays)
        raise RuntimeError(f"{problem}: {op} was given shapes {shapes}, which do not broadcast") from None
    if isinstance(error, TypeError) and ("ufunc" in str(error) or "numpy boolean" in str(error)):
        names = ", ".join(dict.fromkeys(map(type_name, arrays)))
        raise NotImplementedError(f"\"{op}\" not implemented for '{names}'") from None


def result_type_of(operands: tuple[Any, ...]) -> DType:
    """PyTorch's result dtype for tensors and Python numbers."""
    dims: list[Any] = []
    zero_dims: list[Any] = []
    numbers: list[int] = []
    for operand in operands:
        if not isinstance(operand, Tensor):
            numbers.append(dtypes.NUMBER_CATEGORY[next(t for t in NUMBERS if isinstance(operand, t))])
        elif operand._extra is not None and operand._extra.is_number:
            numbers.append(dtypes.CATEGORY[operand._array.dtype.kind])
        else:
            (dims if operand._array.ndim else zero_dims).append(operand._array.dtype)
    return dtypes.combine(dims, zero_dims, numbers)


def result_type(tensor1: Array, tensor2: Array) -> dtypes.dtype:
    """The dtype an arithmetic operation on these two tensors or Python numbers would have.

    tensor1, tensor2  tensors or numbers

    >>> import undertow as ut
    >>> ut.result_type(ut.tensor([1, 2], dtype=ut.int32), 1.0)
    undertow.float32
    """
    tensor1 = as_operand("result_type", "tensor1", tensor1)
    tensor2 = as_operand("result_type", "tensor2", tensor2)
    return dtypes.public(result_type_of((tensor1, tensor2)))


def common_dtype(operands: tuple[Any, ...], policy: str) -> DType:
    """What tensors and Python numbers are promoted to ("float": at least the default float; "numbers": no bools)."""
    if policy == "numbers":
        refuse_bools(operands)
    dtype = result_type_of(operands)
    if policy == "float" and not dtypes.is_differentiable(dtype):
        dtype = dtypes.default_dtype()
    return dtype


if core is not None:
    core.bind(common_dtype=common_dtype, default_dtype=dtypes._default)


def refuse_bools(operands: tuple[Any, ...]) -> None:
    if any([isinstance(o, bool) or (isinstance(o, Tensor) and o._array.dtype == dtypes.bool_) for o in operands]):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead; numbers for a mask are mask.to(dtype)."
        )


def promote(operands: tuple[Tensor, ...], policy: str) -> list[Any]:
    """The operands' arrays, cast to their common dtype."""
    dtype = common_dtype(operands, policy)
    return [o._array if o._array.dtype is dtype else quietly(o._array.astype, dtype) for o in operands]


def promote_number(array: Array, number: Any, policy: str) -> Array:
    """The array, cast to what it promotes to beside a Python number."""
    return array.astype(common_dtype((Tensor(array, cpu), number), policy))


def float_array(array: Array) -> Array:
    """Integers as the default float dtype; anything else as it is."""
    return array if array.dtype.kind in "fc" else array.astype(dtypes.default_dtype())


def as_tensors(name: str, **operands: Any) -> list[Any]:
    return [as_operand(name, argument, value) for argument, value in operands.items()]

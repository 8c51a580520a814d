"""MaskedTensor: a tensor with a mask that says which elements are there.

It is no Tensor: an operation that knows nothing of masks refuses it, so that no mask is ever lost. What it can do are
the methods below, which `ut.exp(m)`, `ut.sum(m)`, `tensor + m`, ... find, too; `get_data`, `get_mask` and `to_tensor`
lead back to ordinary tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow import ops
from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array, DType
from undertow.masked import reductions
from undertow.masked.nan_safe import nan_safe
from undertow.tensor import Tensor

UNARY = """
abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwise_not ceil clamp
clip conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac i0 isnan lgamma log log10
log1p log2 logit logical_not nan_to_num neg positive rad2deg reciprocal relu round rsqrt sgn sigmoid sign signbit sin
sinc sinh sqrt square tan tanh trunc
""".split()

BINARY = """
add arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor div divide eq
floor_divide fmax fmin fmod ge greater greater_equal gt le less less_equal logaddexp logaddexp2 logical_and logical_or
logical_xor lt maximum minimum mul multiply ne nextafter not_equal pow remainder sub subtract true_divide
""".split()

#: they do to the mask what they do to the data
MOVING = """
broadcast_to chunk contiguous expand flatten flip gather index_select movedim narrow permute ravel repeat reshape roll
select split squeeze swapaxes swapdims t take_along_dim tensor_split tile transpose unbind unflatten unfold unsqueeze
view
""".split()

#: reductions, whose result is there if one element of its slice is
REDUCING = "amax amin argmax argmin logsumexp mean median norm prod std sum var".split()
#: along a dimension, but of the same shape
ALONG = "cumprod cumsum log_softmax softmax softmin".split()

OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip


class MaskedTensor:
    """A tensor of which only the elements with a True in the mask are there.

    data           a Tensor of real numbers, integers or bools; it is copied, and its history left behind
    mask           a Tensor of bools, of the same shape
    requires_grad  whether a gradient is asked of it; it comes as a MaskedTensor, too

    >>> import undertow as ut
    >>> m = ut.masked.masked_tensor(ut.tensor([1.0, 2.0, 3.0]), ut.tensor([True, False, True]), requires_grad=True)
    >>> m.mean()
    MaskedTensor(  2.0000, True)
    >>> m.exp().sum().backward()
    >>> m.grad
    MaskedTensor(
      [  2.7183,       --,  20.0855]
    )
    """

    __slots__ = ("__weakref__", "_data", "_mask")

    __hash__ = object.__hash__
    __array_ufunc__ = None  # NumPy leaves operators to us, and everything else alone

    def __init__(self, data: Tensor, mask: Tensor, requires_grad: bool = False) -> None:
        check(data, mask)
        self._data: Any = ops.clone(data).detach()
        self._mask: Any = ops.clone(mask)
        if requires_grad:
            self._data.requires_grad_()

    @classmethod
    def __undertow_function__(cls, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operation that was given a MaskedTensor does; NotImplemented refuses it."""
        function = FUNCTIONS.get(name)
        if function is None:
            return NotImplemented
        operands = [kwargs.pop(key) for key in ("input", "other", "exponent") if key in kwargs]
        return function(*operands, *args, **kwargs)

    # ---- what it is

    shape = property(lambda self: self._data.shape)
    dtype = property(lambda self: self._data.dtype)
    device = property(lambda self: self._data.device)
    ndim = property(lambda self: self._data.ndim)
    requires_grad = property(lambda self: self._data.requires_grad)
    is_leaf = property(lambda self: self._data.is_leaf)
    grad_fn = property(lambda self: self._data.grad_fn)

    @property
    def grad(self) -> MaskedTensor | None:
        """The gradient, with the same mask."""
        return None if self._data.grad is None else joined(self._data.grad, self._mask)

    def size(self, dim: int | None = None) -> int:
        return self._data.size() if dim is None else self._data.size(dim)

    def dim(self) -> int:
        return self._data.ndim

    def numel(self) -> int:
        return int(self._data.numel())

    def __len__(self) -> int:
        return len(self._data)

    # ---- and back

    def get_data(self) -> Tensor:
        """The data, also what is masked out. Its gradient reaches only what is not."""
        if not self._data.requires_grad:
            return self._data
        data: Tensor = ops.where(self._mask, self._data, self._data.detach())
        return data

    def get_mask(self) -> Tensor:
        return self._mask

    def to_tensor(self, value: Any) -> Tensor:
        """An ordinary tensor, with `value` where this one has nothing.

        >>> import undertow as ut
        >>> ut.masked.masked_tensor(ut.tensor([1, 2]), ut.tensor([True, False])).to_tensor(-1)
        tensor([ 1, -1])
        """
        data: Tensor = ops.masked_fill(self._data, ops.logical_not(self._mask), value)
        return data

    def item(self) -> float:
        if self.numel() == 1 and not self._mask.item():
            raise ValueError("the only element of this MaskedTensor is masked out; to_tensor(value) gives it a value")
        return self._data.item()

    # ---- autograd

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """As Tensor.backward, inside of `nan_safe`: what is masked out contributes nothing, not 0 * inf.

        `gradient`, `retain_graph`, `create_graph` and `inputs` are as that takes them.
        """
        if isinstance(gradient, MaskedTensor):
            gradient = gradient.to_tensor(0)
        with nan_safe():
            data: Any = self.get_data()
            data.backward(gradient, retain_graph, create_graph, inputs)

    def requires_grad_(self, requires_grad: bool = True) -> MaskedTensor:
        self._data.requires_grad_(requires_grad)
        return self

    def detach(self) -> MaskedTensor:
        return joined(self._data.detach(), self._mask)

    def clone(self, memory_format: Any = None) -> MaskedTensor:
        return joined(ops.clone(self._data), ops.clone(self._mask))

    def to(self, dtype: DType) -> MaskedTensor:
        return joined(ops.to_dtype(self._data, dtype), self._mask)

    def float(self) -> MaskedTensor:
        return self.to(dtypes.float32)

    def double(self) -> MaskedTensor:
        return self.to(dtypes.float64)

    # ---- reductions of bools

    def all(self, dim: int | None = None, keepdim: bool = False) -> MaskedTensor:
        return self._reduced_bools(ops.all, True, dim, keepdim)

    def any(self, dim: int | None = None, keepdim: bool = False) -> MaskedTensor:
        return self._reduced_bools(ops.any, False, dim, keepdim)

    def _reduced_bools(self, reduce: Callable[..., Any], neutral: bool, dim: int | None, keepdim: bool) -> MaskedTensor:
        data = ops.where(self._mask, ops.to_dtype(self._data, dtypes.bool_), neutral)
        found = reduce(data) if dim is None else reduce(data, dim, keepdim)
        return joined(found, reductions.output_mask(self._mask, dim, keepdim and dim is not None))

    # ---- operators that are more than one

    def __neg__(self) -> MaskedTensor:
        return self.neg()  # type: ignore[attr-defined]

    def __abs__(self) -> MaskedTensor:
        return self.abs()  # type: ignore[attr-defined]

    def __invert__(self) -> MaskedTensor:
        return self.bitwise_not()  # type: ignore[attr-defined]

    def __getitem__(self, key: Any) -> MaskedTensor:
        return joined(self._data[key], self._mask[key])

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> Any:
        return float(self.item())

    def __repr__(self) -> str:
        if not self.ndim:
            return f"MaskedTensor({shown(self._data.item(), self._mask.item(), 2)}, {self._mask.item()})"
        return "MaskedTensor(\n" + indented(rows(self._data._array, self._mask._array)) + "\n)"


def check(data: Any, mask: Any) -> None:
    for name, value in (("data", data), ("mask", mask)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a Tensor, got {type(value).__name__}")
    if mask.dtype != dtypes.bool_:
        raise TypeError(f"mask must have dtype bool. It has {mask.dtype}; compare it with something: mask != 0.")
    if data.dtype.kind == "c":
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor. Mask real and imaginary parts.")
    if data.ndim != mask.ndim:
        raise ValueError(f"data.dim() must equal mask.dim(), got {data.ndim} and {mask.ndim}")
    if tuple(data.shape) != tuple(mask.shape):
        raise ValueError(f"data.size() must equal mask.size(), got {list(data.shape)} and {list(mask.shape)}")


def joined(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A MaskedTensor of just these tensors."""
    made = MaskedTensor.__new__(MaskedTensor)
    made._data, made._mask = data, mask
    return made


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A MaskedTensor with a copy of the data; see MaskedTensor.

    mask  bools, of the shape of `data`: true where elements count

    >>> import undertow as ut
    >>> ut.masked.masked_tensor(ut.tensor([1.0, 2.0, 3.0]), ut.tensor([True, False, True]))
    MaskedTensor(
      [  1.0000,       --,   3.0000]
    )
    """
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A MaskedTensor that continues the history of `data`: gradients reach the tensors it was computed from.

    mask  bools, of the shape of `data`: true where elements count

    >>> import undertow as ut
    >>> x = ut.tensor([0.0, 4.0], requires_grad=True)
    >>> ut.masked.as_masked_tensor(x.sqrt(), x > 0).sum().backward()
    >>> x.grad
    tensor([0.0000, 0.2500])
    """
    check(data, mask)
    return joined(data, mask)


def is_masked_tensor(obj: Any) -> bool:
    """Whether obj is a MaskedTensor.

    >>> import undertow as ut
    >>> ut.masked.is_masked_tensor(ut.tensor([1.0, 2.0, 3.0]))
    False
    """
    return isinstance(obj, MaskedTensor)


# ---- the tables become methods


def unary(name: str) -> Callable[..., Any]:
    function = getattr(ops, name)

    def method(self: MaskedTensor, *args: Any, **kwargs: Any) -> MaskedTensor:
        return joined(function(self._data, *args, **kwargs), self._mask)

    return method


def binary(name: str) -> Callable[..., Any]:
    function = getattr(ops, name)

    def method(self: Any, other: Array, **kwargs: Any) -> MaskedTensor:
        mask = common_mask(self, other)
        data = function(*[a._data if isinstance(a, MaskedTensor) else a for a in (self, other)], **kwargs)
        return joined(data, ops.broadcast_to(mask, tuple(data.shape)))

    return method


def in_place(name: str) -> Callable[..., Any]:
    """Other data under the same mask. As in PyTorch, it is new: a tensor that was given as data is not changed."""

    def method(self: MaskedTensor, *args: Any, **kwargs: Any) -> MaskedTensor:
        if self.is_leaf and self.requires_grad:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation: its gradient would be that "
                f"of the new values. Use {name}(), which gives a new MaskedTensor."
            )
        found = getattr(MaskedTensor, name)(self, *args, **kwargs)._data
        if tuple(found.shape) != tuple(self.shape):
            raise RuntimeError(
                f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(found.shape)}"
            )
        if not can_cast(found.dtype, self.dtype):
            raise RuntimeError(f"result type {found.dtype} can't be cast to the desired output type {self.dtype}")
        self._data = ops.to_dtype(found, self.dtype)
        return self

    return method


def can_cast(source: DType, target: DType) -> bool:
    return "biufc".index(source.kind) <= "biufc".index(target.kind)


def common_mask(a: Array, b: Array) -> Tensor:
    masks = [m._mask for m in (a, b) if isinstance(m, MaskedTensor)]
    if len(masks) == 2 and not cpu.array_equal(masks[0]._array, masks[1]._array):
        raise ValueError(
            "Input masks must match: the operands are not there at the same places. Give them one mask, or turn one of "
            "them into an ordinary tensor with to_tensor(value)."
        )
    return masks[0]


def moving(name: str) -> Callable[..., Any]:
    function = getattr(ops, name) if hasattr(ops, name) else getattr(Tensor, name)

    def method(self: MaskedTensor, *args: Any, **kwargs: Any) -> Any:
        data, mask = function(self._data, *args, **kwargs), function(self._mask, *args, **kwargs)
        if isinstance(data, Tensor):
            return joined(data, mask)
        return tuple([joined(d, m) for d, m in zip(data, mask, strict=True)])

    return method


def reducing(name: str) -> Callable[..., Any]:
    function = getattr(reductions, name)

    def method(self: MaskedTensor, *args: Any, **kwargs: Any) -> MaskedTensor:
        data = function(self._data, *args, mask=self._mask, **kwargs)
        given = [a for a in args[name == "norm" :] if not isinstance(a, bool)]
        dim = kwargs.get("dim", given[0] if given else -1 if name == "median" else None)
        return joined(data, reductions.output_mask(self._mask, dim, kwargs.get("keepdim", False)))

    return method


def along(name: str) -> Callable[..., Any]:
    function = getattr(reductions, name)

    def method(self: MaskedTensor, dim: int, **kwargs: Any) -> MaskedTensor:
        return joined(function(self._data, dim, mask=self._mask, **kwargs), self._mask)

    return method


def attach(names: list[str], make: Callable[..., Any]) -> None:
    for name in names:
        method = make(name)
        method.__name__, method.__qualname__ = name, f"MaskedTensor.{name}"
        setattr(MaskedTensor, name, method)


for _names, _make in ((UNARY, unary), (BINARY, binary), (MOVING, moving), (REDUCING, reducing), (ALONG, along)):
    attach(_names, _make)


#: those that give something else than the input was: PyTorch has no in-place form of them
NEVER_IN_PLACE = {
    "angle", "fmax", "fmin", "isnan", "logaddexp", "logaddexp2", "maximum", "minimum", "positive", "signbit",
}  # fmt: skip
for _name in [name for name in (*UNARY, *BINARY) if name not in NEVER_IN_PLACE]:
    _method = in_place(_name)
    _method.__name__, _method.__qualname__ = f"{_name}_", f"MaskedTensor.{_name}_"
    setattr(MaskedTensor, f"{_name}_", _method)


def reflected(name: str) -> Callable[..., Any]:
    method = binary(name)
    return lambda self, other: method(other, self)


for _operator, _name in OPERATORS.items():
    setattr(MaskedTensor, f"__{_operator}__", getattr(MaskedTensor, _name))
    if _operator not in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(MaskedTensor, f"__r{_operator}__", reflected(_name))
        setattr(MaskedTensor, f"__i{_operator}__", getattr(MaskedTensor, f"{_name}_"))


# ---- functions of several


def parts(value: Array) -> tuple[Any, Any]:
    """Data and mask; an ordinary tensor, or a number, is all there."""
    if isinstance(value, MaskedTensor):
        return value._data, value._mask
    return value, True


def where(condition: Array, input: Array, other: Array) -> MaskedTensor:
    """Data and mask, each from the one that the condition chooses."""
    (data, mask), (other_data, other_mask) = parts(input), parts(other)
    if isinstance(condition, MaskedTensor):
        raise TypeError("where: the condition must be a Tensor of bools: call get_data() or to_tensor(False) on it")
    return joined(ops.where(condition, data, other_data), ops.where(condition, mask, other_mask))


def joining(name: str) -> Callable[..., Any]:
    function = getattr(ops, name)

    def join(tensors: Any, dim: int = 0) -> MaskedTensor:
        data, masks = zip(*map(parts, tensors), strict=True)
        whole = [
            ops.ones(tuple(d.shape), dtype=dtypes.bool_) if m is True else m for d, m in zip(data, masks, strict=True)
        ]
        return joined(function(list(data), dim), function(whole, dim))

    return join


#: what operations do when they are given a MaskedTensor
FUNCTIONS: dict[str, Any] = {
    **{name: getattr(MaskedTensor, name) for name in (*UNARY, *BINARY, *MOVING, *REDUCING, *ALONG)},
    **{name: getattr(MaskedTensor, name) for name in ("all", "any", "clone")},
    **{name: joining(name) for name in ("cat", "concat", "concatenate", "hstack", "stack", "vstack")},
    "where": where,
}


# ---- showing


def shown(value: Any, there: bool, width: int) -> str:
    if not there:
        return "--".rjust(width)
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def rows(data: Any, mask: Array) -> str:
    if data.ndim > 1:
        return "[\n" + ",\n".join(indented(rows(d, m)) for d, m in zip(data, mask, strict=True)) + "\n]"
    pairs = list(zip(data.tolist(), mask.tolist(), strict=True))
    width = max([8] + [len(shown(v, True, 0)) for v, m in pairs if m])
    return "[" + ", ".join(shown(v, m, width) for v, m in pairs) + "]"


def indented(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))

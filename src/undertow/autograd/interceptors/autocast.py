"""autocast: matrix products and convolutions in half precision, what is delicate in float32.

Which operations is PyTorch's choice for the CPU; their declarations say it, `autocast="lower"` or "float32", and
functions of several operations are decorated (ops/arguments/half_precision.py). An interceptor casts their arguments;
the casts are operations like any other, so gradients come back in the precision of the parameters.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from undertow.autograd.interceptors.stack import NONE, Above, active, in_float32_under, under
from undertow.backend import dtypes, namespace_of
from undertow.backend.interface import DType
from undertow.modes import State, _Switch, current, in_state
from undertow.ops.views.clone import _to_copy
from undertow.tensor import LEAF, Tensor, version_of

DEVICE_TYPES = ("cpu", "cuda", "sim")


class autocast(_Switch):
    """Compute in mixed precision inside: `with autocast("cpu"):`, or `@autocast("cpu")` for a function.

    Wrap the forward pass and the loss; call backward() outside. Parameters stay float32, and so do their gradients.

    device_type    the tensors concerned: "cpu", "sim" or "cuda"
    dtype          the lower precision: bfloat16 or float16; left out, what `get_autocast_dtype` says
    enabled        False: not even if a context outside says so
    cache_enabled  whether a parameter is cast once in the whole region, not at each use

    >>> import undertow as ut
    >>> a = ut.randn(2, 3, requires_grad=True)
    >>> with ut.autocast("cpu", dtype=ut.float16):
    ...     product = a @ a.t()
    ...     loss = ut.nn.functional.mse_loss(product, ut.zeros(2, 2))
    >>> product.dtype, loss.dtype
    (undertow.float16, undertow.float32)
    >>> loss.backward()
    >>> a.grad.dtype
    undertow.float32
    """

    def __init__(
        self, device_type: str, dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in DEVICE_TYPES:
            raise RuntimeError(
                f"User specified an unsupported autocast device_type '{device_type}'. Use one of {DEVICE_TYPES}."
            )
        self.device_type = device_type
        self.dtype = lower_precision(device_type) if dtype is None else dtypes.as_dtype(dtype, "autocast")
        self.enabled = enabled and self._is_supported()
        self.cache_enabled = True if cache_enabled is None else cache_enabled
        self._settings: autocast | None = None

    def _is_supported(self) -> bool:
        if self.device_type == "cuda" and not has_device("cuda"):
            warnings.warn("CUDA is not available. Disabling autocast.", stacklevel=3)
            return False
        if dtypes.is_floating(self.dtype) and self.dtype.itemsize == 2:
            return True
        warnings.warn(
            f"In {self.device_type.upper()} autocast, but the target dtype is not supported. Disabling autocast.\n"
            f"{self.device_type.upper()} Autocast only supports dtypes of undertow.bfloat16, undertow.float16 "
            "currently.",
            stacklevel=3,
        )
        return False

    @property
    def given(self) -> autocast:
        return self

    def inside(self, outer: State) -> State:
        if self.enabled or is_autocast_enabled(self.device_type):
            # a copy: a mode that refers to its own block would keep that from ending with an error (csrc/scopes.c)
            self._settings = self._settings or self.clone()
            return outer.with_intercept(Casting(self._settings, outer.intercept))
        return outer

    def after(self, inner: State, outer: State) -> State:
        entered = found(inner.intercept, lambda link: link.context is self._settings)
        return inner if entered is None else inner.with_intercept(entered.outer)

    def clone(self) -> autocast:
        return type(self)(self.device_type, self.dtype, self.enabled, self.cache_enabled)


class Casting(Above):
    """The interceptor of an autocast that was entered.

    outer  the interceptor that was there before. One for the same devices is not among those below: this replaces it
    cache  (id of a parameter, dtype) -> a weak reference to it, its memory and version, its cast
    """

    def __init__(self, context: autocast, outer: Any) -> None:
        replaced = casting(context.device_type, outer)
        super().__init__(outer if replaced is None else without(outer, replaced))
        self.context, self.outer = context, outer
        self.cache: dict[Any, Any] = {} if replaced is None else replaced.cache

    def over(self, below: Any) -> Casting:
        copy = object.__new__(Casting)
        copy.context, copy.outer, copy.cache, copy.below = self.context, self.outer, self.cache, below
        return copy

    # ---- operations

    def __call__(self, function: Any, args: tuple[Any, ...]) -> Any:
        op = function.op
        if self.context.enabled and op.autocast is not None:
            args = self.cast_all(args, self.context.dtype if op.autocast == "lower" else dtypes.float32)
        return under(self.below, op.by_position, *args)

    def in_place(
        self,
        name: str,
        change: Callable[..., Any],
        function: Callable[..., Any],
        tensor: Tensor,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        return under(self.below, change, tensor, *args, **kwargs)

    def draw(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return under(self.below, function, *args, **kwargs)

    def in_float32(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.context.enabled:
            names = list(kwargs)
            values = self.cast_all((*args, *kwargs.values()), dtypes.float32)
            args, kwargs = values[: len(args)], dict(zip(names, values[len(args) :], strict=True))
        return in_float32_under(self.below, function, args, kwargs)

    # ---- casts

    def cast_all(self, values: tuple[Any, ...], dtype: DType) -> tuple[Any, ...]:
        return tuple(under(self.below, lambda: [self.cast(value, dtype) for value in values]))

    def cast(self, value: Any, dtype: DType) -> Any:
        if isinstance(value, Tensor):
            return self.cast_tensor(value, dtype) if self.concerns(value, dtype) else value
        return type(value)([self.cast(v, dtype) for v in value]) if type(value) in (list, tuple) else value

    def concerns(self, tensor: Tensor, dtype: DType) -> bool:
        own = tensor.dtype
        return dtypes.is_floating(own) and own != dtype and own != dtypes.float64 and self.is_here(tensor)

    def is_here(self, tensor: Tensor) -> bool:
        return bool(tensor._xp.device.type == self.context.device_type)

    def cast_tensor(self, tensor: Tensor, dtype: DType) -> Tensor:
        if not self.is_kept(tensor, dtype):
            return to_dtype(tensor, dtype)
        key = id(tensor), dtype
        reference, memory, version, cast = self.cache.get(key, (None, None, None, None))
        same = reference is not None and reference() is tensor
        if not same or memory is not tensor._array or version != version_of(tensor):
            cast = in_state(current().with_grad(True), to_dtype, tensor, dtype)  # it may be used outside a no_grad
            self.cache[key] = weakref.ref(tensor), tensor._array, version_of(tensor), cast
        return cast

    def is_kept(self, tensor: Tensor, dtype: DType) -> bool:
        """Whether the cast can be used again: that of a parameter, which no transformation sees as something else."""
        return (
            self.context.cache_enabled
            and dtype == self.context.dtype
            and tensor._edge is LEAF
            and active() is NONE
            and not current().inference
        )


def has_device(device_type: str) -> bool:
    try:
        namespace_of(device_type)
    except RuntimeError:
        return False
    return True


def to_dtype(tensor: Tensor, dtype: DType) -> Tensor:
    return _to_copy(tensor, dtype)


# ---- which autocast is on


def found(intercept: Callable[..., Any] | None, is_wanted: Callable[[Casting], bool]) -> Casting | None:
    """The first autocast of this kind among the interceptors."""
    while isinstance(intercept, Above):
        if isinstance(intercept, Casting) and is_wanted(intercept):
            return intercept
        intercept = intercept.below
    return None


def without(intercept: Any, link: Above) -> Any:
    if intercept is link:
        return link.below
    return intercept.over(without(intercept.below, link)) if isinstance(intercept, Above) else intercept


def casting(device_type: str, intercept: Callable[..., Any] | None) -> Casting | None:
    return found(intercept, lambda link: link.context.device_type == device_type)


def is_autocast_enabled(device_type: str = "cpu") -> bool:
    """Whether this thread is inside an autocast for these devices.

    device_type  "cpu" or "cuda"

    >>> import undertow as ut
    >>> with ut.autocast("cpu"):
    ...     print(ut.is_autocast_enabled("cpu"))
    True
    """
    link = casting(device_type, current().intercept)
    return link is not None and link.context.enabled


def get_autocast_dtype(device_type: str = "cpu") -> dtypes.dtype:
    """The lower precision of the autocast that is on, or that one without `dtype` would have.

    That is bfloat16 on the CPU if it can be had (see `undertow.bfloat16`), and float16 elsewhere.

    device_type  "cpu" or "cuda"

    >>> import undertow as ut
    >>> ut.get_autocast_dtype("cpu")
    undertow.bfloat16
    """
    return dtypes.public(lower_precision(device_type))


def lower_precision(device_type: str) -> DType:
    """NumPy's dtype of the same."""
    link = casting(device_type, current().intercept)
    if link is not None:
        return link.context.dtype
    return dtypes.bfloat16() if device_type == "cpu" and dtypes.has_bfloat16() else dtypes.float16


def is_autocast_available(device_type: str) -> bool:
    """Whether there is an autocast for these devices.

    device_type  "cpu", "cuda", ...

    >>> import undertow as ut
    >>> ut.amp.is_autocast_available("cpu")
    True
    """
    return device_type in DEVICE_TYPES


class Autocasts:
    """The autocasts that are on, to be so again: for a recomputation, or in another thread."""

    def __init__(self) -> None:
        intercept = current().intercept
        links = [casting(device_type, intercept) for device_type in DEVICE_TYPES]
        self.contexts = [link.context.clone() for link in links if link is not None and link.context.enabled]

    def again(self) -> contextlib.ExitStack:
        """A context with these autocasts, and no other."""
        stack = contextlib.ExitStack()
        meant = {context.device_type for context in self.contexts}
        for device_type in () if current().intercept is None else DEVICE_TYPES:
            if device_type not in meant:
                stack.enter_context(autocast(device_type, enabled=False))
        for context in self.contexts:
            stack.enter_context(context.clone())
        return stack


def lifted(intercept: Callable[..., Any] | None, below: Any) -> tuple[Any, Any]:
    """The autocasts among the interceptors, above another one instead; and the interceptors without them.

    Casts kept so far are not used: what `below` is shown must not depend on what was done before.
    """
    if not isinstance(intercept, Above):
        return below, intercept
    casts, rest = lifted(intercept.below, below)
    if not isinstance(intercept, Casting):
        return casts, intercept.over(rest)
    cast = intercept.over(casts)
    cast.cache = {}
    return cast, rest


# ---- custom Functions


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorate the `forward` of a custom Function that is called under autocast.

    cast_inputs  a dtype: forward is given its floating tensors in it, and runs without autocast
    fwd          the `forward`
    device_type  "cpu" or "cuda"

    >>> import undertow as ut
    >>> class Square(ut.autograd.Function):
    ...     @staticmethod
    ...     @ut.amp.custom_fwd(device_type="cpu", cast_inputs=ut.float32)
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...
    ...     @staticmethod
    ...     @ut.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         return 2 * g * ctx.saved_tensors[0]
    >>> with ut.autocast("cpu"):
    ...     y = Square.apply(ut.ones(1, dtype=ut.bfloat16))
    >>> y.dtype
    undertow.float32
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        link = casting(device_type, current().intercept)
        enabled = link is not None and link.context.enabled
        ctx._autocast = enabled and cast_inputs is None, lower_precision(device_type)
        if link is None or not enabled or cast_inputs is None:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            named = {name: link.cast(value, cast_inputs) for name, value in kwargs.items()}
            return fwd(ctx, *[link.cast(value, cast_inputs) for value in args], **named)

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate the `backward` of a custom Function, to run as its `forward`, which custom_fwd decorates, did.

    bwd          the `backward`
    device_type  "cpu" or "cuda"

    >>> import undertow as ut
    >>> class Product(ut.autograd.Function):
    ...     @staticmethod
    ...     @ut.amp.custom_fwd(device_type="cpu")
    ...     def forward(ctx, x, w):
    ...         ctx.save_for_backward(x, w)
    ...         return x @ w
    ...
    ...     @staticmethod
    ...     @ut.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, g):
    ...         x, w = ctx.saved_tensors
    ...         print((x.T @ g).dtype)  # also where the backward pass starts outside of autocast
    ...         return g @ w.T, x.T @ g
    >>> w = ut.ones(2, 2, requires_grad=True)
    >>> with ut.autocast("cpu"):
    ...     y = Product.apply(ut.ones(2, 2), w)
    >>> y.sum().backward()
    undertow.bfloat16
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *grads: Any) -> Any:
        enabled, dtype = ctx._autocast
        with autocast(device_type, dtype, enabled):
            return bwd(ctx, *grads)

    return backward

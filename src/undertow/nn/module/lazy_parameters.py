"""Parameters whose shape is not known yet, and the modules that find it out when they are first called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from undertow import ops
from undertow.backend.interface import DType
from undertow.modes import no_grad
from undertow.nn import parameter as parameter_module
from undertow.nn.module import Module
from undertow.nn.parameter import Buffer, Parameter
from undertow.tensor import LEAF, Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Device


T = TypeVar("T", bound="Uninitialized")


class NoMemory:
    """What stands for the array of a tensor without a shape."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype


class Uninitialized(Tensor):
    """A tensor without a shape; `materialize` makes it a real one, which stays the same object.

    In the place of its memory it has a NoMemory, which nothing can compute with.
    """

    #: what it becomes
    becomes: type

    def __init__(self, requires_grad: bool, device: Device | None, dtype: DType | None) -> None:
        self._edge, self._extra = LEAF if requires_grad else None, None
        self.take_place(ops.empty(0, device=device, dtype=dtype))

    def take_place(self, tensor: Tensor) -> None:
        """Have the dtype and the device of a tensor."""
        _memory.__set__(self, NoMemory(tensor._array.dtype))
        self._xp = tensor._xp

    @property
    def _array(self) -> NoReturn:
        raise ValueError(
            f"Attempted to use an uninitialized {self.becomes.__name__.lower()}: its shape is not known yet. This "
            "happens with a Lazy module before its first call. Call the module on an input first, or call "
            "`materialize(shape)`."
        )

    @property
    def shape(self) -> NoReturn:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    @property
    def dtype(self) -> Any:
        return _memory.__get__(self).dtype

    def materialize(
        self, shape: int | Sequence[int], device: Device | str | int | None = None, dtype: DType | None = None
    ) -> None:
        """Become a real one of this shape, with memory that is to be initialised."""
        device, dtype = self._xp.device if device is None else device, self.dtype if dtype is None else dtype
        data = ops.empty(shape if isinstance(shape, int) else tuple(shape), device=device, dtype=dtype)
        self.__class__ = self.becomes
        Tensor.__init__(self, data._array, data._xp, self._edge)

    def converted(self: T, convert: Callable[..., Any]) -> T:
        """The same, with another device or dtype, as `convert` gives a tensor."""
        self.take_place(convert(ops.empty(0, device=self._xp.device, dtype=self.dtype)))
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = self.__reduce_ex__(2)[0](*self.__reduce_ex__(2)[1])
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self._edge is LEAF, self._xp.device, self.dtype)


_memory: Any = Tensor.__dict__["_array"]


class UninitializedParameter(Uninitialized, Parameter):
    """A parameter without a shape; see `undertow.nn.LazyLinear`.

    >>> import undertow as ut
    >>> weight = ut.nn.UninitializedParameter()
    >>> weight.materialize((2, 3))
    >>> weight.shape
    undertow.Size([2, 3])
    """

    becomes = Parameter

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: DType = None) -> None:
        super().__init__(requires_grad, device, dtype)


class UninitializedBuffer(Uninitialized, Buffer):
    """A buffer without a shape.

    persistent  whether it is part of the module's state_dict

    >>> import undertow as ut
    >>> buffer = ut.nn.UninitializedBuffer()
    >>> buffer.materialize((2,))
    >>> buffer.shape
    undertow.Size([2])
    """

    becomes = Buffer

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: DType = None, persistent: bool = True
    ) -> None:
        super().__init__(requires_grad, device, dtype)
        self.persistent = persistent


def is_lazy(tensor: Tensor | None) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(tensor, Uninitialized)


class LazyModule(Module):
    """What lazy modules have in common; a base class beside the module that they become.

    A subclass makes its parameters uninitialized, and defines `initialize_parameters`.
    """

    #: what it is after its first call
    cls_to_become: Any = None

    def begin(self) -> None:
        """Wait for the first call."""
        # numbers, not handles: these must hold for copies of the module, too
        self._initialize_hook = self.register_forward_pre_hook(_initialize, with_kwargs=True).id
        self._load_hook = self.register_load_state_dict_pre_hook(_take_shapes).id

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize the parameters for these arguments of the first call."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        return any([is_lazy(t) for t in [*self._parameters.values(), *self._buffers.values()]])

    def reset_parameters(self) -> None:
        weight = self._parameters.get("weight")
        if not self.has_uninitialized_params() and weight is not None and weight.numel():
            super().reset_parameters()  # type: ignore[misc]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if not self.has_uninitialized_params():
            super()._save_to_state_dict(destination, prefix, keep_vars)
            return
        for name, tensor in [*self._parameters.items(), *self._buffers.items()]:
            if tensor is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = tensor if is_lazy(tensor) or keep_vars else tensor.detach()


class LazyModuleMixin(LazyModule):
    """The first base class of a lazy module of your own; see `LazyModule`.

    >>> import undertow as ut
    >>> class Scale(ut.nn.modules.lazy.LazyModuleMixin, ut.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = ut.nn.UninitializedParameter()
    ...
    ...     def initialize_parameters(self, input):
    ...         self.factor.materialize(input.shape[-1:])
    ...         ut.nn.init.ones_(self.factor)
    ...
    ...     def forward(self, input):
    ...         return input * self.factor
    >>> Scale()(ut.zeros(2, 3)).shape
    undertow.Size([2, 3])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.begin()


def _initialize(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before the first call: give the parameters their shapes, and become an ordinary module."""
    with no_grad():
        module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
    module._forward_pre_hooks.pop(module._initialize_hook)
    module._own_state_hooks().load_pre.pop(module._load_hook)
    del module._initialize_hook, module._load_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


def _take_shapes(module: Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Before loading: parameters take the shapes of those that are loaded."""
    for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
        found = state_dict.get(prefix + name)
        if is_lazy(tensor) and found is not None and not is_lazy(found):
            tensor.materialize(found.shape)


# PyTorch has them beside Parameter, too
vars(parameter_module).update(
    UninitializedTensorMixin=Uninitialized,
    UninitializedParameter=UninitializedParameter,
    UninitializedBuffer=UninitializedBuffer,
    is_lazy=is_lazy,
)

"""Module: the base class of everything that has parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from undertow import ops
from undertow.backend import dtypes, namespace_of
from undertow.modes import no_grad
from undertow.nn.module.calling import Called
from undertow.nn.parameter import Parameter
from undertow.ops.create.to_dtype_and_device import to_arguments

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor

T = TypeVar("T", bound="Module")


class Module(Called):
    """The base class of networks and their layers.

    Assign parameters and other modules to attributes in `__init__` (after `super().__init__()`), say what is computed
    in `forward`, and call the module.

    *args, **kwargs  for other base classes of the same subclass

    >>> import undertow as ut
    >>> class Net(ut.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden = ut.nn.Linear(4, 8)
    ...         self.out = ut.nn.Linear(8, 1)
    ...
    ...     def forward(self, x):
    ...         return self.out(self.hidden(x).relu())
    >>> net = Net()
    >>> net
    Net(
      (hidden): Linear(in_features=4, out_features=8, bias=True)
      (out): Linear(in_features=8, out_features=1, bias=True)
    )
    >>> net(ut.ones(2, 4)).shape
    undertow.Size([2, 1])
    """

    # ---- modes and gradients

    def train(self: T, mode: bool = True) -> T:
        """Set training mode (or evaluation mode) here and below: what Dropout and BatchNorm ask for.

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> model.train()[0].training
        True
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is compiled: operations run as they are called.

        *args, **kwargs  accepted, without effect

        >>> import undertow as ut
        >>> linear = ut.nn.Linear(1, 1)
        >>> linear.compile()
        """

    def eval(self: T) -> T:
        """`train(False)`.

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> model.eval().training
        False
        """
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Set requires_grad of all parameters: `requires_grad_(False)` freezes them.

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> any(parameter.requires_grad for parameter in model.requires_grad_(False).parameters())
        False
        """
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters (or fill them with zeros).

        set_to_none  False: fill them with zeros

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> model(ut.ones(1, 2)).backward()
        >>> model.zero_grad()
        >>> print(model[0].weight.grad)
        None
        """
        for parameter in self.parameters():
            if parameter.grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            elif parameter.grad.grad_fn is not None:
                parameter.grad = parameter.grad.detach().zero_()
            else:
                parameter.grad.requires_grad_(False).zero_()

    # ---- other dtypes and devices

    def _apply(self: T, fn: Callable[[Any], Any], recurse: bool = True) -> T:
        """Put `fn(tensor)` in the place of every parameter, gradient and buffer; the Parameter objects stay."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is not None:
                apply_to_parameter(parameter, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = buffer.converted(fn) if hasattr(buffer, "converted") else fn(buffer)
        return self

    def to(self: T, *args: Any, **kwargs: Any) -> T:
        """Move to another device and/or floating-point dtype, in place: `to(device)`, `to(dtype)`, `to(device, dtype)`.

        Integer buffers change only their device.

        *args, **kwargs  a device, a dtype, both, or a tensor that has them; `device`, `dtype` and `non_blocking` by
                         name

        >>> import undertow as ut
        >>> model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.Linear(3, 1))
        >>> model.to(ut.float64)[0].weight.dtype
        undertow.float64
        """
        dtype, device, copy, memory_format = to_arguments(*args, **kwargs)
        if dtype is not None and not dtypes.is_differentiable(dtypes.as_dtype(dtype, "to")):
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )
        if device is not None:
            namespace_of(device)  # a wrong device is an error before anything has moved

        def convert(tensor: Tensor) -> Any:
            wanted = dtype if tensor.is_floating_point() or tensor.is_complex() else None
            format = memory_format if memory_format is not None and tensor.dim() in (4, 5) else None
            return tensor.to(device=device, dtype=wanted, copy=copy, memory_format=format)

        return self._apply(convert)

    def to_empty(self: T, *, device: Device | str | int, recurse: bool = True) -> T:
        """Move to a device without the values: parameters and buffers are there, and hold anything.

        recurse  the modules below it, too

        >>> import undertow as ut
        >>> ut.nn.Linear(2, 3, device="meta").to_empty(device="cpu").weight.device
        device(type='cpu')
        """
        return self._apply(lambda tensor: ops.empty_like(tensor, device=device), recurse)

    def type(self: T, dst_type: Any) -> T:
        """Convert all parameters and buffers to a dtype.

        dst_type  the dtype, or its legacy name

        >>> import undertow as ut
        >>> ut.nn.Linear(2, 3).type(ut.float64).weight.dtype
        undertow.float64
        """
        return self._apply(lambda tensor: tensor.type(dst_type))

    def float(self: T) -> T:
        """Convert floating-point parameters and buffers to float32.

        >>> import undertow as ut
        >>> ut.nn.Linear(2, 3).float().weight.dtype
        undertow.float32
        """
        return self._apply(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)

    def double(self: T) -> T:
        """Convert floating-point parameters and buffers to float64.

        >>> import undertow as ut
        >>> ut.nn.Linear(2, 3).double().weight.dtype
        undertow.float64
        """
        return self._apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)

    def half(self: T) -> T:
        """Convert floating-point parameters and buffers to float16.

        >>> import undertow as ut
        >>> ut.nn.Linear(2, 3).half().weight.dtype
        undertow.float16
        """
        return self._apply(lambda tensor: tensor.half() if tensor.is_floating_point() else tensor)

    def bfloat16(self: T) -> T:
        """Convert floating-point parameters and buffers to bfloat16.

        >>> import undertow as ut
        >>> ut.nn.Linear(2, 3).bfloat16().weight.dtype
        undertow.bfloat16
        """
        return self._apply(lambda tensor: tensor.bfloat16() if tensor.is_floating_point() else tensor)

    def cpu(self: T) -> T:
        """Move to the CPU.

        >>> import undertow as ut
        >>> ut.nn.Linear(2, 3).cpu().weight.device
        device(type='cpu')
        """
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self: T, device: Device | str | int | None = None) -> T:
        """Move to a GPU, if there is one.

        >>> import undertow as ut
        >>> model = ut.nn.Linear(2, 3)
        >>> if ut.cuda.is_available():
        ...     model = model.cuda()
        """
        return self.to("cuda" if device is None else device)

    def share_memory(self: T) -> T:
        """Move parameters, gradients and buffers to memory that other processes can see (`Tensor.share_memory_`).

        >>> import undertow as ut
        >>> ut.nn.Linear(2, 3).share_memory().weight.is_shared()
        True
        """
        from undertow.interop.shared_memory.moving import share
        from undertow.interop.shared_memory.sending import register

        tensors = [*self.parameters(), *self.buffers()]
        register(*{type(tensor) for tensor in tensors})
        share([*tensors, *[p.grad for p in tensors if p.is_leaf and p.grad is not None]])
        return self

    # ---- display

    def _repr_html_(self) -> str:
        """In a notebook: the tree of modules, to be opened and closed."""
        from undertow.instrument.notebook import module_html

        return module_html(self)

    def extra_repr(self) -> str:
        """What to show between the parentheses; a subclass says it.

        >>> import undertow as ut
        >>> ut.nn.Linear(2, 3).extra_repr()
        'in_features=2, out_features=3, bias=True'
        """
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        children = [f"({name}): {indented(repr(module))}" for name, module in self._modules.items()]
        lines = extra + children
        if not children and len(extra) <= 1:
            return f"{self._get_name()}({''.join(extra)})"
        return "\n".join([f"{self._get_name()}(", *(f"  {line}" for line in lines), ")"])

    def __dir__(self) -> list[str]:
        """Without the numbers of a Sequential's layers, which are no names."""
        return sorted(name for name in super().__dir__() if not name[:1].isdigit())


# Programs ask a layer, not its class, for annotations (`typing.get_type_hints(loss, globals())`), and would be given
# those of the bases, whose names mean something in their own files alone.
Module.__annotations__ = {}


def indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def apply_to_parameter(parameter: Parameter, fn: Callable[[Any], Any]) -> None:
    """Let a parameter show other memory; graphs that were recorded before keep what they saved."""
    tensor: Any = parameter
    if hasattr(tensor, "converted"):  # it has no shape yet, and no memory to be replaced
        tensor.converted(fn)
        return
    with no_grad():
        changed = fn(tensor)
        if changed is tensor:
            return
        grad = None if tensor.grad is None else fn(tensor.grad)
        tensor.grad = None
        tensor.data = changed
        tensor.grad = grad

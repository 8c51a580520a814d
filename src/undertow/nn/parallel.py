"""DataParallel: one module on several devices, each in a thread of its own with its part of the examples.

Modes travel to the threads (grad mode, inference mode, autocast), hooks on saved tensors do not: as in PyTorch they
belong to the thread that installed them. To use them with DataParallel, install them inside the module's forward.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.autograd.interceptors.autocast import Autocasts
from undertow.backend import Device
from undertow.lazy_names import loaded_when_used
from undertow.modes import inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled
from undertow.nn.module import Module
from undertow.nn.module.registry import KINDS, Members
from undertow.tensor import Tensor


def as_device(device: Device | str | int) -> Device:
    return device if isinstance(device, Device) else Device(device)


# ---- one part for each device


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Tensors cut into one part for each device (perhaps fewer); everything else is given to all.

    inputs       a tensor, or a tree of them
    target_gpus  the devices, of any kind

    >>> import undertow as ut
    >>> from undertow.nn import parallel
    >>> [part.device for part in parallel.scatter(ut.arange(4), ["sim:0", "sim:1"])]
    [device(type='sim', index=0), device(type='sim', index=1)]
    """
    devices = [as_device(d) for d in target_gpus]
    if isinstance(inputs, Tensor):
        parts = ops.chunk(inputs, len(devices), dim)
        return tuple(part.to(device) for part, device in zip(parts, devices, strict=False))
    if isinstance(inputs, tuple | list | dict) and inputs:
        values = inputs.values() if isinstance(inputs, dict) else inputs
        each = list(zip(*[scatter(value, devices, dim) for value in values], strict=False))
        return [rebuilt(inputs, parts) for parts in each]
    return [inputs] * len(devices)


def rebuilt(structure: Any, parts: Sequence[Any]) -> Any:
    """The same kind of tuple, list or dictionary with other values."""
    if isinstance(structure, dict):
        return type(structure)(zip(structure, parts, strict=True))
    return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)


def scatter_kwargs(inputs: tuple[Any, ...], kwargs: dict[str, Any], devices: Sequence[Any], dim: int = 0) -> Any:
    """Arguments and keyword arguments for each device that has examples."""
    args = list(scatter(inputs, devices, dim)) if inputs else []
    named = list(scatter(kwargs, devices, dim)) if kwargs else []
    if inputs and kwargs:  # one of them may have no tensors, and be given to all
        count = min(len(args), len(named))
        return args[:count], named[:count]
    return args or [() for _ in named], named or [{} for _ in args]


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The outputs of all devices, joined on one: tensors are concatenated, inside tuples, lists and dictionaries.

    target_device  where to

    >>> import undertow as ut
    >>> from undertow.nn import parallel
    >>> parts = parallel.scatter(ut.arange(4), ["sim:0", "sim:1"])
    >>> parallel.gather(parts, "cpu")
    tensor([0, 1, 2, 3])
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        moved = [out.to(as_device(target_device)) for out in outputs]
        return ops.stack(moved, 0) if first.ndim == 0 else ops.cat(moved, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(out) != len(first) for out in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([out[key] for out in outputs], target_device, dim)) for key in first)
    joined = [gather(list(parts), target_device, dim) for parts in zip(*outputs, strict=True)]
    return rebuilt(first, joined)


# ---- the module on each device


def replicate(network: Module, devices: Sequence[Any]) -> list[Any]:
    """The module on each device; its parameters are copies whose gradients flow back to the original's.

    network  the module
    devices  a list of devices

    >>> import undertow as ut
    >>> from undertow.nn import parallel
    >>> layer = ut.nn.Linear(2, 1).to("sim:0")
    >>> _, second = parallel.replicate(layer, ["sim:0", "sim:1"])
    >>> second(ut.ones(1, 2, device="sim:1")).sum().backward()
    >>> layer.weight.grad.cpu()
    tensor([[1., 1.]])
    """
    return [replica_of(network, as_device(device), {}) for device in devices]


def replica_of(module: Module, device: Device, made: dict[int, Any]) -> Any:
    if module is None or id(module) in made:
        return None if module is None else made[id(module)]
    replica = made[id(module)] = object.__new__(type(module))
    members = {name for kind in KINDS for name in module.__dict__[kind]}
    replica.__dict__.update({name: value for name, value in module.__dict__.items() if name not in members})
    move = lambda tensor: None if tensor is None else tensor.to(device)
    copies = {
        "_parameters": {name: move(p) for name, p in module._parameters.items()},
        "_buffers": {name: detached(b, device) for name, b in module._buffers.items()},
        "_modules": {name: replica_of(child, device, made) for name, child in module._modules.items()},
    }
    for kind in KINDS:
        replica.__dict__[kind] = Members(replica, copies[kind])
    replica.__dict__["_is_replica"] = True
    return replica


def detached(buffer: Tensor, device: Device) -> Any:
    """A buffer on its own device is shared, so that the first replica keeps running statistics up to date."""
    with no_grad():
        return None if buffer is None else buffer.to(device)


class Replica(threading.Thread):
    """One call in a thread of its own, in the modes of the thread that made it."""

    def __init__(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.call = module, args, kwargs
        self.modes = is_grad_enabled(), is_inference_mode_enabled(), Autocasts()
        self.output: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        module, args, kwargs = self.call
        grad_enabled, inference, autocasts = self.modes
        try:
            with inference_mode(inference), set_grad_enabled(grad_enabled), autocasts.again():
                self.output = module(*args, **kwargs)
        except BaseException as error:
            self.error = error


def parallel_apply(
    modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Sequence[Any] | None = None
) -> list[Any]:
    """Call each module with its input, all at once in threads; the first error is raised here.

    modules, inputs  one of each for every device; an input that is a tuple or a list is the arguments
    kwargs_tup       arguments by name for each, or None
    devices          named in errors

    >>> import undertow as ut
    >>> from undertow.nn import parallel
    >>> layer = ut.nn.ReLU()
    >>> parallel.parallel_apply([layer, layer], [ut.tensor(-1.0), ut.tensor(2.0)])
    [tensor(0.), tensor(2.)]
    """
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    named = kwargs_tup or [{}] * len(modules)
    arguments = [args if isinstance(args, tuple | list) else (args,) for args in inputs]
    threads = [Replica(m, tuple(a), k) for m, a, k in zip(modules, arguments, named, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, thread in enumerate(threads):
        if thread.error is not None:
            where = "" if devices is None else f" on device {devices[number]}"
            thread.error.add_note(f"Caught {type(thread.error).__name__} in replica {number}{where}.")
            raise thread.error
    return [thread.output for thread in threads]


class DataParallel(Module):
    """Calls a module on several devices, each with its part of the examples, and joins what they give.

    device_ids     the devices; the module lies on the first. None (or none): the module is just called
    output_device  where the outputs are joined; the first device unless told otherwise
    dim            the dimension of the examples

    >>> import undertow as ut
    >>> net = ut.nn.DataParallel(ut.nn.Linear(3, 2).to("sim:0"), ["sim:0", "sim:1"])
    >>> net(ut.ones(6, 3)).shape
    undertow.Size([6, 2])
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.dim = dim
        self.module = module
        self.device_ids = [as_device(d) for d in device_ids or ()]
        first = self.device_ids[0] if self.device_ids else None
        self.output_device = first if output_device is None else as_device(output_device)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        self._check_place()
        args, named = scatter_kwargs(inputs, kwargs, self.device_ids, self.dim)
        if not args:  # neither inputs nor keyword arguments
            args, named = [()], [{}]
        if len(self.device_ids) == 1:
            return self.module(*args[0], **named[0])
        used = self.device_ids[: len(args)]
        outputs = parallel_apply(replicate(self.module, used), args, named, used)
        return gather(outputs, self.output_device, self.dim)

    def _check_place(self) -> None:
        first = self.device_ids[0]
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            if tensor.device != first:
                raise RuntimeError(
                    f"module must have its parameters and buffers on device {first} (device_ids[0]) but found one of "
                    f"them on device: {tensor.device}. Move it with module.to('{first}')."
                )


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """One call of `DataParallel(module, ...)`.

    inputs         a tensor, or a tuple of arguments
    device_ids     the devices; None: all
    output_device  where the result is put together; None: the first of them
    module_kwargs  arguments by name

    >>> import undertow as ut
    >>> from undertow.nn import parallel
    >>> layer = ut.nn.Linear(2, 1).to("sim:0")
    >>> parallel.data_parallel(layer, ut.ones(4, 2, device="sim:0"), ["sim:0", "sim:1"]).shape
    undertow.Size([4, 1])
    """
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))


if TYPE_CHECKING:
    from undertow.distributed.data_parallel import DistributedDataParallel as DistributedDataParallel
else:
    __getattr__, __dir__ = loaded_when_used(
        __name__, names={"undertow.distributed.data_parallel": "DistributedDataParallel"}
    )

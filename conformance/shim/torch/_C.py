"""`torch._C`: private names of PyTorch's compiled part that the tests use as tools."""

from __future__ import annotations

from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import undertow

from ._spelling import WeakTensorRef as _WeakTensorRef
from ._undertow import forward, late

has_lapack = True

#: PyTorch's private name -> undertow's public one; others are looked up without their underscore
_PUBLIC = {
    "_current_autograd_node": "current_node",
    "_get_current_graph_task_keep_graph": "is_graph_kept",
    "_saved_tensors_hooks_is_enabled": "are_saved_tensors_hooks_enabled",
    "_will_engine_execute_node": "will_execute_node",
}
_find = forward("autograd.graph.", "autograd.", "autograd.forward_ad.", "")


def __getattr__(name: str) -> Any:
    return _find(_PUBLIC.get(name, name))


def _warn_on_accumulate_grad_stream_mismatch() -> bool:
    from undertow.engine import devices

    return devices._warn_on_mismatch[0]


#: what tests put aside for the threads of a pass, which run in copies of its context
_stashed: ContextVar[dict[str, Any]] = ContextVar("stashed", default={})  # noqa: B039  (never changed)


def _stash_obj_in_tls(key: str, value: Any) -> None:
    _stashed.set({**_stashed.get(), key: value})


def _is_key_in_tls(key: str) -> bool:
    return key in _stashed.get()


def _get_obj_in_tls(key: str) -> Any:
    return _stashed.get()[key]


class _Forwarded(SimpleNamespace):
    """A namespace whose missing names come from undertow."""

    def __getattr__(self, name: str) -> Any:
        return __getattr__(name)


class _DelayedErrorFunction(late("autograd.Function")):
    """The identity, whose backward raises."""

    @staticmethod
    def forward(ctx: Any, message: str, *tensors: Any) -> Any:
        ctx.message = message
        outputs = tuple(tensor.detach() for tensor in tensors)
        return outputs[0] if len(outputs) == 1 else outputs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(ctx.message)


class _UndefinedGradFunction(late("autograd.Function")):
    """The identity, whose backward lets nothing through."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.set_materialize_grads(False)
        outputs = tuple(tensor.detach() for tensor in tensors)
        return outputs[0] if len(outputs) == 1 else outputs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None,) * len(grads)


class DelayedError(late("graph.node.Node")):
    def __init__(self, message: str, inputs: int):
        self.message = message
        self.inputs = inputs

    def __call__(self, *tensors: Any) -> Any:
        if len(tensors) != self.inputs:
            raise RuntimeError(f"DelayedError was made for {self.inputs} inputs and got {len(tensors)}")
        return _DelayedErrorFunction.apply(self.message, *tensors)


class UndefinedGrad(late("graph.node.Node")):
    def __call__(self, *tensors: Any) -> Any:
        return _UndefinedGradFunction.apply(*tensors)


def _test_warn_in_autograd(tensor: Any) -> Any:
    return _WarnFunction.apply(tensor)


class _WarnFunction(late("autograd.Function")):
    """The identity, whose backward warns."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        import warnings

        warnings.warn("Warn from backward", UserWarning, stacklevel=2)
        return grad


def is_grad_enabled() -> bool:
    return undertow.is_grad_enabled()


_functions = _Forwarded(
    AccumulateGrad=late("autograd.graph.AccumulateGrad", "graph.accumulate.AccumulateGrad"),
    DelayedError=DelayedError,
    UndefinedGrad=UndefinedGrad,
)
_autograd = _Forwarded()
_nn = SimpleNamespace(_test_warn_in_autograd=_test_warn_in_autograd)

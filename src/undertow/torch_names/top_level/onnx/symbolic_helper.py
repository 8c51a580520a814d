"""What translations of operations to ONNX are declared with; they are never called."""

from __future__ import annotations

from typing import Any

from undertow.torch_names.absent import absent


def parse_args(*arg_descriptors: Any) -> Any:
    return lambda function: function


def quantized_args(*arg_q_descriptors: Any, **kwargs: Any) -> Any:
    return lambda function: function


def __getattr__(name: str) -> Any:
    if name.startswith(("__", "pytest")):
        raise AttributeError(name)
    return absent(f"torch.onnx.symbolic_helper.{name}")

"""Models in the format ONNX, which undertow does not write: what programs register for that is taken, and not used."""

from __future__ import annotations

import enum
from typing import Any, NoReturn

from undertow.torch_names.absent import absent
from undertow.torch_names.missing import INSTEAD, refusal


class TrainingMode(enum.Enum):
    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


def is_in_onnx_export() -> bool:
    return False


def export(*args: Any, **kwargs: Any) -> NoReturn:
    refusal("torch.onnx.export", INSTEAD["onnx"])


dynamo_export = export


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Nothing is exported, so there is nothing to translate."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Nothing is exported, so there is nothing to translate."""


def __getattr__(name: str) -> Any:
    if name.startswith(("__", "pytest")):
        raise AttributeError(name)
    return absent(f"torch.onnx.{name}")

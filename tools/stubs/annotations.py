"""The type of a parameter or a result: what its annotation says, or else what its name and its operation say."""

from __future__ import annotations

import inspect
import re
from typing import Any

from undertow.ops.declare import return_types

#: names that every stub may use, and where they come from
KNOWN = {
    "Any": "typing", "Literal": "typing", "SupportsIndex": "typing", "overload": "typing",
    "Callable": "collections.abc", "Iterable": "collections.abc", "Iterator": "collections.abc",
    "Sequence": "collections.abc", "NDArray": "numpy.typing", "Tensor": "undertow.tensor.tensor",
    "DTypeLike": "undertow._types", "DeviceLike": "undertow._types", "Dims": "undertow._types",
    "Index": "undertow._types", "Operand": "undertow._types", "Scalar": "undertow._types", "Sizes": "undertow._types",
    "TensorLike": "undertow._types", "return_types": "undertow.ops.declare",
    "Generator": "undertow.ops.random.generator", "layout": "undertow.tensor.layouts",
    "memory_format": "undertow.tensor.facts", "Device": "undertow.backend", "dtype": "numpy",
}  # fmt: skip

#: the aliases that stubs are written with
ALIASES = """\
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from undertow.backend import Device
from undertow.tensor.tensor import Tensor

DTypeLike: TypeAlias = np.dtype[Any] | type[Any]
DeviceLike: TypeAlias = Device | str | int
Dims: TypeAlias = int | Iterable[int] | None
Index: TypeAlias = (
    int | slice | EllipsisType | Tensor | NDArray[Any] | np.generic | list[Any] | tuple[Any, ...] | range | None
)
Scalar: TypeAlias = int | float | bool
Sizes: TypeAlias = int | Sequence[int]
TensorLike: TypeAlias = Tensor | NDArray[Any]
Operand: TypeAlias = Tensor | NDArray[Any] | np.generic | complex
"""

#: parameters whose name says what they take, where no annotation does
BY_NAME = {
    name: annotation
    for annotation, names in {
        "DTypeLike": "dtype",
        "DeviceLike": "device",
        "Generator": "generator",
        "layout": "layout",
        "memory_format": "memory_format",
        "Dims": "dims",
        "int": "dim1 dim2 offset num_samples",
        "bool": "keepdims retain_graph",
        "Sizes | str": "padding",
        "Sizes": "size sizes shape shapes kernel_size stride dilation output_padding output_size s blocksize "
        "split_size order",
        "Tensor": "out",
        "float | Sequence[float]": "scale_factor output_ratio",
        "Operand": "other min max min_val max_val value values exponent fill_value end alpha beta q mean std condition "
        "n rtol atol tol rcond p dx high low initial",
        "TensorLike": "input input1 input2 x x1 x2 y A B L LD LU LU_data LU_pivots M X a b anchor positive negative "
        "target targets weight bias bias_k bias_v boundaries grid index indices in_proj_weight in_proj_bias "
        "out_proj_weight out_proj_bias q_proj_weight k_proj_weight v_proj_weight static_k static_v attn_mask "
        "key_padding_mask key query linear_weight linear_bias log_probs logits losses mask mat1 mat2 matrices offsets "
        "per_sample_weights pivots pos_weight running_mean running_var sorted_sequence sorter source src tau tensors "
        "theta var vec2 window diagonals aweights fweights lengths gradient compressed_indices plain_indices",
        "NDArray[Any]": "ndarray",
    }.items()
    for name in names.split()
}

#: results that are neither a tensor, nor annotated, nor named in return_types
RESULTS = {
    "item": "Scalar",
    "lobpcg": "tuple[Tensor, Tensor]",
    "multi_head_attention_forward": "tuple[Tensor, Tensor | None]",
    "numpy": "NDArray[Any]",
    "__array__": "NDArray[Any]",
    "std_mean": "tuple[Tensor, Tensor]",
    "tolist": "Any",
    "to_device": "Tensor",
    "var_mean": "tuple[Tensor, Tensor]",
}


def annotation_text(annotation: Any) -> str:
    """An annotation as it is written; "Any" where there is none, or one that only says what is what inside."""
    if annotation is inspect.Parameter.empty:
        return "Any"
    if isinstance(annotation, str):
        written = annotation.replace("Device | str | int", "DeviceLike").replace("int | Sequence[int]", "Sizes")
        written = written.replace("int | str | Sequence[int]", "Sizes | str")
        return "Any" if written == "object" else re.sub(r"\b(Array|DType|Namespace)\b", "Any", written)
    return "None" if annotation is None else getattr(annotation, "__name__", "Any")


def parameter_type(parameter: inspect.Parameter, op: Any, operand: str) -> str:
    """The type of a parameter; `operand` is that of an operation's tensors."""
    name, default = parameter.name, parameter.default
    written = annotation_text(parameter.annotation)
    if not re.search(r"\bAny\b", written):
        return written
    if name in ("dim", "axis"):
        return "int" if isinstance(default, int) or parameter.annotation is parameter.empty is default else "Dims"
    if name == "tensors" and written == "Any" and parameter.kind is not parameter.VAR_POSITIONAL:
        return f"Sequence[{operand}]"
    if name in getattr(op, "inputs", ()) or BY_NAME.get(name) == "TensorLike":
        known = operand
    else:
        known = BY_NAME.get(name) or type_of_default(default)
    if written != "Any":  # Sequence[Any] of tensors, and the like
        return written if known == "Any" else re.sub(r"\bAny\b", known, written)
    return f"{known} | None" if default is None and known not in ("Any", "Dims") else known


def type_of_default(default: Any) -> str:
    return type(default).__name__ if isinstance(default, bool | int | float | str) else "Any"


def result_type(name: str, written: str, op: Any) -> str:
    """The type of what an operation returns: tensors, unless it is known to be something else."""
    if name.startswith("__") and op is None and name not in RESULTS:
        return written
    if name in RESULTS:
        return RESULTS[name]
    if name.startswith("_foreach_"):  # lists of tensors
        return "Any" if name.endswith("_") else "tuple[Tensor, ...]"
    if inspect.isclass(getattr(return_types, name, None)):
        return f"return_types.{name}"
    if not re.search(r"\bAny\b", written):
        return written
    if written != "Any":
        return re.sub(r"\bAny\b", "Tensor", written)
    outputs = getattr(op, "outputs", None)
    if outputs is None:
        return "Tensor"
    return "tuple[Tensor, ...]" if outputs == "list" else f"tuple[{', '.join(['Tensor'] * len(outputs))}]"

"""What the nodes of a graph give: shapes and dtypes, written down while it runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from undertow.tensor import Tensor
from undertow.tensor.memory_formats import channels_last, contiguous_format

from ..graph_module import Interpreter
from ..node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """A tensor without its values. memory_format is None where the order of dimensions in memory is none of those."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    formats = [contiguous_format, channels_last] if include_contiguity else []
    fitting = [form for form in formats if result.is_contiguous(memory_format=form)]
    order = fitting[0] if fitting else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, tuple(result.stride()), order, False, {})


class ShapeProp(Interpreter):
    """Runs a graph, and keeps of each node what it gave in `node.meta["tensor_meta"]`.

    >>> import undertow as ut
    >>> from undertow.fx.passes.shape_prop import ShapeProp
    >>> traced = ut.fx.symbolic_trace(ut.nn.Sequential(ut.nn.Linear(3, 2)))
    >>> _ = ShapeProp(traced).propagate(ut.ones(5, 3))
    >>> [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
    [(5, 3), (5, 2), (5, 2)]
    """

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        found: list[Tensor] = []

        def of(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            found.append(value)
            return _extract_tensor_metadata(value)

        told = map_aggregate(result, of)
        if found:
            n.meta["tensor_meta"] = told
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        return super().run(*args)

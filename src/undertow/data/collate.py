"""From a list of examples to a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from undertow import ops
from undertow.backend import cpu, dtypes
from undertow.tensor import Tensor

ARRAY, SCALAR = cpu.module.ndarray, cpu.module.generic


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack the tensors, arrays and numbers of the examples; inside tuples, lists and dictionaries, each for itself.

    Strings and bytes stay as they are, in a list or tuple. Python's floats become float64, integers int64. A batch of
    tuples is a list, as in PyTorch; one of named tuples is a named tuple.

    >>> import undertow as ut
    >>> ut.data.default_collate([{"x": 1.0, "k": 3}, {"x": 2.0, "k": 4}])
    {'x': tensor([1., 2.], dtype=undertow.float64), 'k': tensor([3, 4])}
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return ops.stack(list(batch), 0)
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, ARRAY | SCALAR):
        return _stacked_arrays(batch)
    if isinstance(first, float):
        return ops.tensor(list(batch), dtype=dtypes.float64)
    if isinstance(first, int | complex):
        return ops.tensor(list(batch))
    if isinstance(first, Mapping):
        return _rebuilt(first, {key: default_collate([example[key] for example in batch]) for key in first})
    if isinstance(first, Sequence):
        return _collated_sequences(first, batch)
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{type(first)}. Give the loader a collate_fn of your own for such examples."
    )


def default_convert(data: Any) -> Any:
    """NumPy arrays as tensors, also inside tuples, lists and dictionaries; everything else as it is.

    >>> import numpy as np
    >>> import undertow as ut
    >>> ut.data.default_convert({"x": np.zeros(2), "name": "zeros"})
    {'x': tensor([0., 0.], dtype=undertow.float64), 'name': 'zeros'}
    """
    if isinstance(data, ARRAY | SCALAR):
        return data if data.dtype.kind in "SUO" else ops.as_tensor(data)
    if isinstance(data, Mapping):
        return _rebuilt(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[default_convert(value) for value in data])
    if isinstance(data, Sequence) and not isinstance(data, str | bytes | Tensor):
        found = [default_convert(value) for value in data]
        return found if isinstance(data, tuple) else _rebuilt(data, found)
    return data


def _stacked_arrays(batch: Sequence[Any]) -> Tensor:
    if batch[0].dtype.kind in "SUO":
        raise TypeError(
            "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found an array of "
            f"{batch[0].dtype}"
        )
    return ops.stack([ops.as_tensor(array) for array in batch], 0)


def _collated_sequences(first: Sequence[Any], batch: Sequence[Any]) -> Any:
    if any(len(example) != len(first) for example in batch):
        raise RuntimeError("each element in list of batch should be of equal size")
    columns = [default_collate(column) for column in zip(*batch, strict=True)]
    if hasattr(first, "_fields"):
        return type(first)(*columns)
    return columns if isinstance(first, tuple) else _rebuilt(first, columns)


def _rebuilt(like: Any, values: Any) -> Any:
    """The values in the type of the examples, where that can be made of them."""
    try:
        return type(like)(values)
    except TypeError:
        return values

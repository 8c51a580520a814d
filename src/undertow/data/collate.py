"""From a list of examples to a batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Callable[..., Any]] | None = None) -> Any:
    """A batch of examples of the classes in a table, also inside tuples, lists and dictionaries.

    collate_fn_map  class, or tuple of classes -> function(batch, collate_fn_map=...)

    >>> from undertow.data.collate import collate
    >>> collate([{"a": 1}, {"a": 2}], collate_fn_map={int: lambda batch, collate_fn_map: sum(batch)})
    {'a': 3}
    """
    first = batch[0]
    table = collate_fn_map or {}
    chosen = table.get(type(first)) or next((made for kind, made in table.items() if isinstance(first, kind)), None)
    if chosen is not None:
        return chosen(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        found = {key: collate([example[key] for example in batch], collate_fn_map=collate_fn_map) for key in first}
        return _rebuilt(first, found)
    if isinstance(first, Sequence):
        return _collated_sequences(first, batch, collate_fn_map)
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{type(first)}. Give the loader a collate_fn of your own for such examples."
    )


# ---- the classes that are known; `default_collate_fn_map[Mine] = function` adds one


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return ops.stack(list(batch), 0)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if batch[0].dtype.kind in "SUO":
        raise TypeError(
            "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found an array of "
            f"{batch[0].dtype}"
        )
    return ops.stack([ops.as_tensor(array) for array in batch], 0)


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return ops.tensor(list(batch), dtype=dtypes.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return ops.tensor(list(batch))


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensor_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
    ARRAY: collate_numpy_array_fn,
    SCALAR: collate_numpy_array_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    complex: collate_int_fn,
}

#: of dtypes that are no numbers
np_str_obj_array_pattern = re.compile(r"[SaUO]")


def default_convert(data: Any) -> Any:
    """NumPy arrays as tensors, also inside tuples, lists and dictionaries; everything else as it is.

    data  a tree of arrays and other things

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


def _collated_sequences(first: Sequence[Any], batch: Sequence[Any], table: Any) -> Any:
    if any(len(example) != len(first) for example in batch):
        raise RuntimeError("each element in list of batch should be of equal size")
    columns = [collate(column, collate_fn_map=table) for column in zip(*batch, strict=True)]
    if hasattr(first, "_fields"):
        return type(first)(*columns)
    return columns if isinstance(first, tuple) else _rebuilt(first, columns)


def _rebuilt(like: Any, values: Any) -> Any:
    """The values in the type of the examples, where that can be made of them."""
    try:
        return type(like)(values)
    except TypeError:
        return values

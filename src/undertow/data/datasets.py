"""Where examples come from: by number (Dataset), or one after the other (IterableDataset)."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from types import GenericAlias
from typing import Any

from undertow import ops
from undertow.ops.random.generator import Generator
from undertow.tensor import Tensor


class Dataset:
    """Examples with numbers: a subclass defines `__getitem__`, and `__len__` where the loader chooses the numbers.

    A subclass may define `__getitems__(numbers)`, too, which gives the examples of one batch as a list.

    >>> import undertow as ut
    >>> class Squares(ut.data.Dataset):
    ...     def __len__(self):
    ...         return 3
    ...
    ...     def __getitem__(self, index):
    ...         return index**2
    >>> list(ut.data.DataLoader(Squares(), batch_size=2))
    [tensor([0, 1]), tensor([4])]
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # for annotations: Dataset[int]

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Examples in the order in which they come: a subclass defines `__iter__`.

    >>> import undertow as ut
    >>> class Count(ut.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> list(ut.data.DataLoader(Count(), batch_size=2))
    [tensor([0, 1]), tensor([2])]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Any) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Example i is row i of each tensor.

    *tensors  tensors with the same first size

    >>> import undertow as ut
    >>> data = ut.data.TensorDataset(ut.arange(6.0).reshape(3, 2), ut.tensor([0, 1, 2]))
    >>> data[1]
    (tensor([2., 3.]), tensor(1))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if any(len(tensor) != len(tensors[0]) for tensor in tensors):
            raise AssertionError(
                f"Size mismatch between tensors: their first dimensions are {[len(t) for t in tensors]}, and one "
                "example takes a row of each"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])

    def rows(self, numbers: Sequence[int]) -> list[Any]:
        """A batch in one step: what collating the examples of these numbers gives."""
        return [tensor[list(numbers)] for tensor in self.tensors]


class StackDataset(Dataset):
    """Example i is example i of each dataset: a tuple of them, or a dictionary where they are given by name.

    *args, **kwargs  the datasets, of one length

    >>> import undertow as ut
    >>> ut.data.StackDataset(range(3), "abc")[1], ut.data.StackDataset(x=range(3), y="abc")[1]
    ((1, 'b'), {'x': 1, 'y': 'b'})
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like input/output, but both "
                "types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: Any = kwargs or args
        lengths = {len(dataset) for dataset in self._parts()}
        if len(lengths) > 1:
            raise ValueError("Size mismatch between datasets")
        self._length = lengths.pop()

    def _parts(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        parts = [as_many(examples(dataset, numbers), dataset, numbers) for dataset in self._parts()]
        if isinstance(self.datasets, dict):
            return [dict(zip(self.datasets, found, strict=True)) for found in zip(*parts, strict=True)]
        return list(zip(*parts, strict=True))

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset):
    """The examples of several datasets, one dataset after the other.

    >>> import undertow as ut
    >>> list(ut.data.ConcatDataset([[1, 2], [3]]))
    [1, 2, 3]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset: chain those with ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        if which == len(self.datasets):
            raise IndexError(f"index {index} is out of range: the datasets have {len(self)} examples together")
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset):
    """The examples of several iterable datasets, one dataset after the other.

    >>> import undertow as ut
    >>> class Count(ut.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter([1, 2])
    >>> list(ut.data.ChainDataset([Count(), Count()]))
    [1, 2, 1, 2]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from dataset

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)


class Subset(Dataset):
    """The examples of a dataset that have these numbers.

    indices  the numbers

    >>> import undertow as ut
    >>> list(ut.data.Subset([10, 20, 30], [2, 0]))
    [30, 10]
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        return examples(self.dataset, [self.indices[i] for i in numbers])

    def __len__(self) -> int:
        return len(self.indices)


def examples(dataset: Any, numbers: Sequence[int]) -> list[Any]:
    """The examples of these numbers, by the dataset's own `__getitems__` where it has one."""
    if not gives_several(dataset):
        return [dataset[number] for number in numbers]
    found: list[Any] = dataset.__getitems__(numbers)
    return found


def as_many(found: list[Any], dataset: Any, numbers: Sequence[int]) -> list[Any]:
    """The examples that a dataset gave for these numbers: one for each, or they cannot be put beside others."""
    if len(found) != len(numbers):
        raise ValueError(
            f"Nested dataset's output size mismatch: __getitems__ of {type(dataset).__name__} returned {len(found)} "
            f"examples for {len(numbers)} numbers. Expected {len(numbers)}, got {len(found)}"
        )
    return found


def gives_several(dataset: Any) -> bool:
    """Whether `__getitems__` is meant: not that of a base class, where a subclass has a `__getitem__` of its own."""
    for cls in type(dataset).__mro__:
        if "__getitems__" in vars(cls):
            return True
        if "__getitem__" in vars(cls):
            break
    return "__getitems__" in getattr(dataset, "__dict__", ())


def rows(dataset: Any, numbers: Sequence[int]) -> list[Any] | None:
    """The batch of a TensorDataset, or of subsets of one, in one step; None for every other dataset.

    Numbers may be integers of NumPy, or tensors, as those of a Subset with a tensor of indices are.
    """
    while type(dataset) is Subset:
        numbers = [dataset.indices[i] for i in numbers]
        dataset = dataset.dataset
    whole = type(dataset) is TensorDataset and all(isinstance(t, Tensor) for t in dataset.tensors)
    if not whole or any([isinstance(number, bool) or not hasattr(number, "__index__") for number in numbers]):
        return None
    if any([isinstance(number, Tensor) and (number.ndim or number.dtype.kind not in "iu") for number in numbers]):
        return None
    return dataset.rows([operator.index(number) for number in numbers])


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset]:
    """Cut a dataset at random into subsets of these lengths, or of these shares if they sum to 1.

    >>> import undertow as ut
    >>> parts = ut.data.random_split(range(10), [0.7, 0.3], generator=ut.Generator().manual_seed(0))
    >>> [len(part) for part in parts], sorted(i for part in parts for i in part)
    ([7, 3], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    counts = _counts(lengths, len(dataset))
    if sum(counts) != len(dataset):
        raise ValueError(
            f"Sum of input lengths does not equal the length of the input dataset: {sum(counts)} and {len(dataset)}"
        )
    order = ops.randperm(sum(counts), generator=generator).tolist()
    ends = itertools.accumulate(counts)
    return [Subset(dataset, order[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def _counts(lengths: Sequence[int | float], total: int) -> list[int]:
    if not (math.isclose(sum(lengths), 1) and sum(lengths) <= 1):
        return [int(n) for n in lengths]
    for number, share in enumerate(lengths):
        if not 0 <= share <= 1:
            raise ValueError(f"Fraction at index {number} is not between 0 and 1: {share}")
    counts = [math.floor(total * share) for share in lengths]
    for number in range(total - sum(counts)):  # what rounding down left over goes to the first ones, one each
        counts[number % len(counts)] += 1
    return counts

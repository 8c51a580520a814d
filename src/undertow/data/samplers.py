"""In which order the examples are taken: samplers give numbers, a batch sampler gives lists of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from types import GenericAlias
from typing import Any

from undertow import ops
from undertow.backend import dtypes
from undertow.ops.random.generator import Generator

#: numbers that a sampler with replacement draws together
DRAWN_AT_ONCE = 32


def drawn_seed(generator: Generator | None) -> int:
    """A seed for another generator."""
    return ops.empty((), dtype=dtypes.int64).random_(generator=generator).item()


class Sampler:
    """Gives the numbers of examples: a subclass defines `__iter__`, and `__len__` where it is known.

    >>> import undertow as ut
    >>> class Backwards(ut.data.Sampler):
    ...     def __init__(self, data):
    ...         self.data = data
    ...
    ...     def __iter__(self):
    ...         return iter(range(len(self.data) - 1, -1, -1))
    >>> list(ut.data.DataLoader([10, 20, 30], sampler=Backwards([10, 20, 30]), batch_size=None))
    [30, 20, 10]
    """

    __class_getitem__: Any = classmethod(GenericAlias)  # for annotations: Sampler[int]

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler):
    """0, 1, 2, ...

    data_source  its length counts

    >>> import undertow as ut
    >>> list(ut.data.SequentialSampler([10, 20, 30]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """The numbers in random order; with `replacement` each is drawn from all.

    num_samples  how many numbers to give: the size of the data if None
    generator    where the randomness comes from: the default generator if None
    data_source  its length counts

    >>> import undertow as ut
    >>> order = ut.data.RandomSampler(range(5), generator=ut.Generator().manual_seed(1))
    >>> sorted(order)
    [0, 1, 2, 3, 4]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        if not isinstance(self.num_samples, int) or self.num_samples < 0:
            raise ValueError(f"num_samples should be a non-negative integer value, but got num_samples={num_samples}")

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size = len(self.data_source)
        if size == 0:
            return
        generator = self.generator or Generator().manual_seed(drawn_seed(None))
        if self.replacement:
            for start in range(0, self.num_samples, DRAWN_AT_ONCE):
                count = min(DRAWN_AT_ONCE, self.num_samples - start)
                yield from ops.randint(0, size, (count,), generator=generator).tolist()
            return
        for _ in range(self.num_samples // size):
            yield from ops.randperm(size, generator=generator).tolist()
        yield from ops.randperm(size, generator=generator).tolist()[: self.num_samples % size]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given numbers in random order.

    indices  the numbers

    >>> import undertow as ut
    >>> sorted(ut.data.SubsetRandomSampler([3, 1, 2]))
    [1, 2, 3]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for position in ops.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """`num_samples` numbers, each drawn with a probability proportional to its weight.

    weights      one for each number; they need not add up to 1
    replacement  whether a number may be drawn again

    >>> import undertow as ut
    >>> list(ut.data.WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self, weights: Any, num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        if isinstance(num_samples, bool) or not isinstance(num_samples, int) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = ops.as_tensor(weights, dtype=dtypes.float64)
        if self.weights.ndim != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = ops.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """The numbers of another sampler in lists of `batch_size`; `drop_last` leaves a shorter last one out.

    >>> import undertow as ut
    >>> list(ut.data.BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class DistributedSampler(Sampler):
    """The numbers of the examples that one process of several takes: every n-th, of an order that all share.

    num_replicas, rank  how many processes there are, and which is this one; asked of undertow.distributed if None
    shuffle, seed       a new order for each epoch, drawn from the seed and the number that `set_epoch` sets
    drop_last           leave examples out until all processes have the same number; or else give some twice
    dataset             its length counts

    >>> import undertow as ut
    >>> list(ut.data.DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from undertow.distributed import process_group

            num_replicas = process_group.get_world_size() if num_replicas is None else num_replicas
            rank = process_group.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        whole, more = divmod(len(dataset), num_replicas)
        self.num_samples = whole + (more > 0 and not drop_last)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            order = ops.randperm(len(self.dataset), generator=generator).tolist()
        else:
            order = list(range(len(self.dataset)))
        while len(order) < self.total_size:
            order += order[: self.total_size - len(order)]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch: the same number in all processes."""
        self.epoch = epoch

"""The part of a data set that one of several processes takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

from undertow import ops
from undertow.data.samplers import Sampler
from undertow.ops.random.generator import Generator


class DistributedSampler(Sampler):
    """Every `num_replicas`-th number, from `rank` on; shuffled anew with each epoch that `set_epoch` names.

    >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
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
            raise RuntimeError(
                "Requires distributed package to be available: undertow trains in one process; give DistributedSampler "
                "num_replicas and rank"
            )
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        size = len(dataset)
        if drop_last and size % num_replicas:
            self.num_samples = math.ceil((size - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        numbers = list(range(len(self.dataset)))
        if self.shuffle:
            generator = Generator()
            generator.manual_seed(self.seed + self.epoch)
            numbers = ops.randperm(len(self.dataset), generator=generator).tolist()
        if not self.drop_last and numbers:
            missing = self.total_size - len(numbers)
            numbers += (numbers * math.ceil(missing / len(numbers)))[:missing]
        return iter(numbers[: self.total_size][self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

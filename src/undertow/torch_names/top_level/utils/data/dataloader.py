"""The loader, and what it makes batches with."""

from collections.abc import Callable
from typing import Any

from undertow.data.collate import *  # noqa: F403
from undertow.data.loader import *  # noqa: F403

_collate_fn_t = Callable[[list[Any]], Any]
_worker_init_fn_t = Callable[[int], None]


class _BaseDataLoaderIter:
    """PyTorch's classes of iterators over a loader: those of undertow's loaders are generators, and none of these."""


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter): ...


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter): ...


class _DatasetKind:
    Map, Iterable = 0, 1


class _InfiniteConstantSampler:
    """The class of samplers of iterable data sets: nothing is one of it."""

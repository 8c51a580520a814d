"""Batches of examples, in order or shuffled, prepared by threads if asked."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import GenericAlias
from typing import Any, TextIO

from undertow import pytree
from undertow.cuda import is_available as has_gpu
from undertow.data.collate import default_collate, default_convert
from undertow.data.datasets import IterableDataset, examples, rows
from undertow.data.progress import Progress, TqdmProgress, find_tqdm
from undertow.data.samplers import BatchSampler, RandomSampler, SequentialSampler, drawn_seed
from undertow.data.workers import Workers
from undertow.ops.random.generator import Generator

#: batches that each worker prepares ahead, as in PyTorch
PREFETCH = 2

#: what the other attributes were made of
FIXED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class DataLoader:
    """Iterates over a dataset in batches; each `for` loop over it is one pass.

    batch_size               examples in a batch; None: the examples themselves, their NumPy arrays as tensors
    shuffle                  take the examples in a new random order in each pass
    sampler                  gives the numbers of the examples instead
    batch_sampler            gives the lists of numbers instead
    num_workers              threads that prepare batches ahead; 0: the thread that runs the loop does it
    collate_fn               makes a batch of a list of examples (`default_collate`); without batches, of an example
                             what the loop gets (`default_convert`)
    pin_memory               put tensors into pinned memory, from which GPUs copy by themselves; without a GPU, a
                             warning
    drop_last                leave the last batch out if it is not full
    timeout                  how many seconds to wait for a worker's batch before that is an error; 0: for ever
    worker_init_fn           is called by each worker with its number when it starts
    generator                where the order (and the seeds of the workers) come from; the default generator if None
    prefetch_factor          batches that each worker prepares ahead (2)
    persistent_workers       keep the threads from one pass to the next
    in_order                 accepted for PyTorch's sake: batches always come in order
    multiprocessing_context  accepted for PyTorch's sake: workers are threads
    progress                 show a progress bar; the attribute `note` is shown behind it. True: on standard error, by
                             tqdm if it is installed; or a stream
    pin_memory_device        accepted, without effect

    The order depends on the generator alone, not on the number of workers. An IterableDataset is read by all workers if
    it asks for its worker's number, to share its examples among them; otherwise by one, so that none comes twice.

    >>> import undertow as ut
    >>> data = ut.data.TensorDataset(ut.arange(5.0), ut.arange(5))
    >>> for x, y in ut.data.DataLoader(data, batch_size=2):
    ...     print(x.tolist(), y.tolist())
    [0.0, 1.0] [0, 1]
    [2.0, 3.0] [2, 3]
    [4.0] [4]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        progress: bool | TextIO = False,
    ) -> None:
        _check_workers(num_workers, prefetch_factor, timeout, persistent_workers, multiprocessing_context)
        self._pins = pin_memory and has_gpu()
        if pin_memory and not self._pins:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be "
                "used.",
                stacklevel=2,
            )
        self._is_iterable = isinstance(dataset, IterableDataset)
        if self._is_iterable:
            _check_iterable(shuffle, sampler, batch_sampler)
        _check_choices(batch_size, shuffle, sampler, batch_sampler, drop_last)
        self.dataset, self.num_workers, self.generator, self.progress = dataset, num_workers, generator, progress
        self.worker_init_fn, self.timeout, self.persistent_workers = worker_init_fn, timeout, persistent_workers
        self.pin_memory, self.pin_memory_device, self.in_order = pin_memory, pin_memory_device, in_order
        self.multiprocessing_context = multiprocessing_context
        self._workers: Workers | None = None
        self.prefetch_factor = PREFETCH if prefetch_factor is None and num_workers else prefetch_factor
        self.batch_size = batch_size if batch_sampler is None else None
        self.drop_last = drop_last
        if not self._is_iterable and sampler is None and batch_sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if not self._is_iterable and batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self._made = True

    __class_getitem__: Any = classmethod(GenericAlias)  # for annotations: DataLoader[int]
    _made = False
    note = ""

    def __setattr__(self, name: str, value: Any) -> None:
        if self._made and name in FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized: make another loader"
            )
        super().__setattr__(name, value)

    def __len__(self) -> int:
        if not self._is_iterable:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        if self.batch_size is None:
            return len(self.dataset)
        return len(BatchSampler(range(len(self.dataset)), self.batch_size, self.drop_last))

    def __iter__(self) -> Iterator[Any]:
        seed = drawn_seed(self.generator) if self._workers is None else 0  # those that run have theirs
        return self._pass(seed, itertools.repeat(None) if self._is_iterable else self._tasks())

    def _pass(self, seed: int, tasks: Iterator[Any]) -> Iterator[Any]:
        with contextlib.ExitStack() as cleanup:
            batches = self._batches(seed, tasks)
            if self.num_workers:
                cleanup.callback(batches.close)  # type: ignore[attr-defined]
            bar = self._bar()
            cleanup.callback(bar.close)
            for done, batch in enumerate(batches, 1):
                if batch is END:
                    return
                yield pytree.tree_map(_pinned, batch) if self._pins else batch
                bar.update(done, self.note)

    def _bar(self) -> Any:
        if not self.progress:
            return _Quiet()
        try:
            total: int | None = len(self)
        except TypeError:
            total = None
        tqdm = find_tqdm() if self.progress is True else None
        if tqdm is not None:
            return TqdmProgress(tqdm, total, "batches")
        return Progress(total, sys.stderr if self.progress is True else self.progress, unit="batches")

    def _batches(self, seed: int, tasks: Iterator[Any]) -> Iterator[Any]:
        if self.num_workers:
            return self._prepared(seed, tasks)
        return map(_Stream(self, self.dataset) if self._is_iterable else self._fetch, tasks)

    def _tasks(self) -> Iterator[Any]:
        """What is to be fetched. The sampler is asked for what workers do ahead when a pass begins, as in PyTorch."""
        tasks = iter(self.sampler if self.batch_sampler is None else self.batch_sampler)
        ahead = list(itertools.islice(tasks, self.num_workers * (self.prefetch_factor or PREFETCH)))
        return itertools.chain(ahead, tasks)

    def _prepared(self, seed: int, tasks: Iterator[Any]) -> Iterator[Any]:
        """Batches from worker threads. Persistent ones outlive the pass, but not an error in it."""
        workers = self._started(seed)
        running = workers.begin_pass()
        try:
            if self._is_iterable:
                yield from running.in_turn(lambda dataset: _Stream(self, dataset), END)
            else:
                yield from running.in_order(self._fetch, tasks)
        except Exception:
            self._end(workers)
            raise
        finally:
            if self._workers is not workers:
                workers.close()

    def _started(self, seed: int) -> Workers:
        if self._workers is not None:
            return self._workers
        ahead = self.prefetch_factor or PREFETCH
        copied, begin = self._is_iterable, self.worker_init_fn
        workers = Workers(self.num_workers, ahead, seed, self.dataset, copied, begin, self.timeout)
        if self.persistent_workers:
            self._workers = workers
            self._ending = weakref.finalize(self, workers.close)
        return workers

    def _end(self, workers: Workers) -> None:
        if self._workers is workers:
            self._workers = None
            self._ending.detach()

    def _fetch(self, numbers: Any) -> Any:
        if self.batch_sampler is None:
            return self.collate_fn(self.dataset[numbers])
        whole = rows(self.dataset, numbers) if self.collate_fn is default_collate else None
        return self.collate_fn(examples(self.dataset, numbers)) if whole is None else whole


END = object()


def _pinned(value: Any) -> Any:
    """A part of a batch in pinned memory, if it can be: a tensor, or what has a method of that name."""
    return value.pin_memory() if hasattr(value, "pin_memory") else value


class _Stream:
    """Reads batches from an iterable dataset, each by a call; in one thread."""

    def __init__(self, loader: DataLoader, dataset: Any) -> None:
        self.dataset, self.size, self.drop_last = dataset, loader.batch_size, loader.drop_last
        self.collate_fn = loader.collate_fn
        self.source: Any = None
        self.ended = False

    def __call__(self, _: None) -> Any:
        """The next batch, or END."""
        if self.source is None:  # in the thread that reads, because __iter__ may ask for its worker
            self.source = iter(self.dataset)
        found = [] if self.ended else list(itertools.islice(self.source, self.size or 1))
        self.ended = len(found) < (self.size or 1)
        if not found or (self.ended and self.drop_last):
            return END
        return self.collate_fn(found[0] if self.size is None else found)


class _Quiet:
    """The progress of a loader that shows none."""

    def update(self, done: int, note: str) -> None:
        pass

    def close(self) -> None:
        pass


# ---- what cannot be asked for


def _check_workers(
    num_workers: int, prefetch_factor: int | None, timeout: float, persistent_workers: bool, context: Any
) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable the threads")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if context is not None:
        _check_context(context, num_workers)
    if num_workers:
        if prefetch_factor is not None and prefetch_factor <= 0:
            raise ValueError("prefetch_factor option should be positive")
        return
    if prefetch_factor is not None:
        raise ValueError("prefetch_factor option could only be specified in multiprocessing: let num_workers > 0")
    if persistent_workers:
        raise ValueError("persistent_workers option needs num_workers > 0")
    if timeout:
        raise ValueError("timeout option could only be specified with worker threads: let num_workers > 0")


def _check_context(context: Any, num_workers: int) -> None:
    """It is about processes, and workers are threads; but it must be one that PyTorch would take."""
    if not num_workers:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
            f"num_workers={num_workers}"
        )
    methods = multiprocessing.get_all_start_methods()
    if isinstance(context, str) and context not in methods:
        raise ValueError(
            f"multiprocessing_context option should specify a valid start method in {methods}, but got "
            f"multiprocessing_context={context!r}"
        )
    if not isinstance(context, str | multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, "
            f"but got multiprocessing_context={context}"
        )


def _check_iterable(shuffle: bool | None, sampler: Any, batch_sampler: Any) -> None:
    for name, value in (("shuffle", shuffle or None), ("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}; the "
                "dataset itself decides about the order"
            )


def _check_choices(
    batch_size: int | None, shuffle: bool | None, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if shuffle not in (None, False, True):
        raise ValueError(f"DataLoader: expected shuffle to be a bool or None, but got shuffle={shuffle!r}")
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_sampler is None and batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size <= 0):
        raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")

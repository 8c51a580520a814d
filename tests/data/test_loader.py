"""The loader: batches in order whatever the number of threads, errors that arrive, threads that end."""

from __future__ import annotations

import gc
import threading
import time
import traceback
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, get_worker_info


class Squares(Dataset):
    def __init__(self, count: int, delay: float = 0.0) -> None:
        self.count, self.delay = count, delay

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(f"there is no example {index}")
        time.sleep(self.delay * (index % 3))  # so that threads finish out of order
        return index, float(index * index)

    def __len__(self) -> int:
        return self.count


class Counting(IterableDataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self):
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count


def worker_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("undertow data worker")]


def taken(loader: DataLoader) -> list[list[int]]:
    return [numbers.tolist() for numbers, _ in loader]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_order(workers: int) -> None:
    loader = DataLoader(Squares(11, 0.001), batch_size=3, num_workers=workers)
    assert taken(loader) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    assert len(loader) == 4
    assert worker_threads() == []


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_seed_decides_the_order_whatever_the_number_of_workers(workers: int) -> None:
    def order(count: int) -> list[list[int]]:
        loader = DataLoader(
            Squares(40), batch_size=4, shuffle=True, num_workers=count, generator=ut.Generator().manual_seed(5)
        )
        return taken(loader) + taken(loader)

    found = order(workers)
    assert found == order(0)
    assert sorted(n for batch in found[:10] for n in batch) == list(range(40)) and found[:10] != found[10:]


def test_the_default_generator_is_used_without_one() -> None:
    def order() -> list[list[int]]:
        ut.manual_seed(3)
        return taken(DataLoader(Squares(20), batch_size=5, shuffle=True))

    assert order() == order()


@pytest.mark.parametrize(("batch_size", "drop_last"), [(None, False), (1, False), (4, False), (1, True), (4, True)])
@pytest.mark.parametrize("shape", ["map", "iterable"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_torch(batch_size: int | None, drop_last: bool, shape: str, workers: int) -> None:
    reference = pytest.importorskip("torch.utils.data")

    class TheirCounting(reference.IterableDataset):
        __iter__, __len__ = Counting.__iter__, Counting.__len__

        def __init__(self, count: int) -> None:
            self.count = count

    mine = DataLoader(
        range(10) if shape == "map" else Counting(10), batch_size, drop_last=drop_last, num_workers=workers
    )
    source = range(10) if shape == "map" else TheirCounting(10)
    theirs = reference.DataLoader(source, batch_size, drop_last=drop_last)
    assert len(mine) == len(theirs)

    def listed(loader: Any) -> list[Any]:
        return [batch.tolist() if hasattr(batch, "tolist") else batch for batch in loader]

    assert listed(mine) == listed(theirs)


def test_tensor_datasets_and_their_subsets_are_read_by_rows() -> None:
    x = ut.arange(12.0).reshape(6, 2).requires_grad_()
    data = TensorDataset(x, ut.arange(6))
    plain = DataLoader(data, batch_size=4, collate_fn=lambda rows: ut.data.default_collate(rows))
    for (a, n), (b, m) in zip(DataLoader(data, batch_size=4), plain, strict=True):
        assert a.tolist() == b.tolist() and n.tolist() == m.tolist()
    rows, numbers = next(iter(DataLoader(Subset(Subset(data, [5, 4, 3, 2]), [3, 0]), batch_size=2)))
    assert numbers.tolist() == [2, 5]
    rows.sum().backward()
    assert x.grad.sum(1).tolist() == [0, 0, 2, 0, 0, 2]


def test_samplers_and_batch_samplers_of_ones_own() -> None:
    assert taken(DataLoader(Squares(9), batch_size=2, sampler=[8, 1, 4])) == [[8, 1], [4]]
    assert taken(DataLoader(Squares(9), batch_sampler=[[1, 2], [7]], num_workers=2)) == [[1, 2], [7]]


def test_a_dataset_may_fetch_a_whole_batch() -> None:
    class Whole(Dataset):
        def __getitems__(self, numbers):
            return [n * 2 for n in numbers]

        def __len__(self):
            return 4

    assert [b.tolist() for b in DataLoader(Whole(), batch_size=2)] == [[0, 2], [4, 6]]


def test_what_a_dataset_fetches_may_be_the_batch_itself() -> None:
    """Inputs and targets, say, with a `collate_fn` that leaves them as they are."""

    class Whole(Dataset):
        def __getitems__(self, numbers):
            return ut.tensor(numbers), ut.tensor(numbers) * 2

        def __len__(self):
            return 6

    batches = list(DataLoader(Whole(), batch_size=3, collate_fn=lambda batch: batch))
    assert [[part.tolist() for part in batch] for batch in batches] == [[[0, 1, 2], [0, 2, 4]], [[3, 4, 5], [6, 8, 10]]]


# ---- errors


def explode(index: int) -> None:
    raise KeyError(f"example {index} is broken")


class Broken(Squares):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            explode(index)
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_error_arrives_in_its_place_with_its_traceback(workers: int) -> None:
    batches = iter(DataLoader(Broken(8), batch_size=2, num_workers=workers))
    assert [next(batches)[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="example 5 is broken") as caught:
        next(batches)
    shown = "".join(traceback.format_exception(caught.value))
    assert "explode(index)" in shown
    assert ("undertow data worker" in shown) == (workers > 0)
    assert worker_threads() == []
    assert list(batches) == []


def test_an_error_of_the_collation_and_of_the_sampler_arrives() -> None:
    def refuse(rows: Any) -> Any:
        raise ValueError("no batch today")

    with pytest.raises(ValueError, match="no batch today"):
        list(DataLoader(Squares(3), collate_fn=refuse, num_workers=2))

    def numbers():
        yield 1
        raise ArithmeticError("lost count")

    with pytest.raises(ArithmeticError, match="lost count"):
        list(DataLoader(Squares(3), sampler=numbers(), num_workers=2))
    assert worker_threads() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be specified in multiprocessing"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor option should be positive"),
        ({"sampler": [1], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, "disables auto-batching and is mutually exclusive with drop_last"),
        ({"batch_size": 0}, "batch_size should be a positive integer value"),
        ({"batch_size": 2.0}, "batch_size should be a positive integer value"),
    ],
)
def test_impossible_loaders_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(Squares(3), **options)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}])
def test_an_iterable_dataset_decides_its_order_itself(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"expected unspecified {next(iter(options))} option"):
        DataLoader(Counting(3), **options)


# ---- threads


def test_an_abandoned_loop_ends_its_threads() -> None:
    gc.disable()  # by reference counts alone
    try:
        for _ in DataLoader(Squares(100, 0.001), batch_size=2, num_workers=2):
            assert len(worker_threads()) == 2
            break
        assert worker_threads() == []
        batches = iter(DataLoader(Squares(100), num_workers=2))
        next(batches)
        del batches
        assert worker_threads() == []
        never_started = iter(DataLoader(Squares(100), num_workers=2))
        del never_started
    finally:
        gc.enable()


def test_a_loop_left_by_an_error_ends_its_threads() -> None:
    with pytest.raises(ZeroDivisionError):
        for _ in DataLoader(Squares(100), num_workers=2):
            1 / 0
    assert worker_threads() == []


def test_threads_end_that_an_interrupt_left_before_anybody_watched_over_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(workers: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("undertow.data.workers.Workers.begin_pass", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(iter(DataLoader(Squares(100), num_workers=2)))
    for thread in worker_threads():
        thread.join(5)
    assert worker_threads() == []


@pytest.mark.parametrize("factor", [1, 3])
def test_workers_stay_a_few_batches_ahead(factor: int) -> None:
    seen: list[int] = []

    class Watched(Squares):
        def __getitem__(self, index: int) -> Any:
            seen.append(index)
            return super().__getitem__(index)

    batches = iter(DataLoader(Watched(50), num_workers=2, prefetch_factor=factor))
    next(batches)
    deadline = time.monotonic() + 60
    while len(seen) < 2 * factor and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert sorted(seen) == list(range(2 * factor))
    batches.close()


def test_workers_run_beside_the_loop() -> None:
    together = threading.Barrier(2, timeout=20)

    class Meeting(Squares):
        def __getitem__(self, index: int) -> Any:
            together.wait()  # passes when two examples are fetched at the same time
            return super().__getitem__(index)

    assert taken(DataLoader(Meeting(4), num_workers=2)) == [[0], [1], [2], [3]]


def test_a_worker_knows_its_number_and_draws_the_same_again() -> None:
    class Noisy(Squares):
        def __getitem__(self, index: int) -> Any:
            info = get_worker_info()
            assert info is not None and info.num_workers == 2 and info.id == index % 2 and info.dataset is self
            return ut.rand(2, generator=info.generator)

    def drawn() -> list[Any]:
        loader = DataLoader(Noisy(8, 0.001), num_workers=2, generator=ut.Generator().manual_seed(1))
        return [batch.tolist() for batch in loader]

    assert drawn() == drawn()
    assert len({str(row) for row in drawn()}) == 8
    assert get_worker_info() is None


def test_workers_are_told_when_they_start() -> None:
    started = []
    list(DataLoader(Squares(4), num_workers=2, worker_init_fn=started.append))
    assert sorted(started) == [0, 1]

    def refuse(worker: int) -> None:
        raise OSError(f"worker {worker} has no disk")

    with pytest.raises(OSError, match="worker 0 has no disk"):
        list(DataLoader(Squares(4), num_workers=2, worker_init_fn=refuse))
    assert worker_threads() == []


def test_modes_of_the_caller_hold_in_the_workers() -> None:
    class Modes(Squares):
        def __getitem__(self, index: int) -> Any:
            return ut.is_grad_enabled()

    for persistent in (False, True):
        loader = DataLoader(Modes(2), num_workers=2, persistent_workers=persistent)
        with ut.no_grad():
            assert [b.tolist() for b in loader] == [[False], [False]]
        assert [b.tolist() for b in loader] == [[True], [True]]


def test_iterable_datasets_are_read_once_whatever_the_number_of_workers() -> None:
    for workers in (0, 1, 4):
        loader = DataLoader(Counting(10), batch_size=3, num_workers=workers)
        assert [b.tolist() for b in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
        assert len(list(loader)) == 4  # a second pass reads it again
    assert worker_threads() == []


# ---- iterable datasets and several workers


class Shared(IterableDataset):
    """Its workers read every n-th number."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.count, step))


#: (workers, drop_last, examples) -> what PyTorch 2.13 gives with batches of 3
SHARED = {
    (2, False, 1): [[0]],
    (2, False, 5): [[0, 2, 4], [1, 3]],
    (2, False, 14): [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11], [12], [13]],
    (2, True, 1): [],
    (2, True, 5): [[0, 2, 4]],
    (2, True, 14): [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]],
    (3, False, 1): [[0]],
    (3, False, 5): [[0, 3], [1, 4], [2]],
    (3, False, 14): [[0, 3, 6], [1, 4, 7], [2, 5, 8], [9, 12], [10, 13], [11]],
    (3, True, 14): [[0, 3, 6], [1, 4, 7], [2, 5, 8]],
}


@pytest.mark.parametrize(("workers", "drop_last", "count"), SHARED)
def test_a_dataset_that_shares_its_examples_is_read_by_all_workers(workers: int, drop_last: bool, count: int) -> None:
    loader = DataLoader(Shared(count), batch_size=3, num_workers=workers, drop_last=drop_last)
    assert [b.tolist() for b in loader] == SHARED[workers, drop_last, count]
    assert worker_threads() == []


def test_worker_init_fn_may_tell_each_worker_what_to_read() -> None:
    def assign(worker: int) -> None:
        info = get_worker_info()
        info.dataset.numbers = range(worker, 10, info.num_workers)

    class Told(IterableDataset):
        numbers = range(10)

        def __iter__(self):
            return iter(self.numbers)

    data = Told()
    loader = DataLoader(data, batch_size=None, num_workers=2, worker_init_fn=assign)
    assert sorted(loader) == list(range(10))
    assert data.numbers == range(10)  # each worker was given a copy


def test_a_dataset_that_asks_too_late_is_the_only_reader() -> None:
    class Late(IterableDataset):
        def __iter__(self):
            for i in range(6):
                yield i if i < 4 else (get_worker_info().id, get_worker_info().num_workers)

    assert list(DataLoader(Late(), batch_size=None, num_workers=3)) == [0, 1, 2, 3, [0, 1], [0, 1]]


def test_drawing_from_the_workers_generator_is_no_sharing() -> None:
    class Noisy(IterableDataset):
        def __iter__(self):
            info = get_worker_info()
            return iter([ut.rand(1, generator=info.generator).item() for _ in range(4)])

    assert len(list(DataLoader(Noisy(), batch_size=None, num_workers=3))) == 4


def test_an_error_of_one_of_several_readers_arrives() -> None:
    class Failing(Shared):
        def __iter__(self):
            for n in super().__iter__():
                if n == 7:
                    explode(n)
                yield n

    with pytest.raises(KeyError, match="example 7 is broken"):
        list(DataLoader(Failing(12), num_workers=2))
    assert worker_threads() == []


# ---- options


def test_persistent_workers_stay_from_pass_to_pass() -> None:
    started = []
    loader = DataLoader(Squares(6), batch_size=2, num_workers=2, persistent_workers=True, worker_init_fn=started.append)
    assert taken(loader) == taken(loader) == [[0, 1], [2, 3], [4, 5]]
    threads = worker_threads()
    for _ in loader:
        break  # what was under way is forgotten
    assert taken(loader) == [[0, 1], [2, 3], [4, 5]]
    assert worker_threads() == threads and len(threads) == 2
    assert sorted(started) == [0, 1]
    del loader
    gc.collect()
    assert worker_threads() == []


def test_persistent_workers_of_an_iterable_dataset() -> None:
    for data, expected in ((Counting(5), [0, 1, 2, 3, 4]), (Shared(5), [0, 1, 2, 3, 4])):
        loader = DataLoader(data, batch_size=None, num_workers=2, persistent_workers=True)
        assert list(loader) == list(loader) == expected
        del loader
        gc.collect()
    assert worker_threads() == []


def test_persistent_workers_serve_one_pass_at_a_time() -> None:
    loader = DataLoader(Squares(6), num_workers=2, persistent_workers=True)
    outer = iter(loader)
    next(outer)
    assert len(list(loader)) == 6
    with pytest.raises(RuntimeError, match="ended by a newer one"):
        next(outer)
    assert len(list(loader)) == 6


def test_an_error_ends_persistent_workers_and_the_next_pass_has_new_ones() -> None:
    loader = DataLoader(Broken(8), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(2):
        with pytest.raises(KeyError):
            list(loader)
        assert worker_threads() == []


def test_a_worker_that_takes_too_long() -> None:
    release = threading.Event()

    class Stuck(Squares):
        def __getitem__(self, index: int) -> Any:
            release.wait(20)
            return super().__getitem__(index)

    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0.05 seconds"):
        try:
            next(iter(DataLoader(Stuck(3), num_workers=1, timeout=0.05)))
        finally:
            release.set()


def test_memory_cannot_be_pinned() -> None:
    with pytest.warns(UserWarning, match="no accelerator is found"):
        loader = DataLoader(Squares(2), batch_size=2, pin_memory=True)
    assert taken(loader) == [[0, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": -1, "num_workers": 1}, "timeout option should be non-negative"),
        ({"timeout": 1}, "let num_workers > 0"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"multiprocessing_context": "fork"}, "can only be used with multi-process loading"),
        ({"multiprocessing_context": "spoon", "num_workers": 1}, "should specify a valid start method in"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(Squares(3), **options)


def test_arguments_are_those_of_torch_by_position_too() -> None:
    import inspect

    reference = pytest.importorskip("torch.utils.data")
    mine = list(inspect.signature(DataLoader).parameters.values())
    theirs = list(inspect.signature(reference.DataLoader).parameters.values())
    assert [(p.name, p.kind) for p in mine if p.name != "progress"] == [(p.name, p.kind) for p in theirs]


def test_a_way_to_start_processes_is_accepted(L: ModuleType) -> None:
    loader = L.utils.data.DataLoader([1, 2, 3], num_workers=1, multiprocessing_context="fork")
    assert [batch.tolist() for batch in loader] == [[1], [2], [3]]


def test_a_loader_stays_what_it_was_made(L: ModuleType) -> None:
    loader = L.utils.data.DataLoader([1, 2, 3])
    for name in ("batch_size", "sampler", "batch_sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
            setattr(loader, name, None)
    loader.num_workers = 0


def test_annotations(L: ModuleType) -> None:
    data = L.utils.data

    class Numbers(data.Dataset[int]):
        def __getitem__(self, index: int) -> int:
            return index

    assert Numbers()[3] == 3 and data.DataLoader[int] and data.Sampler[int] and data.IterableDataset[int]


@pytest.mark.parametrize("workers", [0, 2])
def test_without_batches_arrays_become_tensors(workers: int) -> None:
    class Arrays(Dataset):
        def __getitem__(self, index: int) -> Any:
            return {"x": np.full(2, index), "name": str(index), "n": index}

        def __len__(self) -> int:
            return 2

    first, second = DataLoader(Arrays(), batch_size=None, num_workers=workers)
    assert isinstance(first["x"], ut.Tensor) and first["x"].dtype is ut.int64 and first["name"] == "0"
    assert second["x"].tolist() == [1, 1] and second["n"] == 1
    kept, _ = DataLoader(Arrays(), batch_size=None, collate_fn=lambda example: example)
    assert isinstance(kept["x"], np.ndarray)


def test_a_loader_made_again_of_its_public_attributes(L: Any) -> None:
    """As libraries do that exchange a loader's batch sampler: all but those that a batch sampler stands for."""
    loader = L.utils.data.DataLoader(L.arange(6), batch_size=2, drop_last=True, timeout=0)
    stood_for = ("batch_size", "sampler", "drop_last", "batch_sampler")
    kept = {n: value for n, value in vars(loader).items() if not n.startswith("_") and n not in stood_for}
    again = type(loader)(**kept, batch_sampler=[[5, 0], [1]])
    assert [batch.tolist() for batch in again] == [[5, 0], [1]]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_order_is_drawn_when_a_pass_begins_if_workers_are_to_go_ahead(L: Any, workers: int) -> None:
    """So a program that sets the generator's state between `iter` and the first batch gets PyTorch's numbers."""
    loader = L.utils.data.DataLoader(L.arange(40), batch_size=4, shuffle=True, num_workers=workers)
    L.manual_seed(3)
    whole = [batch.tolist() for batch in loader]
    L.manual_seed(3)
    begun = iter(loader)
    L.manual_seed(4)
    assert ([batch.tolist() for batch in begun] == whole) is (workers > 0)


def test_passes_of_persistent_workers_draw_an_order_and_no_seed_for_the_workers(L: Any) -> None:
    loader = L.utils.data.DataLoader(L.arange(40), shuffle=True, num_workers=1, persistent_workers=True)
    list(loader)
    L.manual_seed(3)
    list(loader)
    after = L.rand(1)
    L.manual_seed(3)
    list(L.utils.data.RandomSampler(range(40)))
    assert after == L.rand(1)

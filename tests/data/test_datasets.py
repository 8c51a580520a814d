"""Datasets, samplers and collation give what torch.utils.data gives; random ones keep their promises."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

import numpy as np
import pytest

import undertow as ut
from undertow import data

torch = pytest.importorskip("torch")
reference = pytest.importorskip("torch.utils.data")


def plain(value: Any) -> Any:
    """A structure with lists instead of tensors, and the dtype of each."""
    if isinstance(value, (ut.Tensor, torch.Tensor)):
        return str(value.dtype).split(".")[-1], value.tolist()
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(v) for v in value]
    return value


class Point(NamedTuple):
    x: Any
    y: Any


EXAMPLES = {
    "floats": [1.5, 2.5],
    "ints": [1, 2],
    "bools": [True, False],
    "strings": ["a", "b"],
    "bytes": [b"a", b"b"],
    "tuples": [(1, 2.0), (3, 4.0)],
    "lists": [[1, "u"], [3, "v"]],
    "dicts": [{"a": 1, "b": [2.0]}, {"a": 3, "b": [4.0]}],
    "ordered": [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    "named": [Point(1, (2.0, "s")), Point(3, (4.0, "t"))],
    "arrays": [np.ones(2, np.float32), np.zeros(2, np.float32)],
    "integer arrays": [np.arange(3), np.arange(3)],
    "scalars": [np.float32(1), np.float32(2)],
    "0-d arrays": [np.array(1.0), np.array(2.0)],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_collation_is_that_of_torch(name: str) -> None:
    batch = EXAMPLES[name]
    assert plain(data.default_collate(batch)) == plain(reference.default_collate(batch))


def test_a_program_adds_classes_to_those_that_are_collated(monkeypatch: pytest.MonkeyPatch) -> None:
    class Word(str):
        __slots__ = ()

    def joined(batch: list[Word], *, collate_fn_map: Any = None) -> str:
        assert collate_fn_map is data.collate.default_collate_fn_map
        return "".join(batch)

    assert data.default_collate([{"w": Word("a")}, {"w": Word("b")}]) == {"w": ["a", "b"]}
    monkeypatch.setitem(data.collate.default_collate_fn_map, Word, joined)
    assert data.default_collate([{"w": Word("a")}, {"w": Word("b")}]) == {"w": "ab"}


def test_tensors_are_stacked_and_keep_their_history() -> None:
    x = ut.tensor([1.0, 2.0], requires_grad=True)
    batch = data.default_collate([x[0], x[1] * 2])
    batch.sum().backward()
    assert batch.tolist() == [1.0, 4.0] and x.grad.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("batch", [[object(), object()], [np.array(["a"]), np.array(["b"])]])
def test_what_cannot_be_collated_is_refused(batch: list[Any]) -> None:
    with pytest.raises(TypeError, match="batch must contain tensors, numpy arrays, numbers, dicts or lists"):
        data.default_collate(batch)


def test_examples_of_different_lengths_are_refused() -> None:
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        data.default_collate([[1, 2], [3]])
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        data.default_collate([ut.ones(2), ut.ones(3)])


# ---- datasets


def test_tensor_dataset_gives_rows() -> None:
    dataset = data.TensorDataset(ut.arange(6).reshape(3, 2), ut.tensor([7, 8, 9]))
    assert len(dataset) == 3
    assert [part.tolist() for part in dataset[-1]] == [[4, 5], 9]
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        data.TensorDataset(ut.ones(2), ut.ones(3))


def test_concatenation_and_addition() -> None:
    class Tens(data.Dataset):
        def __init__(self, numbers):
            self.numbers = numbers

        def __getitem__(self, index):
            return self.numbers[index] * 10

        def __len__(self):
            return len(self.numbers)

    both = Tens(range(3)) + Tens(range(5, 7))
    assert [both[i] for i in range(len(both))] == [0, 10, 20, 50, 60]
    assert (both[-1], both[-5]) == (60, 0)
    with pytest.raises(ValueError, match="absolute value of index should not exceed dataset length"):
        both[-6]
    with pytest.raises(IndexError):
        both[5]
    with pytest.raises(AssertionError, match="datasets should not be an empty iterable"):
        data.ConcatDataset([])


def test_chained_iterable_datasets() -> None:
    class Numbers(data.IterableDataset):
        def __init__(self, count):
            self.count = count

        def __iter__(self):
            return iter(range(self.count))

    assert list(Numbers(2) + Numbers(3)) == [0, 1, 0, 1, 2]
    with pytest.raises(AssertionError, match="does not support IterableDataset"):
        data.ConcatDataset([Numbers(2)])


@pytest.mark.parametrize("lengths", [[3, 7], [10, 0], [0.5, 0.5], [0.25, 0.25, 0.5], [1.0], [1 / 3, 1 / 3, 1 / 3]])
def test_random_split_has_the_lengths_of_torch(lengths: list[float]) -> None:
    parts = data.random_split(range(10), lengths)
    expected = reference.random_split(range(10), lengths)
    assert [len(part) for part in parts] == [len(part) for part in expected]
    assert sorted(i for part in parts for i in part) == list(range(10))


def test_random_split_repeats_with_the_seed_and_refuses_other_sums() -> None:
    def split() -> list[list[int]]:
        return [list(p) for p in data.random_split(range(30), [20, 10], generator=ut.Generator().manual_seed(4))]

    assert split() == split() != [list(range(20)), list(range(20, 30))]
    with pytest.raises(ValueError, match="Sum of input lengths does not equal the length of the input dataset"):
        data.random_split(range(10), [3, 3])
    with pytest.raises(ValueError, match="Fraction at index 0 is not between 0 and 1"):
        data.random_split(range(10), [-0.5, 1.5])


# ---- samplers


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [0, 1, 5, 6])
def test_batches_are_those_of_torch(count: int, drop_last: bool) -> None:
    mine = data.BatchSampler(data.SequentialSampler(range(count)), 3, drop_last)
    theirs = reference.BatchSampler(reference.SequentialSampler(range(count)), 3, drop_last)
    assert (list(mine), len(mine)) == (list(theirs), len(theirs))


def test_random_order_is_a_permutation_that_the_seed_decides() -> None:
    def drawn(seed: int) -> list[int]:
        return list(data.RandomSampler(range(50), generator=ut.Generator().manual_seed(seed)))

    assert sorted(drawn(1)) == list(range(50))
    assert drawn(1) == drawn(1) != drawn(2)


def test_each_pass_has_another_order() -> None:
    sampler = data.RandomSampler(range(50), generator=ut.Generator().manual_seed(0))
    assert list(sampler) != list(sampler)


def test_more_samples_than_examples_repeat_whole_permutations() -> None:
    sampler = data.RandomSampler(range(4), num_samples=10)
    found = list(sampler)
    assert len(sampler) == len(found) == 10
    assert sorted(found[:4]) == sorted(found[4:8]) == [0, 1, 2, 3]


def test_with_replacement_numbers_come_twice() -> None:
    found = list(data.RandomSampler(range(10), replacement=True, num_samples=200))
    assert set(found) == set(range(10)) and len(found) == 200


def test_weights_are_probabilities() -> None:
    sampler = data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000, generator=ut.Generator().manual_seed(0))
    counts = collections.Counter(sampler)
    assert counts[0] == 0 and 900 < counts[1] < 1100
    without = data.WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False)
    assert sorted(without) == [0, 1, 2]


def test_a_random_subset_gives_its_own_numbers() -> None:
    sampler = data.SubsetRandomSampler([3, 5, 8], generator=ut.Generator().manual_seed(0))
    assert sorted(sampler) == [3, 5, 8] and len(sampler) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: data.BatchSampler(range(3), 0, False), "batch_size should be a positive integer value"),
        (lambda: data.BatchSampler(range(3), 2, 1), "drop_last should be a boolean value"),
        (lambda: data.WeightedRandomSampler([1.0], 0), "num_samples should be a positive integer value"),
        (lambda: data.WeightedRandomSampler([[1.0]], 1), "weights should be a 1d sequence"),
        (lambda: data.RandomSampler(range(3), num_samples=-1), "num_samples should be a non-negative integer"),
    ],
)
def test_impossible_samplers_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_stacked_datasets() -> None:
    assert [ut.data.StackDataset(range(3), "abc")[i] for i in range(3)] == [(0, "a"), (1, "b"), (2, "c")]
    named = ut.data.StackDataset(x=range(3), y=[5, 6, 7])
    assert len(named) == 3 and named[2] == {"x": 2, "y": 7}
    assert next(iter(ut.data.DataLoader(named, batch_size=2)))["y"].tolist() == [5, 6]
    for arguments, named_ones, message in (
        ((), {}, "At least one dataset"),
        (([1],), {"x": [1]}, "but both types are given"),
        (([1], [1, 2]), {}, "Size mismatch between datasets"),
    ):
        with pytest.raises(ValueError, match=message):
            ut.data.StackDataset(*arguments, **named_ones)


def test_arrays_are_converted_and_the_rest_is_not() -> None:
    found = ut.data.default_convert({"x": (np.ones(2), [np.float32(3)]), "s": "text", "o": np.array(["a"])})
    assert type(found["x"][0]) is ut.Tensor and found["x"][1][0].dtype == ut.float32
    assert found["s"] == "text" and type(found["o"]) is np.ndarray


def test_stacked_datasets_give_batches_as_they_are_asked_for() -> None:
    class Whole(data.Dataset):
        def __getitem__(self, index: int) -> int:
            raise AssertionError("examples are asked for together")

        def __getitems__(self, numbers: Any) -> list[int]:
            return [10 * n for n in numbers]

        def __len__(self) -> int:
            return 3

    assert data.StackDataset(Whole(), "abc").__getitems__([0, 2]) == [(0, "a"), (20, "c")]
    assert data.StackDataset(x=Whole(), y="abc").__getitems__([1]) == [{"x": 10, "y": "b"}]


def test_a_subset_with_a_getitem_of_its_own() -> None:
    """It is called, though Subset itself has a way to give several examples at once."""

    class Negative(data.Subset):
        def __getitem__(self, index: Any) -> Any:
            return -super().__getitem__(index)

    loader = ut.data.DataLoader(Negative([1, 2, 3], [0, 2]), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[-1, -3]]


def test_strings_of_an_array_stay_as_they_are() -> None:
    words = np.array(["a", "b"])
    assert ut.data.default_collate(words) is words


def test_a_subset_may_have_its_indices_in_a_tensor_or_an_array() -> None:
    whole = ut.data.TensorDataset(ut.arange(12.0).reshape(6, 2), ut.arange(6))
    for indices in (ut.tensor([4, 0, 5]), np.array([4, 0, 5]), [4, 0, 5]):
        (rows, numbers), (last, number) = ut.data.DataLoader(ut.data.Subset(whole, indices), batch_size=2)
        assert rows.tolist() == [[8.0, 9.0], [0.0, 1.0]] and numbers.tolist() == [4, 0]
        assert last.tolist() == [[10.0, 11.0]] and number.tolist() == [5]

"""What is computed on the (emulated) GPU itself: no elements travel to the host, and results are NumPy's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.cuda.test_rows_of_samples import check
from tests.samples import Sample, all_samples
from undertow.backend import namespace_of

#: operations all of whose rows stay on the device
OPERATIONS = (
    "getitem index gather scatter scatter_add index_put masked_select masked_scatter masked_fill embedding nonzero "
    "nll_loss cross_entropy as_strided mm matrix_power conv1d pow _rpow round nan_to_num isreal sinc frexp lgamma erf "
    "erfc igamma igammac special_log_ndtr unravel_index unique unique_consecutive histogram histogramdd histc "
    "searchsorted bucketize sort argmax max min embedding_bag"
).split()

#: rows that need a factorisation
NOT_HERE = {"matrix_power-negative"}


@pytest.fixture(autouse=True)
def no_host() -> Iterator[None]:
    ut.cuda.set_host_functions("error")
    yield
    ut.cuda.set_host_functions("allow")


def rows_of(operation: str) -> list[Sample]:
    return [s for s in all_samples() if s.op == operation and s.id not in NOT_HERE]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_rows_stay_on_the_device(operation: str) -> None:
    for sample in rows_of(operation):
        for complex_ in [True] * sample.complex_only or [False, True][: 1 + sample.complex]:
            check(sample, complex_)


def random_index(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Slices, numbers, new dimensions, an Ellipsis, masks, and arrays of integers that broadcast to each other."""
    common = tuple(int(n) for n in rng.integers(1, 4, rng.integers(0, 3)))
    items: list[Any] = []
    for n in shape[: rng.integers(1, len(shape) + 1)]:
        kind = rng.integers(0, 6)
        if kind < 3:
            sizes = common[rng.integers(0, len(common) + 1) :]
            items.append(np.asarray(rng.integers(-n, n, [1 if rng.random() < 0.2 else m for m in sizes])))
        else:
            choices = [
                slice(None),
                slice(int(rng.integers(0, n)), None, int(rng.integers(1, 3))),
                int(rng.integers(-n, n)),
            ]
            items.append(choices[kind - 3])
    if rng.random() < 0.3:
        items.insert(int(rng.integers(0, len(items) + 1)), None)
    if rng.random() < 0.3 and len([i for i in items if i is not None]) == len(shape):
        items.insert(int(rng.integers(0, len(items) + 1)), Ellipsis)
    return tuple(items)


def there(xp: Any, index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(xp.asarray(i) if isinstance(i, np.ndarray) else i for i in index)


@pytest.mark.parametrize("seed", range(4))
def test_any_index_reads_and_writes_as_numpy_does(seed: int) -> None:
    rng, xp = np.random.default_rng(seed), namespace_of("cuda")
    for _ in range(60):
        shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 5)))
        here = rng.standard_normal(shape)
        order = rng.permutation(len(shape)).tolist() if rng.random() < 0.3 else list(range(len(shape)))
        here = here.transpose(order)
        index = random_index(rng, here.shape)
        device = xp.asarray(here.transpose(np.argsort(order).tolist()).copy()).transpose(order)
        wanted = here[index]
        np.testing.assert_array_equal(device[there(xp, index)].to_host(), wanted, err_msg=str(index))
        if not any(isinstance(i, np.ndarray) for i in index):
            continue
        np.add.at(here, index, wanted)
        np.add.at(device, there(xp, index), xp.asarray(wanted))
        np.testing.assert_allclose(device.to_host(), here, err_msg=str(index))
        values = rng.standard_normal(wanted.shape)
        here[index], device[there(xp, index)] = values, xp.asarray(values)
        np.testing.assert_array_equal(device.to_host(), here, err_msg=str(index))


def test_products_of_whole_numbers() -> None:
    rng, xp = np.random.default_rng(0), namespace_of("cuda")
    for kind in (np.int8, np.int64, np.uint8, bool):
        for shapes in (
            ((3, 4), (4, 5)),
            ((2, 3, 4), (4, 5)),
            ((4,), (4, 2)),
            ((2, 1, 3, 4), (5, 4, 1)),
            ((0, 3), (3, 2)),
        ):
            a, b = (rng.integers(0, 100, shape).astype(kind) for shape in shapes)
            np.testing.assert_array_equal(xp.matmul(xp.asarray(a), xp.asarray(b)).to_host(), np.matmul(a, b))


def test_powers_of_whole_numbers_are_torchs(torch: Any) -> None:
    bases, exponents = np.meshgrid([-3, -1, 0, 1, 2, 7], [0, 1, 2, 5, 13])
    got = ut.tensor(bases, device="cuda") ** ut.tensor(exponents, device="cuda")
    assert got.tolist() == (torch.tensor(bases) ** torch.tensor(exponents)).tolist()
    got = ut.tensor(bases, device="cuda") ** ut.tensor(-exponents, device="cuda")
    assert (
        got[:, [0, 1, 3, 4, 5]].tolist()
        == (torch.tensor(bases) ** torch.tensor(-exponents))[:, [0, 1, 3, 4, 5]].tolist()
    )


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histograms_are_numpys(density: bool, weighted: bool) -> None:
    rng, xp = np.random.default_rng(0), namespace_of("cuda")
    points, weights = rng.standard_normal((200, 2)), rng.random(200) if weighted else None
    points[:3] = [[0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]]
    for bins in ([4, 3], [np.array([-1.0, 0.0, 0.5, 1.0]), np.array([-2.0, 2.0])]):
        wanted, edges = np.histogramdd(points, bins, density=density, weights=weights)
        given = [xp.asarray(b) if isinstance(b, np.ndarray) else b for b in bins]
        got, found = xp.histogramdd(
            xp.asarray(points), given, density=density, weights=None if weights is None else xp.asarray(weights)
        )
        np.testing.assert_allclose(got.to_host(), wanted, rtol=1e-12)
        for here, away in zip(edges, found, strict=True):
            np.testing.assert_allclose(away.to_host(), here)


def test_unique_rows_know_no_signs_of_zero() -> None:
    rows = np.array([[-0.0, 5.0], [0.0, 3.0], [0.0, 5.0], [1.0, -1.0], [-0.0, 3.0]])
    wanted = np.unique(rows, axis=0, return_counts=True)
    got = namespace_of("cuda").unique(namespace_of("cuda").asarray(rows), axis=0, return_counts=True)
    for there_, here in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(there_.to_host(), here)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "fmax", "fmin"])
def test_parts_are_reduced_as_by_numpy(name: str) -> None:
    rng, xp = np.random.default_rng(0), namespace_of("cuda")
    for array in (
        rng.standard_normal((9, 3)),
        rng.integers(0, 50, (9,)),
        rng.standard_normal((9, 2, 2)).astype(np.float32),
    ):
        starts = np.array([0, 4, 4, 2, 8])
        wanted = getattr(np, name).reduceat(array, starts, axis=0)
        got = getattr(np, name).reduceat(xp.asarray(array), xp.asarray(starts), axis=0)
        np.testing.assert_allclose(got.to_host(), wanted, rtol=1e-6)

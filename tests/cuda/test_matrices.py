"""Factorisations, systems and eigenvalues on the (emulated) GPU: small ones by kernels, larger ones as by cuSOLVER."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.backend import namespace_of
from undertow.backend.cuda import solver

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
#: small ones, which are kernels; single larger ones; stacks of these, for which there are other functions
SHAPES = [(1, 1), (5, 5), (3, 32, 32), (33, 33), (2, 2, 40, 40)]


@pytest.fixture(autouse=True)
def no_host() -> Iterator[None]:
    ut.cuda.set_host_functions("error")
    yield
    ut.cuda.set_host_functions("allow")


def numbers(dtype: Any, *shape: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    real = rng.normal(size=shape)
    return (real + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else real).astype(dtype)


def positive(dtype: Any, *shape: int) -> Any:
    x = numbers(dtype, *shape)
    return (x @ x.conj().swapaxes(-1, -2) + np.eye(shape[-1])).astype(dtype)


def adjoint(x: Any) -> Any:
    return x.conj().swapaxes(-1, -2)


def units(dtype: Any, *shape: int) -> Any:
    return np.broadcast_to(np.eye(shape[-1], dtype=dtype), (*shape, shape[-1]))


def near(found: Any, wanted: Any, by: float = 1.0) -> None:
    found = found.to_host() if hasattr(found, "to_host") else found
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    scale = np.abs(wanted).max() * by * (3e-4 if found.dtype in (np.float32, np.complex64) else 1e-11)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_systems_and_factors_are_numpys(shape: Any, dtype: Any) -> None:
    xp = namespace_of("cuda")
    a, b = numbers(dtype, *shape) + 4 * np.eye(shape[-1], dtype=dtype), numbers(dtype, *shape[:-1], 3, seed=1)
    there = xp.asarray(a)
    near(xp.linalg.solve(there, xp.asarray(b)), np.linalg.solve(a, b), 10)
    near(xp.linalg.solve(there.mT, xp.asarray(b)), np.linalg.solve(a.swapaxes(-1, -2), b), 10)
    near(xp.linalg.inv(there), np.linalg.inv(a), 10)
    near(xp.linalg.det(there), np.linalg.det(a))
    for found, wanted in zip(xp.linalg.slogdet(there), np.linalg.slogdet(a), strict=True):
        near(found, np.asarray(wanted))
    square = positive(dtype, *shape)
    kept = xp.asarray(square)
    near(xp.linalg.cholesky(kept), np.linalg.cholesky(square))
    np.testing.assert_array_equal(kept.to_host(), square)
    np.testing.assert_array_equal(there.to_host(), a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 7, 3), (3, 7), (40, 33), (2, 33, 40)])
def test_q_and_r(shape: Any, dtype: Any) -> None:
    a, xp = numbers(dtype, *shape), namespace_of("cuda")
    for mode in ("reduced", "complete"):
        wanted_q, wanted_r = np.linalg.qr(a, mode)
        q, r = xp.linalg.qr(xp.asarray(a), mode)
        near(r, wanted_r, 10)
        q, r = q.to_host(), r.to_host()
        assert q.shape == wanted_q.shape
        near(q @ r, a, 10)
        near(adjoint(q) @ q, units(dtype, *a.shape[:-2], q.shape[-1]))
    near(xp.linalg.qr(xp.asarray(a), "r"), np.linalg.qr(a, "r"), 10)
    for matrix in a.reshape(-1, *a.shape[-2:]):
        for found, wanted in zip(xp.linalg.qr(xp.asarray(matrix), "raw"), np.linalg.qr(matrix, "raw"), strict=True):
            near(found, wanted, 10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigenvalues(triangle: str, shape: Any, dtype: Any) -> None:
    a, xp = positive(dtype, *shape), namespace_of("cuda")
    half = np.tril(a) if triangle == "L" else np.triu(a)  # nothing else is read
    values, vectors = xp.linalg.eigh(xp.asarray(half), triangle)
    near(values, np.linalg.eigvalsh(a))
    near(xp.linalg.eigvalsh(xp.asarray(half), triangle), np.linalg.eigvalsh(a))
    v = vectors.to_host()
    near(v * values.to_host()[..., None, :] @ adjoint(v), a, 3)


@pytest.mark.parametrize("batches", [False, True])
def test_eigenvalues_without_the_function_for_stacks(batches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "knows_batches", lambda: batches)
    a, xp = positive(np.float64, 3, 35, 35), namespace_of("cuda")
    near(xp.linalg.eigh(xp.asarray(a))[0], np.linalg.eigvalsh(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 7, 3), (3, 3, 7), (40, 33), (2, 33, 40)])
@pytest.mark.parametrize("whole", [False, True])
def test_singular_values(whole: bool, shape: Any, dtype: Any) -> None:
    a, xp = numbers(dtype, *shape), namespace_of("cuda")
    if shape == (4, 4):
        a[3] = a[2]  # one of them is zero
    u, s, vh = (x.to_host() for x in xp.linalg.svd(xp.asarray(a), whole))
    wanted = np.linalg.svd(a, whole)
    near(s, wanted[1])
    near(xp.linalg.svd(xp.asarray(a), whole, False), wanted[1])
    assert u.shape == wanted[0].shape and vh.shape == wanted[2].shape
    k = s.shape[-1]
    near(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a, 3)
    near(adjoint(u) @ u, units(dtype, *a.shape[:-2], u.shape[-1]))
    near(vh @ adjoint(vh), units(dtype, *a.shape[:-2], vh.shape[-2]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_larger_triangles_are_cublas(upper: bool, unit: bool, lead: Any, dtype: Any) -> None:
    a, b = numbers(dtype, *lead, 40, 40) / 20 + np.eye(40, dtype=dtype), numbers(dtype, *lead, 40, 3, seed=1)
    triangle = np.triu(a) if upper else np.tril(a)
    if unit:
        triangle = triangle - triangle * np.eye(40) + np.eye(40)
    found = ut.linalg.solve_triangular(ut.tensor(a, device="cuda"), ut.tensor(b, device="cuda"), upper=upper,
                                       unitriangular=unit)  # fmt: skip
    near(found.cpu().numpy(), np.linalg.solve(triangle.astype(dtype), b).astype(dtype), 3)


@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 6), (6, 4), (40, 40), (2, 36, 36), (35, 40), (40, 35)])
def test_lu_is_the_cpus(shape: Any) -> None:
    a = numbers(np.float64, *shape)
    for function in (ut.linalg.lu, ut.linalg.lu_factor, ut.linalg.lu_factor_ex):
        for here, there in zip(function(ut.tensor(a)), function(ut.tensor(a, device="cuda")), strict=True):
            assert there.device.type == "cuda" and here.dtype == there.dtype
            near(there.cpu().numpy(), here.numpy(), 10)
    if shape[-1] == shape[-2]:
        b = numbers(np.float64, *shape[:-1], 2, seed=1)
        found = ut.linalg.lu_solve(*ut.linalg.lu_factor(ut.tensor(a, device="cuda")), ut.tensor(b, device="cuda"))
        near(found.cpu().numpy(), np.linalg.solve(a, b), 100)


@pytest.mark.parametrize("n", [3, 40])
def test_what_cannot_be_done_is_told_by_the_call(n: int) -> None:
    singular = ut.eye(n, device="cuda")
    singular[n - 1, n - 1] = 0
    for function in (ut.linalg.inv, ut.linalg.cholesky, lambda A: ut.linalg.solve(A, ut.ones(n, 1, device="cuda"))):
        for matrix in (singular, singular.expand(2, n, n)):
            with pytest.raises(ut.linalg.LinAlgError):
                function(matrix)
    assert ut.linalg.det(singular).item() == 0 and ut.linalg.slogdet(singular).logabsdet.item() == -np.inf
    assert (ut.linalg.inv(ut.eye(n, device="cuda") * 2) == ut.eye(n, device="cuda") / 2).all()


@pytest.mark.parametrize("n", [3, 40])
def test_reports_are_made_on_the_device(n: int) -> None:
    stack = ut.eye(n, device="cuda").repeat(3, 1, 1)
    stack[1, 2, 2] = -1
    stack[2, n - 1] = 0
    factor, info = ut.linalg.cholesky_ex(stack)
    assert info.tolist() == [0, 3, n] and info.device.type == "cuda" and info.dtype == ut.int32
    assert factor[1].isnan().all() and (factor[0] == ut.eye(n, device="cuda")).all()
    assert ut.linalg.inv_ex(stack).info.tolist() == [0, 0, n]
    assert ut.linalg.solve_ex(stack, ut.ones(3, n, 1, device="cuda")).info.tolist() == [0, 0, n]
    with pytest.raises(ut.linalg.LinAlgError):
        ut.linalg.cholesky_ex(stack, check_errors=True)


@pytest.mark.parametrize("n", [4, 36])
def test_gradients_are_the_cpus(n: int) -> None:
    a, b = positive(np.float64, 2, n, n), numbers(np.float64, 2, n, 2)
    functions = [
        lambda x, b: ut.linalg.solve(x, b),
        lambda x, b: ut.linalg.inv(x) @ b,
        lambda x, b: ut.cholesky_solve(b, ut.linalg.cholesky(x)),
        lambda x, b: ut.linalg.slogdet(x).logabsdet.sum() * b,
        lambda x, b: ut.linalg.qr(x).R.abs() @ b,
        lambda x, b: ut.linalg.eigh(x).eigenvalues.sin()[..., None] * b,
        lambda x, b: ut.linalg.svdvals(x).sin()[..., None] * b,
        lambda x, b: ut.linalg.lu(x).U.abs() @ b,
    ]
    for function in functions:
        found = []
        for place in ("cpu", "cuda"):
            leaves = [ut.tensor(x, device=place, requires_grad=True) for x in (a, b)]
            out = function(*leaves)
            found.append([t.detach().cpu().numpy() for t in (out, *ut.autograd.grad(out.square().sum(), leaves))])
        for here, there in zip(*found, strict=True):
            near(there, here, 1e3)


def test_a_step_with_a_small_factor_becomes_a_graph() -> None:
    a = ut.tensor(positive(np.float32, 8, 6, 6), device="cuda")
    ut.cuda.synchronize()
    before = ut.cuda.launch_stats()["graphs"]
    for _ in range(12):
        q, r = ut.linalg.qr(a)
        found = (q @ r - a).abs().max()
        ut.cuda.synchronize()
    assert found.item() < 1e-3 and ut.cuda.launch_stats()["graphs"] > before

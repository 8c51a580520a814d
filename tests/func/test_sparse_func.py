"""`sparsity=` of func.jacrev, jacfwd and hessian: against the dense result, in trees, nested in transformations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.autograd.test_sparse_jacobian import PATTERNS, arrow, band, function_with, point
from undertow.autograd.functional import SparsityError, sparsity_pattern
from undertow.func import grad, hessian, jacfwd, jacrev, jvp, vmap

pytest.importorskip("scipy.sparse")

JACOBIANS = {"jacrev": jacrev, "jacfwd": jacfwd}


def residual(u: Any) -> Any:
    return (u[1:] - u[:-1] ** 2) * u[:-1]


def start(n: int = 5) -> Any:
    return ut.linspace(0.5, 1.5, n, dtype=ut.float64)


PATTERN = np.eye(4, 5, dtype=bool) | np.eye(4, 5, 1, dtype=bool)


def dense(triplets: Any, shape: tuple[int, int]) -> Any:
    rows, cols, values = triplets
    found = ut.zeros(shape, dtype=values.dtype)
    return found.index_put((rows, cols), values)


# ---- against the dense Jacobian


@pytest.mark.parametrize("jacobian", JACOBIANS)
@pytest.mark.parametrize("name", PATTERNS)
def test_sparse_is_dense(name: str, jacobian: str) -> None:
    f, x = function_with(PATTERNS[name]), point(PATTERNS[name])
    found = JACOBIANS[jacobian](f, sparsity=PATTERNS[name])(x)
    assert found.format == "csr"
    assert found.dtype == np.float64
    assert np.allclose(found.toarray(), jacrev(f)(x).numpy())
    assert found.nnz == PATTERNS[name].sum()


@pytest.mark.parametrize("jacobian", JACOBIANS)
@pytest.mark.parametrize("sparsity", [PATTERN, "detect", np.nonzero(PATTERN), ut.tensor(PATTERN)])
@pytest.mark.parametrize("chunk_size", [None, 1])
def test_ways_to_give_a_pattern(jacobian: str, sparsity: Any, chunk_size: int | None) -> None:
    found = JACOBIANS[jacobian](residual, sparsity=sparsity, chunk_size=chunk_size)(start())
    assert np.allclose(found.toarray(), jacrev(residual)(start()).numpy())


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_a_pass_for_each_colour(jacobian: str) -> None:
    shapes: list[Any] = []

    class Shapes(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            shapes.append(g._value.shape)
            return g

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            shapes.append(t._value.shape)
            return t.clone()

    JACOBIANS[jacobian](lambda u: residual(Shapes.apply(u)), sparsity=PATTERN, verify=False)(start())
    assert [s[0] for s in shapes] == [2]


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_trees(jacobian: str) -> None:
    def f(a: Any, scale: Any, b: Any) -> Any:
        return {"one": scale * a["x"] * b[1:], "two": (b * b, a["y"] ** 2)}

    args = {"x": start(2), "y": ut.tensor(3.0)}, 2.0, start(3)
    shape = 2 + 3 + 1, 2 + 1 + 3
    full = JACOBIANS[jacobian](f, argnums=(0, 2))(*args)
    found = JACOBIANS[jacobian](f, argnums=(0, 2), sparsity="detect")(*args)
    assert list(found) == ["one", "two"]
    for sparse, wanted in [
        (found["one"][0]["x"], full["one"][0]["x"]),
        (found["one"][0]["y"], full["one"][0]["y"].reshape(2, 1)),
        (found["one"][1], full["one"][1]),
        (found["two"][0][1], full["two"][0][1]),
        (found["two"][1][0]["y"], full["two"][1][0]["y"].reshape(1, 1)),
    ]:
        assert np.allclose(sparse.toarray(), wanted.numpy())
        assert sparse.dtype == wanted.dtype
    with pytest.raises(
        ValueError, match=rf"sparsity has shape \(2, 2\), but the Jacobian has \({shape[0]}, {shape[1]}\)"
    ):
        JACOBIANS[jacobian](f, argnums=(0, 2), sparsity=np.eye(2))(*args)


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_aux(jacobian: str) -> None:
    found, aux = JACOBIANS[jacobian](lambda u: (residual(u), {"u": u}), has_aux=True, sparsity=PATTERN)(start())
    assert np.allclose(found.toarray(), jacrev(residual)(start()).numpy())
    assert not aux["u"].requires_grad
    assert np.allclose(aux["u"].numpy(), start().numpy())


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_complex(jacobian: str) -> None:
    z = ut.tensor([1 + 2j, 0.5 - 1j, 2j], dtype=ut.complex128)
    x = start(3)
    functions: dict[str, tuple[Any, Any]] = {
        "holomorphic": (lambda z: z * z * 1j, z),
        "to real": (lambda z: (z * z.conj()).real, z),
        "from real": (lambda x: x * x * (1 + 2j), x),
        "mixed": (lambda z: (z.sin(), (z * 2).imag), z),
    }
    for f, at in functions.values():
        full = jacrev(f)(at)
        found = JACOBIANS[jacobian](f, sparsity="detect")(at)
        for one, other in zip(found, full, strict=True) if isinstance(full, tuple) else [(found, full)]:
            assert np.allclose(one.toarray(), other.numpy())
            assert one.dtype == other.dtype
    with pytest.raises(RuntimeError, match="not holomorphic"):
        JACOBIANS[jacobian](lambda z: z.conj(), sparsity=np.eye(3))(z)


def test_mixed_dtypes() -> None:
    def f(a: Any, b: Any) -> Any:
        return a * 2, b * a.double()

    a, b = ut.ones(2), start(2)
    for jacobian in JACOBIANS.values():
        found = jacobian(f, argnums=(0, 1), sparsity="detect")(a, b)
        full = jacobian(f, argnums=(0, 1))(a, b)
        assert [[m.dtype for m in row] for row in found] == [[m.dtype for m in row] for row in full]


@pytest.mark.parametrize("jacobian", JACOBIANS)
def test_entries_outside_of_the_pattern_are_noticed(jacobian: str) -> None:
    wrong = PATTERN.copy()
    wrong[2, 3] = False
    with pytest.raises(SparsityError, match="the sparsity pattern is wrong"):
        JACOBIANS[jacobian](residual, sparsity=wrong)(start())
    JACOBIANS[jacobian](residual, sparsity=wrong, verify=False)(start())


# ---- Hessians


def energy(x: Any) -> Any:
    return (x[1:] * x[:-1] ** 2).sum() + (x**3).sum()


@pytest.mark.parametrize("sparsity", [band(5, 1), np.tril(band(5, 1)), "detect"])
def test_hessians(sparsity: Any) -> None:
    found = hessian(energy, sparsity=sparsity)(start())
    assert np.allclose(found.toarray(), hessian(energy)(start()).numpy())


def test_a_hessian_of_two_arguments() -> None:
    def f(a: Any, k: float, b: Any) -> Any:
        return (a["w"] * b * k).sum() + (b**3).sum()

    args = {"w": start(3)}, 2.0, start(3)
    full = hessian(f, argnums=(0, 2))(*args)
    found = hessian(f, argnums=(0, 2), sparsity="detect")(*args)
    assert np.allclose(found[0]["w"][1].toarray(), full[0]["w"][1].numpy())
    assert np.allclose(found[1][0]["w"].toarray(), full[1][0]["w"].numpy())
    assert np.allclose(found[1][1].toarray(), full[1][1].numpy())
    assert not found[0]["w"][0]["w"].toarray().any()


def test_an_arrow_takes_two_passes() -> None:
    pattern = sparsity_pattern(grad(lambda x: (x * x[0]).sum()), start(6))
    found = hessian(lambda x: (x * x[0]).sum(), sparsity=pattern)(start(6))
    assert np.allclose(found.toarray(), hessian(lambda x: (x * x[0]).sum())(start(6)).numpy())
    assert pattern.plans["mirrored"].plans["symmetric", "forward-mode"].passes == 2
    assert set(zip(pattern.rows.tolist(), pattern.cols.tolist(), strict=True)) == set(
        zip(*np.nonzero(arrow(6)), strict=True)
    ) - {(k, k) for k in range(1, 6)}


def test_a_hessian_is_that_of_one_element() -> None:
    with pytest.raises(RuntimeError, match=r"single element, got a tensor of shape \(4,\)"):
        hessian(residual, sparsity="detect")(start())
    with pytest.raises(RuntimeError, match="single element, got <class 'tuple'>"):
        hessian(lambda x: (x.sum(), x.sum()), sparsity="detect")(start())
    one = hessian(lambda x: (x**3).sum(0, keepdim=True), sparsity=np.eye(5))(start())
    assert np.allclose(one.diagonal(), 6 * start().numpy())


# ---- inside other transformations


@pytest.mark.parametrize("jacobian", [*JACOBIANS, "hessian"])
class TestNested:
    def entries(self, jacobian: str, **options: Any) -> Callable[[Any], Any]:
        """The entries of a sparse matrix, as a function; and the dense matrix."""
        options = {"sparsity": band(5, 1) if jacobian == "hessian" else PATTERN, **options}
        if jacobian == "hessian":
            return hessian(energy, **options)
        return JACOBIANS[jacobian](residual, **options)

    def full(self, jacobian: str) -> Callable[[Any], Any]:
        return hessian(energy) if jacobian == "hessian" else jacrev(residual)

    def shape(self, jacobian: str) -> tuple[int, int]:
        return (5, 5) if jacobian == "hessian" else (4, 5)

    def test_triplets_in_grad_jvp_and_jacobians(self, jacobian: str) -> None:
        sparse, full = self.entries(jacobian, triplets=True), self.full(jacobian)

        def matrix(x: Any) -> Any:
            return dense(sparse(x), self.shape(jacobian))

        x, t = start(), ut.ones(5, dtype=ut.float64)
        assert np.allclose(matrix(x).numpy(), full(x).numpy())
        assert np.allclose(
            grad(lambda x: matrix(x).sin().sum())(x).numpy(), grad(lambda x: full(x).sin().sum())(x).numpy()
        )
        assert np.allclose(jvp(matrix, (x,), (t,))[1].numpy(), jvp(full, (x,), (t,))[1].numpy())
        assert np.allclose(jacfwd(lambda x: sparse(x)[2])(x).sum(0).numpy(), jacfwd(full)(x).sum((0, 1)).numpy())
        assert np.allclose(jacrev(lambda x: sparse(x)[2])(x).sum(0).numpy(), jacrev(full)(x).sum((0, 1)).numpy())

    def test_triplets_in_vmap(self, jacobian: str) -> None:
        points = ut.stack([start(), start() ** 2])
        rows, cols, values = vmap(self.entries(jacobian, triplets=True))(points)
        for k in range(2):
            found = dense((rows[k], cols[k], values[k]), self.shape(jacobian))
            assert np.allclose(found.numpy(), self.full(jacobian)(points[k]).numpy())

    def test_triplets_with_the_eager_api(self, jacobian: str) -> None:
        x = start().requires_grad_()
        values = self.entries(jacobian, triplets=True)(x)[2]
        (slope,) = ut.autograd.grad(values.sum(), x)
        assert np.allclose(slope.numpy(), grad(lambda x: self.full(jacobian)(x).sum())(start()).numpy())

    def test_sparse_arrays_lose_nothing_silently(self, jacobian: str) -> None:
        sparse = self.entries(jacobian)
        with pytest.raises(RuntimeError, match="a sparse array of SciPy cannot be differentiated"):
            sparse(start().requires_grad_())
        with pytest.raises(RuntimeError, match="cannot be differentiated"):
            grad(lambda x: ut.tensor(sparse(x).toarray()).sum())(start())
        with pytest.raises(RuntimeError, match="have tangents, which a sparse array of SciPy would lose"):
            jvp(lambda x: ut.tensor(sparse(x).toarray()), (start(),), (start(),))
        with ut.no_grad():
            assert np.allclose(sparse(start().requires_grad_()).toarray(), self.full(jacobian)(start()).numpy())

    def test_what_vmap_refuses(self, jacobian: str) -> None:
        points = ut.stack([start(), start()])
        for options, words in [
            ({}, "no batches of sparse arrays"),
            ({"sparsity": "detect", "triplets": True}, "Find the pattern outside of vmap"),
        ]:
            with pytest.raises(RuntimeError, match=words):
                vmap(self.entries(jacobian, **options))(points)

    def test_every_example_is_checked(self, jacobian: str) -> None:
        """A pattern that is right where the first unknown is zero, which it is in one example only."""
        right = band(5, 1) if jacobian == "hessian" else PATTERN
        wrong = right.copy()
        wrong[1, 0] = wrong[0, 1] = False
        kind = hessian if jacobian == "hessian" else JACOBIANS[jacobian]
        f = energy if jacobian == "hessian" else residual
        points = ut.stack([start() * (ut.arange(5) > 1), start()])
        gated = kind(lambda x: f(ut.cat([x[:2] * x[:1] ** 2, x[2:]])), sparsity=wrong, triplets=True)
        gated(points[0])
        with pytest.raises(SparsityError, match="the sparsity pattern is wrong"):
            vmap(gated)(points)


def test_messages() -> None:
    with pytest.raises(ValueError, match="expected a pattern or 'detect', got 'guess'"):
        jacrev(residual, sparsity="guess")(start())
    with pytest.raises(RuntimeError, match="Expected all inputs to be Tensors, got unsupported type <class 'int'>"):
        jacfwd(lambda p: p["a"] * 2, sparsity="detect")({"a": start(), "b": 3})
    with pytest.raises(RuntimeError, match="to return only tensors, got unsupported type <class 'float'>"):
        jacfwd(lambda x: (x, 2.0), sparsity="detect")(start())


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(ImportError, match=r"undertow\[special\]"):
        jacrev(residual, sparsity=PATTERN)(start())
    rows, _, _ = jacrev(residual, sparsity=PATTERN, triplets=True)(start())
    assert len(rows) == PATTERN.sum()

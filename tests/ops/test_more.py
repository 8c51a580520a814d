"""What rows of samples cannot say of grids, short-time transforms, copies and reporting factorisations."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import undertow as ut


def test_copies_share_no_memory() -> None:
    x = ut.zeros(2, 3)
    for copy in (ut.view_copy(x, (3, 2)), ut.select_copy(x, 0, 1), ut.t_copy(x), *ut.unbind_copy(x), ut.detach_copy(x)):
        copy.add_(1)
    assert x.sum().item() == 0


def test_detach_is_a_function_too() -> None:
    x = ut.ones(2, requires_grad=True)
    assert not ut.detach(x * 2).requires_grad


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"mode": "linear"}, ValueError, "expected mode to be"),
        ({"padding_mode": "wrap"}, ValueError, "expected padding_mode to be"),
        ({"grid": (1, 2, 2, 3)}, RuntimeError, "expected grid to have size 2 in last dimension"),
        ({"grid": (2, 2, 2, 2)}, RuntimeError, "same batch size"),
        ({"grid": (1, 2, 2)}, RuntimeError, "expected 4D or 5D input and grid with same number of dimensions"),
        ({"input": (1, 1, 0, 2)}, RuntimeError, "non-empty spatial dimensions"),
        (
            {"input": (1, 1, 2, 2, 2), "grid": (1, 2, 2, 2, 3), "mode": "bicubic"},
            RuntimeError,
            "only supports 4D input",
        ),
    ],
)
def test_grid_sample_refuses(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"input": (1, 1, 2, 2), "grid": (1, 2, 2, 2), **arguments}
    tensors = [ut.zeros(*given.pop(name)) for name in ("input", "grid")]
    with pytest.raises(error, match=words):
        ut.grid_sample(*tensors, align_corners=False, **given)


@pytest.mark.parametrize(
    ("theta", "size", "error", "words"),
    [
        ((1, 2, 3), (1, 1, 2), NotImplementedError, "only supports 4D and 5D sizes"),
        ((1, 2, 2), (1, 1, 2, 2), ValueError, "Expected a batch of 2D affine matrices of shape Nx2x3"),
        ((1, 2, 3), (1, 1, 0, 2), ValueError, "Expected non-zero, positive output size"),
    ],
)
def test_affine_grid_refuses(theta: Any, size: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ut.affine_grid(ut.zeros(*theta), size, align_corners=False)


def test_the_default_of_align_corners_is_remarked_on() -> None:
    with pytest.warns(UserWarning, match="align_corners"):
        ut.grid_sample(ut.zeros(1, 1, 2, 2), ut.zeros(1, 1, 1, 2))


def test_the_identity_grid_gives_the_image_back() -> None:
    image = ut.randn(2, 3, 4, 5)
    for corners in (True, False):
        grid = ut.affine_grid(ut.eye(2, 3).expand(2, 2, 3), tuple(image.shape), align_corners=corners)
        assert ut.allclose(ut.grid_sample(image, grid, align_corners=corners), image, atol=1e-5)


@pytest.mark.parametrize("window", [None, "hann"])
@pytest.mark.parametrize("hop", [None, 2, 3])
def test_stft_and_back(window: str | None, hop: int | None) -> None:
    x = ut.randn(2, 40, dtype=ut.float64)
    weights = None if window is None else ut.hann_window(8, dtype=ut.float64)
    spectrum = ut.stft(x, 8, hop, window=weights, return_complex=True)
    back = ut.istft(spectrum, 8, hop, window=weights, length=40)
    kept = 40 if hop != 3 else 39  # what the last stretch covers
    np.testing.assert_allclose(back.numpy()[:, :kept], x.numpy()[:, :kept], atol=1e-10)


def test_stft_refuses() -> None:
    with pytest.raises(RuntimeError, match="requires the return_complex parameter"):
        ut.stft(ut.ones(20), 8)
    with pytest.raises(RuntimeError, match="expected a 1D or 2D tensor"):
        ut.stft(ut.ones(1, 1, 20), 8, return_complex=True)
    with pytest.raises(RuntimeError, match="expected 0 < n_fft"):
        ut.stft(ut.ones(4), 8, center=False, return_complex=True)
    with pytest.raises(RuntimeError, match="requires a complex-valued input"):
        ut.istft(ut.ones(5, 3), 8)


SINGULAR = np.array([[[2.0, 1.0], [1.0, 3.0]], [[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 1.0]]])


@pytest.mark.torch
@pytest.mark.parametrize("name", ["inv_ex", "cholesky_ex", "lu_factor_ex", "solve_ex"])
def test_reports_are_those_of_pytorch(name: str, torch: Any) -> None:
    found = []
    for L in (ut, torch):
        A = L.tensor(SINGULAR)
        more = (L.ones(3, 2, 1, dtype=L.float64),) if name == "solve_ex" else ()
        result = getattr(L.linalg, name)(A, *more)
        found.append((result[0][0].numpy(), result.info.tolist()))
    np.testing.assert_allclose(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_matrices_that_failed_are_nan_and_the_others_have_gradients() -> None:
    A = ut.tensor(SINGULAR, requires_grad=True)
    out = ut.linalg.inv_ex(A).inverse
    assert np.isnan(out.detach().numpy()[1:]).all()
    out[0].sum().backward()
    inverse = np.linalg.inv(SINGULAR[0])
    np.testing.assert_allclose(A.grad.numpy()[0], -inverse.T @ np.ones((2, 2)) @ inverse.T)
    with pytest.raises(RuntimeError, match="singular"):
        ut.linalg.inv_ex(ut.tensor(SINGULAR), check_errors=True)


def test_renorm_refuses() -> None:
    with pytest.raises(RuntimeError, match="non-positive-norm not supported"):
        ut.renorm(ut.ones(2, 2), 0, 0, 1.0)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        ut.renorm(ut.ones(2), 2, 0, 1.0)
    with pytest.raises(RuntimeError, match="maxnorm to be >= 0"):
        ut.renorm(ut.ones(2, 2), 2, 0, -1.0)


def test_histograms_of_weights() -> None:
    x = ut.tensor([1.0, 2.0, 2.5, 9.0])
    found = ut.histogram(x, ut.tensor([1.0, 2.0, 3.0]), weight=ut.tensor([1.0, 2.0, 3.0, 4.0]))
    assert (found.hist.tolist(), found.bin_edges.tolist()) == ([1.0, 5.0], [1.0, 2.0, 3.0])


OUT = {
    "linalg.inv": "(A,)", "linalg.solve": "(A, A)", "linalg.cholesky": "(A,)", "linalg.det": "(A,)",
    "linalg.norm": "(A,)", "linalg.matrix_power": "(A, 3)", "linalg.eigvalsh": "(A,)", "linalg.vecdot": "(A, A)",
    "special.entr": "(A,)", "special.zeta": "(A + 2, A)", "special.ndtr": "(A,)", "renorm": "(A, 2, 0, 1.0)",
    "frobenius_norm": "(A, (0, 1))", "view_copy": "(A, (4,))", "cholesky_solve": "(A, A)", "orgqr": "(A, A[0])",
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("name", OUT)
def test_out_is_written_to(name: str, torch: Any) -> None:
    found = []
    for L in (ut, torch):
        A = L.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=L.float64)
        out = L.empty(0, dtype=L.float64)
        function: Any = L
        for part in name.split("."):
            function = getattr(function, part)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # frobenius_norm is an old name
            assert function(*eval(OUT[name], {"A": A}), out=out) is out
        found.append(out.numpy())
    np.testing.assert_allclose(found[0], found[1])


@pytest.mark.torch
def test_out_of_several_results(torch: Any) -> None:
    for L in (ut, torch):
        A = L.tensor([[2.0, 0.5], [0.5, 1.0]])
        Q, R = L.empty(0), L.empty(0)
        found = L.linalg.qr(A, out=(Q, R))
        assert found.Q is Q
        assert found.R is R
        values, indices = L.empty(0), L.empty(0, dtype=L.int64)
        assert L.sort(A[0], out=(values, indices)).indices is indices
        assert values.tolist() == [0.5, 2.0]
        spectrum = L.empty(0, dtype=L.complex64)
        assert L.fft.fft(A[0], out=spectrum) is spectrum


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(6, 6), (2, 6, 6)])
def test_lobpcg_finds_eigenpairs(largest: bool, shape: tuple[int, ...]) -> None:
    a, b = ut.randn(*shape, dtype=ut.float64), ut.randn(*shape, dtype=ut.float64)
    A, B = a @ a.mT, b @ b.mT + ut.eye(6, dtype=ut.float64)
    for other in (None, B):
        values, vectors = ut.lobpcg(A, 2, other, largest=largest)
        right = vectors if other is None else other @ vectors
        np.testing.assert_allclose((A @ vectors).numpy(), (right * values.unsqueeze(-2)).numpy(), atol=1e-8)
    order = np.sort(np.linalg.eigvalsh(A.numpy()))[..., ::-1] if largest else np.sort(np.linalg.eigvalsh(A.numpy()))
    np.testing.assert_allclose(ut.lobpcg(A, 2, largest=largest)[0].numpy(), order[..., :2], atol=1e-8)
    with pytest.raises(ValueError, match="smaller than 3 x the number of requested eigenpairs"):
        ut.lobpcg(A, 3)


def test_the_functional_namespace_has_the_names_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    assert set(torch.functional.__all__) == set(ut.functional.__all__)
    assert ut.functional.einsum("i,i->", ut.ones(2), ut.ones(2)).item() == 2.0
    assert tuple(ut.functional.broadcast_shapes((2, 1), (3,))) == (2, 3)


METHODS = {
    "digamma": lambda x: x.digamma(),
    "polygamma": lambda x: x.polygamma(1),
    "negative": lambda x: x.negative(),
    "histogram": lambda x: x.histogram(3).hist,
    "cholesky": lambda x: (x @ x.T + x.T @ x).cholesky(),
    "lu": lambda x: x.lu()[0],
    "geqrf": lambda x: x.geqrf().tau,
    "narrow_copy": lambda x: x.narrow_copy(0, 0, 1),
    "sum_to_size": lambda x: x.sum_to_size(1, 2),
    "nonzero_static": lambda x: x.nonzero_static(size=2),
    "stft": lambda x: x.flatten().stft(2, 1, return_complex=True),
    "as_strided_scatter": lambda x: x.as_strided_scatter(x[0], (2,), (2,)),
    "to_sparse_coo": lambda x: x.to_sparse_coo().to_dense(),
}


@pytest.mark.parametrize("call", METHODS.values(), ids=METHODS)
def test_methods_are_those_of_pytorch(call: Any) -> None:
    torch = pytest.importorskip("torch")
    data = [[1.5, 0.25], [0.5, 3.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are deprecated
        expected = call(torch.tensor(data, dtype=torch.float64))
        got = call(ut.tensor(data, dtype=ut.float64))
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-8)

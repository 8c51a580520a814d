"""Linear algebra, spectra, special functions, distributions, NumPy and indices."""

import numpy as np

import undertow as ut
from undertow.distributions import Categorical, Independent, Normal, kl_divergence


def matrices() -> ut.Tensor:
    a = ut.randn(4, 4, dtype=ut.float64)
    spd = a @ a.mT + 4 * ut.eye(4, dtype=ut.float64)
    factor = ut.linalg.cholesky(spd)
    u, s, vh = ut.linalg.svd(a, full_matrices=False)
    q, r = ut.linalg.qr(a)
    values, vectors = ut.linalg.eigh(spd)
    sign, logdet = ut.linalg.slogdet(spd)
    solution = ut.linalg.lstsq(a, spd).solution
    assert ut.allclose(u * s @ vh, a) and ut.allclose(q @ r, a)
    x = ut.linalg.solve(spd, vectors) + ut.cholesky_solve(vectors, factor) + solution
    return x.sum() + values.max() + sign * logdet + ut.linalg.norm(a, ord="fro", dim=(0, 1))


def spectra() -> ut.Tensor:
    signal = ut.sin(ut.arange(16, dtype=ut.float32) * (2 * ut.pi / 16))
    spectrum = ut.fft.rfft(signal, norm="ortho")
    return ut.fft.irfft(spectrum, n=16, norm="ortho") + ut.special.gammaln(signal.abs() + 1)


def indices() -> list[int]:
    x = ut.arange(12).reshape(3, 4)
    largest, where = x.max(dim=1)
    top = x.float().topk(2, dim=-1)
    rows, columns = ut.where(x > 5)
    x[rows, columns] = 0
    x[..., 0] = ut.tensor([1, 2, 3])
    x[0, 1:3] += 1
    parts = [*x.split(2, dim=1), *x.chunk(2), *x.unbind(0)]
    unique, counts = ut.unique(x, return_counts=True)
    kept = ut.where(x > 0, x, -1).clamp(min=0).masked_fill(x == 1, 7)
    ordered, order = ut.sort(top.values, dim=1, descending=True)
    total = ut.cat([p.flatten() for p in parts]).sum() + largest.sum() + where.sum() + unique[0] + counts[0]
    total += kept.sum() + order.sum()
    return [int(total), x.size(0), x.ndim, *x.shape, len(x), x.stride(1), ordered.numel()]


def from_and_to_numpy() -> np.ndarray:
    a = np.linspace(0.0, 1.0, 4)
    x = ut.from_numpy(a).requires_grad_()
    y = ut.stack([x, x * a, a * x + np.float64(2), 1 - x, 2**x], dim=0).mean(dim=0, keepdim=True)
    y.sum().backward()
    assert x.grad is not None
    return np.asarray(x.grad.numpy()) + y.detach().cpu().numpy().sum(axis=0)


def distributions() -> ut.Tensor:
    normal = Normal(ut.zeros(3), ut.ones(3))
    sample = normal.rsample((5,))
    joint = Independent(normal, 1)
    choice = Categorical(logits=ut.zeros(4)).sample((2,))
    divergence = kl_divergence(normal, Normal(ut.ones(3), 2 * ut.ones(3)))
    return joint.log_prob(sample).mean() + divergence.sum() + choice.sum()


if __name__ == "__main__":
    print(matrices(), spectra().shape, indices(), from_and_to_numpy(), distributions())

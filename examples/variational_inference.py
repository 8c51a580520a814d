"""Variational inference: a Gaussian approaches the posterior of a regression, by gradients through its own samples.

The model is linear, so that the posterior is known and the answer can be checked: y = X w + noise, w standard normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from common import Steps, options, plot

import undertow as ut

NOISE = 0.5


def problem(points: int) -> tuple[ut.Tensor, ut.Tensor]:
    x = ut.linspace(-1, 1, points, dtype=ut.float64)
    features = ut.stack([ut.ones_like(x), x, x * x], dim=1)
    truth = ut.tensor([0.5, -1.0, 1.5], dtype=ut.float64)
    return features, features @ truth + NOISE * ut.randn(points, dtype=ut.float64)


def log_joint(w: ut.Tensor, features: ut.Tensor, y: ut.Tensor) -> ut.Tensor:
    """log p(y, w), but for a constant, for each row of w."""
    residuals = y - w @ features.T
    return -0.5 * (residuals**2).sum(1) / NOISE**2 - 0.5 * (w**2).sum(1)


def exact_posterior(features: ut.Tensor, y: ut.Tensor) -> tuple[ut.Tensor, ut.Tensor]:
    precision = ut.eye(features.shape[1], dtype=ut.float64) + features.T @ features / NOISE**2
    covariance = ut.linalg.inv(precision)
    return covariance @ (features.T @ y) / NOISE**2, covariance


def ellipse(mean: ut.Tensor, covariance: ut.Tensor) -> ut.Tensor:
    """The border of the region that holds 95 % of a Gaussian in the plane."""
    angle = ut.linspace(0, 2 * math.pi, 100, dtype=ut.float64)
    circle = math.sqrt(-2 * math.log(0.05)) * ut.stack([angle.cos(), angle.sin()])
    return mean[:, None] + ut.linalg.cholesky(covariance) @ circle


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "variational_inference", argv)
    features, y = problem(40)
    mean = ut.zeros(3, dtype=ut.float64, requires_grad=True)
    factor = ut.eye(3, dtype=ut.float64).requires_grad_()  # of the covariance: its lower triangle counts
    optimizer = ut.optim.Adam([mean, factor], lr=0.02)
    losses = []
    steps = Steps(300 if chosen.quick else 2000)
    for _ in steps:
        triangle = ut.tril(factor)
        samples = mean + ut.randn(32, 3, dtype=ut.float64) @ triangle.T
        entropy = triangle.diagonal().abs().log().sum() + 1.5 * (1 + math.log(2 * math.pi))
        loss = -(log_joint(samples, features, y).mean() + entropy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        steps.note = f"-ELBO {losses[-1]:.2f}"
    exact, covariance = exact_posterior(features, y)
    with ut.no_grad():
        found = ut.tril(factor) @ ut.tril(factor).T
    for k, name in enumerate(("intercept", "slope", "curvature")):
        print(f"{name:<10} found {mean[k].item():6.3f} +- {found[k, k].sqrt().item():.3f}   "
              f"exact {exact[k].item():6.3f} +- {covariance[k, k].sqrt().item():.3f}")  # fmt: skip

    def draw(left: object, right: object) -> None:
        x = features[:, 1].numpy()
        curves = (mean + ut.randn(30, 3, dtype=ut.float64) @ ut.tril(factor).T).detach() @ features.T
        left.plot(x, curves.numpy().T, color="tab:blue", alpha=0.15)
        left.plot(x, y.numpy(), "k.", label="seen")
        left.set(title="Curves drawn from what was found", xlabel="x", ylabel="y")
        left.legend()
        for label, m, c, style in (("found", mean.detach(), found, "-"), ("exact", exact, covariance, "k--")):
            right.plot(*ellipse(m[[0, 2]], c[[0, 2]][:, [0, 2]]).numpy(), style, label=label)
        right.set(title="Where 95 % of the probability is", xlabel="intercept", ylabel="curvature")
        right.legend()

    plot(chosen.plot, draw, panels=2)
    error = (mean - exact).abs().max().item() + (found - covariance).abs().max().item()
    start = exact.abs().max().item() + (ut.eye(3, dtype=ut.float64) - covariance).abs().max().item()
    return start, error


if __name__ == "__main__":
    main()

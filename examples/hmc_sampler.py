"""Hamiltonian Monte Carlo on a curved density, with a step size from Hessian-vector products.

The density is a banana: x is standard normal, y is normal around x^2 - 1. Its moments are known, so that the samples
can be checked. The step must be small against the strongest curvature, which power iteration finds without a Hessian.
"""

from __future__ import annotations

from collections.abc import Sequence

from common import Steps, options, plot

import undertow as ut

WIDTH = 0.5


def energy(q: ut.Tensor) -> ut.Tensor:
    """-log density, but for a constant."""
    x, y = q
    return 0.5 * x**2 + 0.5 * ((y - (x**2 - 1)) / WIDTH) ** 2


def slope(q: ut.Tensor) -> ut.Tensor:
    q = q.detach().requires_grad_()
    return ut.autograd.grad(energy(q), q)[0]


def strongest_curvature(q: ut.Tensor, turns: int = 15) -> float:
    """The largest eigenvalue of the Hessian: a vector turns to its direction when multiplied again and again."""
    v = ut.ones_like(q)
    for _ in range(turns):
        v = v / v.norm()
        _, product = ut.autograd.functional.hvp(energy, q, v)
        value, v = (v @ product).item(), product
    return abs(value)


def leapfrog(q: ut.Tensor, p: ut.Tensor, step: float, count: int) -> tuple[ut.Tensor, ut.Tensor]:
    p = p - step / 2 * slope(q)
    for k in range(count):
        q = q + step * p
        p = p - (step if k < count - 1 else step / 2) * slope(q)
    return q, p


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "hmc_sampler", argv)
    count = 300 if chosen.quick else 3000
    start = q = ut.tensor([1.5, 1.25], dtype=ut.float64)
    step = 1.0 / strongest_curvature(q) ** 0.5
    print(f"The strongest curvature is {1 / step**2:.1f}, so a step is {step:.3f}.")
    samples, accepted = [], 0
    steps = Steps(count)
    for number in steps:
        p = ut.randn(2, dtype=ut.float64)
        new_q, new_p = leapfrog(q, p, step * (0.5 + ut.rand(1).item()), 12)
        change = energy(q) + 0.5 * p @ p - energy(new_q) - 0.5 * new_p @ new_p  # nan of a path that flies off: refused
        if ut.rand(1).item() < change.exp().item():
            q, accepted = new_q, accepted + 1
        samples.append(q)
        steps.note = f"accepted {accepted / (number + 1):.0%}"
    found = ut.stack(samples)
    mean, variance = found.mean(0), found.var(0)
    print(f"mean      {mean[0].item():6.3f} {mean[1].item():6.3f}   exact  0 0")
    print(f"variance  {variance[0].item():6.3f} {variance[1].item():6.3f}   exact  1 {2 + WIDTH**2}")

    def draw(axes: object) -> None:
        x, y = ut.meshgrid(ut.linspace(-3.5, 3.5, 200), ut.linspace(-3, 10, 200), indexing="xy")
        density = (-energy(ut.stack([x, y]))).exp()
        axes.plot(*found.numpy().T, ".", markersize=3, alpha=0.4, label=f"{count} samples")
        axes.contour(x.numpy(), y.numpy(), density.numpy(), [0.01, 0.1, 0.5], colors="k", linewidths=0.8)
        axes.plot([], [], "k", linewidth=0.8, label="1, 10 and 50 % of the highest density")
        axes.set(title="Samples, and the density they are drawn from", xlabel="x", ylabel="y")
        axes.legend(loc="upper center")

    plot(chosen.plot, draw)
    return start.norm().item(), mean.norm().item()


if __name__ == "__main__":
    main()

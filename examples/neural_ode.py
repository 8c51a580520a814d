"""A neural ODE: a network learns the law by which a point moves, from where it was seen.

The path is integrated in segments, each of them checkpointed: memory for one segment, not for the whole path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from common import Steps, draw_losses, options, plot

import undertow as ut
from undertow import nn
from undertow.autograd.checkpoint import checkpoint


def truth(point: ut.Tensor) -> ut.Tensor:
    """The law to be found: a spiral into the middle."""
    return point**3 @ ut.tensor([[-0.1, 2.0], [-2.0, -0.1]]).T


def segment(law: Callable[[ut.Tensor], ut.Tensor], point: ut.Tensor, time: float, steps: int = 4) -> ut.Tensor:
    """Where the point is after some time: Runge and Kutta's rule, of fourth order."""
    h = time / steps
    for _ in range(steps):
        a = law(point)
        b = law(point + h / 2 * a)
        c = law(point + h / 2 * b)
        d = law(point + h * c)
        point = point + h / 6 * (a + 2 * b + 2 * c + d)
    return point


def path(law: Callable[[ut.Tensor], ut.Tensor], start: ut.Tensor, count: int, time: float) -> ut.Tensor:
    points = [start]
    for _ in range(count):
        points.append(checkpoint(segment, law, points[-1], time, use_reentrant=False))
    return ut.stack(points)


class Law(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))

    def forward(self, point: ut.Tensor) -> ut.Tensor:
        return self.layers(point**3)


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "neural_ode", argv)
    total, count = (20, 60) if chosen.quick else (100, 400)
    start = ut.tensor([[2.0, 0.0]])
    with ut.no_grad():
        seen = path(truth, start, total, time=0.05)
    law = Law()
    optimizer = ut.optim.Adam(law.parameters(), lr=1e-2)
    schedule = ut.optim.lr_scheduler.CosineAnnealingLR(optimizer, count)
    losses = []
    steps = Steps(count)
    for _ in steps:
        starts = ut.randint(0, total - 8, (16,))
        wanted = ut.stack([seen[starts + k, 0] for k in range(9)])
        loss = (path(law, wanted[0], 8, time=0.05) - wanted).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        steps.note = f"loss {losses[-1]:.4f}"
    with ut.no_grad():
        found = path(law, start, total, time=0.05)
    print(f"Over the whole path, it is off by {(found - seen).abs().mean().item():.3f} on average.")

    def draw(left: object, right: object) -> None:
        left.plot(*seen[:, 0].numpy().T, "k.", markersize=4, label="seen")
        left.plot(*found[:, 0].numpy().T, label="found")
        left.set(title="The path", xlabel="x", ylabel="y", aspect="equal")
        left.legend(loc="center")
        draw_losses(right, losses, "loss (mean distance in x and y)")
        right.legend()

    plot(chosen.plot, draw, panels=2)
    return losses[0], sum(losses[-5:]) / 5


if __name__ == "__main__":
    main()

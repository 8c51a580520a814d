"""A simulation that fills its array in place, and is differentiated all the same.

A string is plucked and swings. All its states are rows of one array, each written from the two before it; from where
the string is at the end, gradient descent finds how it was plucked.
"""

from __future__ import annotations

from collections.abc import Sequence

from common import Steps, options, plot

import undertow as ut


def swing(start: ut.Tensor, rows: int, speed: float = 0.6) -> ut.Tensor:
    """All states of a string with fixed ends: row t is its shape at time t."""
    states = ut.zeros(rows, len(start), dtype=ut.float64)
    states[0] = start
    states[1, 1:-1] = start[1:-1] + 0.5 * speed**2 * bending(start)
    for t in range(1, rows - 1):
        states[t + 1, 1:-1] = 2 * states[t, 1:-1] - states[t - 1, 1:-1] + speed**2 * bending(states[t])
        states[t + 1] *= 0.999  # friction
    return states


def bending(shape: ut.Tensor) -> ut.Tensor:
    return shape[2:] - 2 * shape[1:-1] + shape[:-2]


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "wave_in_place", argv)
    size, rows, count = (30, 40, 60) if chosen.quick else (80, 150, 200)
    place = ut.linspace(0, 1, size, dtype=ut.float64)
    truth = ut.minimum(place / 0.3, (1 - place) / 0.7)  # plucked at a third
    seen = swing(truth, rows)[-10:]  # the last ten states are all that is known

    guess = ut.zeros(size, dtype=ut.float64, requires_grad=True)
    optimizer = ut.optim.Adam([guess], lr=0.05)
    losses = []
    steps = Steps(count)
    for _ in steps:
        states = swing(guess, rows)
        loss = ((states[-10:] - seen) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        steps.note = f"loss {losses[-1]:.2e}"
    print(f"The string was plucked at {place[guess.argmax()].item():.2f} of its length; the truth is 0.30.")

    def draw(left: object, right: object) -> None:
        left.plot(place.numpy(), guess.detach().numpy(), linewidth=5, alpha=0.4, label="what was found")
        left.plot(place.numpy(), truth.numpy(), "k--", label="how it was plucked")
        left.plot(place.numpy(), seen[-1].numpy(), ":", label="the end, which was seen")
        left.set(title="The string", xlabel="place (of its length)", ylabel="height")
        left.legend()
        image = right.imshow(
            states.detach().numpy(), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", extent=(0, 1, rows, 0)
        )
        right.axhline(rows - 10, color="k", ls=":")
        right.set(
            title="Its states; what is below the line was seen", xlabel="place (of its length)", ylabel="time (rows)"
        )
        right.figure.colorbar(image, ax=right, label="height")

    plot(chosen.plot, draw, panels=2)
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()

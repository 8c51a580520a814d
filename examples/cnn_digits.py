"""A convolutional network learns to read digits.

The digits are drawn from a small font, moved about, dimmed and covered with noise, so nothing has to be downloaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from common import draw_losses, options, plot

import undertow as ut
from undertow import nn
from undertow.data import DataLoader, random_split
from undertow.demo.digits import digits


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 3 * 3, 10),
    )  # fmt: skip


def accuracy(model: nn.Module, data: object) -> float:
    model.eval()
    with ut.no_grad():
        hits = sum((model(x).argmax(1) == y).sum().item() for x, y in DataLoader(data, batch_size=256))
    model.train()
    return hits / len(data)


def draw_answers(axes: object, model: nn.Module, data: object, rows: int = 5, columns: int = 7) -> None:
    """Some digits, and above each what the network takes it for; mistakes in red."""
    images, labels = next(iter(DataLoader(data, batch_size=rows * columns)))
    model.eval()
    with ut.no_grad():
        answers = model(images).argmax(1)
    tiles = np.full((rows, 17, columns, 14), -1, np.float32)
    tiles[:, 4:16, :, 1:13] = images.numpy().reshape(rows, columns, 12, 12).swapaxes(1, 2)
    axes.imshow(tiles.reshape(rows * 17, columns * 14), cmap="gray_r", vmin=-0.4, vmax=1.0)
    for k, (answer, label) in enumerate(zip(answers.tolist(), labels.tolist(), strict=True)):
        x, y = k % columns * 14 + 6.5, k // columns * 17 + 1.5
        axes.text(x, y, str(answer), ha="center", va="center", color="k" if answer == label else "r")
    axes.set(title="What it reads")
    axes.axis("off")


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "cnn_digits", argv)
    count, epochs = (3000, 2) if chosen.quick else (20000, 4)
    training, testing = random_split(digits(count, chosen.seed), [0.8, 0.2])
    model = network()
    optimizer = ut.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for epoch in range(epochs):
        loader = DataLoader(training, batch_size=32, shuffle=True, progress=sys.stdout)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            loader.note = f"epoch {epoch + 1}  loss {losses[-1]:.3f}"
        print(f"epoch {epoch + 1}: reads {accuracy(model, testing):.1%} of the digits it has not seen")

    def draw(left: object, right: object) -> None:
        draw_losses(left, losses, "loss (nats per digit)")
        left.legend()
        draw_answers(right, model, testing)

    plot(chosen.plot, draw, panels=2)
    return float(np.mean(losses[:5])), float(np.mean(losses[-5:]))


if __name__ == "__main__":
    main()

"""A convolutional network learns to read digits.

The digits are drawn from a small font, moved about, dimmed and covered with noise, so nothing has to be downloaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from common import options, plot_losses

import undertow as ut
from undertow import nn
from undertow.data import DataLoader, TensorDataset, random_split

FONT = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ....#
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .###.
"""
GLYPHS = np.array([list(row) for row in FONT.replace(" ", "").split()]).reshape(7, 10, 5).swapaxes(0, 1) == "#"


def digits(count: int, seed: int) -> TensorDataset:
    """Images of 12 x 12 points, and what they show."""
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, 10, count)
    images = chance.normal(0, 0.3, (count, 1, 12, 12)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        top, left = chance.integers(0, 6), chance.integers(0, 8)
        image[0, top : top + 7, left : left + 5] += chance.uniform(0.6, 1.2) * GLYPHS[label]
    return TensorDataset(ut.from_numpy(images), ut.from_numpy(labels))


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
    plot_losses(chosen.plot, losses, "A network learns to read digits")
    return float(np.mean(losses[:5])), float(np.mean(losses[-5:]))


if __name__ == "__main__":
    main()

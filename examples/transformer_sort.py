"""A small transformer learns to sort: it is shown numbers, and says at each place which one belongs there."""

from __future__ import annotations

from collections.abc import Sequence

from common import Steps, draw_losses, options, plot

import undertow as ut
from undertow import nn

NUMBERS = 10


class Sorter(nn.Module):
    """Embeds the numbers and their places, attends, and scores every number for every place."""

    def __init__(self, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.numbers = nn.Embedding(NUMBERS, width)
        self.places = nn.Parameter(0.1 * ut.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.scores = nn.Linear(width, NUMBERS)

    def forward(self, x: ut.Tensor) -> ut.Tensor:
        return self.scores(self.encoder(self.numbers(x) + self.places))


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "transformer_sort", argv)
    length, width, layers, count = (5, 32, 1, 60) if chosen.quick else (8, 64, 2, 500)
    model = Sorter(length, width, layers)
    optimizer = ut.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = ut.optim.lr_scheduler.CosineAnnealingLR(optimizer, count)
    losses = []
    steps = Steps(count)
    for _ in steps:
        x = ut.randint(0, NUMBERS, (64, length))
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.sort(1).values.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        steps.note = f"loss {losses[-1]:.3f}"
    x = ut.randint(0, NUMBERS, (500, length))
    with ut.no_grad():
        chances = model(x).softmax(2)
    answers = chances.argmax(2)
    right = (answers == x.sort(1).values).all(1).sum().item() / len(x)
    print(f"{x[0].tolist()} sorted is {answers[0].tolist()}, it says; {right:.1%} of new lists are sorted right.")

    def draw(left: object, right: object) -> None:
        draw_losses(left, losses, "loss (nats per place)")
        left.legend()
        image = right.imshow(chances[0].T.numpy(), cmap="Blues", vmin=0, vmax=1, origin="lower", aspect="auto")
        title = "What it says to " + " ".join(map(str, x[0].tolist()))
        right.set(title=title, xlabel="place", ylabel="number", xticks=range(length), yticks=range(NUMBERS))
        right.figure.colorbar(image, ax=right, label="probability")

    plot(chosen.plot, draw, panels=2)
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()

"""An LSTM learns to write a short text, one character after the other, and goes on by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from common import Steps, draw_losses, options, plot

import undertow as ut
from undertow import nn

TEXT = """
the river rises in the hills behind the town. it is small there, and cold, and it hurries. below the mill it has become
a river that knows its way, and below the bridge it has time. boats go up in the morning and come down in the evening,
and nobody asks the river what it thinks of them. under the water there is another water, which goes the other way. the
old people call it the undertow. what the river carries down to the sea, the undertow carries back, a little at a time,
to the places where it came from.
"""
LETTERS = sorted(set(TEXT))


class Writer(nn.Module):
    """For each character of a text, a score for every character that may follow it."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), 16)
        self.lstm = nn.LSTM(16, hidden, batch_first=True)
        self.scores = nn.Linear(hidden, len(LETTERS))

    def forward(self, text: ut.Tensor, state: object = None) -> tuple[ut.Tensor, object]:
        out, state = self.lstm(self.embedding(text), state)
        return self.scores(out), state


def encoded(text: str) -> ut.Tensor:
    return ut.tensor([LETTERS.index(c) for c in text])


def excerpts(text: ut.Tensor, count: int, length: int) -> tuple[ut.Tensor, ut.Tensor]:
    """Pieces of the text, and the same pieces one character further on."""
    starts = ut.randint(0, len(text) - length - 1, (count, 1))
    places = starts + ut.arange(length)
    return text[places], text[places + 1]


@ut.no_grad()
def write(model: Writer, start: str, length: int) -> str:
    scores, state = model(encoded(start)[None])
    written = start
    for _ in range(length):
        letter = ut.multinomial((scores[0, -1] / 0.5).softmax(0), 1)
        written += LETTERS[letter.item()]
        scores, state = model(letter[None], state)
    return written


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "char_lstm", argv)
    model = Writer(hidden=32 if chosen.quick else 96)
    optimizer = ut.optim.Adam(model.parameters(), lr=1e-2)
    text, losses = encoded(TEXT), []
    steps = Steps(60 if chosen.quick else 300)
    for _ in steps:
        x, y = excerpts(text, count=16, length=50)
        scores, _ = model(x)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        steps.note = f"loss {losses[-1]:.3f}"
    print(f"It writes:\n{write(model, 'the river ', 200)}")

    def draw(axes: object) -> None:
        draw_losses(axes, losses, "loss (nats per character)")
        share = ut.bincount(text) / len(text)
        axes.axhline(math.log(len(LETTERS)), color="k", ls=":", label="all characters equally likely")
        axes.axhline(-(share * share.log()).sum().item(), color="k", ls="--", label="as likely as in the text")
        axes.legend()

    plot(chosen.plot, draw)
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()

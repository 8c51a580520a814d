"""Fitting a complex-valued filter: what a radio channel does to a signal, found from what went in and what came out."""

from __future__ import annotations

from collections.abc import Sequence

from common import Steps, options, plot

import undertow as ut


def filtered(signal: ut.Tensor, taps: ut.Tensor) -> ut.Tensor:
    """The signal through a filter, which is a product of spectra."""
    return ut.fft.ifft(ut.fft.fft(signal) * ut.fft.fft(taps, n=signal.shape[-1]))


def channel(count: int) -> ut.Tensor:
    """Echoes: each weaker than the one before, and turned by its own phase."""
    angle = 2 * ut.pi * ut.rand(count, dtype=ut.float64)
    return ut.polar(ut.exp(-0.4 * ut.arange(count, dtype=ut.float64)), angle)


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "complex_filter", argv)
    truth = channel(12)
    sent = ut.randn(8, 256, dtype=ut.complex128)
    received = filtered(sent, truth) + 0.05 * ut.randn(8, 256, dtype=ut.complex128)

    taps = ut.zeros(12, dtype=ut.complex128, requires_grad=True)
    optimizer = ut.optim.Adam([taps], lr=0.05)
    losses = []
    steps = Steps(100 if chosen.quick else 400)
    for _ in steps:
        loss = (filtered(sent, taps) - received).abs().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        steps.note = f"loss {losses[-1]:.4f}"
    error = (taps - truth).abs().max().item()
    print(f"The noise has power {0.05**2:.4f}; what is left is {losses[-1]:.4f}. The taps are right to {error:.3f}.")

    def draw(left: object, right: object) -> None:
        for name, filter, mark in (("the channel", truth, "ko"), ("what was found", taps.detach(), "rx")):
            left.plot(filter.real.numpy(), filter.imag.numpy(), mark, label=name, fillstyle="none")
        left.set(title="The taps in the complex plane", xlabel="real part", ylabel="imaginary part")
        left.set_aspect("equal", adjustable="datalim")
        left.legend()
        right.semilogy(losses)
        right.axhline(0.05**2, color="k", ls="--", label="power of the noise")
        right.set(title="How it was found", xlabel="step", ylabel="power of what is left")
        right.legend()

    plot(chosen.plot, draw, panels=2)
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()

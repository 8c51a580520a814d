"""SciPy fits a curve with an exact Jacobian: two damped oscillations, seen together and through noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from common import options, plot

import undertow as ut
from undertow.interop import value_and_jac

TRUTH = {"height": [1.0, 0.6], "rate": [2.0, 3.1], "decay": [0.15, 0.05], "phase": [0.3, -0.8]}


def curve(params: dict[str, ut.Tensor], time: ut.Tensor) -> ut.Tensor:
    t = time[:, None]
    swing = ut.cos(params["rate"] * t + params["phase"])
    return (params["height"] * ut.exp(-params["decay"] * t) * swing).sum(1)


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "scipy_fit", argv)
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise SystemExit("This example needs SciPy.") from None
    time = ut.linspace(0, 20, 100 if chosen.quick else 2000, dtype=ut.float64)
    truth = {name: ut.tensor(value, dtype=ut.float64) for name, value in TRUTH.items()}
    seen = curve(truth, time) + 0.05 * ut.randn(len(time), dtype=ut.float64)

    first = {"height": [0.8, 0.8], "rate": [2.1, 3.0], "decay": [0.1, 0.1], "phase": [0.0, 0.0]}
    example = {name: ut.tensor(value, dtype=ut.float64) for name, value in first.items()}
    residuals = value_and_jac(lambda params: curve(params, time) - seen, example)
    start = np.concatenate([first[name] for name in example])
    exact = least_squares(residuals.fun, start, jac=residuals.jac, verbose=1)
    numeric = least_squares(residuals.fun, start)
    print(f"with exact Jacobians: {exact.nfev} evaluations of the residuals, and {exact.njev} Jacobians")
    print(f"with differences:     {numeric.nfev + len(start) * numeric.njev} evaluations")
    found = residuals.unflatten(exact.x)
    for name, value in found.items():
        print(f"{name:<7} found {np.round(np.asarray(value), 3)}   truth {TRUTH[name]}")

    def draw(axes: object) -> None:
        axes.plot(time.numpy(), seen.numpy(), "k.", markersize=2, label="seen")
        for label, params, style in (("first guess", example, ":"), ("fitted", found, "-")):
            axes.plot(time.numpy(), curve(params, time).detach().numpy(), style, label=label)
        axes.set(title="Two damped oscillations, fitted together", xlabel="time (s)", ylabel="value")
        axes.legend()

    plot(chosen.plot, draw)
    return 0.5 * float(np.sum(residuals.fun(start) ** 2)), float(exact.cost)


if __name__ == "__main__":
    main()

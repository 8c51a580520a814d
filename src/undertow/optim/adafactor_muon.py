"""Optimizers for matrices: what they keep, or how far they go, depends on rows and columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow.backend.dtypes import kind_of, wide
from undertow.backend.interface import Array, Namespace
from undertow.optim.optimizer import Optimizer, check_at_least_zero, count_step, slot

if TYPE_CHECKING:
    from undertow.optim.optimizer import Params


def refuse_complex(name: str, param: Array) -> None:
    if kind_of(param.dtype) == "c":
        raise RuntimeError(f"{name} does not support complex parameters: use Adam")


def norm_of(xp: Namespace, array: Array) -> float:
    """The root of the sum of squares."""
    return math.sqrt(float((array * array).sum(dtype=array.dtype)))


class Adafactor(Optimizer):
    """Adam with little memory: of the mean square of a gradient, only means of rows and of columns are kept
    (Shazeer and Stern, 2018).

    lr            bounds the step, which is relative to the size of the parameter
    beta2_decay   how fast the mean squares forget less: 1 - step ** beta2_decay
    eps           what squares, and sizes of parameters, count at least as; the first None: the dtype's epsilon
    d             updates with a larger root mean square are scaled down to it
    weight_decay  how fast parameters decay, apart from the gradient

    >>> import undertow as ut
    >>> p = ut.ones(2, 3, requires_grad=True)
    >>> optimizer = ut.optim.Adafactor([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p[0].tolist()
    [0.8999999761581421, 0.8999999761581421, 0.8999999761581421]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if not lr >= 0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        for n, value in enumerate(eps, 1):
            if value is not None and not value >= 0:
                raise ValueError(f"epsilon{n} should be >= 0 but is: {value}")
        if not d >= 1:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
                    "foreach": foreach, "maximize": maximize}  # fmt: skip
        super().__init__(params, defaults)

    def update(self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> None:
        refuse_complex("Adafactor", param)
        step, lr = count_step(state, xp), float(group["lr"])
        least, least_size = group["eps"]
        least = float(xp.finfo(wide(param.dtype)).eps) if least is None else least
        size = norm_of(xp, param) / math.sqrt(max(param.size, 1))
        rate = max(least_size, size) * min(lr, 1 / math.sqrt(step))
        if group["weight_decay"]:
            param *= 1 - lr * group["weight_decay"]
        grad = xp.negative(grad) if group["maximize"] else grad
        squares = self.mean_squares(xp, grad, state, step ** group["beta2_decay"], least)
        change = xp.asarray(grad / xp.sqrt(xp.maximum(squares, least * least)))
        too_large = norm_of(xp, change) / (math.sqrt(max(change.size, 1)) * group["d"])
        param -= change * (rate / max(1.0, too_large))

    @staticmethod
    def mean_squares(xp: Namespace, grad: Array, state: dict[str, Any], part: float, least: float) -> Array:
        """The running mean of the squared gradient; of a matrix, from the means of its rows and of its columns.

        xp, grad, state  the namespace of the array, the gradient, and what is kept of the parameter
        part             how far the mean moves
        least            what its rows' mean counts as at least
        """
        square = grad * grad
        if grad.ndim < 2:
            mean = slot(state, "variance", grad, xp)
            mean += (square - mean) * part
            return mean
        of_rows, of_columns = square.mean(-1, keepdims=True), square.mean(-2, keepdims=True)
        rows, columns = slot(state, "row_var", of_rows, xp), slot(state, "col_var", of_columns, xp)
        rows += (of_rows - rows) * part
        columns += (of_columns - columns) * part
        return rows @ columns / xp.maximum(rows.mean(-2, keepdims=True), least)


class Muon(Optimizer):
    """Momentum whose steps are made orthogonal, for the matrices inside networks (Jordan et al., 2024).

    Optimize biases, embeddings and the last layer with another optimizer, such as AdamW.

    ns_coefficients, ns_steps  of the Newton-Schulz iteration, which brings all singular values near 1
    adjust_lr_fn               "original": longer steps for tall matrices; "match_rms_adamw": as long as AdamW's
    lr                         the length of steps
    weight_decay               how fast parameters decay, apart from the gradient
    momentum                   how much of the mean gradient stays
    nesterov                   look ahead: mix the present gradient into the mean
    eps                        what a gradient's norm counts as at least

    PyTorch computes the iteration in bfloat16, here it has the precision of the parameter.

    >>> import undertow as ut
    >>> p = ut.zeros(2, 2, requires_grad=True)
    >>> optimizer = ut.optim.Muon([p], lr=0.1)
    >>> (p * ut.tensor([[3.0, 0.0], [0.0, 0.1]])).sum().backward()
    >>> optimizer.step()
    >>> bool((p.diagonal() < -0.05).all())
    True
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if not lr >= 0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not momentum >= 0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        check_at_least_zero(eps=eps)
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
                    "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps,
                    "adjust_lr_fn": adjust_lr_fn}  # fmt: skip
        super().__init__(params, defaults)
        for p in self._parameters():
            if p.ndim != 2:
                raise ValueError(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}. Give the "
                    "others to AdamW."
                )

    def update(self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> None:
        refuse_complex("Muon", param)
        lr, momentum = float(group["lr"]), group["momentum"]
        mean = slot(state, "momentum_buffer", grad, xp)
        mean += (grad - mean) * (1 - momentum)
        change = grad + (mean - grad) * momentum if group["nesterov"] else mean
        change = orthogonal(xp, change, group["ns_coefficients"], group["ns_steps"], group["eps"])
        param *= 1 - lr * group["weight_decay"]
        param -= change * (lr * self.factor(group["adjust_lr_fn"], *param.shape))

    @staticmethod
    def factor(adjust_lr_fn: str | None, rows: int, columns: int) -> float:
        if adjust_lr_fn == "match_rms_adamw":
            return 0.2 * math.sqrt(max(rows, columns))
        return math.sqrt(max(1, rows / columns))


def orthogonal(xp: Namespace, matrix: Array, coefficients: tuple[float, float, float], steps: int, eps: float) -> Array:
    """The matrix with its singular values brought near 1, by a polynomial of degree five applied again and again."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / max(norm_of(xp, x), eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if tall else x

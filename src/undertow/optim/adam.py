"""Adam and its relatives: step sizes from running means of the gradient and of its square."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from undertow.backend import devices_in_use
from undertow.backend.interface import Array, Namespace
from undertow.backend.kernels import adam_update
from undertow.backend.sparse.places import coalesced
from undertow.optim import together
from undertow.optim.complex_as_real import RealOptimizer
from undertow.optim.optimizer import (
    Optimizer,
    check_at_least_zero,
    check_betas,
    count_step,
    decayed,
    refuse,
    slot,
)

if TYPE_CHECKING:
    from undertow.optim.optimizer import Params


class MomentOptimizer(RealOptimizer):
    """The options and running means that all optimizers of this family have."""

    def __init__(
        self,
        params: Params,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        maximize: bool,
        **options: Any,
    ) -> None:
        check_at_least_zero(lr=lr, eps=eps)
        check_betas(betas)
        check_at_least_zero(weight_decay=weight_decay)
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**defaults, **options})


def mean_towards(xp: Namespace, mean: Array, value: Array, beta: float, scratch: Array) -> None:
    """mean = beta * mean + (1 - beta) * value, in place."""
    xp.multiply(mean, beta, out=mean)
    xp.multiply(value, 1 - beta, out=scratch)
    xp.add(mean, scratch, out=mean)


def square_mean_towards(xp: Namespace, mean: Array, value: Array, beta: float, scratch: Array) -> None:
    """mean = beta * mean + (1 - beta) * value**2, in place."""
    xp.multiply(mean, beta, out=mean)
    xp.multiply(value, value, out=scratch)
    xp.multiply(scratch, 1 - beta, out=scratch)
    xp.add(mean, scratch, out=mean)


class Adam(MomentOptimizer):
    """Adam (Kingma and Ba, 2015), with AMSGrad and decoupled weight decay as options.

    lr                      how long steps are
    betas                   how much of the running means of gradients, and of their squares, is kept in each step
    eps                     is added to the root that steps are divided by
    weight_decay            how much of the parameter is added to its gradient
    amsgrad                 divide by the largest mean square so far
    decoupled_weight_decay  shrink the parameter itself, as AdamW does

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> p = ut.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = ut.optim.Adam([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    decoupled_default = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool | None = None,
    ) -> None:
        refuse(capturable=capturable)
        self.differentiable = differentiable
        decoupled = self.decoupled_default if decoupled_weight_decay is None else decoupled_weight_decay
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            maximize,
            amsgrad=amsgrad,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=decoupled,
        )

    def step_together(self, group: dict[str, Any]) -> Collection[int]:
        is_own = type(self).update_real is Adam.update_real  # and not that of a subclass
        return together.step_of_adam(self, group) if is_own and devices_in_use() and not group["amsgrad"] else ()

    def update_real(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        step = count_step(state, xp)
        *numbers, shrink = self.numbers(xp, param.dtype, (id(group), step), lambda: self.factors(group, step))
        mean, square = slot(state, "exp_avg", param, xp), slot(state, "exp_avg_sq", param, xp)
        largest = slot(state, "max_exp_avg_sq", param, xp) if group["amsgrad"] else None
        if group["decoupled_weight_decay"]:
            if group["weight_decay"]:
                xp.multiply(param, shrink, out=param)
            grad = xp.negative(grad) if group["maximize"] else grad
        elif group["weight_decay"] or group["maximize"]:
            grad = decayed(xp, param, grad, group, xp.empty_like(param))
        if adam_update(xp, param, grad, mean, square, largest, *numbers) is None:
            self.move(xp, param, grad, (mean, square, largest), numbers)

    @staticmethod
    def move(xp: Namespace, param: Array, grad: Array, moments: tuple[Any, Any, Any], numbers: list[Any]) -> None:
        """The update itself, in place; the largest square is None without AMSGrad.

        xp, param, grad  the namespace of the arrays, the parameter and its gradient
        moments          the mean, the mean square, and the largest of these or None
        numbers          the first seven of `factors`, as arrays
        """
        mean, square, largest = moments
        keep1, take1, keep2, take2, scale, eps, rate = numbers
        scratch = xp.empty_like(param)
        xp.multiply(mean, keep1, out=mean)
        xp.add(mean, xp.multiply(grad, take1, out=scratch), out=mean)
        xp.multiply(square, keep2, out=square)
        xp.multiply(grad, grad, out=scratch)
        xp.add(square, xp.multiply(scratch, take2, out=scratch), out=square)
        if largest is not None:
            square = xp.maximum(largest, square, out=largest)
        xp.multiply(xp.sqrt(square, out=scratch), scale, out=scratch)
        xp.add(scratch, eps, out=scratch)
        xp.divide(mean, scratch, out=scratch)
        xp.subtract(param, xp.multiply(scratch, rate, out=scratch), out=param)

    @staticmethod
    def factors(group: dict[str, Any], step: float) -> tuple[float, ...]:
        """What keeps and moves the means, scales the root of their square, and what is left of a decaying parameter.

        group  the options
        step   which step it is, from 1 on
        """
        (beta1, beta2), lr = group["betas"], group["lr"]
        scale = 1 / math.sqrt(1 - beta2**step)
        shrink = 1 - lr * group["weight_decay"]
        return beta1, 1 - beta1, beta2, 1 - beta2, scale, group["eps"], lr / (1 - beta1**step), shrink


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): the parameter itself shrinks, not the gradient.

    lr            how long steps are
    betas         how much of the running means of gradients, and of their squares, is kept in each step
    eps           is added to the root that steps are divided by
    weight_decay  the parameter shrinks by lr times this, in each step
    amsgrad       divide by the largest mean square so far

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> ut.optim.AdamW([ut.zeros(2, requires_grad=True)]).param_groups[0]["weight_decay"]
    0.01
    """

    decoupled_default = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` of AdamW, or of Adam, returned; the decay stays decoupled."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


class Adamax(MomentOptimizer):
    """Adam with the largest gradient seen lately in the place of the mean square.

    lr            how long steps are
    betas         how much of the running mean of gradients, and of the largest, is kept in each step
    eps           is added to what steps are divided by
    weight_decay  how much of the parameter is added to its gradient

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> ut.optim.Adamax([ut.zeros(2, requires_grad=True)]).param_groups[0]["lr"]
    0.002
    """

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        refuse(capturable=capturable)
        self.differentiable = differentiable
        accepted = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        super().__init__(params, lr, betas, eps, weight_decay, maximize, **accepted)

    def update_real(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        beta1, beta2 = group["betas"]
        step = count_step(state, xp)
        mean, largest = slot(state, "exp_avg", param, xp), slot(state, "exp_inf", param, xp)
        scratch = xp.empty_like(param)
        grad = decayed(xp, param, grad, group, xp.empty_like(param))
        mean_towards(xp, mean, grad, beta1, scratch)
        xp.multiply(largest, beta2, out=largest)
        xp.maximum(largest, xp.add(xp.abs(grad), group["eps"], out=scratch), out=largest)
        xp.divide(mean, largest, out=scratch)
        xp.subtract(param, xp.multiply(scratch, group["lr"] / (1 - beta1**step), out=scratch), out=param)


class NAdam(MomentOptimizer):
    """Adam with Nesterov's momentum (Dozat, 2016).

    lr                      how long steps are
    betas                   how much of the running means of gradients, and of their squares, is kept in each step
    eps                     is added to the root that steps are divided by
    weight_decay            how much of the parameter is added to its gradient
    momentum_decay          how fast the momentum comes to its full size
    decoupled_weight_decay  shrink the parameter itself, as AdamW does

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> ut.optim.NAdam([ut.zeros(2, requires_grad=True)]).param_groups[0]["momentum_decay"]
    0.004
    """

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse(capturable=capturable)
        self.differentiable = differentiable
        check_at_least_zero(momentum_decay=momentum_decay)
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            maximize,
            momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
        )

    def update_real(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        (beta1, beta2), lr = group["betas"], group["lr"]
        step = count_step(state, xp)
        product = slot(state, "mu_product", xp.ones((), dtype="float32"), xp, 1.0)
        mean, square = slot(state, "exp_avg", param, xp), slot(state, "exp_avg_sq", param, xp)
        first, second = xp.empty_like(param), xp.empty_like(param)
        grad = decoupled_or_decayed(xp, param, grad, group, first)
        now, following = (beta1 * (1 - 0.5 * 0.96 ** (n * group["momentum_decay"])) for n in (step, step + 1))
        product *= now
        mean_towards(xp, mean, grad, beta1, second)
        square_mean_towards(xp, square, grad, beta2, second)
        done = float(product)
        denominator = xp.sqrt(square / (1 - beta2**step), out=second)
        denominator += group["eps"]
        param -= grad / denominator * (lr * (1 - now) / (1 - done))
        param -= mean / denominator * (lr * following / (1 - done * following))


class RAdam(MomentOptimizer):
    """Adam that adapts its step sizes only once it has seen enough to (Liu et al., 2020).

    lr                      how long steps are
    betas                   how much of the running means of gradients, and of their squares, is kept in each step
    eps                     is added to the root that steps are divided by
    weight_decay            how much of the parameter is added to its gradient
    decoupled_weight_decay  shrink the parameter itself, as AdamW does

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> ut.optim.RAdam([ut.zeros(2, requires_grad=True)]).param_groups[0]["betas"]
    (0.9, 0.999)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse(capturable=capturable)
        self.differentiable = differentiable
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            maximize,
            decoupled_weight_decay=decoupled_weight_decay,
            foreach=foreach,
            capturable=capturable,
            differentiable=differentiable,
        )

    def update_real(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        (beta1, beta2), lr = group["betas"], group["lr"]
        step = count_step(state, xp)
        mean, square = slot(state, "exp_avg", param, xp), slot(state, "exp_avg_sq", param, xp)
        first, second = xp.empty_like(param), xp.empty_like(param)
        grad = decoupled_or_decayed(xp, param, grad, group, first)
        mean_towards(xp, mean, grad, beta1, second)
        square_mean_towards(xp, square, grad, beta2, second)
        unseen = 1 - beta2**step
        most = 2 / (1 - beta2) - 1
        length = most - 2 * step * beta2**step / unseen
        change = mean * (lr / (1 - beta1**step))
        if length > 5:
            rectified = math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
            change *= rectified * math.sqrt(unseen) / (xp.sqrt(square, out=second) + group["eps"])
        xp.subtract(param, change, out=param)


def decoupled_or_decayed(xp: Namespace, param: Array, grad: Array, group: dict[str, Any], scratch: Array) -> Array:
    """The gradient with its weight decay; the parameter itself decays, instead, where that is decoupled."""
    if not (group["decoupled_weight_decay"] and group["weight_decay"]):
        return decayed(xp, param, grad, group, scratch)
    xp.multiply(param, 1 - group["lr"] * group["weight_decay"], out=param)
    return xp.negative(grad, out=scratch) if group["maximize"] else grad


class SparseAdam(Optimizer):
    """Adam for sparse gradients: only the elements that have one, and their means, are touched.

    lr     how long steps are
    betas  how much of the running means of gradients, and of their squares, is kept in each step
    eps    is added to the root that steps are divided by

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> ut.optim.SparseAdam([ut.zeros(2, requires_grad=True)]).param_groups[0]["lr"]
    0.001
    """

    takes_sparse = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if not lr > 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        check_at_least_zero(eps=eps)
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "maximize": maximize})

    def _check(self, params: list[Any]) -> None:
        super()._check(params)
        number = len(self.param_groups)
        for kind, found in (("Sparse", lambda p: p.is_sparse), ("Complex", lambda p: p.is_complex())):
            places = [[number, k] for k, p in enumerate(params) if found(p)]
            if places:
                raise ValueError(
                    f"{kind} params at indices {places}: SparseAdam requires dense, real parameter tensors; sparse are "
                    "their gradients"
                )

    def update(self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> None:
        if type(grad) is xp.ndarray:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        (beta1, beta2), lr = group["betas"], group["lr"]
        state["step"] = step = state.get("step", 0) + 1
        mean, square = slot(state, "exp_avg", param, xp), slot(state, "exp_avg_sq", param, xp)
        grad = coalesced(grad)
        places = tuple(grad.indices) or (None,)  # a tensor without dimensions has one value in a sparse gradient
        values = -grad.values if group["maximize"] else grad.values
        mean[places] += (values - mean[places]) * (1 - beta1)
        square[places] += (values * values - square[places]) * (1 - beta2)
        size = lr * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        param[places] -= size * mean[places] / (xp.sqrt(square[places]) + group["eps"])

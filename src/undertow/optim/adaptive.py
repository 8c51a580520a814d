"""Optimizers with a step size for every element: Adagrad, RMSprop, Adadelta, Rprop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.backend.interface import Array, Namespace
from undertow.backend.sparse.places import coalesced
from undertow.optim.adam import square_mean_towards
from undertow.optim.complex_as_real import RealOptimizer
from undertow.optim.optimizer import check_at_least_zero, count_step, decayed, refuse, slot
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.optim.optimizer import Params


class Adagrad(RealOptimizer):
    """Steps that shrink with the sum of squared gradients (Duchi et al., 2011); takes sparse gradients.

    lr                         how long the first steps are
    lr_decay                   lr is divided by 1 + this times the number of the step
    weight_decay               how much of the parameter is added to its gradient
    initial_accumulator_value  where the sum of squares begins
    eps                        is added to the root that steps are divided by

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> p = ut.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = ut.optim.Adagrad([p], lr=0.1)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    takes_sparse = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        self.differentiable = differentiable
        check_at_least_zero(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay)
        check_at_least_zero(initial_accumulator_value=initial_accumulator_value, eps=eps)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        for p in self._parameters():
            self.state[p] = self._first_state(p._xp, p._array, initial_accumulator_value)

    @staticmethod
    def _first_state(xp: Namespace, array: Array, value: float) -> dict[str, Any]:
        """What there is before the first step, as in PyTorch: processes that share parameters share it, too."""
        filled = xp.full_like(array, complex(value, value) if array.dtype.kind == "c" else value)
        return {"step": Tensor(xp.zeros((), dtype="float32"), xp), "sum": Tensor(filled, xp)}

    def update(self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> None:
        if type(grad) is not xp.ndarray:
            self.update_rows(xp, param, grad, state, group)
        else:
            super().update(xp, param, grad, state, group)

    def update_real(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        rate = group["lr"] / (1 + (count_step(state, xp) - 1) * group["lr_decay"])
        total = slot(state, "sum", param, xp, group["initial_accumulator_value"])
        scratch = xp.empty_like(param)
        grad = decayed(xp, param, grad, group, xp.empty_like(param))
        total += xp.multiply(grad, grad, out=scratch)
        xp.add(xp.sqrt(total, out=scratch), group["eps"], out=scratch)
        xp.divide(grad, scratch, out=scratch)
        xp.subtract(param, xp.multiply(scratch, rate, out=scratch), out=param)

    def update_rows(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        if group["weight_decay"]:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        rate = group["lr"] / (1 + (count_step(state, xp) - 1) * group["lr_decay"])
        total = slot(state, "sum", param, xp, group["initial_accumulator_value"])
        grad = coalesced(grad)
        places, values = tuple(grad.indices), -grad.values if group["maximize"] else grad.values
        total[places] += values * values
        param[places] -= rate * values / (xp.sqrt(total[places]) + group["eps"])


class RMSprop(RealOptimizer):
    """Steps divided by the root of the mean square of the gradient, with momentum, centered if asked.

    lr            how long steps are
    alpha         how much of the running mean square is kept in each step
    eps           is added to the root that steps are divided by
    weight_decay  how much of the parameter is added to its gradient
    momentum      how much of the last step goes on in this one
    centered      divide by the variance: the square of the running mean is taken off

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> ut.optim.RMSprop([ut.zeros(2, requires_grad=True)]).param_groups[0]["alpha"]
    0.99
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse(capturable=capturable)
        self.differentiable = differentiable
        check_at_least_zero(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def update_real(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        count_step(state, xp)
        square = slot(state, "square_avg", param, xp)
        scratch = xp.empty_like(param)
        grad = decayed(xp, param, grad, group, xp.empty_like(param))
        square_mean_towards(xp, square, grad, group["alpha"], scratch)
        if group["centered"]:
            mean = slot(state, "grad_avg", param, xp)
            mean += (grad - mean) * (1 - group["alpha"])
            xp.sqrt(square - mean * mean, out=scratch)
        else:
            xp.sqrt(square, out=scratch)
        scratch += group["eps"]
        xp.divide(grad, scratch, out=scratch)
        if group["momentum"]:
            buffer = slot(state, "momentum_buffer", param, xp)
            buffer *= group["momentum"]
            buffer += scratch
            param -= buffer * group["lr"]
        else:
            xp.subtract(param, xp.multiply(scratch, group["lr"], out=scratch), out=param)


class Adadelta(RealOptimizer):
    """Steps in proportion to the root mean square of the last ones (Zeiler, 2012).

    lr            a factor of all steps
    rho           how much of the running mean squares is kept in each step
    eps           is added to the roots
    weight_decay  how much of the parameter is added to its gradient

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> ut.optim.Adadelta([ut.zeros(2, requires_grad=True)]).param_groups[0]["rho"]
    0.9
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse(capturable=capturable)
        self.differentiable = differentiable
        check_at_least_zero(lr=lr, eps=eps, weight_decay=weight_decay)
        if not 0 <= rho <= 1:
            raise ValueError(f"Invalid rho value: {rho}")
        defaults = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        accepted = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        super().__init__(params, {**defaults, **accepted})

    def update_real(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        count_step(state, xp)
        square, moved = slot(state, "square_avg", param, xp), slot(state, "acc_delta", param, xp)
        scratch, rho, eps = xp.empty_like(param), group["rho"], group["eps"]
        grad = decayed(xp, param, grad, group, xp.empty_like(param))
        square_mean_towards(xp, square, grad, rho, scratch)
        change = xp.sqrt(moved + eps) / xp.sqrt(square + eps) * grad
        square_mean_towards(xp, moved, change, rho, scratch)
        param -= change * group["lr"]


class Rprop(RealOptimizer):
    """Step sizes that grow while the sign of the gradient stays and shrink when it turns; for full batches.

    lr          the first step size
    etas        the factors by which step sizes shrink and grow
    step_sizes  the smallest and the largest

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> ut.optim.Rprop([ut.zeros(2, requires_grad=True)]).param_groups[0]["etas"]
    (0.5, 1.2)
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        refuse(capturable=capturable)
        self.differentiable = differentiable
        check_at_least_zero(lr=lr)
        if not 0 < etas[0] < 1 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        accepted = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        super().__init__(params, {**defaults, **accepted})

    def update_real(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        count_step(state, xp)
        (down, up), (least, most) = group["etas"], group["step_sizes"]
        last, size = slot(state, "prev", param, xp), slot(state, "step_size", param, xp, group["lr"])
        grad = xp.negative(grad) if group["maximize"] else grad
        turned = xp.sign(grad * last)
        size *= xp.where(turned > 0, up, xp.where(turned < 0, down, 1)).astype(param.dtype)
        xp.minimum(xp.maximum(size, least, out=size), most, out=size)
        grad = xp.where(turned < 0, 0, grad)
        param -= xp.sign(grad) * size
        last[...] = grad

"""Gradient descent, with momentum or averaged."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from undertow.backend import devices_in_use
from undertow.backend.interface import Array, Namespace
from undertow.compiled import twin
from undertow.ops.index.index_arrays import add_at
from undertow.optim import together
from undertow.optim.complex_as_real import RealOptimizer
from undertow.optim.optimizer import Optimizer, check_at_least_zero, count_step, decayed, refuse, slot
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.optim.optimizer import Params


@twin
def descend(xp: Namespace, param: Array, grad: Array, rate: Array) -> None:
    xp.subtract(param, xp.multiply(grad, rate), out=param)


class SGD(Optimizer):
    """Stochastic gradient descent: p -= lr * g, with momentum (and Nesterov's), dampening and weight decay.

    Sparse gradients are taken where momentum and weight_decay are 0.

    lr            the length of a step, times the gradient
    momentum      how much of the last step goes on in this one
    dampening     how much of the gradient is left out of the momentum
    weight_decay  how much of the parameter is added to its gradient
    nesterov      take the gradient where momentum leads

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> p = ut.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = ut.optim.SGD([p], lr=0.5)
    >>> (p * p).sum().backward()
    >>> optimizer.step()
    >>> p
    tensor([0., 0.], requires_grad=True)
    """

    takes_sparse = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        self.differentiable = differentiable
        check_at_least_zero(lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

    def step_together(self, group: dict[str, Any]) -> Collection[int]:
        is_own = type(self).update is SGD.update  # and not that of a subclass
        return together.step_of_sgd(self, group) if is_own and devices_in_use() else ()

    def update(self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> None:
        if type(grad) is not xp.ndarray:
            return self.update_rows(xp, param, grad, group)
        (rate,) = self.numbers(xp, param.dtype, id(group), lambda: (group["lr"],))
        if group["weight_decay"] or group["momentum"] or group["maximize"]:
            scratch = xp.empty_like(param)
            grad = decayed(xp, param, grad, group, scratch)
            if group["momentum"]:
                grad = self.with_momentum(xp, grad, state, group, scratch)
        descend(xp, param, grad, rate)
        return None

    def with_momentum(
        self, xp: Namespace, grad: Array, state: dict[str, Any], group: dict[str, Any], scratch: Array
    ) -> Array:
        momentum, buffer = group["momentum"], state.get("momentum_buffer")
        if buffer is None:
            buffer = state["momentum_buffer"] = Tensor(xp.array(grad), xp)
        else:
            kept = 1 - group["dampening"]
            buffer._array *= momentum
            buffer._array += grad if kept == 1 else grad * kept
        if not group["nesterov"]:
            return buffer._array
        return xp.add(grad, buffer._array * momentum, out=scratch)

    def update_rows(self, xp: Namespace, param: Array, grad: Array, group: dict[str, Any]) -> None:
        """Change the places that a sparse gradient names.

        xp, param, grad, group  as `update` takes them; the gradient is sparse
        """
        if group["momentum"] or group["weight_decay"]:
            raise RuntimeError(
                "SGD takes sparse gradients only without momentum and weight_decay, which change every element: set "
                "both to 0, or make the gradient dense"
            )
        rate = group["lr"] if group["maximize"] else -group["lr"]
        places, change = tuple(grad.indices), rate * grad.values
        if param.flags.c_contiguous:
            add_at(xp, param, places, change)
        else:
            xp.add.at(param, places, change)


class ASGD(RealOptimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky, 1992); the averages are in state[p]["ax"].

    lr            how long the first steps are
    lambd         how much the parameter shrinks, and lr falls, with each step
    alpha         the power of the fall of lr
    t0            the step from which on parameters are averaged
    weight_decay  how much of the parameter is added to its gradient

    What all optimizers take is said of `Optimizer`.

    >>> import undertow as ut
    >>> ut.optim.ASGD([ut.zeros(2, requires_grad=True)]).param_groups[0]["t0"]
    1000000.0
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        refuse(capturable=capturable)
        self.differentiable = differentiable
        check_at_least_zero(lr=lr, weight_decay=weight_decay)
        defaults = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
                    "maximize": maximize}  # fmt: skip
        accepted = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        super().__init__(params, {**defaults, **accepted})

    def update_real(
        self, xp: Namespace, param: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        step = count_step(state, xp)
        scalar = xp.zeros((), dtype="float32")
        eta, mu = slot(state, "eta", scalar, xp, group["lr"]), slot(state, "mu", scalar, xp, 1.0)
        average = slot(state, "ax", param, xp)
        grad = decayed(xp, param, grad, group, xp.empty_like(param))
        param *= 1 - group["lambd"] * float(eta)
        param -= grad * float(eta)
        if float(mu) == 1:
            average[...] = param
        else:
            average += (param - average) * float(mu)
        # in float32 even where the state was loaded, and is of the parameter's dtype since: as PyTorch does
        eta[...] = scalar.dtype.type(group["lr"] / (1 + group["lambd"] * group["lr"] * step) ** group["alpha"])
        mu[...] = scalar.dtype.type(1 / max(1, step - group["t0"]))

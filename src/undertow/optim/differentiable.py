"""Steps that are part of the graph, for `differentiable=True`: gradients go through an update, to rates and all.

The rules of the other files again, written with recorded operations. What is kept between steps is replaced by new
tensors, which have histories; the parameter itself, a tensor that was computed, is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import undertow.ops as ops
from undertow.autograd.tensor_attributes import get_requires_grad
from undertow.modes import enable_grad

if TYPE_CHECKING:
    from undertow.backend.interface import Array
    from undertow.optim.optimizer import Optimizer
    from undertow.tensor import Tensor

Rule = Callable[[Any, Any, dict[str, Any], dict[str, Any]], Any]


def step_of_all(optimizer: Optimizer, rule: Rule) -> None:
    """Change every parameter that has a gradient, and record it."""
    found = [(p, group) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    for p, _ in found:
        check(p)
    with enable_grad():
        for p, group in found:
            p.copy_(rule(p, p.grad, optimizer.state[p], group))


def check(p: Array) -> None:
    if p.is_complex():
        raise RuntimeError(
            "a differentiable step takes real parameters, and this one is complex: optimize view_as_real of it"
        )
    if p.is_leaf and get_requires_grad(p):
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation. (A differentiable step changes "
            "its parameters in place, and records it: give the optimizer a clone() of the leaf.)"
        )


def kept(state: dict[str, Any], name: str, like: Array, value: float = 0.0) -> Tensor:
    found = state.get(name)
    return ops.full_like(like.detach(), value) if found is None else found


def counted(state: dict[str, Any]) -> float:
    before = state.get("step")
    state["step"] = ops.tensor(0.0 if before is None else float(before)) + 1
    return float(state["step"].item())


def decayed(p: Array, grad: Array, group: dict[str, Any]) -> Tensor:
    grad = -grad if group["maximize"] else grad
    return grad + p * group["weight_decay"] if _is_there(group["weight_decay"]) else grad


def _is_there(number: Any) -> bool:
    return not isinstance(number, int | float) or number != 0


def mean_of(state: dict[str, Any], name: str, value: Array, beta: Any) -> Tensor:
    """A running mean, one step on."""
    before = kept(state, name, value)
    state[name] = before + (value - before) * (1 - beta)
    return state[name]


def square_mean_of(state: dict[str, Any], name: str, value: Array, beta: Any) -> Tensor:
    state[name] = kept(state, name, value) * beta + value * value * (1 - beta)
    return state[name]


# ---- the rules


def sgd(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    grad = decayed(p, grad, group)
    momentum, before = group["momentum"], state.get("momentum_buffer")
    if _is_there(momentum):
        # the first one has no history: PyTorch's rule
        buffer = grad.detach().clone() if before is None else before * momentum + grad * (1 - group["dampening"])
        state["momentum_buffer"] = buffer
        grad = grad + buffer * momentum if group["nesterov"] else buffer
    return p - grad * group["lr"]


def adam(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    (beta1, beta2), lr, step = group["betas"], group["lr"], counted(state)
    p, grad = _decoupled(p, grad, group)
    mean = mean_of(state, "exp_avg", grad, beta1)
    square = square_mean_of(state, "exp_avg_sq", grad, beta2)
    if group["amsgrad"]:
        square = state["max_exp_avg_sq"] = ops.maximum(kept(state, "max_exp_avg_sq", square), square)
    root = square.sqrt() / (1 - beta2**step) ** 0.5 + group["eps"]
    return p - mean / root * (lr / (1 - beta1**step))


def _decoupled(p: Array, grad: Array, group: dict[str, Any]) -> tuple[Any, Any]:
    """The parameter and the gradient with the decay, which belongs to one of them."""
    if not group["decoupled_weight_decay"]:
        return p, decayed(p, grad, group)
    return p * (1 - group["lr"] * group["weight_decay"]), -grad if group["maximize"] else grad


def adamax(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    (beta1, beta2), step = group["betas"], counted(state)
    grad = decayed(p, grad, group)
    mean = mean_of(state, "exp_avg", grad, beta1)
    largest = state["exp_inf"] = ops.maximum(kept(state, "exp_inf", grad) * beta2, grad.abs() + group["eps"])
    return p - mean / largest * (group["lr"] / (1 - beta1**step))


def nadam(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    (beta1, beta2), lr, step = group["betas"], group["lr"], counted(state)
    p, grad = _decoupled(p, grad, group)
    now, following = [beta1 * (1 - 0.5 * 0.96 ** (n * group["momentum_decay"])) for n in (step, step + 1)]
    done = state["mu_product"] = kept(state, "mu_product", ops.ones(()), 1.0) * now
    mean = mean_of(state, "exp_avg", grad, beta1)
    root = (square_mean_of(state, "exp_avg_sq", grad, beta2) / (1 - beta2**step)).sqrt() + group["eps"]
    done = done.to(p.dtype)
    return p - grad / root * (lr * (1 - now) / (1 - done)) - mean / root * (lr * following / (1 - done * following))


def radam(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    (beta1, beta2), step = group["betas"], counted(state)
    p, grad = _decoupled(p, grad, group)
    change = mean_of(state, "exp_avg", grad, beta1) * (group["lr"] / (1 - beta1**step))
    square = square_mean_of(state, "exp_avg_sq", grad, beta2)
    unseen, most = 1 - beta2**step, 2 / (1 - beta2) - 1
    length = most - 2 * step * beta2**step / unseen
    if not length > 5:
        return p - change
    rectified = ((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) ** 0.5
    return p - change * (rectified * unseen**0.5) / (square.sqrt() + group["eps"])


def adagrad(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    rate = group["lr"] / (1 + (counted(state) - 1) * group["lr_decay"])
    grad = decayed(p, grad, group)
    total = state["sum"] = kept(state, "sum", grad, group["initial_accumulator_value"]) + grad * grad
    return p - grad / (total.sqrt() + group["eps"]) * rate


def rmsprop(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    counted(state)
    grad = decayed(p, grad, group)
    square = square_mean_of(state, "square_avg", grad, group["alpha"])
    if group["centered"]:
        square = square - mean_of(state, "grad_avg", grad, group["alpha"]) ** 2
    change = grad / (square.sqrt() + group["eps"])
    if _is_there(group["momentum"]):
        change = state["momentum_buffer"] = kept(state, "momentum_buffer", grad) * group["momentum"] + change
    return p - change * group["lr"]


def adadelta(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    counted(state)
    grad, rho, eps = decayed(p, grad, group), group["rho"], group["eps"]
    square = square_mean_of(state, "square_avg", grad, rho)
    change = (kept(state, "acc_delta", grad) + eps).sqrt() / (square + eps).sqrt() * grad
    square_mean_of(state, "acc_delta", change, rho)
    return p - change * group["lr"]


def rprop(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    counted(state)
    (down, up), (least, most) = group["etas"], group["step_sizes"]
    grad = -grad if group["maximize"] else grad
    turned = (grad * kept(state, "prev", grad)).sign()
    factor = ops.where(turned > 0, up, ops.where(turned < 0, down, 1.0)).to(grad.dtype)
    size = state["step_size"] = (kept(state, "step_size", grad, float(group["lr"])) * factor).clamp(least, most)
    grad = state["prev"] = ops.where(turned < 0, ops.zeros_like(grad), grad)
    return p - grad.sign() * size


def asgd(p: Array, grad: Array, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    step, lr = counted(state), group["lr"]
    grad, number = decayed(p, grad, group), ops.ones(())
    eta, mu = kept(state, "eta", number, float(lr)), kept(state, "mu", number, 1.0)
    moved = p * (1 - eta.to(p.dtype) * group["lambd"]) - grad * eta.to(p.dtype)
    average = kept(state, "ax", p)
    state["ax"] = moved if float(mu.item()) == 1 else average + (moved - average) * mu.to(p.dtype)
    state["eta"] = number * (lr / (1 + group["lambd"] * lr * step) ** group["alpha"])
    state["mu"] = number * (1 / max(1, step - group["t0"]))
    return moved


RULES: dict[str, Rule] = {
    "SGD": sgd, "Adam": adam, "AdamW": adam, "Adamax": adamax, "NAdam": nadam, "RAdam": radam, "Adagrad": adagrad,
    "RMSprop": rmsprop, "Adadelta": adadelta, "Rprop": rprop, "ASGD": asgd,
}  # fmt: skip

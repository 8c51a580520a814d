"""A custom Function, hooks, transformations, higher derivatives and checkpoints."""

from typing import Any

from undertow.utils.checkpoint import checkpoint

import undertow as ut
from undertow.autograd import Function, grad, gradcheck
from undertow.func import grad as grad_of
from undertow.func import hessian, jacrev, vmap


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: ut.Tensor, factor: float) -> ut.Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return factor * x**3

    @staticmethod
    def backward(ctx: Any, g: ut.Tensor) -> tuple[ut.Tensor, None]:
        (x,) = ctx.saved_tensors
        return 3 * ctx.factor * g * x**2, None


def hooks(x: ut.Tensor) -> list[float]:
    seen: list[float] = []

    def remember(g: ut.Tensor) -> None:
        seen.append(g.sum().item())

    handle = x.register_hook(remember)
    x.register_post_accumulate_grad_hook(lambda leaf: None)
    y = (x * 2).sum()
    y.retain_grad()
    y.backward()
    handle.remove()
    if y.grad_fn is not None:
        print(y.grad_fn.name(), y.grad_fn.next_functions)
    return seen


def energy(w: ut.Tensor, x: ut.Tensor) -> ut.Tensor:
    return ((w * x).sin() ** 2).sum()


def transformations() -> None:
    w, xs = ut.randn(3), ut.randn(5, 3)
    per_example = vmap(grad_of(energy), in_dims=(None, 0))(w, xs)
    assert per_example.shape == (5, 3)
    jacobian = jacrev(lambda w: w.exp())(w)
    assert ut.allclose(jacobian, w.exp().diag())
    assert hessian(lambda w: energy(w, xs[0]))(w).shape == (3, 3)


def higher() -> ut.Tensor:
    x = ut.tensor([1.0, 2.0], dtype=ut.float64, requires_grad=True)
    (first,) = grad(Cube.apply(x, 2.0).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), [x])
    assert gradcheck(lambda x: Cube.apply(x, 2.0), (x,))
    return second


def memory(x: ut.Tensor) -> None:
    y = checkpoint(lambda x: x.sin().cos(), x, use_reentrant=False)
    y.sum().backward()
    with ut.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), lambda a: ut.from_numpy(a)):
        (x * x).sum().backward()
    with ut.autograd.forward_ad.dual_level():
        dual = ut.autograd.forward_ad.make_dual(x.detach(), ut.ones_like(x))
        print(ut.autograd.forward_ad.unpack_dual(dual.exp()).tangent)


if __name__ == "__main__":
    leaf = ut.ones(3, requires_grad=True)
    assert hooks(leaf) == [6.0]
    transformations()
    print(higher())
    memory(leaf)

"""Gradients of gradients: steps inside a step, per-example gradients, a Hessian, and a curve that obeys an equation."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

torch.manual_seed(8)
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)


def task():
    x = torch.rand(6, 1) * 4 - 2
    return x, torch.rand(1) * torch.sin(x + torch.rand(1) * math.pi)


for step in range(4):
    total = 0.0
    for _ in range(3):
        x, y = task()
        weights = dict(model.named_parameters())
        inner = F.mse_loss(functional_call(model, weights, (x,)), y)
        slopes = torch.autograd.grad(inner, weights.values(), create_graph=True)
        changed = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), slopes, strict=True)}
        total = total + F.mse_loss(functional_call(model, changed, x), y)
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    print(f"{step} {total.item():.6f}")

fixed = {name: w.detach() for name, w in model.named_parameters()}
loss = lambda weights, x, y: F.mse_loss(functional_call(model, weights, (x.unsqueeze(0),)), y.unsqueeze(0))
x, y = task()
print({name: g.norm(dim=0).sum() for name, g in vmap(grad(loss), in_dims=(None, 0, 0))(fixed, x, y).items()})

curve = torch.optim.LBFGS(model.parameters(), max_iter=8, line_search_fn="strong_wolfe")
t = torch.linspace(0, 1, 10).unsqueeze(1).requires_grad_()


def equation():
    curve.zero_grad()
    u = model(t)
    (first,) = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), t, create_graph=True)
    residual = (second + u).square().mean() + (u[0] - 1).square().sum() + first[0].square().sum()
    residual.backward()
    return residual


for _ in range(3):
    print(f"{curve.step(equation).item():.4f}")
print(torch.autograd.functional.hessian(lambda p: (p[0] ** 2 * p[1]).sin(), torch.tensor([0.5, 2.0])))

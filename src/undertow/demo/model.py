"""What the demo trains: a small network that tells the arms of a spiral apart, and the data for it.

Nothing but operations on tensors: the parameters are leaf tensors in a list.
"""

from __future__ import annotations

import math
from typing import Any

import undertow as ut

ARMS = 3
TURNS = 1.3


def spirals(count: int, seed: int, dtype: Any = ut.float32) -> tuple[Any, Any]:
    """`count` points of a spiral with ARMS arms, in rows (x, y), and the arm that each belongs to."""
    chance = ut.Generator().manual_seed(seed)
    arm = ut.arange(count) % ARMS
    along = ut.rand(count, generator=chance, dtype=dtype)
    noise = ut.randn(count, generator=chance, dtype=dtype)
    angle = 2 * math.pi * arm / ARMS + TURNS * 2 * math.pi * along + 0.2 * noise
    radius = 0.1 + 0.9 * along
    return ut.stack([radius * ut.cos(angle), radius * ut.sin(angle)], dim=1).to(dtype), arm


def parameters(hidden: int, seed: int, dtype: Any = ut.float32) -> list[Any]:
    """Weights and biases of three layers: 2 -> hidden -> hidden -> ARMS."""
    chance = ut.Generator().manual_seed(seed)
    found = []
    for fan_in, fan_out in ((2, hidden), (hidden, hidden), (hidden, ARMS)):
        weight = ut.randn(fan_in, fan_out, generator=chance, dtype=dtype) / math.sqrt(fan_in)
        bias = 0.5 * ut.randn(fan_out, generator=chance, dtype=dtype)
        found += [weight.requires_grad_(), bias.requires_grad_()]
    return found


def scores(points: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> Any:
    """For every point, one number per arm; the largest is the network's answer."""
    hidden = ut.tanh(points @ w1 + b1)
    hidden = ut.tanh(hidden @ w2 + b2)
    return hidden @ w3 + b3


def loss_of(points: Any, arms: Any, params: list[Any]) -> Any:
    return ut.cross_entropy(scores(points, *params), arms)


def accuracy_of(points: Any, arms: Any, params: list[Any]) -> float:
    """The share of points whose arm is recognised."""
    with ut.no_grad():
        answers = scores(points, *params).argmax(dim=1)
    return (answers == arms).sum().item() / arms.numel()

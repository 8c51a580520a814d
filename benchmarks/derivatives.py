"""Derivatives other than the gradient of a loss, written once for both libraries; each returns a function of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.models import Step, functions, layers

# ---- second derivatives


def hvp(lib: Any, batch: int = 32, sizes: tuple[int, ...] = (784, 128, 10)) -> Step:
    """The product of the Hessian of an MLP's loss with a vector: a backward pass through a backward pass."""
    lib.manual_seed(0)
    f, net = functions(lib), layers(lib, sizes)
    params = [p for layer in net for p in layer]
    vector = [lib.randn(*p.shape) for p in params]
    x, target = lib.randn(batch, sizes[0]), lib.randint(0, sizes[-1], (batch,))
    grad = lib.autograd.grad

    def step() -> None:
        h = x
        for weight, bias in net[:-1]:
            h = lib.tanh(f.linear(h, weight, bias))
        loss = f.cross_entropy(f.linear(h, *net[-1]), target)
        grad(grad(loss, params, create_graph=True), params, vector)

    return step


# ---- Jacobians


def jacobian(lib: Any, vectorize: bool, outputs: int = 100) -> Step:
    """The Jacobian of a function with 30 inputs and many outputs, row by row or all rows at once."""
    lib.manual_seed(0)
    weights = lib.randn(outputs, 30) * 0.3
    x = lib.randn(30)
    compute = lib.autograd.functional.jacobian

    def function(x: Any) -> Any:
        return lib.sin(weights @ lib.tanh(x)) * (x * x).sum()

    def step() -> None:
        compute(function, x, vectorize=vectorize)

    return step


# ---- bundle adjustment: of every observation of a point by a camera, the error and its derivatives


def rotated(lib: Any, rotation: Any, point: Any) -> Any:
    """A point turned around an axis, by an angle that is the axis' length (Rodrigues' formula)."""
    angle = (rotation * rotation).sum().sqrt()
    axis = rotation / angle
    cosine = lib.cos(angle)
    across = lib.linalg.cross(axis, point)
    return point * cosine + across * lib.sin(angle) + axis * ((axis * point).sum() * (1 - cosine))


def projected(lib: Any, camera: Any, point: Any) -> Any:
    """Where a camera sees a point: it has a rotation, a centre, a focal length, a principal point, two distortions."""
    seen = rotated(lib, camera[0:3], point - camera[3:6])
    flat = seen[0:2] / seen[2]
    radius = (flat * flat).sum()
    stretch = 1 + camera[9] * radius + camera[10] * radius * radius
    return flat * stretch * camera[6] + camera[7:9]


def bundle_adjustment(lib: Any, observations: int = 20) -> Step:
    """The Jacobian of all errors, two reverse passes over some forty operations on a few numbers for each of them."""
    lib.manual_seed(0)
    grad, kind = lib.autograd.grad, lib.float64
    cameras = [lib.rand(11, dtype=kind) for _ in range(3)]
    points = [lib.rand(3, dtype=kind) + 1 for _ in range(5)]
    features = [lib.rand(2, dtype=kind) for _ in range(observations)]
    weights = [lib.rand((), dtype=kind) for _ in range(observations)]

    def step() -> None:
        for k, (feature, weight) in enumerate(zip(features, weights, strict=True)):
            inputs = [t.detach().requires_grad_() for t in (cameras[k % 3], points[k % 5], weight)]
            error = inputs[2] * (projected(lib, *inputs[:2]) - feature)
            for row in (0, 1):
                grad(error[row], inputs, retain_graph=True)
            grad(1 - inputs[2] ** 2, inputs[2])

    return step


def of(step: Callable[..., Step], **options: Any) -> Callable[[Any], Step]:
    """The step of a library, with these options."""
    return lambda lib: step(lib, **options)

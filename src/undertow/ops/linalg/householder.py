"""QR factorisations as products of reflections I - tau v v^H, and what can be multiplied with them."""

from __future__ import annotations

import math
from typing import Any

from undertow.errors import NotDifferentiableError
from undertow.ops.arguments.operands import as_operand
from undertow.ops.declare import REGISTRY, composite, primitive, return_types
from undertow.ops.declare.rules import LOOP
from undertow.ops.linalg.factorizations import check_matrices
from undertow.tensor import Tensor


def operation(name: str) -> Any:
    return REGISTRY[name].function


def reflections(xp: Any, input: Any) -> Any:
    check_matrices("geqrf", input, square=False)
    *lead, m, n = input.shape
    stack = input.reshape(math.prod(lead), m, n)
    found = [xp.linalg.qr(matrix, mode="raw") for matrix in stack]  # of the transposed matrix
    a = xp.stack([h.T for h, _ in found]) if found else stack.copy()
    tau = xp.stack([t for _, t in found]) if found else xp.empty((0, min(m, n)), input.dtype)
    return a.reshape(*lead, m, n), tau.reshape(*lead, min(m, n))


def refuse(xp: Any, g: Any) -> Any:
    raise NotDifferentiableError("geqrf", "Use linalg.qr, which has a derivative.")


_geqrf = primitive(
    "_geqrf",
    forward=reflections,
    vjp={"input": refuse},
    jvp={"input": refuse},
    batch=LOOP,
    node="GeqrfBackward0",
    outputs=("a", "tau"),
)


@composite(variants="function method", out=True)
def geqrf(input: Any) -> Any:
    """The reflections whose product is Q, below the diagonal of `a`, R on and above it; and their factors: (a, tau).

    >>> import undertow as ut
    >>> ut.geqrf(ut.tensor([[3.0], [4.0]])).a
    tensor([[-5.0000],
            [ 0.5000]])
    """
    return return_types.geqrf(_geqrf(as_operand("geqrf", "input", input)))


@composite(variants="function method", out=True)
def ormqr(input: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False) -> Tensor:
    """Q @ other, or other @ Q if not `left`, for the Q of `geqrf` (its adjoint, if `transpose`), which is not formed.

    >>> import undertow as ut
    >>> a, tau = ut.geqrf(ut.tensor([[3.0], [4.0]]))
    >>> ut.ormqr(a, tau, ut.tensor([[3.0], [4.0]]), transpose=True).round()
    tensor([[-5.],
            [ 0.]])
    """
    input, tau, other = (as_operand("ormqr", name, x) for name, x in (("input", input), ("tau", tau), ("other", other)))
    check_ormqr(input, tau, other, left)
    if not left:
        turned = ormqr(input, tau, operation("adjoint")(other), True, not transpose)
        return operation("adjoint")(turned)
    m, count = input.shape[-2], tau.shape[-1]
    eye = Tensor(input._xp.eye(m, input.shape[-1], dtype=input.dtype), input._xp)
    vectors = operation("add")(operation("tril")(input, -1), eye)
    matmul, out = operation("matmul"), other
    for k in range(count) if transpose else reversed(range(count)):
        v = operation("narrow")(vectors, -1, k, 1)
        scale = operation("unsqueeze")(operation("narrow")(tau, -1, k, 1), -1)
        scale = operation("conj")(scale) if transpose else scale
        out = out - scale * matmul(v, matmul(operation("adjoint")(v), out))
    return out


def check_ormqr(input: Any, tau: Any, other: Any, left: bool) -> None:
    for name, x, least in (("input", input, 2), ("tau", tau, 1), ("other", other, 2)):
        if x.ndim < least:
            raise RuntimeError(f"torch.ormqr: {name} must have at least {least} dimensions, got {x.ndim}")
    side = -2 if left else -1
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(
            f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]: got {other.shape[side]} and "
            f"{input.shape[-2]}"
        )
    if tau.shape[-1] > min(input.shape[-2:]):
        raise RuntimeError("torch.ormqr: tau.shape[-1] must be less than or equal to the sizes of input's matrices")

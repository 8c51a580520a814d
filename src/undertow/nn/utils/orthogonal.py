"""Weights that stay orthogonal (or unitary) while they are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.modes import no_grad
from undertow.nn.module import Module
from undertow.nn.utils.parametrize import register_parametrization

if TYPE_CHECKING:
    from undertow.tensor import Tensor

MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """A matrix with orthogonal columns (rows, if it has more columns than rows) for any matrix of its shape.

    base  the matrix that `right_inverse` was given: what is trained is the rotation away from it
    """

    base: Any

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if orthogonal_map == "householder" and weight.is_complex():
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map, self.use_trivialization = (
            tuple(weight.shape),
            orthogonal_map,
            use_trivialization,
        )
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        X = ops.transpose(X, -2, -1) if wide else X
        Q = self.householder(X) if self.orthogonal_map == "householder" else self.rotation(X)
        if self.use_trivialization and self.base is not None:
            Q = self.base @ Q
        return ops.transpose(Q, -2, -1) if wide else Q

    def rotation(self, X: Tensor) -> Tensor:
        """The first columns of a rotation, made of the skew part of the lower triangle."""
        n, k = X.shape[-2:]
        X = ops.tril(X)
        if n != k:
            X = ops.cat([X, ops.new_zeros(X, (*X.shape[:-1], n - k))], -1)
        A = X - ops.adjoint(X)
        if self.orthogonal_map == "matrix_exp":
            return ops.matrix_exp(A)[..., :k]
        one = ops.eye(n, dtype=A.dtype, device=A.device)
        return ops.linalg_solve(one - 0.5 * A, one + 0.5 * A)[..., :k]

    def householder(self, X: Tensor) -> Tensor:
        A = ops.tril(X, -1)
        tau = 2.0 / (1.0 + (A * A).sum(-2))
        signs = ops.diagonal(X, 0, -2, -1).int()  # of the columns, chosen once
        return ops.orgqr(A, tau) * ops.unsqueeze(signs, -2)

    def right_inverse(self, Q: Tensor) -> Tensor:
        if tuple(Q.shape) != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of {Q.shape}."
            )
        if not self.use_trivialization:
            return self.reflections_of(Q)
        with no_grad():
            tall = ops.transpose(Q, -2, -1) if Q.shape[-2] < Q.shape[-1] else Q
            n, k = tall.shape[-2:]
            if n != k:
                tall = ops.cat([tall, ops.randn(*tall.shape[:-1], n - k, dtype=Q.dtype, device=Q.device)], -1)
            self.base = tall.clone() if n == k and is_orthogonal(tall) else nearest_by_qr(tall)
            start = ops.zeros_like(Q)
            ops.diagonal(start, 0, -2, -1).fill_(-1.0)  # no rotation; reflections of sign -1
            return start

    def reflections_of(self, Q: Tensor) -> Tensor:
        """The matrix whose reflections make Q; signs of the columns on its diagonal."""
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False. Leave use_trivialization out."
            )
        wide = Q.shape[-2] < Q.shape[-1]
        A, tau = ops.geqrf(ops.transpose(Q, -2, -1) if wide else Q)
        signs = ops.diagonal(A, 0, -2, -1)
        signs.copy_(ops.sign(signs) * (1.0 - 2.0 * (tau == 0).to(Q.dtype)))
        return ops.transpose(A, -2, -1) if wide else A


def is_orthogonal(Q: Tensor) -> bool:
    off = ops.adjoint(Q) @ Q - ops.eye(Q.shape[-1], dtype=Q.dtype, device=Q.device)
    return bool(off.abs().max().item() <= 1e-5 + 10 * Q.shape[-2] * float(Q._xp.finfo(Q.dtype).eps))


def nearest_by_qr(A: Tensor) -> Tensor:
    Q, R = ops.linalg_qr(A)
    return Q * ops.unsqueeze(ops.sgn(ops.diagonal(R, 0, -2, -1)), -2)


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Any:
    """Keep the weight's columns (rows, if it has more columns than rows) orthogonal and of length 1.

    orthogonal_map      "matrix_exp", "cayley" or "householder"; the first for square and complex matrices, and the last
                        for others, if none is given
    use_trivialization  train the rotation away from the weight that is there, which then keeps its value at first
    module              the layer, which is returned
    name                of which parameter

    >>> import undertow as ut
    >>> layer = ut.nn.utils.parametrizations.orthogonal(ut.nn.Linear(3, 5))
    >>> ut.allclose(layer.weight.t() @ layer.weight, ut.eye(3), atol=1e-5)
    True
    """
    weight = getattr(module, name, None)
    if weight is None:
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.dim() < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions.")
    square = weight.shape[-2] == weight.shape[-1]
    chosen = orthogonal_map or ("matrix_exp" if square or weight.is_complex() else "householder")
    if chosen not in MAPS:
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {chosen}')
    parametrization = _Orthogonal(weight, chosen, use_trivialization=use_trivialization)
    register_parametrization(module, name, parametrization, unsafe=True)
    return module

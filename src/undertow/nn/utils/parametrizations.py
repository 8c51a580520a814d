"""Parametrizations that are often used: weight norm, spectral norm, orthogonal matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.modes import no_grad
from undertow.nn.module import Module
from undertow.nn.utils.orthogonal import orthogonal as orthogonal
from undertow.nn.utils.parametrize import register_parametrization
from undertow.ops.reduce.vector_norms import vector_norm

if TYPE_CHECKING:
    from undertow.tensor import Tensor


def norm_except(weight: Tensor, dim: int) -> Tensor:
    """The norm of the slices along `dim` (-1: of the whole), shaped so that it broadcasts."""
    if dim == -1:
        return ops.norm(weight)
    dims = tuple(d for d in range(weight.ndim) if d != dim % weight.ndim)
    return vector_norm(weight, 2.0, dims, True)


class _WeightNorm(Module):
    """A length times a direction."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Any, Any]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Any:
    """Train length (original0) and direction (original1) of a weight apart.

    dim     the slices along it have lengths of their own; None: one length for all
    module  the layer, which is returned
    name    of which parameter

    >>> import undertow as ut
    >>> layer = ut.nn.utils.parametrizations.weight_norm(ut.nn.Linear(4, 3))
    >>> layer.parametrizations.weight.original0.shape
    undertow.Size([3, 1])
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def take_older_names(state_dict: Any, prefix: str, *rest: Any) -> None:
        for old, new in (("g", "original0"), ("v", "original1")):
            if f"{prefix}{name}_{old}" in state_dict:
                state_dict[f"{prefix}parametrizations.{name}.{new}"] = state_dict.pop(f"{prefix}{name}_{old}")

    module._register_load_state_dict_pre_hook(take_older_names)
    return module


class _SpectralNorm(Module):
    """A weight over its largest singular value, which a power iteration estimates while training."""

    _u: Any
    _v: Any

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps, self.n_power_iterations = dim % ndim, eps, n_power_iterations
        if ndim > 1:
            matrix = self._as_matrix(weight).detach()
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                start = ops.new_empty(matrix, (size,)).normal_()
                self.register_buffer(name, ops.normalize(start, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _as_matrix(self, weight: Tensor) -> Tensor:
        return ops.flatten(ops.movedim(weight, self.dim, 0), 1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        with no_grad():
            for _ in range(times):
                self._u.copy_(ops.normalize(ops.mv(matrix, self._v), dim=0, eps=self.eps))
                self._v.copy_(ops.normalize(ops.mv(ops.adjoint(matrix), self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return ops.normalize(weight, dim=0, eps=self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next iteration changes the buffers
        return weight / ops.vdot(u, ops.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divide a weight by its largest singular value.

    dim                 the dimension of the outputs: 1 for transposed convolutions, else 0
    module              the layer, which is returned
    name                of which parameter
    n_power_iterations  how many steps of the power method each call in training makes
    eps                 vectors shorter than this are divided by it, instead of by their length

    >>> import undertow as ut
    >>> linear = ut.nn.utils.parametrizations.spectral_norm(ut.nn.Linear(3, 2), n_power_iterations=20)
    >>> round(ut.linalg.matrix_norm(linear.weight, 2).item(), 2)
    1.0
    """
    weight = getattr(module, name, None)
    if weight is None:
        raise ValueError(f"Module '{type(module).__name__}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))

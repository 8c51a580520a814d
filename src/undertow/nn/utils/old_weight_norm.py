"""weight_norm and spectral_norm in their older form: a hook computes the weight before every call of the module.

The newer form, in `parametrizations`, does the same by other means; state dictionaries of the two have other names.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.modes import no_grad
from undertow.nn.module.lazy_parameters import is_lazy
from undertow.nn.parameter import Parameter
from undertow.nn.utils.parametrizations import norm_except

if TYPE_CHECKING:
    from undertow.nn.module import Module
    from undertow.tensor import Tensor


class ComputedWeight:
    """A forward pre-hook that sets an attribute of its module from parameters that take its place."""

    suffixes: tuple[str, ...]

    def __init__(self, name: str) -> None:
        self.name = name

    def weight(self, module: Module, inside_call: bool) -> Any:
        raise NotImplementedError("what the weight is")

    def __call__(self, module: Module, args: Any) -> None:
        setattr(module, self.name, self.weight(module, True))

    def remove(self, module: Module) -> None:
        with no_grad():
            weight = self.weight(module, False)
        for suffix in ("", *self.suffixes):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def parameter(self, module: Module) -> Tensor:
        """The parameter that is to be computed; it is no parameter from now on."""
        what = {"WeightNorm": "weight_norm", "SpectralNorm": "spectral_norm"}[type(self).__name__]
        if any(isinstance(hook, type(self)) and hook.name == self.name for hook in hooks_of(module)):
            raise RuntimeError(f"Cannot register two {what} hooks on the same parameter {self.name}")
        weight = module._parameters[self.name]
        if weight is None:
            raise ValueError(f"`{what}` cannot be applied as parameter `{self.name}` is None")
        if is_lazy(weight):
            raise ValueError(
                f"The module passed to `{what}` can't have uninitialized parameters. Make sure to run the dummy "
                "forward before applying it"
            )
        delattr(module, self.name)
        return weight


def hooks_of(module: Module) -> list[Any]:
    return list(module._forward_pre_hooks.values())


class WeightNorm(ComputedWeight):
    """A length (name_g) times a direction (name_v)."""

    suffixes = ("_g", "_v")

    def __init__(self, name: str, dim: int | None) -> None:
        super().__init__(name)
        self.dim = -1 if dim is None else dim

    def weight(self, module: Module, inside_call: bool) -> Tensor:
        length, direction = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return direction * (length / norm_except(direction, self.dim))


class SpectralNorm(ComputedWeight):
    """A weight (name_orig) over its largest singular value, which a power iteration (name_u, name_v) estimates."""

    suffixes = ("_orig", "_u", "_v")

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__(name)
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.n_power_iterations, self.dim, self.eps = n_power_iterations, dim, eps

    def as_matrix(self, weight: Tensor) -> Tensor:
        return ops.flatten(ops.movedim(weight, self.dim, 0), 1)

    def weight(self, module: Module, inside_call: bool) -> Tensor:
        weight, u, v = (getattr(module, self.name + suffix) for suffix in self.suffixes)
        matrix = self.as_matrix(weight)
        if inside_call and module.training:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(ops.normalize(ops.mv(ops.t(matrix), u), dim=0, eps=self.eps))
                    u.copy_(ops.normalize(ops.mv(matrix, v), dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()  # the next iteration changes the buffers
        return weight / ops.dot(u, ops.mv(matrix, v))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Any:
    """Train length (name_g) and direction (name_v) of a weight apart. The newer form is parametrizations.weight_norm.

    dim     the slices along it have lengths of their own; None: one length for all
    module  the layer, which is returned
    name    of which parameter

    >>> import undertow as ut
    >>> linear = ut.nn.utils.parametrizations.weight_norm(ut.nn.Linear(3, 2))  # the newer form
    >>> linear.parametrizations.weight.original0.shape
    undertow.Size([2, 1])
    """
    warnings.warn(
        "`undertow.nn.utils.weight_norm` is deprecated in favor of `undertow.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    hook = WeightNorm(name, dim)
    weight = hook.parameter(module)
    module.register_parameter(name + "_g", Parameter(norm_except(weight, hook.dim).detach()))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.weight(module, False))
    module.register_forward_pre_hook(hook)
    return module


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divide a weight by its largest singular value. The newer form is parametrizations.spectral_norm.

    dim                 the dimension of the outputs: 1 for transposed convolutions, else 0
    module              the layer, which is returned
    name                of which parameter
    n_power_iterations  how many steps of the power method each call in training makes
    eps                 vectors shorter than this are divided by it, instead of by their length

    >>> import undertow as ut
    >>> layer = ut.nn.utils.spectral_norm(ut.nn.Linear(20, 40))
    >>> layer(ut.ones(20)).shape, layer.weight_u.shape
    (undertow.Size([40]), undertow.Size([40]))
    """
    hook = SpectralNorm(name, n_power_iterations, dim or int(dim is None and getattr(module, "transposed", False)), eps)
    weight = hook.parameter(module)
    matrix = hook.as_matrix(weight).detach()
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())
    for suffix, size in zip(("_u", "_v"), matrix.shape, strict=True):
        start = ops.new_empty(matrix, (size,)).normal_()
        module.register_buffer(name + suffix, ops.normalize(start, dim=0, eps=eps))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Any:
    """Make the weight a parameter again.

    module  the layer
    name    of which parameter

    >>> import undertow as ut
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     linear = ut.nn.utils.remove_weight_norm(ut.nn.utils.weight_norm(ut.nn.Linear(3, 2)))
    >>> linear.weight.shape
    undertow.Size([2, 3])
    """
    return removed(module, name, WeightNorm, "weight_norm")


def remove_spectral_norm(module: Module, name: str = "weight") -> Any:
    """Make the weight a parameter again.

    module  the layer
    name    of which parameter

    >>> import undertow as ut
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     linear = ut.nn.utils.remove_spectral_norm(ut.nn.utils.spectral_norm(ut.nn.Linear(3, 2)))
    >>> linear.weight.shape
    undertow.Size([2, 3])
    """
    return removed(module, name, SpectralNorm, "spectral_norm")


def removed(module: Module, name: str, kind: type[ComputedWeight], what: str) -> Any:
    for number, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, kind) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"{what} of '{name}' not found in {module}")

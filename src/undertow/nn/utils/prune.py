"""Pruning: parameters with some of their elements held at zero by a mask.

A pruned parameter `weight` becomes `weight_orig`, which is trained, and the buffer `weight_mask`; `module.weight` is
their product, made anew before every call.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.modes import no_grad
from undertow.nn.module import Module
from undertow.nn.utils.convert_parameters import parameters_to_vector

if TYPE_CHECKING:
    from undertow.tensor import Tensor


class BasePruningMethod:
    """A way to choose what is pruned. A subclass has `compute_mask` and `PRUNING_TYPE`.

    PRUNING_TYPE  what the mask is computed on, once some is pruned: "unstructured", the elements that are left as one
                  vector; "structured", the channels (along `dim`) that are left; "global", the whole tensor

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> class EverySecond(prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...
    ...     def compute_mask(self, t, default_mask):
    ...         mask = default_mask.clone()
    ...         mask[1::2] = 0
    ...         return mask
    >>> layer = ut.nn.Linear(4, 1)
    >>> _ = EverySecond.apply(layer, "bias")
    >>> EverySecond().prune(ut.ones(4))
    tensor([1., 0., 1., 0.])
    """

    PRUNING_TYPE = "global"
    _tensor_name: str | None = None

    def __call__(self, module: Module, inputs: Any) -> None:
        """Before a call of the module: the pruned tensor of the present parameter."""
        setattr(module, str(self._tensor_name), self.apply_mask(module))

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask: zero where the tensor is pruned from now on, and where `default_mask` is.

        t  what to choose by: the tensor, or its importance scores
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what is pruned: it needs compute_mask")

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter times the mask.

        module  whose parameter
        """
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, f"{self._tensor_name}_orig")
        return getattr(module, f"{self._tensor_name}_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Prune a parameter of the module from now on; on top of what is pruned already.

        name               of which parameter
        *args, **kwargs    what the class is called with
        importance_scores  what to choose by, if not by the parameter itself; of its shape
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        tensor = getattr(module, name)
        scores = check_scores(tensor, importance_scores, f"parameter {name} of {module}")
        before = pruning_of(module, name)
        if before is None:
            method.start(module, name, tensor, scores)
            return method
        together = before if isinstance(before, PruningContainer) else PruningContainer(before)
        together.add_pruning_method(method)
        with no_grad():
            mask = together.compute_mask(scores, getattr(module, f"{name}_mask").detach().clone())
        forget(module, before)
        together.install(module, mask)
        return together

    def start(self, module: Module, name: str, parameter: Tensor, scores: Tensor) -> None:
        """Put the product in the place of a parameter.

        module, name       whose parameter, and which
        parameter, scores  the tensor, and what to choose by
        """
        with no_grad():
            mask = self.compute_mask(scores, ops.ones_like(parameter))
        del module._parameters[name]
        module.register_parameter(f"{name}_orig", parameter)
        self.install(module, mask)

    def install(self, module: Module, mask: Tensor) -> None:
        module.register_buffer(f"{self._tensor_name}_mask", mask)
        self(module, None)
        module.register_forward_pre_hook(self)

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A tensor with the chosen elements set to zero.

        importance_scores  what to choose by, if not by the tensor itself
        t                  the tensor
        default_mask       what is pruned already; None: nothing
        """
        scores = check_scores(t, importance_scores, "tensor t")
        return t * self.compute_mask(scores, ops.ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Module) -> None:
        """Make the pruned parameter a plain one again; what is zero now may change from here on.

        module  whose parameter
        """
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        name = self._tensor_name
        pruned, parameter = self.apply_mask(module), module._parameters[f"{name}_orig"]
        delattr(module, name)
        parameter.data = pruned.detach()
        del module._parameters[f"{name}_orig"], module._buffers[f"{name}_mask"]
        setattr(module, name, parameter)


class PruningContainer(BasePruningMethod):
    """Several methods, one after the other, on one tensor.

    *args  the methods

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> layer = prune.l1_unstructured(ut.nn.Linear(4, 2), "weight", amount=2)
    >>> layer = prune.random_unstructured(layer, "weight", amount=3)
    >>> int((layer.weight == 0).sum())
    5
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method, which must be for the same tensor."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to "
                f"PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """What the last method makes of that part of the tensor which is not pruned yet.

        t             what to choose by
        default_mask  what is pruned already
        """
        method: Any = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        part = part_to_prune(method, t, mask)
        new = mask.clone()
        new[part] = method.compute_mask(t[part], default_mask=mask[part]).to(dtype=new.dtype)
        return new


def part_to_prune(method: Any, t: Tensor, mask: Tensor) -> Any:
    """The index of what a method may choose from."""
    kind = method.PRUNING_TYPE
    if kind == "unstructured":
        return mask == 1
    if kind == "global":
        return (slice(None),) * t.dim()
    if kind != "structured":
        raise ValueError(f"Unrecognized PRUNING_TYPE {kind}: it is unstructured, structured or global")
    if not hasattr(method, "dim"):
        raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.')
    dim = method.dim % t.dim() if -t.dim() <= method.dim < 0 else method.dim
    if not 0 <= dim < t.dim():
        raise IndexError(f"Index is out of bounds for tensor with dimensions {t.dim()}")
    left = mask.sum(dim=[d for d in range(t.dim()) if d != dim]) != 0
    return (*(slice(None),) * dim, left)


# ---- the methods


class Identity(BasePruningMethod):
    """Prunes nothing, but puts a mask of ones on the parameter.

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> prune.Identity().prune(ut.ones(3))
    tensor([1., 1., 1.])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return default_mask


class AmountMethod(BasePruningMethod):
    """A method that prunes a number of elements (or channels), or a share of them."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def count(self, size: int) -> int:
        """How many of `size` are pruned."""
        found = _compute_nparams_toprune(self.amount, size)
        _validate_pruning_amount(found, size)
        return found


class RandomUnstructured(AmountMethod):
    """Elements at random.

    amount  how many: an integer; or the share of them, a float from 0 to 1

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> int(prune.RandomUnstructured(amount=2).prune(ut.ones(5)).sum())
    3
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return without_smallest(ops.rand_like(t), default_mask, self.count(t.numel()))


class L1Unstructured(AmountMethod):
    """The elements that are nearest to zero.

    amount  how many: an integer; or the share of them, a float from 0 to 1

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> prune.L1Unstructured(amount=2).prune(ut.tensor([3.0, -1.0, 0.5, 2.0]))
    tensor([3., -0., 0., 2.])
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return without_smallest(ops.abs(t), default_mask, self.count(t.numel()))


def without_smallest(scores: Tensor, mask: Tensor, count: int) -> Tensor:
    mask = mask.clone()
    if count:
        flat = ops.topk(ops.reshape(scores, (-1,)), count, largest=False).indices
        pruned = ops.reshape(mask, (-1,)).index_fill(0, flat, 0)
        mask = ops.reshape(pruned, mask.shape)
    return mask


class ChannelMethod(AmountMethod):
    """A method that prunes whole channels along `dim`: those whose scores are the lowest."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def scores(self, t: Any) -> Any:
        """A number for each channel."""
        raise NotImplementedError(f"{type(self).__name__} does not say which channels are pruned: it needs scores")

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        size = t.shape[self.dim]
        count = self.count(size)
        if not count:
            return default_mask
        kept = ops.topk(self.scores(t), size - count, largest=True).indices
        mask = ops.index_fill(ops.zeros_like(t), self.dim, kept, 1)
        return mask * default_mask.to(dtype=mask.dtype)


class RandomStructured(ChannelMethod):
    """Channels at random.

    amount  how many channels: an integer; or the share of them, a float from 0 to 1

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> prune.RandomStructured(amount=1, dim=0).prune(ut.ones(3, 2)).sum()
    tensor(4.)
    """

    def scores(self, t: Tensor) -> Tensor:
        return ops.rand(t.shape[self.dim], device=t.device)


class LnStructured(ChannelMethod):
    """The channels of the smallest n-norm.

    amount  how many channels: an integer; or the share of them, a float from 0 to 1

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> prune.LnStructured(amount=1, n=2, dim=0).prune(ut.tensor([[1.0, 1.0], [3.0, 0.0]]))
    tensor([[0., 0.],
            [3., 0.]])
    """

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def scores(self, t: Tensor) -> Tensor:
        return _compute_norm(t, self.n, self.dim)


class CustomFromMask(BasePruningMethod):
    """The elements where a mask of your own is zero.

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> prune.CustomFromMask(ut.tensor([1, 0, 1])).prune(ut.tensor([5.0, 6.0, 7.0]))
    tensor([5., 0., 7.])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)


# ---- pruning a module


def identity(module: Module, name: str) -> Any:
    """Put a mask of ones on a parameter, to be changed later.

    module, name  whose parameter, and which

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> layer = prune.identity(ut.nn.Linear(2, 1), "weight")
    >>> layer.weight_mask
    tensor([[1., 1.]])
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Any:
    """Prune elements at random: a number of them, or (a float) a share.

    module, name  whose parameter, and which
    amount        how many: an integer; or the share of them, a float from 0 to 1

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> layer = prune.random_unstructured(ut.nn.Linear(4, 2), "weight", amount=0.5)
    >>> int((layer.weight == 0).sum())
    4
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prune the elements nearest to zero: a number of them, or (a float) a share.

    module, name       whose parameter, and which
    amount             how many: an integer; or the share of them, a float from 0 to 1
    importance_scores  what to choose by, if not by the parameter itself

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> layer = prune.l1_unstructured(ut.nn.Linear(4, 2), "weight", amount=0.25)
    >>> int((layer.weight == 0).sum()), [name for name, _ in layer.named_parameters()]
    (2, ['bias', 'weight_orig'])
    >>> [name for name, _ in prune.remove(layer, "weight").named_parameters()]
    ['bias', 'weight']
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Any:
    """Prune channels along `dim` at random.

    module, name  whose parameter, and which
    amount        how many channels: an integer; or the share of them, a float from 0 to 1

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> layer = prune.random_structured(ut.nn.Linear(4, 3), "weight", amount=1, dim=0)
    >>> layer.weight_mask.sum(1).sort().values
    tensor([0., 4., 4.])
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Any = None) -> Any:
    """Prune the channels along `dim` that have the smallest n-norm.

    module, name       whose parameter, and which
    amount             how many channels: an integer; or the share of them, a float from 0 to 1
    importance_scores  what to choose by, if not by the parameter itself

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> layer = ut.nn.Linear(2, 2)
    >>> layer.weight.data = ut.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> prune.ln_structured(layer, "weight", amount=1, n=2, dim=0).weight_mask
    tensor([[0., 0.],
            [1., 1.]])
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Any:
    """Prune the elements where `mask` is zero.

    module, name  whose parameter, and which

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> layer = prune.custom_from_mask(ut.nn.Linear(3, 1), "weight", ut.tensor([[1.0, 0.0, 1.0]]))
    >>> layer.weight != 0
    tensor([[ True, False,  True]])
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: Callable[..., Any], importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune elements of several parameters, (module, name) each, as if they were one vector.

    pruning_method     a class, of type "unstructured"
    importance_scores  a dict, (module, name) -> what to choose by
    **kwargs           what the class is called with, such as `amount`

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> model = ut.nn.Sequential(ut.nn.Linear(4, 4), ut.nn.Linear(4, 4))
    >>> places = [(layer, "weight") for layer in model]
    >>> prune.global_unstructured(places, pruning_method=prune.L1Unstructured, amount=0.25)
    >>> int(sum((layer.weight == 0).sum() for layer in model))
    8
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    if not isinstance(importance_scores, dict | None):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    places, given = list(parameters), importance_scores or {}
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of '
            f"type {method.PRUNING_TYPE}"
        )
    tensors = [getattr(module, name) for module, name in places]
    masks = [getattr(module, f"{name}_mask", None) for module, name in places]
    with no_grad():
        scores = parameters_to_vector([given.get(place, t) for place, t in zip(places, tensors, strict=True)])
        before = [ops.ones_like(t) if m is None else m for t, m in zip(tensors, masks, strict=True)]
        mask = PruningContainer(method).compute_mask(scores, parameters_to_vector(before))
    parts = ops.split(mask, [t.numel() for t in tensors])
    for (module, name), tensor, part in zip(places, tensors, parts, strict=True):
        custom_from_mask(module, name, ops.reshape(part, tensor.shape))


def remove(module: Module, name: str) -> Any:
    """Make a pruned parameter a plain one again, with its zeros.

    module, name  whose parameter, and which

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> layer = prune.l1_unstructured(ut.nn.Linear(4, 2), "weight", amount=3)
    >>> layer = prune.remove(layer, "weight")
    >>> prune.is_pruned(layer), int((layer.weight == 0).sum())
    (False, 3)
    """
    method = pruning_of(module, name)
    if method is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    method.remove(module)
    forget(module, method)
    return module


def is_pruned(module: Module) -> bool:
    """Whether the module, or one below it, has a pruned parameter.

    >>> import undertow as ut
    >>> from undertow.nn.utils import prune
    >>> layer = ut.nn.Linear(2, 2)
    >>> prune.is_pruned(layer), prune.is_pruned(prune.identity(layer, "weight"))
    (False, True)
    """
    return any(list(methods_on(part)) for part in module.modules())


def methods_on(module: Module) -> Iterator[tuple[int, BasePruningMethod]]:
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod):
            yield number, hook


def pruning_of(module: Module, name: str) -> BasePruningMethod | None:
    return next((method for _, method in methods_on(module) if method._tensor_name == name), None)


def forget(module: Module, method: BasePruningMethod) -> None:
    for number, found in list(methods_on(module)):
        if found is method:
            del module._forward_pre_hooks[number]


# ---- checks


def check_scores(tensor: Tensor, scores: Tensor | None, what: str) -> Tensor:
    if scores is not None and scores.shape != tensor.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {what}, got {scores.shape} vs {tensor.shape}"
        )
    return tensor.detach() if scores is None else scores


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if float(amount) < 0 or (not isinstance(amount, numbers.Integral) and float(amount) > 1):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and amount > tensor_size:  # type: ignore[operator]
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _validate_structured_pruning(t: Tensor) -> None:
    if t.dim() <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
            f"{t.shape} with {t.dim()} dims"
        )


def _validate_pruning_dim(t: Tensor, dim: int) -> None:
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _compute_norm(t: Tensor, n: Any, dim: int) -> Tensor:
    """The n-norm of each channel along `dim`."""
    dim = dim % t.dim()
    return ops.norm(t, p=n, dim=[d for d in range(t.dim()) if d != dim])

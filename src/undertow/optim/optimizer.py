"""Optimizer: parameter groups, state, and the step that every rule shares.

A rule is a subclass with `update`, which changes one parameter's array in place. It computes with the backend's
functions on arrays, never with recorded operations: an optimizer step is not part of any graph. What it keeps between
steps are tensors in `state`, under PyTorch's names.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from copy import deepcopy
from itertools import chain
from types import FrameType
from typing import Any, TypeAlias

from undertow.autograd.tensor_attributes import get_requires_grad
from undertow.backend import cpu, send_to_devices
from undertow.backend.dtypes import is_narrow, kind_of
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.silence import quietly
from undertow.graph.user_lines import warn_user
from undertow.modes import enable_grad, no_grad
from undertow.optim.hooks import HookedOptimizer, passed_through, with_zero_grad_hooks
from undertow.optim.hooks import register_optimizer_step_post_hook as register_optimizer_step_post_hook
from undertow.optim.hooks import register_optimizer_step_pre_hook as register_optimizer_step_pre_hook
from undertow.own_files import user_frame
from undertow.tensor import Tensor, counter_of, note_all

Closure = Callable[[], Any]
#: parameters, pairs of their names and them, or groups of one of the two, as dicts with options of their own
Params: TypeAlias = Iterable[Any]


class Required:
    """The default of an option that has none."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = Required()


class Optimizer(HookedOptimizer):
    """What all optimizers have.

    params    tensors; or dicts, each a group with "params" and options of its own; or (name, tensor) pairs
    defaults  the options of groups that do not set them

    Arguments that most of them have:

    maximize        go up instead of down
    differentiable  let gradients flow through steps: to starting points, gradients and rates
    foreach, fused  accepted; steps take the fastest way there is in any case
    capturable      refused if True: it is for steps that PyTorch records for a GPU

    >>> import undertow as ut
    >>> w = ut.ones(1, requires_grad=True)
    >>> optimizer = ut.optim.SGD([w], lr=0.5)  # one of those derived from it
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.], requires_grad=True)
    """

    #: whether `update` takes sparse gradients
    takes_sparse = False
    #: whether steps are recorded; see differentiable.py
    differentiable = False

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"{type(params).__name__}: put it into a list"
            )
        super().__init__()
        self.defaults = defaults
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._step_name = f"{type(self).__name__}.step"
        self._numbers: dict[Any, Any] = {}
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimize more parameters, with options of their own.

        param_group  a dict with `params`, and options that differ

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> sgd.add_param_group({"params": [ut.zeros(1, requires_grad=True)], "lr": 0.1})
        >>> [group["lr"] for group in sgd.param_groups]
        [0.5, 0.1]
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but a set has no order")
        params = [params] if isinstance(params, Tensor) else list(params)
        named = [isinstance(p, tuple) for p in params]
        if any(named) and not all(named):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing: give (name, tensor) "
                "pairs only, or tensors only"
            )
        if any(named):
            group["param_names"], params = [name for name, _ in params], [p for _, p in params]
        group["params"] = params
        if self.param_groups and ("param_names" in group) != ("param_names" in self.param_groups[0]):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if 'param_names' in group else 'without'} names to the optimizer"
            )
        self._check(params)
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        self.param_groups.append(group)

    def _check(self, params: list[Any]) -> None:
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not self.differentiable and not p.is_leaf and not (p._extra is not None and p._extra.retains_grad):
                raise ValueError(
                    "can't optimize a non-leaf Tensor: its gradient is not kept. Give the leaf it is made of."
                )
        if len({id(p) for p in params}) != len(params):
            warn_user(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error. "
                "Each step changes them as often as they are there: give each once."
            )
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if not known.isdisjoint([id(p) for p in params]):
            raise ValueError("some parameters appear in more than one parameter group")

    # ---- stepping

    def step(self, closure: Closure | None = None) -> Tensor | None:
        """Change every parameter that has a gradient; `closure`, if given, computes loss and gradients first.

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> (w * w).sum().backward()
        >>> sgd.step()
        >>> w
        tensor([0.], requires_grad=True)
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if self.differentiable:
            self._step_recorded()
            return loss
        self._numbers.clear()
        site = user_frame()
        with no_grad():
            quietly(self._step_of_all, site)
        send_to_devices()
        return loss

    def _step_recorded(self) -> None:
        from undertow.optim.differentiable import RULES, step_of_all  # few programs ask for it

        rule = next((RULES[kind.__name__] for kind in type(self).__mro__ if kind.__name__ in RULES), None)
        if rule is None:
            refuse(differentiable=True)
        else:
            step_of_all(self, rule)

    def _step_of_all(self, site: FrameType) -> None:
        for group in [with_plain_rate(group) for group in self.param_groups]:
            stepped = self.step_together(group)
            name, code, lasti = self._step_name, site.f_code, site.f_lasti
            if len(stepped) == len(group["params"]):
                note_all(group["params"], name, code, lasti)
                continue
            for p in group["params"]:
                extra = p._extra
                if extra is not None and extra.grad is not None:
                    if id(p) not in stepped:
                        self._step_of(p, extra.grad, group)
                    counter = extra.counter if extra.view is None else None
                    (counter_of(p) if counter is None else counter).note(name, code, lasti)

    def step_together(self, group: dict[str, Any]) -> Collection[int]:
        """Change parameters of a group in one launch, where their device can (optim/together.py); their ids.

        >>> import undertow as ut
        >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.5)
        >>> len(sgd.step_together(sgd.param_groups[0]))  # none: it is on the CPU
        0
        """
        return ()

    def _step_of(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        array, gradient = p._array, grad._array
        if type(gradient) is not p._xp.ndarray and not self.takes_sparse:
            raise RuntimeError(
                f"{type(self).__name__} does not support sparse gradients: use SGD, Adagrad or SparseAdam"
            )
        if not array.flags.writeable:
            raise RuntimeError(
                f"{type(self).__name__} cannot change a parameter of shape {list(array.shape)}: its memory is "
                "read-only or expanded. Optimize a clone() of it."
            )
        state = self.state.get(p)
        if state is not None:
            self.update(p._xp, array, gradient, state, group)
            return
        state = {}
        self.update(p._xp, array, gradient, state, group)
        if state:
            self.state[p] = state

    def numbers(self, xp: Namespace, dtype: DType, key: Any, values: Callable[[], tuple[float, ...]]) -> list[Any]:
        """Numbers as arrays of a dtype, made once in a step: a ufunc takes twice as long with a Python number.

        Kernels of other devices are given them as numbers, which need not be copied there.

        xp      the namespace of the arrays
        key     what the numbers are remembered by during the step
        values  a function that computes them

        >>> import undertow as ut
        >>> from undertow.backend import cpu
        >>> sgd = ut.optim.SGD([ut.ones(1, requires_grad=True)], lr=0.5)
        >>> sgd.numbers(cpu, cpu.dtype("float32"), "half", lambda: (0.5,))
        [array(0.5, dtype=float32)]
        """
        found = self._numbers.get((dtype, key))
        if found is None:
            make: Any = functools.partial(cpu.asarray, dtype=dtype) if xp is cpu else dtype.type
            found = self._numbers[dtype, key] = [make(v) for v in values()]
            if xp is not cpu and is_narrow(dtype):
                found[:] = [float(v) for v in found]
        return found

    def update(self, xp: Namespace, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Change the array `param` in place, given its gradient; `grad` is not to be changed.

        xp     the namespace of the arrays
        state  what is kept of the parameter
        group  its options

        >>> import undertow as ut
        >>> class SignDescent(ut.optim.Optimizer):
        ...     def update(self, xp, param, grad, state, group):
        ...         param -= group["lr"] * xp.sign(grad)
        >>> w = ut.ones(1, requires_grad=True)
        >>> (w * 3).sum().backward()
        >>> SignDescent([w], {"lr": 0.25}).step()
        >>> w
        tensor([0.7500], requires_grad=True)
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how a parameter is changed")

    @with_zero_grad_hooks
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or (set_to_none=False) set them to zero in place.

        set_to_none  False: zeros in the place of gradients

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> (w * w).sum().backward()
        >>> sgd.zero_grad()
        >>> print(w.grad)
        None
        """
        for p in chain.from_iterable([group["params"] for group in self.param_groups]):
            if p.grad is None:
                continue
            if set_to_none:
                p.grad = None
            else:
                if p.grad.grad_fn is not None:
                    p.grad.detach_()
                elif get_requires_grad(p.grad):
                    p.grad.requires_grad_(False)
                p.grad.zero_()

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """State and options, with numbers in the place of parameters; the tensors are the optimizer's own.

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> sorted(sgd.state_dict())
        ['param_groups', 'state']
        """
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):
            hook(self)
        numbers: dict[int, int] = {}
        first = 0
        for group in self.param_groups:
            numbers |= {id(p): n for n, p in enumerate(group["params"], first) if id(p) not in numbers}
            first += len(group["params"])
        groups = [
            {k: v for k, v in group.items() if k != "params"} | {"params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers[id(p)] if isinstance(p, Tensor) else p: values for p, values in self.state.items()}
        found = {"state": state, "param_groups": groups}
        return passed_through(self._optimizer_state_dict_post_hooks, self, found)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned, for parameters of the same number and order.

        >>> import undertow as ut
        >>> w = ut.ones(1, requires_grad=True)
        >>> sgd = ut.optim.SGD([w], lr=0.5)
        >>> sgd.load_state_dict(sgd.state_dict())
        """
        state_dict = passed_through(self._optimizer_load_state_dict_pre_hooks, self, dict(state_dict))
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any([len(a["params"]) != len(b["params"]) for a, b in zip(groups, self.param_groups, strict=True)]):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        numbers = list(chain.from_iterable([group["params"] for group in groups]))
        params = dict(zip(numbers, self._parameters(), strict=True))
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for number, values in state_dict["state"].items():
            p = params.get(number)
            if isinstance(values, dict):
                values = {k: _taken_over(k, v, p) for k, v in values.items()}
            state[number if p is None else p] = values
        self.state = state
        # options that the saved ones do not have yet, as those of an older version, stay what they are
        self.param_groups = [
            {**old, **deepcopy({k: v for k, v in new.items() if k != "params"})}
            for new, old in zip(groups, self.param_groups, strict=True)
        ]
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):
            hook(self)

    def _parameters(self) -> list[Any]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for n, group in enumerate(self.param_groups):
            lines += [*[""] * (n > 0), f"Parameter Group {n}"]
            lines += [f"    {k}: {v}" for k, v in sorted(group.items()) if k != "params"]
        return "\n".join([*lines, ")"])


def _taken_over(name: str, value: Any, p: Any) -> Any:
    """A loaded value, copied; floats, or complex numbers, get the precision of the parameter they belong to."""
    if not isinstance(value, Tensor):
        return deepcopy(value)
    array = value._array
    kept = p is None or name == "step" or kind_of(array.dtype) != kind_of(p._array.dtype)
    return Tensor(array.copy() if kept else array.astype(p._array.dtype), value._xp)


# ---- what rules share


def check_at_least_zero(**options: float) -> None:
    """Raise for the first option that is negative (or NaN), in PyTorch's words."""
    said = {"lr": "learning rate", "eps": "epsilon value", "momentum": "momentum value",
            "weight_decay": "weight_decay value"}  # fmt: skip
    for name, value in options.items():
        if isinstance(value, Tensor) and value._array.size != 1:
            raise ValueError(f"Tensor {name} must be 1-element, but has shape {list(value._array.shape)}")
        if not value >= 0:
            raise ValueError(f"Invalid {said.get(name, name + ' value')}: {value}")


def check_betas(betas: tuple[float, float]) -> None:
    for n, beta in enumerate(betas):
        if not 0 <= beta < 1:
            raise ValueError(f"Invalid beta parameter at index {n}: {beta}")


def with_plain_rate(group: dict[str, Any]) -> dict[str, Any]:
    """A group whose rate is a number, if it was given as a tensor of one."""
    lr = group.get("lr")
    return {**group, "lr": float(lr._array.item())} if isinstance(lr, Tensor) else group


def refuse(**options: Any) -> None:
    """Raise for options of PyTorch that would ask for something else than a plain step."""
    for name, value in options.items():
        if value:
            raise ValueError(
                f"{name}=True is not supported by this optimizer: its steps run eagerly and outside the graph. To "
                "differentiate through an update, write it with undertow's operations."
            )


def slot(state: dict[str, Any], name: str, like: Array, xp: Namespace, value: float = 0.0) -> Array:
    """The array of a tensor in the state, made (full of `value`) at the first step."""
    tensor = state.get(name)
    if tensor is None:
        array = xp.zeros_like(like) if value == 0 else xp.full_like(like, value)
        tensor = state[name] = Tensor(array, xp)
    return tensor._array


def count_step(state: dict[str, Any], xp: Namespace) -> float:
    """Count a step, in the tensor `step` as PyTorch keeps it, on the CPU; its number."""
    tensor = state.get("step")
    if not isinstance(tensor, Tensor):  # not there yet, or a number that an older version saved
        tensor = state["step"] = Tensor(cpu.asarray(tensor or 0, dtype="float32"), cpu)
    array = tensor._array
    array += 1
    return float(array.item())


def decayed(xp: Namespace, param: Array, grad: Array, group: dict[str, Any], scratch: Array) -> Array:
    """The gradient, negated if the objective is maximized, plus weight_decay * param; in `scratch` if not as it is."""
    weight_decay = group["weight_decay"]
    if group["maximize"]:
        grad = xp.negative(grad, out=scratch)
    if weight_decay == 0:
        return grad
    product = xp.multiply(param, weight_decay, out=scratch if grad is not scratch else None)
    return xp.add(grad, product, out=scratch)

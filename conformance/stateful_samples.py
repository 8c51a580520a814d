"""Modules and optimizers against PyTorch's: what `conformance.samples` does with those two of its databases.

A module gets PyTorch's parameters by `load_state_dict`, an optimizer the same parameters and gradients for ten steps.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

import undertow as ut

from .samples import (
    Outcome,
    Skip,
    Tally,
    _gradients,
    _is_tensor,
    _tensors,
    _torch,
    attempt,
    compare,
    compare_strides,
    flat,
    rebound,
    translated,
)

STEPS = 10

#: Options of PyTorch's groups that choose between its ways of computing a step, of which undertow has one; and a place
#: in the state of LBFGS that each step fills before it reads it.
WAYS = {"foreach", "fused", "capturable", "differentiable", "al"}


def compare_states(mine: Any, torchs: Any) -> None:
    """Compare two dictionaries of states: their keys, in their order, and what they hold."""
    if list(mine) != list(torchs):
        raise Outcome(f"the state has the keys {list(mine)} for {list(torchs)}")
    for key in torchs:
        try:
            compare(mine[key], torchs[key])
        except Outcome as outcome:
            raise Outcome(f"{key}: {outcome}") from None


# ---- modules


def constructed(arguments: Any) -> Any:
    """Arguments of a constructor; a layer among them becomes undertow's, with other numbers."""
    layer = _torch().nn.TransformerEncoderLayer
    positional, named = arguments
    return [encoder_layer(v) if isinstance(v, layer) else translated(v) for v in positional], translated(named)


def encoder_layer(layer: Any) -> Any:
    return ut.nn.TransformerEncoderLayer(
        layer.self_attn.embed_dim, layer.self_attn.num_heads, layer.linear1.out_features, layer.dropout.p,
        rebound(layer.activation), layer.norm1.eps, layer.self_attn.batch_first, layer.norm_first,
        layer.linear1.bias is not None,
    )  # fmt: skip


class ModuleJudge(Tally):
    """Runs the samples of one module, in training and in evaluation."""

    def __init__(self, info: Any) -> None:
        super().__init__()
        self.info = info
        self.mine = getattr(ut.nn, info.module_cls.__name__, None)

    def run(self) -> None:
        for training in (True, False):
            for number, sample in enumerate(self.samples(self.info.module_inputs_func, training)):
                self.where = f"{self.info.name} {'training' if training else 'evaluation'} sample {number}"
                self.judge(sample, training)
        if self.info.module_error_inputs_func is not None:
            for number, item in enumerate(self.samples(self.info.module_error_inputs_func, True)):
                self.where = f"{self.info.name} error {number}"
                self.check("module errors", lambda item=item: self.judge_error(item.module_error_input))

    def samples(self, function: Any, training: bool) -> Any:
        return function(self.info, device="cpu", dtype=_torch().float64, requires_grad=True, training=training)

    def judge(self, sample: Any, training: bool) -> None:
        built = sample.constructor_input
        given = sample.forward_input
        positional, named = constructed([list(built.args), built.kwargs])
        theirs = self.info.module_cls(*built.args, **built.kwargs).double().train(training)
        arguments = (tuple(given.args), given.kwargs)
        if any(["Lazy" in type(m).__name__ for m in theirs.modules()]):
            theirs(*given.args, **given.kwargs)
        mine: list[Any] = []

        def build() -> None:
            mine.append(self.mine(*positional, **named).double().train(training))
            if any(["Lazy" in type(m).__name__ for m in mine[0].modules()]):
                mine[0](*translated(list(arguments[0])), **translated(arguments[1]))
            mine[0].load_state_dict(translated(dict(theirs.state_dict())))
            if repr(mine[0]) != repr(theirs):
                raise Outcome(f"its repr is {mine[0]!r} for {theirs!r}")

        self.check("modules", build)
        if mine:
            self.check("modules", lambda: self.judge_call(mine[0], theirs, arguments))

    def judge_call(self, mine: Any, theirs: Any, arguments: Any) -> None:
        positional, named = translated([list(arguments[0]), arguments[1]])
        expected, error = attempt(lambda: theirs(*arguments[0], **arguments[1]))
        if error is not None:
            raise Skip
        got = mine(*positional, **named)
        if self.is_random(theirs, arguments):
            return
        compare(got, expected)
        compare_strides(got, expected)
        compare_states(dict(mine.state_dict()), dict(theirs.state_dict()))
        first, second = self.gradients(_torch(), theirs, expected, arguments)
        my_first, my_second = self.gradients(ut, mine, got, (positional, named))
        compare(my_first, first, dtypes=False)
        if second:
            compare(my_second, second, dtypes=False)

    def is_random(self, module: Any, arguments: Any) -> bool:
        if "Fractional" in self.info.name:
            return True
        rates = [getattr(m, "p", 0) for m in module.modules()] + [getattr(m, "dropout", 0) for m in module.modules()]
        return module.training and any([isinstance(r, float) and r > 0 for r in rates])

    def gradients(self, library: Any, module: Any, results: Any, arguments: Any) -> tuple[list[Any], list[Any]]:
        """First and second derivatives, by the parameters and by what was given; no second, if PyTorch has none."""
        inputs = [*module.parameters(), *[t for t in _tensors(arguments) if t.requires_grad]]
        results = [t for t in flat(results) if _is_tensor(t) and t.requires_grad]
        if not inputs or not results:
            return [], []
        first = _gradients(library, results, inputs, 0, create_graph=True)
        live = [(k, g) for k, g in enumerate(first) if g is not None and g.requires_grad]
        if not live:
            return first, [None] * len(inputs)
        second, error = attempt(
            lambda: _gradients(library, [g for _, g in live], inputs, 100, numbers=[k for k, _ in live])
        )
        if error is not None and library is ut and self.info.supports_gradgrad:
            raise error
        return first, second or []

    def judge_error(self, item: Any) -> None:
        built, given = item.constructor_input, item.forward_input

        def call(library_class: Any, translate: Any) -> None:
            module = library_class(*translate(list(built.args)), **translate(built.kwargs)).double()
            if given is not None:
                module(*translate(list(given.args)), **translate(given.kwargs))

        _, refused = attempt(lambda: call(self.info.module_cls, lambda v: v))
        if refused is None:
            raise Skip
        _, error = attempt(lambda: call(self.mine, translated))
        if error is None:
            raise Outcome(f"accepted; PyTorch: {type(refused).__name__}: {str(refused).splitlines()[0]}")


# ---- optimizers


class OptimizerJudge(Tally):
    """Runs the samples of one optimizer, plain and with each of the ways of computing that PyTorch has on a CPU."""

    def __init__(self, info: Any) -> None:
        super().__init__()
        self.info = info
        self.mine = getattr(ut.optim, info.optim_cls.__name__, None)

    def run(self) -> None:
        torch = _torch()
        for dtype in (torch.float64, torch.float32, *([torch.complex128] if self.info.supports_complex else [])):
            for number, (sample, flags) in enumerate(self.samples(dtype)):
                self.where = f"{self.info.optim_cls.__name__} {str(dtype)[6:]} sample {number} ({sample.desc}, {flags})"
                self.judge_ways(dtype, sample, flags)
        for number, item in enumerate(self.info.optim_error_inputs_func("cpu", torch.float32)):
            self.where = f"{self.info.optim_cls.__name__} error {number}"
            self.check("optimizer errors", lambda item=item: self.judge_error(item.optimizer_error_input))

    def judge_ways(self, dtype: Any, sample: Any, flags: dict[str, bool]) -> None:
        """Judge a sample alone, and with each of the schedules."""
        self.check("optimizers", lambda: self.judge(dtype, {**sample.kwargs, **flags}, ()))
        for schedule in self.info.scheduler_inputs:
            self.check("optimizers", lambda schedule=schedule: self.judge(dtype, sample.kwargs, schedule))

    def samples(self, dtype: Any) -> Iterator[tuple[Any, dict[str, bool]]]:
        for sample in self.info.optim_inputs_func(device="cpu", dtype=dtype):
            yield sample, {}
            for flag in self.info.supported_impls:
                if flag != "differentiable" and flag not in sample.kwargs:
                    yield sample, {flag: True}

    def judge(self, dtype: Any, options: dict[str, Any], schedule: Any) -> None:
        torch = _torch()
        given = translated(options)  # now: a schedule changes a rate that is a tensor
        result, error = attempt(
            lambda: self.stepped(torch, self.info.optim_cls, str(dtype)[6:], copy.deepcopy(options), schedule)
        )
        if error is not None:
            raise Skip
        mine = self.stepped(ut, self.mine, str(dtype)[6:], given, [rebound(s) for s in schedule])
        compare(mine[0], result[0])
        compare_optimizers(mine[1], result[1])

    def stepped(self, library: Any, optimizer: Any, dtype: str, options: Any, schedule: Any) -> tuple[list[Any], Any]:
        """The parameters after some steps, and the optimizer's state."""
        rng = np.random.default_rng(7)
        shapes = [(4, 3), (2, 5)] if self.info.optim_cls.__name__ == "Muon" else [(4, 3), (3,), (), (2, 1, 2)]
        parameters = [library.nn.Parameter(library.tensor(_numbers(rng, s, dtype))) for s in shapes]
        made = optimizer(parameters, **options)
        schedulers = [make(made) for make in schedule]

        def closure() -> Any:
            made.zero_grad()
            return self.loss(library, parameters)

        for _ in range(STEPS):
            loss = made.step(closure) if self.info.step_requires_closure else (closure(), made.step())[0]
            for scheduler in schedulers:
                is_plateau = type(scheduler).__name__ == "ReduceLROnPlateau"
                scheduler.step(*([loss.detach()] if is_plateau else []))
        return [p.detach() for p in parameters], made.state_dict()

    def loss(self, library: Any, parameters: list[Any]) -> Any:
        """Backward of a convex loss whose gradients are not linear; they are sparse where they have to be."""
        squares = [(p * p.conj()).real for p in parameters]
        loss = sum([((s + 1).sqrt() + s / 3).sum() for s in squares])
        loss.backward()
        if self.info.only_supports_sparse_grads:
            for p in parameters:
                p.grad = p.grad.to_sparse()
        return loss

    def judge_error(self, item: Any) -> None:
        def make(library: Any, optimizer: Any, params: Any, options: Any) -> Any:
            return optimizer([library.nn.Parameter(library.ones(2, 3))] if params is None else params, **options)

        given = translated(item.params), translated(item.kwargs)  # now: PyTorch writes into the groups it is given
        _, refused = attempt(lambda: make(_torch(), self.info.optim_cls, item.params, item.kwargs))
        if refused is None:
            raise Skip
        _, error = attempt(lambda: make(ut, self.mine, *given))
        if error is None:
            raise Outcome(f"accepted; PyTorch: {type(refused).__name__}: {str(refused).splitlines()[0]}")


def _numbers(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if "complex" in dtype else values).astype(dtype)


def compare_optimizers(mine: Any, torchs: Any) -> None:
    for number, (a, b) in enumerate(zip(mine["param_groups"], torchs["param_groups"], strict=True)):
        try:
            compare_states(*[{k: group[k] for k in sorted(group) if k not in WAYS} for group in (a, b)])
        except Outcome as outcome:
            raise Outcome(f"group {number}: {outcome}") from None
    if set(mine["state"]) != set(torchs["state"]):
        raise Outcome(f"states of {sorted(mine['state'])} for {sorted(torchs['state'])}")
    for key, state in torchs["state"].items():
        got = mine["state"][key]
        compare_states(*[{k: s[k] for k in sorted(s) if k not in WAYS} for s in (got, state)])

"""A state machine that runs random programs in undertow, in PyTorch where it is installed, and in the model.

No program ever gives a wrong gradient: undertow's is the model's, or an error. Where PyTorch gives one, so does
undertow; where PyTorch refuses, undertow may do better, but only by being right.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import undertow as ut
from tests.inplace.programs import LOOKS, STEPS, WRITES, Dual

torch: Any = None
if importlib.util.find_spec("torch"):
    import torch

LIBRARIES = [ut] if torch is None else [ut, torch]
LEAVES = 2
SHAPE = (2, 3)
SIZE = 6

REFUSED = (RuntimeError, IndexError, NotImplementedError)

numbers = st.integers(0, 1000)
seldom = st.sampled_from([False, False, False, False, True])


class Entry:
    """One tensor of a program: in each library, and in the model.

    cut  a view made under no_grad: its values follow, its derivatives are none
    """

    def __init__(self, tensors: list[Any], model: Dual, cut: bool = False) -> None:
        self.tensors = tensors
        self.model = model
        self.cut = cut

    @property
    def shape(self) -> tuple[int, ...]:
        return self.model.value.shape

    def seen(self) -> Dual:
        """What an operation on it reads."""
        return self.model.alone() if self.cut else self.model


class Programs(RuleBasedStateMachine):
    entries: list[Entry]

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.leaves = [self.leaf(rng, k) for k in range(LEAVES)]
        copies = [Entry([t.clone() for t in e.tensors], Dual(*[a.copy() for a in e.model])) for e in self.leaves]
        plain = rng.uniform(0.2, 1.2, SHAPE)
        slope = np.zeros((*SHAPE, LEAVES * SIZE))
        # leaves cannot be changed, so they come last: small numbers, which hypothesis likes, pick what can be
        self.entries = [*copies, Entry([lib.tensor(plain) for lib in LIBRARIES], Dual(plain, slope)), *self.leaves]

    def leaf(self, rng: Any, k: int) -> Entry:
        values = rng.uniform(0.2, 1.2, SHAPE)
        slope = np.zeros((*SHAPE, LEAVES * SIZE))
        slope.reshape(SIZE, -1)[np.arange(SIZE), k * SIZE + np.arange(SIZE)] = 1
        return Entry([lib.tensor(values, requires_grad=True) for lib in LIBRARIES], Dual(values.copy(), slope))

    def add(self, entry: Entry) -> None:
        self.entries.insert(0, entry)

    def pick(self, number: int) -> Entry:
        return self.entries[number % len(self.entries)]

    def alike(self, entry: Entry, number: int) -> Entry:
        """A tensor of the same shape."""
        fitting = [e for e in self.entries if e.shape == entry.shape]
        return fitting[number % len(fitting)]

    def run(self, what: str, call: Any, no_grad: bool = False) -> list[Any] | None:
        """Run `call(k)` for each library k. None if undertow refuses, which it may only where PyTorch does."""
        results, errors = [], []
        note(("[no_grad] " if no_grad else "") + what)
        for k, library in enumerate(LIBRARIES):
            try:
                with library.set_grad_enabled(not no_grad):
                    results.append(call(k))
                errors.append(None)
            except REFUSED as error:
                results.append(None)
                errors.append(error)
        self.refused_by_torch = len(errors) > 1 and errors[1] is not None
        if errors[0] is None:
            return results
        excused = torch is None or self.refused_by_torch or self.torch_left
        assert excused, f"{what}: undertow refuses, PyTorch does not: {errors[0]}"
        return None

    # ---- the steps of a program

    @rule(number=numbers, which=st.sampled_from(LOOKS), no_grad=seldom)
    def view(self, number: int, which: Any, no_grad: bool) -> None:
        entry = self.pick(number)
        if not which.fits(entry.shape) or (which.name == "x.flatten()" and not self.is_contiguous(entry)):
            return
        found = self.run(f"view {which.name}", lambda k: which.call(entry.tensors[k]), no_grad)
        if found is not None and not self.refused_by_torch:
            self.add(Entry(found, which.model(entry.model), cut=entry.cut or no_grad))

    def is_contiguous(self, entry: Entry) -> bool:
        return entry.model.value.flags.c_contiguous and all(t.is_contiguous() for t in entry.tensors)

    @rule(number=numbers, other=numbers, which=st.sampled_from(STEPS), no_grad=seldom)
    def compute(self, number: int, other: int, which: Any, no_grad: bool) -> None:
        x = self.pick(number)
        y = self.alike(x, other)
        found = self.run(which.name, lambda k: which.call(x.tensors[k], y.tensors[k]), no_grad)
        if found is None or self.refused_by_torch:
            return
        value, slope = which.model(x.seen(), y.seen())
        slope = np.zeros_like(slope) if no_grad else slope
        self.add(Entry(found, Dual(np.array(value, dtype=float), np.array(slope, dtype=float))))

    @rule(number=numbers, other=numbers, which=st.sampled_from(STEPS), no_grad=seldom)
    def change(self, number: int, other: int, which: Any, no_grad: bool) -> None:
        x = self.pick(number)
        y = self.alike(x, other)
        if self.overlap(x, y):
            return  # PyTorch's result depends on the order in which it goes through the elements
        found = self.run(f"{which.name}_", lambda k: which.change(x.tensors[k], y.tensors[k]), no_grad)
        if found is None:
            return
        value, slope = which.model(x.seen(), y.seen())
        self.apply(x, np.array(value), np.array(slope), no_grad)

    @rule(number=numbers, other=numbers, which=st.sampled_from(WRITES), no_grad=seldom)
    def write(self, number: int, other: int, which: Any, no_grad: bool) -> None:
        x = self.pick(number)
        y = self.alike(x, other)
        if not which.fits(x.shape) or ("y" in which.name and self.overlap(x, y)):
            return
        found = self.run(which.name, lambda k: which.change(x.tensors[k], y.tensors[k]), no_grad)
        if found is None:
            return
        after = Dual(x.model.value.copy(), x.model.slope.copy())
        which.model(after, y.seen())
        self.apply(x, *after, no_grad)

    def overlap(self, x: Entry, y: Entry) -> bool:
        return x is not y and np.shares_memory(x.model.value, y.model.value)

    def apply(self, x: Entry, value: Any, slope: Any, no_grad: bool) -> None:
        if self.refused_by_torch:  # its values are kept up, its histories are another program's from now on
            with torch.no_grad():
                x.tensors[1].copy_(torch.from_numpy(np.array(value, dtype=float)))
            self.torch_left = True
        x.model.value[...] = value
        if not no_grad:
            x.model.slope[...] = slope

    #: whether PyTorch has refused a change that undertow made
    torch_left = False

    @rule(number=numbers)
    def detach(self, number: int) -> None:
        entry = self.pick(number)
        found = self.run("detach", lambda k: entry.tensors[k].detach())
        assert found is not None
        self.add(Entry(found, entry.model.alone()))

    @precondition(lambda self: not self.torch_left)
    @rule(number=numbers)
    def transpose_in_place(self, number: int) -> None:
        entry = self.pick(number)
        if len(entry.shape) != 2 or entry in self.leaves:
            return
        found = self.run("t_", lambda k: entry.tensors[k].t_())
        if found is None:
            return
        entry.model = Dual(entry.model.value.T, entry.model.slope.swapaxes(0, 1))
        if self.refused_by_torch:  # from now on its histories are another program's
            entry.tensors[1] = entry.tensors[1].detach().t()
            self.torch_left = True

    @rule(number=numbers)
    def differentiate(self, number: int) -> None:
        entry = self.pick(number)
        weights = np.arange(1.0, 1 + entry.model.value.size).reshape(entry.shape)
        given = [lib.tensor(weights) for lib in LIBRARIES]

        def gradients(k: int) -> Any:
            leaves = [leaf.tensors[k] for leaf in self.leaves]
            grad = LIBRARIES[k].autograd.grad
            return grad(entry.tensors[k], leaves, given[k], retain_graph=True, allow_unused=True)

        found = self.run("differentiate", gradients)
        np.testing.assert_array_equal(given[0].numpy(), weights)
        if found is None:
            return
        expected = np.tensordot(weights, entry.seen().slope, axes=weights.ndim)
        for k in range(LEAVES):
            mine = expected[k * SIZE : (k + 1) * SIZE].reshape(SHAPE)
            got = found[0][k]
            np.testing.assert_allclose(0 if got is None else got.numpy(), 0 if got is None else mine, atol=1e-9)
            assert got is not None or not mine.any(), "a gradient was lost"

    @invariant()
    def values_are_the_models(self) -> None:
        for entry in getattr(self, "entries", ()):
            for tensor in entry.tensors:
                np.testing.assert_allclose(tensor.detach().numpy(), entry.model.value, atol=1e-12)


Programs.TestCase.settings = settings(stateful_step_count=30)
TestPrograms = Programs.TestCase

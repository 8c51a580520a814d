"""A state machine that runs random programs in undertow, in PyTorch where it is installed, and in the model.

No program ever gives a wrong gradient: undertow's is the model's, or an error. Where PyTorch gives one, so does
undertow; where PyTorch refuses, undertow may do better, but only by being right. A program ends with the gradients of
every tensor it made, so that whatever it did wrong shows.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import undertow as ut
from tests.inplace.programs import LOOKS, OF_TWO, STEPS, WRITES, Dual

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

#: views that in-place changes may go through
parts = st.sampled_from([look for look in LOOKS if not look.several and look.writeable])


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
        self.plain = rng.uniform(0.2, 1.2, SHAPE)
        # leaves cannot be changed, so they come last: small numbers, which hypothesis likes, pick what can be
        self.entries = [*copies, self.constant(), *self.leaves]
        self.accumulated = np.zeros(LEAVES * SIZE)

    def leaf(self, rng: Any, k: int) -> Entry:
        values = rng.uniform(0.2, 1.2, SHAPE)
        slope = np.zeros((*SHAPE, LEAVES * SIZE))
        slope.reshape(SIZE, -1)[np.arange(SIZE), k * SIZE + np.arange(SIZE)] = 1
        return Entry([lib.tensor(values, requires_grad=True) for lib in LIBRARIES], Dual(values.copy(), slope))

    def constant(self) -> Entry:
        """A new tensor without history."""
        tensors = [lib.tensor(self.plain) for lib in LIBRARIES]
        return Entry(tensors, Dual(self.plain.copy(), np.zeros((*SHAPE, LEAVES * SIZE))))

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
        self.view_entry(self.pick(number), which, no_grad)

    def view_entry(self, entry: Entry, which: Any, no_grad: bool) -> None:
        if not which.fits(entry.shape) or (which.dense and not self.is_contiguous(entry)):
            return
        found = self.run(f"view {which.name}", lambda k: which.call(entry.tensors[k]), no_grad)
        if found is not None and not self.refused_by_torch:
            self.add(Entry(found, which.model(entry.model), cut=entry.cut or no_grad))

    def is_contiguous(self, entry: Entry) -> bool:
        arrays = [entry.model.value, entry.model.slope]
        return all([a.flags.c_contiguous for a in arrays]) and all([t.is_contiguous() for t in entry.tensors])

    @rule(number=numbers, other=numbers, which=st.sampled_from(STEPS), no_grad=seldom)
    def compute(self, number: int, other: int, which: Any, no_grad: bool) -> None:
        x = self.pick(number)
        y = self.alike(x, other)
        if self.jumps(x, which) or self.is_large(x):
            return
        found = self.run(which.name, lambda k: which.call(x.tensors[k], y.tensors[k]), no_grad)
        if found is None or self.refused_by_torch:
            return
        value, slope = which.model(x.seen(), y.seen())
        slope = np.zeros_like(slope) if no_grad else slope
        self.add(Entry(found, Dual(np.array(value, dtype=float), np.array(slope, dtype=float))))

    @rule(number=numbers, other=numbers, which=st.sampled_from(STEPS), no_grad=seldom)
    def change(self, number: int, other: int, which: Any, no_grad: bool) -> None:
        x = self.pick(number)
        self.change_entry(x, self.alike(x, other), which, no_grad)

    def change_entry(self, x: Entry, y: Entry, which: Any, no_grad: bool) -> None:
        if self.is_large(x) or self.jumps(x, which) or self.overlap(x, y) or not x.model.value.flags.writeable:
            return  # PyTorch's result depends on the order in which it goes through the elements
        found = self.run(f"{which.name}_", lambda k: which.change(x.tensors[k], y.tensors[k]), no_grad)
        if found is None:
            return
        value, slope = which.model(x.seen(), y.seen())
        self.apply(x, np.array(value), np.array(slope), no_grad)

    @rule(number=numbers, other=numbers, which=st.sampled_from(WRITES), no_grad=seldom)
    def write(self, number: int, other: int, which: Any, no_grad: bool) -> None:
        x = self.pick(number)
        self.write_entry(x, self.alike(x, other), which, no_grad)

    def write_entry(self, x: Entry, y: Entry, which: Any, no_grad: bool) -> None:
        if not which.fits(x.shape) or self.jumps(x, which) or not x.model.value.flags.writeable:
            return
        if "y" in which.name and self.overlap(x, y):
            return
        found = self.run(which.name, lambda k: which.change(x.tensors[k], y.tensors[k]), no_grad)
        if found is None:
            return
        after = Dual(x.model.value.copy(), x.model.slope.copy())
        which.model(after, y.seen())
        self.apply(x, *after, no_grad)

    @rule(number=numbers, other=numbers, look=parts, which=st.sampled_from(STEPS), turned=seldom)
    def change_part(self, number: int, other: int, look: Any, which: Any, turned: bool) -> None:
        """What random picks seldom hit: a change, through a new view, of memory that has a history."""
        part = self.part_of_live(number, look, turned)
        if part is not None:
            self.change_entry(part, self.alike(part, other), which, no_grad=False)

    @rule(number=numbers, other=numbers, look=parts, which=st.sampled_from(WRITES), turned=seldom)
    def write_part(self, number: int, other: int, look: Any, which: Any, turned: bool) -> None:
        part = self.part_of_live(number, look, turned)
        if part is not None:
            self.write_entry(part, self.alike(part, other), which, no_grad=False)

    def part_of_live(self, number: int, look: Any, turned: bool) -> Entry | None:
        """A new view of a tensor that depends on the leaves and may be changed; turned: transposed in place."""
        live = [e for e in self.entries if not e.cut and e.model.slope.any() and not self.shows_leaf(e)]
        live = [e for e in live if look.fits(e.shape) and (not look.dense or self.is_contiguous(e))]
        part = self.part_of(live[number % len(live)], look) if live else None
        if part is not None and turned and not self.torch_left:
            self.turn(part)
        return part

    def part_of(self, entry: Entry | None, look: Any) -> Entry | None:
        before = len(self.entries)
        if entry is not None:
            self.view_entry(entry, look, no_grad=False)
        return None if len(self.entries) == before else self.entries[0]

    @precondition(lambda self: not self.torch_left)
    @rule(number=numbers, look=parts, further=st.none() | parts, which=st.sampled_from(OF_TWO))
    def change_old_part(self, number: int, look: Any, further: Any, which: Any) -> None:
        """Write a history into a tensor that has none, through a view older than the tensor's shape, or through a
        view of that view. The values come from the same part of another tensor."""
        base, source = self.constant(), self.leaves[number % LEAVES]
        self.add(base)
        part, other = self.part_of(base, look), self.part_of(source, look)
        self.turn(base)
        if further is not None:
            part, other = self.part_of(part, further), self.part_of(other, further)
        if part is not None and other is not None and part.shape == other.shape:
            self.change_entry(part, other, which, no_grad=False)

    def shows_leaf(self, entry: Entry) -> bool:
        return any([np.may_share_memory(entry.model.value, leaf.model.value) for leaf in self.leaves])

    def jumps(self, x: Entry, which: Any) -> bool:
        return bool((which.jumps(x.model.value) < 1e-9).any())

    def is_large(self, x: Entry) -> bool:
        """Whether a few powers and exponentials more would leave the range of floats."""
        return bool((np.abs(x.model.value) > 20).any())

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
        self.entries.append(Entry(found, entry.model.alone()))

    @precondition(lambda self: not self.torch_left)
    @rule(number=numbers)
    def transpose_in_place(self, number: int) -> None:
        self.turn(self.pick(number))

    def turn(self, entry: Entry) -> None:
        if len(entry.shape) != 2 or entry in self.leaves:
            return
        found = self.run("t_", lambda k: entry.tensors[k].t_())
        if found is None:
            return
        entry.model = Dual(entry.model.value.T, entry.model.slope.swapaxes(0, 1))
        if self.refused_by_torch:  # from now on its histories are another program's
            entry.tensors[1] = entry.tensors[1].detach().t()
            self.torch_left = True

    @rule(number=numbers, create_graph=st.booleans())
    def differentiate(self, number: int, create_graph: bool) -> None:
        self.check_gradients(self.pick(number), create_graph)

    def check_gradients(self, entry: Entry, create_graph: bool) -> None:
        weights, given = self.weights(entry)

        def gradients(k: int) -> Any:
            leaves = [leaf.tensors[k] for leaf in self.leaves]
            options = {"retain_graph": True, "create_graph": create_graph, "allow_unused": True}
            return LIBRARIES[k].autograd.grad(entry.tensors[k], leaves, given[k], **options)

        found = self.run(f"differentiate (create_graph={create_graph})", gradients)
        np.testing.assert_array_equal(given[0].numpy(), weights)
        if found is not None:
            expected = self.expected(entry, weights)
            for got, mine in zip(found[0], expected.reshape(LEAVES, *SHAPE), strict=True):
                np.testing.assert_allclose(0 if got is None else got.detach().numpy(), mine, atol=1e-9)

    @rule(number=numbers)
    def backward(self, number: int) -> None:
        entry = self.pick(number)
        weights, given = self.weights(entry)
        if self.run("backward", lambda k: entry.tensors[k].backward(given[k], retain_graph=True)) is None:
            for leaf in self.leaves:  # how far a pass came that was refused, nobody says
                leaf.tensors[0].grad = None
            self.accumulated[...] = 0
            return
        self.accumulated += self.expected(entry, weights)
        for leaf, mine in zip(self.leaves, self.accumulated.reshape(LEAVES, *SHAPE), strict=True):
            got = leaf.tensors[0].grad
            np.testing.assert_allclose(0 if got is None else got.numpy(), mine, atol=1e-8)

    def weights(self, entry: Entry) -> tuple[Any, list[Any]]:
        """A gradient to begin with, which no pass may change."""
        weights = np.arange(1.0, 1 + entry.model.value.size).reshape(entry.shape)
        return weights, [lib.tensor(weights) for lib in LIBRARIES]

    def expected(self, entry: Entry, weights: Any) -> Any:
        return np.tensordot(weights, entry.seen().slope, axes=weights.ndim)

    def teardown(self) -> None:
        for number, entry in enumerate(getattr(self, "entries", ())):
            self.check_gradients(entry, create_graph=number % 2 == 1)

    @invariant()
    def values_are_the_models(self) -> None:
        for entry in getattr(self, "entries", ()):
            for tensor in entry.tensors:
                np.testing.assert_allclose(tensor.detach().numpy(), entry.model.value, atol=1e-12)


Programs.TestCase.settings = settings(
    stateful_step_count=30,
    max_examples=max(60, settings().max_examples),
    suppress_health_check=[HealthCheck.too_slow],  # the first backward pass of PyTorch takes a second
)
TestPrograms = pytest.mark.slow(Programs.TestCase)

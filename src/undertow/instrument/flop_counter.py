"""FlopCounterMode: the floating-point operations of a block, by module; torch.utils.flop_counter's names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from undertow.autograd.interceptors.observer import Observer, enter, leave, name_of
from undertow.engine.watch import Watch, install_watcher
from undertow.graph.node import Node
from undertow.instrument.flops import FORMULAS, backward_flops, flops_of
from undertow.instrument.module_calls import ModuleCalls
from undertow.instrument.nodes import node_of
from undertow.scopes import Switched
from undertow.tensor import Tensor

#: the cost of an operation, by its arguments, with shapes in the place of tensors, and `out_shape`
Formula = Callable[..., int]
#: the formulas of programs, by the name of the operation
registered: dict[str, Formula] = {}


def operation_of(what: Any) -> str:
    """The name of an operation, given that, or the function."""
    name = what if isinstance(what, str) else getattr(what, "__name__", None)
    if name is None:
        raise ValueError(f"an operation is named by its function (undertow.sin) or its name ('sin'), got {what!r}")
    return str(name).removeprefix("aten::")


def shape_or_value(value: Any) -> Any:
    return tuple(value._array.shape) if isinstance(value, Tensor) else value


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Formula], Formula]:
    """Say what an operation (or each of several) costs, where `FlopCounterMode` does not count it, or otherwise.

    The function takes the arguments of the operation, with shapes in the place of tensors, and `out_shape`. What its
    backward takes is then not counted.

    targets  an operation, or a list of them
    get_raw  accepted, without effect

    >>> import undertow as ut
    >>> from undertow.utils.flop_counter import FlopCounterMode, register_flop_formula
    >>> @register_flop_formula(ut.exp)
    ... def cost_of_exp(input, *, out_shape, **options):
    ...     return 10 * input[0]
    >>> with FlopCounterMode(display=False) as counter:
    ...     _ = ut.ones(3).exp()
    >>> counter.get_flop_counts()
    {'Global': {'exp': 30}}
    """

    def register(formula: Formula) -> Formula:
        for target in targets if isinstance(targets, list | tuple) else [targets]:
            registered[operation_of(target)] = formula
        return formula

    return register


class FlopCounterMode(Switched):
    """Counts the floating-point operations of this thread, forward and backward, in a `with` block.

    display         print a table at the end
    depth           how deep the table goes into modules
    custom_mapping  further formulas, as `register_flop_formula` takes them, by operation; they go before all others
    mods            accepted, without effect: modules are followed by themselves

    >>> import undertow as ut
    >>> from undertow.utils.flop_counter import FlopCounterMode
    >>> model = ut.nn.Sequential(ut.nn.Linear(8, 16), ut.nn.ReLU(), ut.nn.Linear(16, 2))
    >>> with FlopCounterMode(display=False) as counter:
    ...     loss = model(ut.ones(4, 8)).sum()
    >>> counter.get_total_flops()
    1280
    >>> counter.get_flop_counts()["Sequential.0"]
    {'linear': 1024}
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: Mapping[Any, Formula] | None = None,
    ) -> None:
        self.depth, self.display = depth, display
        self.formulas = {operation_of(what): formula for what, formula in (custom_mapping or {}).items()}
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._modules = ModuleCalls()
        self._nodes: dict[int, tuple[str, int, tuple[str, ...]]] = {}

    def begin(self) -> None:
        self.flop_counts.clear()
        self._nodes.clear()
        self._modules.start()
        enter(Counting(self))
        _counters.set((*_counters.get(), self))

    def cease(self) -> None:
        _counters.set(tuple([counter for counter in _counters.get() if counter is not self]))
        leave(Counting, lambda found: found.counter is self)
        self._modules.stop()

    def ended(self) -> None:
        if self.display:
            print(self.get_table(self.depth))

    def get_total_flops(self) -> int:
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """By module ("Global" is everything; modules by class and path), and by operation in it."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        depth = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        lines = [("Module", "FLOP", "% Total")]
        for module, counts in sorted(self.flop_counts.items(), key=lambda item: (item[0] != "Global", item[0])):
            level = 0 if module == "Global" else module.count(".") + 1
            if level <= depth:
                flops = sum(counts.values())
                lines.append((" " * level + module, readable_count(flops), f"{100 * flops / total:.2f}%"))
                for name, number in counts.items():
                    lines.append((" " * level + f" - {name}", readable_count(number), f"{100 * number / total:.2f}%"))
        widths = [max(len(line[k]) for line in lines) for k in range(3)]
        rows = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in lines]
        return "\n".join([rows[0], "  ".join("-" * width for width in widths), *rows[1:]])

    def add(self, name: str, flops: int, places: tuple[str, ...]) -> None:
        for place in ("Global", *places):
            self.flop_counts[place][name] += flops

    def places(self) -> tuple[str, ...]:
        """The modules that are running now, the outermost first."""
        calls = self._modules.open.get()
        return tuple(dict.fromkeys([c.path if k == 0 else f"{calls[0].path}.{c.path}" for k, c in enumerate(calls)]))

    def operation_ran(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        first = result[0] if isinstance(result, tuple) else result
        out = tuple(first._array.shape)
        formula = self.formulas.get(name, registered.get(name))
        if formula is not None:
            return self.add(name, formula(*map(shape_or_value, args), **kwargs, out_shape=out), self.places())
        shapes = [tuple(a._array.shape) if isinstance(a, Tensor) else () for a in args]
        flops = flops_of(name, shapes, out, args)
        if flops:
            places = self.places()
            self.add(name, flops, places)
            node = node_of(result)
            if node is not None:
                self._nodes[node.sequence_nr] = name, flops, places

    def node_ran(self, node: Node, results: list[Any]) -> None:
        found = self._nodes.get(node.sequence_nr)
        if found is not None:
            name, flops, places = found
            self.add(f"{name}_backward", backward_flops(name, flops, [r is not None for r in results]), places)


class Counting(Observer):
    """The observer of a counter."""

    def __init__(self, counter: FlopCounterMode, below: Any = None) -> None:
        super().__init__(below)
        self.counter = counter

    def over(self, below: Any) -> Counting:
        return Counting(self.counter, below)

    def ran(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, begin: int) -> None:
        name = name_of(what)
        if name in FORMULAS or name in registered or name in self.counter.formulas:
            self.counter.operation_ran(name, args, kwargs, result)


class CountedPass(Watch):
    def __init__(self, counters: tuple[FlopCounterMode, ...]) -> None:
        self.counters = counters

    def after(self, node: Node, grads: list[Any], results: list[Any]) -> None:
        for counter in self.counters:
            counter.node_ran(node, results)


_counters: ContextVar[tuple[FlopCounterMode, ...]] = ContextVar("undertow.flop_counters", default=())


def _pass_if_counted() -> Watch | None:
    counters = _counters.get()
    return CountedPass(counters) if counters else None


install_watcher(_pass_if_counted)


def readable_count(number: float) -> str:
    """
    >>> readable_count(1280), readable_count(3_210_000)
    ('1.28K', '3.21M')
    """
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:.2f}{unit}"
    return f"{number:g}"

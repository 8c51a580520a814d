"""`summary(model, input)`: what a model is made of, what each part gives back, costs and keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.autograd.interceptors.observer import Observer, enter, leave, name_of
from undertow.autograd.saved_tensors.ledger import readable, saved_values, storage_of
from undertow.instrument.flop_counter import readable_count
from undertow.instrument.flops import flops_of
from undertow.instrument.module_calls import ModuleCalls
from undertow.instrument.nodes import node_of
from undertow.modes import enable_grad
from undertow.ops.random.tensors import randn
from undertow.scopes import Switched
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.graph.node import Node
    from undertow.nn.module import Module


class Layer:
    """One module, and what was seen of its calls.

    parameters, trainable  how many numbers it and what is in it hold; each is counted once
    flops, saved   of all its calls, with what is in it; `saved` in bytes
    """

    def __init__(self, path: str, module: Any) -> None:
        self.path, self.kind = path, type(module).__name__
        self.depth = path.count(".") + 1 if path else 0
        self.output: Any = None
        self.calls = self.flops = self.saved = 0
        self.has_children = any(True for _ in module.children())
        own = {id(p): p for p in module.parameters() if not hasattr(p, "materialize")}.values()
        self.parameters = sum(p.numel() for p in own)
        self.trainable = sum(p.numel() for p in own if p.requires_grad)

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


class Totals(NamedTuple):
    parameters: int
    trainable: int
    bytes: int
    flops: int
    saved: int


class ModelSummary:
    """What `summary` returns: print it, or read its `layers` (the first is the model) and `totals`.

    depth  how deep the table goes into modules

    >>> import undertow as ut
    >>> found = ut.instrument.summary(ut.nn.Linear(2, 3), ut.ones(1, 2))
    >>> found.totals.parameters, found.layers[0].name
    (9, '')
    """

    def __init__(self, layers: list[Layer], totals: Totals, depth: int) -> None:
        self.layers, self.totals, self.depth = layers, totals, depth

    @property
    def total_params(self) -> int:
        return self.totals.parameters

    @property
    def trainable_params(self) -> int:
        return self.totals.trainable

    @property
    def total_flops(self) -> int:
        return self.totals.flops

    def rows(self) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for layer in self.layers:
            if layer.depth <= self.depth:
                title = "  " * layer.depth + (f"{layer.name}: " if layer.path else "") + layer.kind
                flops = readable_count(layer.flops) if layer.flops else "--"
                saved = readable(layer.saved) if layer.saved else "--"
                count = f"{layer.parameters:,}" if layer.parameters else "--"
                found.append((title, text_of(layer.output), count, flops, saved))
        return found

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[k]) for row in [HEADER, *rows]) for k in range(len(HEADER))]
        lines = [
            "  ".join([c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))])
            for row in [HEADER, *rows]
        ]
        rule = "=" * max(map(len, lines))
        return "\n".join(
            [rule, lines[0].rstrip(), rule, *[line.rstrip() for line in lines[1:]], rule, self.foot(), rule]
        )

    def foot(self) -> str:
        t = self.totals
        return (
            f"Parameters: {t.parameters:,} ({readable(t.bytes)}), trainable: {t.trainable:,}\n"
            f"FLOPs: {readable_count(t.flops)}, saved for backward: {readable(t.saved)}"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html

        def row(tag: str, cells: Sequence[str]) -> str:
            shown = [html.escape(cell).replace("  ", "&nbsp;&nbsp;") for cell in cells]
            return "<tr>" + "".join([f"<{tag} style='text-align:left'>{cell}</{tag}>" for cell in shown]) + "</tr>"

        body = "".join([row("td", cells) for cells in self.rows()])
        return f"<table>{row('th', HEADER)}{body}</table><p>{html.escape(self.foot())}</p>"


HEADER = ("Layer", "Output shape", "Parameters", "FLOPs", "Saved")


def summary(
    model: Any,
    input: Any = None,
    *,
    input_size: Sequence[Any] | None = None,
    depth: int = 3,
    mode: str = "eval",
    **kwargs: Any,
) -> ModelSummary:
    """The layers of a model: shapes of their outputs, parameters, floating-point operations, bytes kept for backward.

    input       what the model is called with: a tensor, or a tuple of arguments; further arguments by name
    input_size  instead of it, a shape (or a list of shapes) to draw random numbers of
    depth       how deep to go into modules
    mode        "eval", "train", or "same": the mode of the model during the call; it is put back
    **kwargs    arguments of the model by name

    >>> import undertow as ut
    >>> model = ut.nn.Sequential(ut.nn.Linear(8, 16), ut.nn.ReLU(), ut.nn.Linear(16, 2))
    >>> print(ut.instrument.summary(model, ut.ones(4, 8)))
    ===================================================
    Layer        Output shape  Parameters  FLOPs  Saved
    ===================================================
    Sequential   [4, 2]               178  1.28K  384 B
      0: Linear  [4, 16]              144  1.02K  128 B
      1: ReLU    [4, 16]               --     --  256 B
      2: Linear  [4, 2]                34    256     --
    ===================================================
    Parameters: 178 (712 B), trainable: 178
    FLOPs: 1.28K, saved for backward: 384 B
    ===================================================
    """
    if mode not in ("eval", "train", "same"):
        raise ValueError(f"mode must be 'eval', 'train' or 'same', got {mode!r}")
    if (input is None) == (input_size is None) and not kwargs:
        raise ValueError("summary(model, input) needs an input, or input_size=(batch, ...), and not both")
    arguments = given(input, input_size)
    seen = Seen(model)
    with in_mode(model, mode), enable_grad(), seen:
        model(*arguments, **kwargs)
    parameters = {id(p): p for p in model.parameters()}.values()
    top = seen.layers[""]
    size = sum(p.numel() * p.element_size() for p in parameters)
    totals = Totals(top.parameters, top.trainable, size, top.flops, top.saved)
    return ModelSummary(list(seen.layers.values()), totals, depth)


def given(input: Any, input_size: Sequence[Any] | None) -> tuple[Any, ...]:
    if input is not None:
        return tuple(input) if isinstance(input, tuple | list) else (input,)
    if input_size is None:
        return ()
    sizes = [input_size] if all(isinstance(n, int) for n in input_size) else input_size
    return tuple([randn(*size) for size in sizes])


@contextmanager
def in_mode(model: Any, mode: str) -> Iterator[None]:
    before = [(part, part.training) for part in model.modules()]
    if mode != "same":
        model.train(mode == "train")
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


class Seen(ModuleCalls, Switched):
    """Watches one call of a model."""

    def __init__(self, model: Any) -> None:
        super().__init__(None)
        self.layers = {path: Layer(path, part) for path, part in model.named_modules()}
        self.paths = {id(part): path for path, part in model.named_modules()}
        self.parameters = {id(storage_of(p._array)) for p in model.parameters() if not hasattr(p, "materialize")}
        self.counted: dict[int, Any] = {}  # held, so that no address comes twice

    def begin(self) -> None:
        self.start()
        enter(Looking(self))

    def cease(self) -> None:
        leave(Looking, lambda found: found.seen is self)
        self.stop()
        self.counted.clear()

    def returned(self, module: Module, args: tuple[Any, ...], output: Any) -> None:
        super().returned(module, args, output)
        path = self.paths.get(id(module))
        if path is not None:
            self.layers[path].output = output_shape(output)
            self.layers[path].calls += 1

    def operation_ran(self, name: str, args: tuple[Any, ...], result: Tensor) -> None:
        first = result[0] if isinstance(result, tuple) and result else result
        shapes = [tuple(a._array.shape) if isinstance(a, Tensor) else () for a in args]
        out = tuple(first._array.shape) if isinstance(first, Tensor) else ()
        flops = flops_of(name, shapes, out, args) or 0
        node = node_of(result)
        saved = 0 if node is None else self.newly_saved(node)
        paths = [self.paths.get(id(call.module)) for call in self.open.get()]
        for path in dict.fromkeys(paths):
            if path is not None:
                self.layers[path].flops += flops
                self.layers[path].saved += saved

    def newly_saved(self, node: Node) -> int:
        """Bytes that a node keeps, and that no node before it kept; parameters live anyway."""
        size = 0
        for saved in saved_values(node):
            array = saved.value._array if isinstance(saved.value, Tensor) else saved.value
            if hasattr(array, "nbytes") and hasattr(array, "base"):
                owner = storage_of(array)
                if id(owner) not in self.counted and id(owner) not in self.parameters:
                    self.counted[id(owner)] = owner
                    size += int(owner.nbytes)
        return size


class Looking(Observer):
    """The observer of a summary."""

    def __init__(self, seen: Seen, below: Any = None) -> None:
        super().__init__(below)
        self.seen = seen

    def over(self, below: Any) -> Looking:
        return Looking(self.seen, below)

    def ran(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor, begin: int) -> None:
        self.seen.operation_ran(name_of(what), args, result)


def output_shape(output: Any) -> Any:
    if isinstance(output, Tensor):
        return list(output.shape)
    if isinstance(output, tuple | list):
        return [output_shape(each) for each in output if isinstance(each, Tensor | tuple | list)]
    return None


def text_of(shape: Any) -> str:
    return "--" if shape is None else str(shape)

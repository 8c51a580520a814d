"""From a declaration to the code of its in-place form.

What is generated reads as the out-of-place function does (templates.py), but for three things: the result is written
into the tensor's memory, by the ufunc itself where the operation is one; the former value is copied if a rule needs it,
and a saved output is the memory itself; and the tensor moves to the new history. Everything out of the ordinary (other
dtypes, interceptors, hooks, errors) is left to the general way, `change`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.graph.history import rebase_history
from undertow.ops.declare import core_plan
from undertow.ops.declare.lazy import lazy_function
from undertow.ops.declare.templates import Build
from undertow.ops.pointwise.arithmetic import times_alpha
from undertow.tensor import counter_of, current_edge
from undertow.tensor.version_counter import NO_COUNTER

if TYPE_CHECKING:
    from undertow.ops.declare import Op

#: a ufunc's name, and its arguments behind the operation's inputs
Ufunc = tuple[str, tuple[Any, ...]]


def is_compilable(op: Op) -> bool:
    """Whether the operation is of the kind that the template below is for."""
    simple = op.kind in ("primitive", "nondifferentiable") and op.outputs is None and not op.optional
    return simple and op.inputs[0] == "input" and not (op.edges and op.edges[0] != "input")


def compile_in_place(shown: str, op: Op, change: Any, check_history: Any) -> Any:
    """The in-place form of an operation, called `shown`; `change` is the general way, for what is left to it."""
    ufunc = plain_ufunc(op)
    lent = {
        "NO_COUNTER": NO_COUNTER, "change": change, "check_history": check_history, "counter_of": counter_of,
        "own_edge": current_edge, "rebase_history": rebase_history, "times_alpha": times_alpha,
    }  # fmt: skip
    build = InPlaceBuild(shown, op, (), ufunc)
    forms = [build]
    scope = {**op.function.__globals__, **lent}
    if op.number:
        number = InPlaceBuild(shown, op, (op.number,), ufunc)
        forms.append(number)
        number_scope = {**op.function.__globals__[f"{op.name}_number"].__globals__, **lent}
        name, file = number.name, f"<undertow {shown} number>"
        scope[name] = lazy_function(name, file, number_scope, number.function_source)
    function = lazy_function(build.name, f"<undertow {shown}>", scope, build.function_source)
    return core_plan.in_place(op, function, lambda: core_plan.describe_in_place(shown, forms, lent))


# ---- operations that are one ufunc


class _Call:
    """What probing a forward with `_Probe` for `xp` gives: the function called and its arguments."""

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        self.name, self.args = name, args


class _Probe:
    def __getattr__(self, name: str) -> Any:
        return lambda *args: _Call(name, args)


def plain_ufunc(op: Op) -> Ufunc | None:
    """The ufunc that an operation's forward is, with its further arguments: ("maximum", (0,)) for relu.

    Found by calling the forward with placeholders: ("exp", ()) for `lambda xp, input: xp.exp(input)`; None if it does
    anything else with its inputs than to hand them to one ufunc in their order.
    """
    placeholders = [object() for _ in op.inputs]
    try:
        call = op.forward(_Probe(), *placeholders)
    except (AttributeError, TypeError):
        return None
    if not isinstance(call, _Call) or type(getattr(cpu, call.name, None)) is not type(cpu.add):
        return None
    further = call.args[len(placeholders) :]
    in_order = all([a is b for a, b in zip(call.args, placeholders, strict=False)])
    if not in_order or len(call.args) < len(placeholders) or any([type(a) not in (int, float) for a in further]):
        return None
    return call.name, further


# ---- the code


class InPlaceBuild(Build):
    """The compilation of one in-place form."""

    def __init__(self, shown: str, op: Op, numbers: tuple[str, ...], ufunc: Ufunc | None) -> None:
        super().__init__(op, numbers)
        self.ufunc = ufunc
        self.shown = shown
        self.name = f"in_place_{self.name}"
        self.leave = f"return change({self.call()})"

    def call(self) -> str:
        """The arguments, as the function was given them (`input` may be the twin that is saved, by then)."""
        keywords = self.op.keyword_only
        names = [f"{n}={n}" if n in keywords else n for n in self.ordered_arguments()]
        return ", ".join(["_self", *names[1:]])

    def write_function(self) -> None:
        op = self.op
        self.lines.append(f"def {self.name}({self.signature()}):")
        self.add("_state = current()")
        self.add("_self = input")
        if not self.numbers:
            self.write_aliases()
            self.add(f"if _state.unusual or _state.record is not None: {self.leave}")
        if op.number and not self.numbers:
            self.add(f"if type({op.number}) is float or type({op.number}) is int:")
            self.add(f"return in_place_{op.name}_number({', '.join([*op.inputs, *op.params])})", 2)
        self.write_arrays()
        self.write_result()
        self.add("_mine = input._extra")
        self.add("_view = None if _mine is None else _mine.view")
        self.add(f"if _mine is not None and _mine.counter is NO_COUNTER and not _state.inference: {self.leave}")
        self.write_unrecorded()
        if self.edges:
            self.write_recorded()
        else:
            self.add(self.leave)

    def write_arrays(self) -> None:
        self.add("try:")
        for i in self.inputs:
            self.add(f"{i}_array = {i}._array", 2)
        self.add(f"except AttributeError: {self.leave}")
        self.add("_xp = input._xp")
        others = self.inputs[1:]
        unequal = [f"{i}._xp is not _xp" for i in others]
        if self.op.promote:
            unequal += [f"{i}_array.dtype is not input_array.dtype" for i in others]
        if unequal:
            self.add(f"if {' or '.join(unequal)}: {self.leave}")
        if self.narrow:
            self.add(f"if {self.narrow_inputs()}: {self.leave}")

    def forward_call(self) -> str:
        keywords = self.op.keyword_only
        return ", ".join(
            (f"{n}=" if n in keywords else "") + (f"{n}_array" if n in self.inputs else n)
            for n in self.ordered_arguments()
        )

    def write_result(self) -> None:
        """Compute the result, if that is apart from writing it, and leave if it does not fit."""
        if self.is_direct():
            return
        self.add("try:")
        self.add(f"_out = forward(_xp, {self.forward_call()})", 2)
        self.add(f"except (OverflowError, TypeError, ValueError): {self.leave}")
        self.add("if type(_out) is not _xp.ndarray: _out = _xp.asarray(_out)")
        unfit = "_out.shape != input_array.shape or _out.dtype is not input_array.dtype"
        self.add(f"if {unfit} or not input_array.flags.writeable: {self.leave}")

    def is_direct(self) -> bool:
        """Whether the ufunc writes the result itself; `alpha` is the only parameter it is told of."""
        return self.ufunc is not None and self.op.params in ([], ["alpha"])

    def ufunc_arguments(self) -> str:
        found = [i if i in self.numbers else f"{i}_array" for i in self.op.inputs]
        if self.op.params:
            found[1] = f"{found[1]} if alpha == 1 else times_alpha(input_array, {found[1]}, alpha)"
        return ", ".join(found + [repr(a) for a in self.ufunc[1]])  # type: ignore[index]

    def write_write(self, depth: int) -> None:
        """Write into the memory and count a version."""
        if self.is_direct():
            self.add("try:", depth)
            self.add(f"_xp.{self.ufunc[0]}({self.ufunc_arguments()}, input_array)", depth + 1)  # type: ignore[index]
            self.add(f"except (OverflowError, TypeError, ValueError): {self.leave}", depth)
            self.add("except FloatingPointError:  # raised after the memory was changed", depth)
            self.add(f"counter_of(_self).bump({self.shown!r})", depth + 1)
            self.add("raise", depth + 1)
        else:
            self.add("_xp.copyto(input_array, _out)", depth)
        self.add("_counter = counter_of(_self) if _mine is None or _mine.counter is None else _mine.counter", depth)
        self.add(f"_counter.bump({self.shown!r})", depth)

    def write_unrecorded(self) -> None:
        others = [i for i in self.edges if i != "input"]
        if others:
            self.add("if _state.grad_enabled:")
        for i in others:
            self.add(f"{i}_edge = {i}._edge", 2)
            self.add(f"if {i}._extra is not None and {i}._extra.view is not None: {i}_edge = current_edge({i})", 2)
        no_edge = "".join(f" and {i}_edge is None" for i in others)
        self.add(f"if not _state.grad_enabled or (input._edge is None{no_edge} and "
                 "(_view is None or _view.base._edge is None)):")  # fmt: skip
        self.write_write(2)
        self.add("return input", 2)

    def write_recorded(self) -> None:
        self.add("input_edge = input._edge")
        self.add("if _view is not None or input_edge is LEAF:")
        self.add(f"check_history(input, {self.shown!r})", 2)
        self.add("input_edge = own_edge(input)", 2)
        if "input" in self.saved_inputs:
            unused = self.saving_condition("input")
            depth = 2 if unused else 1
            if unused:
                self.add(f"if not ({unused}):")
            self.add("input = Tensor(input_array.copy(), _xp, input_edge)", depth)
        for i in self.saved_inputs:
            if i != "input":  # `x.mul_(x)`: what x was is not x any more
                self.add(f"if {i} is _self:")
                self.add("if input is _self: input = Tensor(input_array.copy(), _xp, input_edge)", 2)
                self.add(f"{i} = input", 2)
        if self.is_direct():
            self.add("_out = input_array")
        elif self.saved_outputs:
            self.add("_result, _out = _out, input_array")
        self.write_node()
        if not self.is_direct() and self.saved_outputs:
            self.add("_out = _result")
        self.write_write(1)
        if self.saved_outputs:
            self.add("if _node.saved_out is not None: _node.watch_output(0, _counter)")
        self.add("if _view is None and (_mine is None or _mine.rare is None): _self._edge = _node")
        self.add("else: rebase_history(_self, _node)")
        self.add("return _self")

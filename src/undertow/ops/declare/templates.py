"""From a declaration to code: the source of an op's function and of its Node's `pull`.

What the generated functions do is plain enough to read: print(undertow.ops.mul.op.source()). They are registered with
linecache, so that a traceback shows their lines.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, namespace_of_array
from undertow.graph import user_lines
from undertow.graph.accumulate import leaf_edge
from undertow.graph.history import recorded_edge
from undertow.graph.node import OutputEdge, extra_on, next_sequence_nr
from undertow.graph.saved import CompiledNode, Freed, unpack_input, unpack_output
from undertow.modes import current
from undertow.ops.arguments.bfloat16 import (
    NARROW,
    is_first_use,
    is_narrow,
    rounded,
    wide,
    wide_dtype,
    wide_values,
    widened,
)
from undertow.ops.arguments.operands import (
    ForeignOperandError,
    as_operands,
    explain,
    float_array,
    promote,
    promote_number,
    same_device,
)
from undertow.ops.declare import core_plan
from undertow.ops.declare.inline import formula
from undertow.ops.declare.lazy import lazy_function
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.tensor import LEAF, Tensor, counter_of, extra_of, version_of
from undertow.tensor.views import attach_view

if TYPE_CHECKING:
    from undertow.ops.declare import Op

new = object.__new__

#: the default of arguments that are required, but may come under another name
REQUIRED = object()


def raise_missing(op: str, argument: str) -> None:
    raise TypeError(f"{op}() missing 1 required positional argument: {argument!r}")


def stem_of(name: str) -> str:
    """The input that a value of a rule is about: `input` for `input_shape`."""
    return name.removesuffix("_shape").removesuffix("_dtype").removesuffix("_by_columns")


def lies_by_columns(matrix: Any) -> bool:
    """Whether the elements of a column lie next to each other in memory, and those of a row do not."""
    return bool(matrix.ndim == 2 and matrix.strides[0] == matrix.itemsize != matrix.strides[1])


SCOPE = {
    "is_first_use": is_first_use, "is_narrow": is_narrow, "rounded": rounded, "wide": wide, "wide_dtype": wide_dtype,
    "wide_values": wide_values, "widened": widened,
    "FLOAT32": dtypes.float32, "FLOAT64": dtypes.float64,
    "INTERNAL": user_lines.INTERNAL, "user_frame": user_lines.user_frame,
    "REQUIRED": REQUIRED, "raise_missing": raise_missing,
    "cpu": cpu, "extra_on": extra_on, "namespace_of_array": namespace_of_array,
    "extra_of": extra_of, "ref": weakref.ref, "leaf_edge": leaf_edge,
    "lies_by_columns": lies_by_columns,
    "Freed": Freed, "LEAF": LEAF, "OutputEdge": OutputEdge, "Tensor": Tensor,
    "ForeignOperandError": ForeignOperandError, "as_operands": as_operands, "attach_view": attach_view,
    "current": current, "current_edge": recorded_edge, "explain": explain,
    "float_array": float_array, "new": new,
    "next_sequence_nr": next_sequence_nr, "promote": promote, "promote_number": promote_number,
    "recorded": recorded, "same_device": same_device, "unpack_input": unpack_input,
    "unpack_output": unpack_output,
    "counter_of": counter_of, "version_of": version_of,
}  # fmt: skip


def build(op: Op) -> None:
    """Compile the op's function and Node class(es) and put them on `op`."""
    Build(op, ()).compile()
    if op.number:
        Build(op, (op.number,)).compile()


def function_with_out(op: Op, write_out: Any) -> Any:
    """The op's function, with a keyword argument `out`; the one without serves operators, methods and rules.

    write_out(function, arguments, out)  writes a result
    """
    build = Build(op, (), takes_out=True)
    build.scope = op.function.__globals__
    build.scope["write_out"] = write_out
    function = lazy_function(build.name, f"<undertow {build.name}>", op.function.__globals__, build.function_source)
    function.__qualname__ = function.__name__ = op.name
    signature = op.signature()
    out = Parameter("out", Parameter.KEYWORD_ONLY, default=None)
    function.__signature__ = signature.replace(parameters=[*signature.parameters.values(), out])
    function.__doc__ = op.function.__doc__
    function.op = op
    return core_plan.with_out(op, function)


class Build:
    """The compilation of one op, with the inputs in `numbers` given as Python numbers, or with an argument `out`."""

    def __init__(self, op: Op, numbers: tuple[str, ...], takes_out: bool = False) -> None:
        self.op = op
        self.numbers = numbers
        self.inputs = [i for i in op.inputs if i not in numbers]
        self.edges = [i for i in op.edges if i not in numbers]
        self.all_edges = op.edges if op.number_edge else self.edges
        self.name = op.name + ("_number" if numbers else "_or_out" if takes_out else "")
        self.takes_out = takes_out
        self.scope: dict[str, Any] = {}  # the globals of the function
        self.node_scope: dict[str, Any] = {}  # the globals of `pull`
        self.lines: list[str] = []
        self.narrow = self.widens = False  # whether the code that is being written deals with bfloat16
        self.plan_saving()

    def plan_saving(self) -> None:
        """Sort the names that rules use into saved tensors (with the inputs whose rule needs each) and values."""
        op = self.op
        self.users: dict[str, list[str]] = {}
        for rule, names in op.rule_names().items():
            if rule in self.numbers:
                continue
            for name in names:
                users = self.users.setdefault(name, [])
                users.extend(self.edges if rule == "*" else [rule])
        outputs = ["out"] if not isinstance(op.outputs, tuple) else list(op.outputs)
        self.saved_inputs = [n for n in self.users if n in self.inputs]
        self.saved_outputs = [n for n in self.users if n in outputs]
        self.values = [n for n in self.users if n not in self.inputs and n not in outputs]
        for n in self.values:
            stem = stem_of(n)
            if n not in op.params and stem not in op.inputs and n not in self.numbers:
                raise TypeError(f"{op.name}: a rule uses {n!r}, which is neither input, output nor parameter")

    # ---- assembling

    def compile(self) -> None:
        op = self.op
        scope = self.scope = {**SCOPE, "forward": op.forward, "OP": op}
        user_lines.take_sites_in(scope)
        scope.update({f"default_{n}": d for n, d in op.defaults.items()})
        if self.edges:
            self.compile_node(scope)
        function = lazy_function(self.name, f"<undertow {self.name}>", scope, self.function_source)
        function.__qualname__ = function.__name__ = op.name
        if self.numbers:
            op.function.__globals__[f"{op.name}_number"] = function
        else:
            # by this name, because a parameter may have the operation's own (`threshold`)
            function.__signature__ = op.signature()
            function.__doc__ = self.documentation()
            op.function = scope["_function"] = core_plan.operation(op, function, Build)

    def documentation(self) -> str:
        """What `help` shows: that PyTorch's words hold here, and what the declaration says of derivatives."""
        text = "As PyTorch's function of this name."
        if not self.edges:
            return f"{text} Its result has no gradient."
        kept = " and ".join([*self.saved_inputs, *self.saved_outputs]) or "no tensor"
        recorded = f"Recorded as {self.op.node_name}, which keeps {kept} for the backward pass."
        return f"{text}\n\nDifferentiable in {' and '.join(self.edges)}. {recorded}"

    def function_source(self) -> str:
        self.lines = []
        self.narrow = bool(NARROW)
        self.widens = self.narrow and self.op.widens
        self.write_function()
        return "\n".join(self.lines) + "\n"

    def pull_source(self) -> str:
        self.lines = []
        self.narrow = bool(NARROW)
        self.write_pull()
        return "\n".join(self.lines) + "\n"

    def add(self, line: str, depth: int = 1) -> None:
        self.lines.append("    " * depth + line)

    # ---- the function

    def write_function(self) -> None:
        op = self.op
        self.lines.append(f"def {self.name}({self.signature()}):")
        arguments = ", ".join([*op.inputs, *op.params])
        self.add("_state = current()")
        if not self.numbers:
            self.write_aliases()
            self.add(f"if _state.intercept is not None{' or out is not None' * self.takes_out}:")
            if self.takes_out:
                by_name = ", ".join(f"{n!r}: {n}" for n in self.ordered_arguments())
                self.add(f"if out is not None: return write_out(_function, {{{by_name}}}, out)", 2)
            self.add(f"return _state.intercept(_function, ({', '.join(self.ordered_arguments())},))", 2)
        if op.number and not self.numbers:
            other = op.number
            self.add(f"if type({other}) is float or type({other}) is int:")
            self.add(f"return {op.name}_number({arguments})", 2)
        if "dtype" in op.params and not self.narrow:
            given = ", ".join(f"{n}={n}" for n in self.ordered_arguments())
            may_be = "dtype is not None and getattr(dtype, 'kind', 'V') == 'V'"
            self.add(f"if {may_be} and is_first_use(dtype): return _function({given})")
        self.write_operands()
        if self.widens:
            self.write_widening()
        self.write_forward()
        self.write_recording()

    def signature(self) -> str:
        op = self.op
        parts, starred = [], False
        for n in [*op.inputs, *op.params] if self.numbers else self.ordered_arguments():
            if n in op.keyword_only and not starred and not self.numbers:
                parts.append("*")
                starred = True
            parts.append(n + (f"=default_{n}" if n in op.defaults else "=REQUIRED" * (n in self.spelled_twice())))
        aliases = [a for d, a in (("dim", "axis"), ("keepdim", "keepdims")) if d in op.params]
        if self.takes_out:
            aliases.append("out")
        if aliases and not self.numbers:
            parts += ([] if starred else ["*"]) + [f"{a}=None" for a in aliases]
        return ", ".join(parts)

    def ordered_arguments(self) -> list[str]:
        import inspect

        return list(inspect.signature(self.op.forward).parameters)[1:]

    def spelled_twice(self) -> list[str]:
        """`dim`, where it has no default, and what follows: Python cannot require them, as `axis` may be given."""
        op, names = self.op, self.ordered_arguments()
        if "dim" not in op.params or "dim" in op.defaults or self.numbers:
            return []
        return [n for n in names[names.index("dim") :] if n not in op.defaults and n not in op.keyword_only]

    def write_aliases(self) -> None:
        for dim, axis in (("dim", "axis"), ("keepdim", "keepdims")):
            if dim in self.op.params:
                self.add(f"if {axis} is not None: {dim} = {axis}")
        for n in self.spelled_twice():
            self.add(f"if {n} is REQUIRED: raise_missing({self.op.name!r}, {n!r})")

    def write_operands(self) -> None:
        op, inputs = self.op, self.inputs
        self.add("try:")
        for i in inputs:
            none = f"None if {i} is None else " if i in op.optional else ""
            self.add(f"{i}_array = {none}{i}._array", 2)
        self.add("except AttributeError:")
        names = ", ".join(inputs)
        self.add("try:", 2)
        self.add(f"{names}, = as_operands({op.name!r}, {tuple(inputs)!r}, ({names},), {op.optional!r})", 3)
        by_name = ", ".join(f"{n!r}: {n}" for n in [*op.inputs, *op.params])
        self.add("except ForeignOperandError as _error:", 2)
        self.add(f"return _error.answer({op.name!r}, (), {{{by_name}}})", 3)
        for i in inputs:
            none = f"None if {i} is None else " if i in op.optional else ""
            self.add(f"{i}_array = {none}{i}._array", 2)
        self.add(f"_xp = {inputs[0]}._xp")
        required = [i for i in inputs if i not in op.optional]
        if len(required) > 1:
            self.add(f"if {' or '.join(f'{i}._xp is not _xp' for i in required[1:])}:")
            self.add(f"_xp = same_device({op.name!r}, ({', '.join(required)},))", 2)
        taking_part = [i for i in required if i in (self.edges or inputs)] if op.promote else []
        if op.promote and len(taking_part) > 1:
            arrays = [f"{i}_array" for i in taking_part]
            same = " or ".join(f"{a}.dtype is not {arrays[0]}.dtype" for a in arrays[1:])
            self.add(f"if {same}:")
            self.add(f"{', '.join(arrays)} = promote(({', '.join(taking_part)}), {op.promote!r})", 2)

    def write_widening(self) -> None:
        """bfloat16, once it is in use, is computed in float32: see arguments/bfloat16.py."""
        names = ", ".join(f"{i}_array" for i in self.inputs)
        given = ", ".join(f"{n!r}: {n}_array" if n in self.inputs else f"{n!r}: {n}" for n in self.ordered_arguments())
        leading = next(iter(self.edges or self.inputs))
        found = self.narrow_inputs()
        self.add("_rounds = False")
        if "dtype" in self.op.params:
            self.add("_dtype = wide_dtype(dtype)")
            found += " or _dtype is not dtype"
        self.add(f"if {found}:")
        self.add(f"_rounds, {names} = widened(OP, _xp, {{{given}}}, {tuple(self.inputs)!r}, {leading!r})", 2)

    def narrow_inputs(self) -> str:
        """The question whether one of the arrays is bfloat16."""
        given = {i: f"{i}_array is not None and " if i in self.op.optional else "" for i in self.inputs}
        return " or ".join(f"{present}{i}_array.dtype.kind == 'V'" for i, present in given.items())

    def write_widening_again(self, array: str) -> None:
        """An array that has become a float: the default dtype may be bfloat16."""
        if self.widens:
            self.add(f"_rounds, {array} = _rounds or is_narrow({array}), wide({array})", 2)

    def given(self) -> dict[str, str]:
        """What the forward is given for each of its arguments."""
        given = {n: f"{n}_array" if n in self.inputs else n for n in self.ordered_arguments()}
        if "dtype" in self.op.params and self.widens:
            given["dtype"] = "_dtype"
        return given

    def forward_expression(self) -> str:
        """The forward's formula on the arrays, or a call of it."""
        given = self.given()
        taken = {"_state", "_xp", *given, *given.values()}
        text = formula(self.op.forward, {"xp": "_xp", **given}, self.scope, taken)
        if text is not None:
            return text
        arguments = [f"{n}={v}" if n in self.op.keyword_only else v for n, v in given.items()]
        return f"forward(_xp, {', '.join(arguments)})"

    def write_forward(self) -> None:
        op = self.op
        forward = self.forward_expression()
        if op.batch is ELEMENTWISE:
            self.add("try:")
            self.add(f"_out = {forward}", 2)
            self.add("except (OverflowError, TypeError, ValueError) as _error:")
            arrays = [f"{i}_array" if not self.widens or i in op.optional else f"{i}._array" for i in self.inputs]
            self.add(f"explain(_error, {op.name!r}, ({''.join(a + ', ' for a in arrays)}))", 2)
            self.add("raise", 2)
        else:
            self.add(f"_out = {forward}")
        if op.promote and self.edges:
            first = self.edges[0] + "_array"
            if self.numbers:
                number = self.numbers[0]
                self.add(f"if _out.dtype is not {first}.dtype:")
                self.add(f"{first} = promote_number({first}, {number}, {op.promote!r})", 2)
                self.write_widening_again(first)
                self.add(f"_out = {forward}", 2)
            elif op.promote == "float":
                taking_part = [f"{i}_array" for i in self.edges if i not in op.optional]
                self.add(f"if _out.dtype is not {first}.dtype and {first}.dtype.kind not in 'fc':")
                for a in taking_part:
                    self.add(f"{a} = float_array({a})", 2)
                    self.write_widening_again(a)
                self.add(f"_out = {forward}", 2)
        if op.moves_to:
            self.add(f"_xp = {op.moves_to}")
        if op.outputs is None:
            self.add("if type(_out) is not _xp.ndarray: _out = _xp.asarray(_out)")
        else:
            self.add("_out = tuple([_a if type(_a) is _xp.ndarray else _xp.asarray(_a) for _a in _out])")
        if self.widens:
            exact = f", {tuple([op.outputs.index(n) for n in op.exact])}" if isinstance(op.outputs, tuple) else ""
            self.add(f"if _rounds: _out = rounded(_out{exact})")

    def write_recording(self) -> None:
        op = self.op
        if not self.edges:
            self.write_plain_result(1, "_state.extra")
            return
        self.add("if not _state.grad_enabled:")
        self.write_plain_result(2, "_state.extra")
        for i in self.edges:
            none = f"None if {i} is None else " if i in op.optional else ""
            self.add(f"{i}_edge = {none}{i}._edge")
            present = f"{i} is not None and " if i in op.optional else ""
            self.add(
                f"if {present}{i}._extra is not None and {i}._extra.view is not None: {i}_edge = current_edge({i})"
            )
        no_edge = " and ".join(f"{i}_edge is None" for i in self.edges)
        unrecorded = f"({no_edge}) or _out.dtype.kind not in 'fcV'" if op.check_output else no_edge
        self.add(f"if {unrecorded}:")
        self.write_plain_result(2, "None")
        self.write_node()
        self.write_recorded_result()

    def write_plain_result(self, depth: int, extra: str) -> None:
        op = self.op
        if op.outputs is not None:
            self.add("_results = tuple([Tensor(_a, _xp) for _a in _out])", depth)
            if extra != "None":
                self.add(f"for _result in _results: _result._extra = {extra}", depth)
            if op.kind == "view":
                self.write_view_attachment("_results", depth)
            self.add("return _results", depth)
            return
        self.write_tensor("None", depth, extra)
        if op.kind == "view":
            self.write_view_attachment("_result", depth)
        self.add("return _result", depth)

    def write_tensor(self, edge: str, depth: int = 1, extra: str = "None") -> None:
        # object.__new__ and four stores take half the time of calling Tensor(...)
        self.add("_result = new(Tensor)", depth)
        self.add("_result._array = _out", depth)
        self.add("_result._xp = _xp", depth)
        self.add(f"_result._edge = {edge}", depth)
        self.add(f"_result._extra = {extra}", depth)

    def write_view_attachment(self, result: str, depth: int = 1) -> None:
        op = self.op
        arguments = "".join(f"{n}, " for n in op.params)
        self.add(f"attach_view({result}, {op.inputs[0]}, _function, ({arguments}), _state)", depth)

    def write_node(self) -> None:
        op = self.op
        self.add("_node = new(Backward)")
        self.add("_node.sequence_nr = next_sequence_nr()")
        self.write_edges()
        for n in self.saved_inputs:
            # the version is 0 unless somebody changed the tensor, or shares its memory
            version = (
                f"0 if {n}._extra is None or ({n}._extra.counter is None and {n}._extra.view is None) "
                f"else version_of({n})"
            )
            unused = self.saving_condition(n)
            if n in op.optional:
                unused = f"{n} is None" + (f" or {unused}" if unused else "")
            if unused:
                self.add(f"if {unused}: _node.saved_{n} = None")
                self.add("else:")
            depth = 2 if unused else 1
            self.add(f"_node.saved_{n} = {n}", depth)
            self.add(f"_node.version_{n} = {version}", depth)
        for n in self.saved_outputs:
            value = "_out" if op.outputs is None else f"_out[{list(op.outputs or ()).index(n)}]"
            unused = self.saving_condition(n)
            self.add(f"_node.saved_{n} = " + (f"None if {unused} else {value}" if unused else value))
        values = "".join(self.value_of(n) + ", " for n in self.values)
        self.add(f"_node.params = ({values})")
        if op.outputs is None:
            self.add("_node.shape = _out.shape")
            self.add("_node.dtype = _out.dtype")
        else:
            self.add("_node._shapes = [_a.shape for _a in _out]")
            self.add("_node._dtypes = [_a.dtype for _a in _out]")
        self.add("_node.extra = None if _xp is cpu else extra_on(_xp)")
        self.write_site()
        self.add("if _state.record is not None: _state.record(_node, _state)")

    def write_edges(self) -> None:
        """See Note [Edges to leaves]."""
        edges = "".join((f"{i}_edge, " if i not in self.numbers else "None, ") for i in self.all_edges)
        self.add("if " + " or ".join([f"{i}_edge is LEAF" for i in self.edges]) + ":")
        for i in self.edges:
            self.add(f"if {i}_edge is LEAF:", 2)
            self.add(f"_extra = {i}._extra", 3)
            self.add(f"if _extra is None: _extra = extra_of({i})", 3)
            self.add(f"{i}_edge = None if _extra.accumulate is None else _extra.accumulate()", 3)
            self.add(f"if {i}_edge is None:", 3)
            self.add("_user = None if _extra.used_by is None else _extra.used_by()", 4)
            self.add("if _user is None or _user is _node:", 4)
            self.add(f"{i}_edge = {i}", 5)
            self.add("_extra.used_by = ref(_node)", 5)
            self.add(f"else: {i}_edge = leaf_edge({i})", 4)
        standing = " or ".join([f"{i}_edge is {i}" for i in self.edges])
        self.add(f"_node.recorded_edges = [{edges}] if {standing} else ({edges})", 2)
        self.add("if _xp is not cpu: _node.next_edges  # a node on a device keeps the stream that is current now", 2)
        self.add(f"else: _node.recorded_edges = ({edges})")

    def write_site(self) -> None:
        # The number form is called by the main form, and a private operation by a public one. Frames that are not
        # asked for are not made: looking two steps out costs no more than one.
        self.add(f"_frame = getframe({1 + bool(self.numbers) + self.op.name.startswith('_')})")
        # most often it is a function of ours, or two, that the program called: steps out, without a call
        self.add("if id(_frame.f_code) in INTERNAL:")
        self.add("_frame = _frame.f_back", 2)
        self.add("if id(_frame.f_code) in INTERNAL: _frame = _frame.f_back or _frame", 2)
        self.add("if id(_frame.f_code) in INTERNAL: _frame = user_frame(_frame)", 2)
        self.add("_node.code = _frame.f_code")
        self.add("_node.lasti = _frame.f_lasti")

    def saving_condition(self, name: str) -> str:
        """When the value need not be saved: none of the inputs whose rule uses it wants a gradient."""
        users = dict.fromkeys(self.users[name])
        if len(users) == len(self.edges):
            return ""
        return " and ".join(f"{u}_edge is None" for u in users)

    def value_of(self, name: str) -> str:
        op = self.op
        if name in op.params or name in self.numbers:
            return name
        i = stem_of(name)
        if name.endswith("_shape"):
            value = "()" if i in self.numbers else f"{i}_array.shape"
        elif name.endswith("_by_columns"):
            value = "False" if i in self.numbers else f"lies_by_columns({i}_array)"
        else:
            value = "None" if i in self.numbers else f"{i}._array.dtype"
        return f"(None if {i} is None else {value})" if i in op.optional else value

    def write_recorded_result(self) -> None:
        op = self.op
        if op.outputs is None:
            self.write_tensor("_node")
            if op.kind == "view":
                self.write_view_attachment("_result")
            self.add("return _result")
            return
        if isinstance(op.outputs, tuple) and op.nondifferentiable:
            edges = "".join("None, " if n in op.nondifferentiable else f"OutputEdge((_node, {k})), "
                            for k, n in enumerate(op.outputs))  # fmt: skip
            self.add(f"_results = tuple([Tensor(_a, _xp, _e) for _a, _e in zip(_out, ({edges}))])")
            for n in [n for n in self.saved_outputs if n in op.nondifferentiable]:
                nr = self.output_nr(n)  # no edge leads from indices to the node, so that it has to know their counter
                self.add(f"if _node.saved_{n} is not None: _node.watch_output({nr}, counter_of(_results[{nr}]))")
        else:
            self.add("_results = tuple([Tensor(_a, _xp, OutputEdge((_node, _k))) for _k, _a in enumerate(_out)])")
        if op.kind == "view":
            self.write_view_attachment("_results")
        self.add("return _results")

    # ---- the Node

    def compile_node(self, scope: dict[str, Any]) -> None:
        op = self.op
        rules = {"*": op.vjp.rule} if hasattr(op.vjp, "rule") else op.vjp
        node_scope = {**scope, **{f"rule_{'joint' if i == '*' else i}": rule for i, rule in rules.items()}}
        self.node_scope = node_scope
        pull = lazy_function("pull", f"<undertow {self.name} backward>", node_scope, self.pull_source)
        slots = [f"saved_{n}" for n in [*self.saved_inputs, *self.saved_outputs]]
        versions = [f"version_{n}" for n in self.saved_inputs]
        pull = core_plan.pull(self, pull, lambda: scope["Backward"])
        members = {
            "__slots__": (*slots, *versions, *(() if op.outputs is None else ("_dtypes", "_shapes"))),
            "__module__": "undertow",
            "pull": pull,
            "saved_slots": tuple(slots),
            "op_name": op.name,
            "multiple_outputs": op.outputs is not None,
            "keeps_outputs": bool(self.saved_outputs),
            "saved_names": self.saved_names(),
            "op": op,
        }
        name = op.number_node_name if self.numbers else op.node_name
        scope["Backward"] = type(name, (CompiledNode,), members)
        if not self.numbers:
            op.node_class = scope["Backward"]

    def saved_names(self) -> dict[str, tuple[str, Any]]:
        """PyTorch's `_saved_*` names -> (kind, place)."""
        found: dict[str, tuple[str, Any]] = {}
        for n in self.saved_inputs:
            found[public_name(n)] = "input", n
        for n in self.saved_outputs:
            found["result" if n == "out" else n] = "output", (n, self.output_nr(n))
        for k, n in enumerate(self.values):
            if n.endswith("_shape") and n not in self.op.params:
                found[public_name(n.removesuffix("_shape")) + "_sym_sizes"] = "value", k
            else:
                found[public_name(n)] = "value", k
        return found

    def write_pull(self) -> None:
        op = self.op
        self.lines.append("def pull(self, xp, g, edges, keep):")
        if op.outputs is not None and self.single_gradient() is not None:
            self.add(f"g = g[{self.single_gradient()}]")
            self.add("if g is None:")
            self.add("if not keep: self.release()", 2)
            self.add(f"return [{'None, ' * len(self.all_edges)}]", 2)
        if self.saved_inputs or self.saved_outputs:
            self.write_unpacking()
        if self.values:
            self.add(f"{''.join(n + ', ' for n in self.values)} = self.params")
        if self.narrow:
            arrays = "".join(f"{n}, " for n in ("g", *self.saved_inputs, *self.saved_outputs))
            self.add(f"if xp is not recorded: {arrays} = wide_values({arrays})")
        names = op.rule_names()
        if "*" in names:
            arguments = "".join(f", {n}" for n in names["*"])
            needs = "".join(f"edges[{k}] is not None, " for k in range(len(self.all_edges)))
            self.add(f"return list(rule_joint(xp, g, ({needs}){arguments}))")
            return
        if len(self.edges) > 1:
            self.add(f"{''.join(f'{i}_edge, ' for i in self.all_edges)} = edges")
        gradients = []
        for i in self.all_edges:
            if i in self.numbers:
                gradients.append("None")
                continue
            gradient = self.rule_expression(i, names[i])
            gradients.append(gradient if len(self.edges) == 1 else f"None if {i}_edge is None else {gradient}")
        self.add(f"return [{', '.join(gradients)}]")

    def rule_expression(self, i: str, names: Sequence[str]) -> str:
        """The formula of an input's rule, or a call of it."""
        rule = self.op.vjp[i]  # type: ignore[index]
        arrays = [*self.saved_inputs, *self.saved_outputs]
        taken = {"self", "edges", "keep", "_extra", *[f"{e}_edge" for e in self.all_edges], *arrays, *self.values}
        text = formula(rule, {n: n for n in ("xp", "g", *names)}, self.node_scope, taken, arrays)
        return f"rule_{i}(xp, g{''.join(', ' + n for n in names)})" if text is None else f"({text})"

    def single_gradient(self) -> int | None:
        """The number of the only differentiable output, if there is just one."""
        outputs = self.op.outputs
        if not isinstance(outputs, tuple):
            return None
        differentiable = [k for k, n in enumerate(outputs) if n not in self.op.nondifferentiable]
        return differentiable[0] if len(differentiable) == 1 else None

    def output_nr(self, name: str) -> int:
        return self.op.outputs.index(name) if isinstance(self.op.outputs, tuple) else 0

    def write_unpacking(self) -> None:
        for n in [*self.saved_inputs, *self.saved_outputs]:
            self.add(f"{n} = self.saved_{n}")
        for n in self.saved_inputs:
            # Freed and SavedTensor have an _extra with a counter, so this finds everything out of the ordinary
            self.add(f"if {n} is not None:")
            self.add(f"_extra = {n}._extra", 2)
            self.add("if _extra is not None and (_extra.counter is not None or _extra.view is not None):", 2)
            self.add(f"{n} = unpack_input(self, {n!r}, {n}, self.version_{n})", 3)
            self.add(f"if xp is not recorded: {n} = {n}._array", 2)
        for n in self.saved_outputs:
            nr = self.output_nr(n)
            self.add(f"if self.extra is not None or type({n}) is Freed: {n} = unpack_output(self, {nr}, {n!r}, {n})")
            if n in self.op.nondifferentiable:
                self.add(f"if xp is recorded and {n} is not None: {n} = Tensor({n}, namespace_of_array({n}))")
            else:
                self.add(f"if xp is recorded and {n} is not None: {n} = self.output_tensor({nr}, {n}, xp.arrays)")
        released = " = ".join(f"self.saved_{n}" for n in [*self.saved_inputs, *self.saved_outputs])
        self.add(f"if not keep: {released} = keep")


def public_name(name: str) -> str:
    return {"input": "self", "out": "result"}.get(name, name)

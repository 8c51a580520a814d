"""Form: what a call has to know of an operation, worked out once from its declaration.

An operation has one form, or two: with tensors, and with a Python number in the place of one input (`x * 2.0`).
Arguments go by their places in the forward's signature; `edges`, `required`, ... are tuples of such places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.backend.interface import Array
from undertow.backend.silence import quietly, run_in_kept_silence
from undertow.compiled import core
from undertow.ops.declare.plans import Fact, Value
from undertow.tensor import Tensor
from undertow.tensor.size import Size

if TYPE_CHECKING:
    from undertow.ops.declare.op import Op

#: which arguments are handed on as they are: tensors, tensors that may be missing, those that may be numbers, options
TENSORS = {Tensor}
OPTIONAL = {Tensor, type(None)}
TENSOR_OR_NUMBER = {Tensor, float, int}
PLAIN = {int, float, bool, complex, str, tuple, list, Size, type(None)}

#: what a node keeps of an argument: itself, or a fact about the array
ITSELF, SHAPE, DTYPE, FIXED, BY_COLUMNS = map(int, Fact)


def lies_by_columns(argument: Any, matrix: Array, fixed: Any) -> bool:
    """Whether the elements of a column lie next to each other in memory, and those of a row do not."""
    if argument is None:
        return bool(fixed)
    strides = matrix.strides
    return len(strides) == 2 and strides[0] == matrix.itemsize != strides[1]


#: how facts are read off the argument and the array that the forward was given; `fixed` where there is no argument
READ: dict[int, Callable[..., Any]] = {
    SHAPE: lambda argument, array, fixed: fixed if argument is None else array.shape,
    DTYPE: lambda argument, array, fixed: fixed if argument is None else argument._array.dtype,
    FIXED: lambda argument, array, fixed: fixed,
    BY_COLUMNS: lies_by_columns,
}

#: the facts, by the endings of the names that rules give them: (kind, what it is of a number)
FACTS = {"_shape": (SHAPE, ()), "_dtype": (DTYPE, None), "_by_columns": (BY_COLUMNS, False)}


class KeptInput(NamedTuple):
    """An input that rules need: the node keeps the tensor, and its version."""

    argument: int
    name: str
    slot: str
    version: str
    #: the edges, by their place in `Form.edges`, whose rules need it; () if all do
    users: tuple[int, ...]


class KeptOutput(NamedTuple):
    """An output that rules need: the node keeps its array."""

    output: int
    name: str
    slot: str
    users: tuple[int, ...]


class Form:
    """An operation as it is called: with tensors, or (`numbers`) with an input given as a Python number."""

    promoted: tuple[int, ...]

    def __init__(self, op: Op, numbers: tuple[str, ...] = ()) -> None:
        self.op, self.name, self.numbers = op, op.name, numbers
        self.forward = op.forward
        looks_at_arrays_alone = core is None and (hasattr(op.forward, "has_twin") or op.ufunc is not None)
        #: how the forward is called on arrays of the CPU
        self.in_silence = run_in_kept_silence if looks_at_arrays_alone else quietly
        self.elementwise = op.elementwise
        self.is_view = op.kind == "view"
        self.several = op.outputs is not None
        self.widens = op.widens
        self.check_output = op.check_output
        places = self.places = {name: k for k, name in enumerate(op.ordered)}
        self.input_names = [i for i in op.inputs if i not in numbers]
        self.edge_names = [i for i in op.edges if i not in numbers]
        self.all_edge_names = op.edges if op.number_edge else self.edge_names
        self.required = tuple([places[i] for i in self.input_names if i not in op.optional])
        self.optional = tuple([places[i] for i in self.input_names if i in op.optional])
        self.inputs = tuple([places[i] for i in self.input_names])
        self.in_order = tuple(sorted(self.inputs))
        self.edges = tuple([places[i] for i in self.edge_names])
        self.all_edges = tuple([-1 if i in numbers else places[i] for i in self.all_edge_names])
        self.params = tuple([places[n] for n in op.params])
        self.params_of = selector(self.params)
        self.moves_to = None if op.moves_to is None else places[op.moves_to]
        self.dtype = places["dtype"] if "dtype" in op.params else None
        self.number_place = places[op.number] if op.number else -1
        self.order = tuple((op.order or self.usual_order()).split())
        self.is_arranged = self.order != ("as_computed",)
        self.in_rows = self.order[0] == "rows"
        self.number: Form | None = None
        self.node_class: Any = None
        self.plan_calls()
        self.plan_promotion()
        self.first = (self.promoted or self.required)[0]
        #: the other tensors, and whether their dtype is that of the first, as a rule: that of an index is not
        self.others = [(k, k in self.edges or k in self.promoted) for k in self.required if k != self.first]
        #: whether its dtype is that of them all, where those are alike
        self.speaks_for_all = not self.optional and all([same for _, same in self.others]) and self.dtype is None
        self.plan_saving()
        self.plan_rules()

    def plan_calls(self) -> None:
        """usual: a number of arguments given by position -> the defaults behind them, and which kinds each may be of.

        The first is a tensor. Then there is nothing to bind.
        """
        op = self.op
        kinds = [PLAIN if n in op.params else OPTIONAL if n in op.optional else TENSORS for n in op.ordered]
        if op.number:
            kinds[self.number_place] = TENSOR_OR_NUMBER
        first_is_tensor = op.ordered[0] in op.inputs
        tails = op.bind.tails if first_is_tensor else {}
        self.usual = {n: (defaults, [*enumerate(kinds)][1:n]) for n, defaults in tails.items() if n}

    def usual_order(self) -> str:
        """In which order the elements of the result lie (backend/memory_order.py), if the declaration does not say."""
        if self.is_view:
            return "as_computed"
        return "operands" if self.elementwise else "rows"

    # ---- dtypes

    def plan_promotion(self) -> None:
        """promoted: the arguments brought to one dtype; settled: the one the result's dtype is compared with."""
        taking_part = self.edges or (*self.required, *self.optional)
        self.policy = self.op.promote
        self.taking_part = tuple([k for k in self.required if k in taking_part]) if self.policy else ()
        self.promoted = self.taking_part if len(self.taking_part) > 1 else ()
        checks = self.policy and self.edges and (self.numbers or self.policy == "float")
        self.settled = self.edges[0] if checks else None

    # ---- what the rules use

    def plan_saving(self) -> None:
        """Sort the names that rules use into saved tensors (with the inputs whose rule needs each) and values."""
        op = self.op
        self.rule_names = {i: names for i, names in op.rule_names().items() if i not in self.numbers}
        self.rules_using: dict[str, list[str]] = {}
        for rule, names in self.rule_names.items():
            for name in names:
                self.rules_using.setdefault(name, []).extend(self.edge_names if rule == "*" else [rule])
        outputs = list(op.outputs) if isinstance(op.outputs, tuple) else ["out"]
        inputs = [n for n in self.rules_using if n in self.input_names]
        self.value_names = [n for n in self.rules_using if n not in self.input_names and n not in outputs]
        self.kept_inputs = [
            KeptInput(self.places[n], n, f"saved_{n}", f"version_{n}", self.needed_by(n)) for n in inputs
        ]
        self.kept_outputs = [
            KeptOutput(self.output_nr(n), n, f"saved_{n}", self.needed_by(n)) for n in self.rules_using if n in outputs
        ]
        self.values = [self.value(n) for n in self.value_names]
        #: what recording has to know of the three: plain tuples, which are unpacked in half the time
        self.rows = (
            [(k.argument, k.slot, k.version, k.users) for k in self.kept_inputs],
            [(k.output, k.slot, k.users) for k in self.kept_outputs],
            [(READ.get(v.kind), v.argument, v.constant) for v in self.values],
        )
        self.constant = frozenset([self.output_nr(n) for n in op.nondifferentiable])

    def needed_by(self, name: str) -> tuple[int, ...]:
        """The edges, by their place in `edges`, whose rules use a value; () if all of them do."""
        users = dict.fromkeys(self.rules_using[name])
        return () if len(users) == len(self.edge_names) else tuple([self.edge_names.index(u) for u in users])

    def value(self, name: str) -> Value:
        if name in self.op.params or name in self.numbers:
            return Value(ITSELF, self.places[name], None)
        for ending, (kind, of_a_number) in FACTS.items():
            stem = name.removesuffix(ending)
            if stem != name and stem in self.op.inputs:
                is_number = stem in self.numbers
                return Value(FIXED, 0, of_a_number) if is_number else Value(kind, self.places[stem], None)
        raise TypeError(f"{self.name}: a rule uses {name!r}, which is neither input, output nor parameter")

    def plan_rules(self) -> None:
        """rules: for each edge its rule, and a function that takes its arguments from all that the node kept."""
        vjp = self.op.vjp
        kept = [*[k.name for k in self.kept_inputs], *[k.name for k in self.kept_outputs], *self.value_names]
        known = {name: k for k, name in enumerate(kept)}
        self.rule_places = {i: [known[n] for n in names] for i, names in self.rule_names.items()}
        self.joint = self.rules = None
        if "*" in self.rule_places:
            self.joint = vjp.rule, selector(self.rule_places["*"])  # type: ignore[union-attr]
        else:
            self.rules = [
                (None, None) if i in self.numbers else (vjp[i], selector(self.rule_places[i]))  # type: ignore[index]
                for i in self.all_edge_names
            ]
        self.only_gradient = self.single_gradient()

    def single_gradient(self) -> int | None:
        """The number of the only differentiable output, if there are several outputs."""
        outputs, constant = self.op.outputs, self.op.nondifferentiable
        found = [k for k, n in enumerate(outputs) if n not in constant] if isinstance(outputs, tuple) else []
        return found[0] if len(found) == 1 else None

    def output_nr(self, name: str) -> int:
        return self.op.outputs.index(name) if isinstance(self.op.outputs, tuple) else 0


def selector(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that takes the values at some places of a list, as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return (lambda kept: (kept[places[0]],)) if places else (lambda kept: ())

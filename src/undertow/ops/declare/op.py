"""Op: what is known of an operation, from its declaration; and REGISTRY, every operation by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Namespace
from undertow.graph.node import Node
from undertow.ops.declare import core_plan, formula
from undertow.ops.declare.binder import SPELLINGS, Binder
from undertow.ops.declare.form import FACTS, Form
from undertow.ops.declare.node import node_class
from undertow.ops.declare.rules import ELEMENTWISE
from undertow.scopes import computed_once

Vjp = Callable[..., Any] | None

#: every operation by name: primitives, views, non-differentiable ones and composites
REGISTRY: dict[str, Op] = {}


class Op:
    """What is known of an operation; its function carries it as `function.op`.

    kind      "primitive", "variadic", "view", "nondifferentiable" or "composite"
    inputs    names of the tensor arguments; `edges` those among them that can have a gradient
    params    names of the other arguments
    variants  name -> where programs find it (read_variants): its own name and the aliases
    form      what a call has to know, and `node_class`, what it is recorded as; both made when first needed
    """

    form: Form
    node_class: type[Node] | None
    function: Any = None

    # what a declaration may say besides name, forward and vjp: see `primitive`
    kind: str = "primitive"
    jvp: Any = None
    batch: Any = None
    node: str | None = None
    promote: str | None = None
    number: str | None = None
    numbers: str = "none"
    number_node: str | None = None
    number_edge: bool = True
    optional: tuple[str, ...] = ()
    outputs: tuple[str, ...] | str | None = None
    nondifferentiable: tuple[str, ...] = ()
    check_output: bool = False
    moves_to: str | None = None
    half_precision: str = "in_float32"
    exact: tuple[str, ...] = ()
    given_ufunc: str | None = None
    autocast: str | None = None
    random: str | None = None
    piecewise_constant: bool = False
    same_in_numpy: bool = False
    overlap: str | None = None
    order: str | None = None
    map_reduce: bool = False

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        vjp: Mapping[str, Vjp] | Joint,
        *,
        variants: str | None = None,
        out: bool | None = None,
        ufunc: str | None = None,
        **options: Any,
    ) -> None:
        self.name, self.forward, self.vjp, self.given_ufunc = name, forward, vjp, ufunc
        if not options.keys() <= Op.__annotations__.keys():
            raise TypeError(f"{name}: a declaration has no option {sorted(options.keys() - Op.__annotations__.keys())}")
        self.__dict__.update(options)
        self.elementwise = self.batch is ELEMENTWISE
        self.widens = self.half_precision == "in_float32" and self.kind != "view"
        self.variants = {name: read_variants(name, self.kind, variants, out)}
        if self.overlap is None and self.elementwise:
            self.overlap = "part"
        if self.kind == "composite":
            self.function, self.node_class = forward, None
        else:
            self.read_arguments()

    def read_arguments(self) -> None:
        """Sort the arguments of the forward into inputs, which have rules, and parameters."""
        vjp, taken = self.vjp, formula.parameters(self.forward)
        self.forward = formula.by_position(self.forward, taken)
        rules = vjp.inputs if isinstance(vjp, Joint) else vjp
        self.inputs = [n for n in taken.names if n in rules]
        self.edges = [i for i in rules if isinstance(vjp, Joint) or vjp[i] is not None]
        self.params = [n for n in taken.names if n not in rules]
        self.ordered, self.defaults, self.keyword_only = taken
        unknown = set(rules) - set(self.inputs)
        if unknown:
            raise TypeError(f"{self.name}: vjp names {sorted(unknown)}, which forward does not take")

    def check_rules(self) -> None:
        """Refuse rules that name what the node of the operation cannot keep."""
        if self.kind == "variadic":
            return  # its rule takes other names; see list_of_tensors.py
        facts = {i + ending for i in self.inputs for ending in FACTS}
        outputs = self.outputs if isinstance(self.outputs, tuple) else ("out",)
        for names in self.rule_names().values():
            for n in names:
                if n not in self.ordered and n not in outputs and n not in facts:
                    raise TypeError(f"{self.name}: a rule uses {n!r}, which is neither input, output nor parameter")

    def __getattr__(self, name: str) -> Any:
        """`form` and `node_class` are worked out when first needed: most programs use a tenth of the operations."""
        if name not in ("form", "node_class") or self.kind in ("composite", "variadic"):
            raise AttributeError(f"an operation has no attribute {name!r}")
        # no lock: a destructor that the collector runs meanwhile may start a pass, whose thread would wait for it
        form = self.__dict__.setdefault("form", form_of(self))
        return form if name == "form" else form.node_class

    def signature(self) -> inspect.Signature:
        """How the function is called."""
        by_name = [axis for axis, dim in SPELLINGS.items() if dim in self.params]
        return inspect.Signature(
            [self._parameter(n) for n in self.ordered]
            + [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in by_name]
        )

    def _parameter(self, name: str) -> inspect.Parameter:
        kind = inspect.Parameter.KEYWORD_ONLY if name in self.keyword_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(name, kind, default=self.defaults.get(name, inspect.Parameter.empty))

    @computed_once
    def node_name(self) -> str:
        return self.node or camel_case(self.name) + "Backward0"

    @computed_once
    def number_node_name(self) -> str:
        return self.number_node or self.node_name

    @computed_once
    def bind(self) -> Binder:
        return Binder(self.name, self.ordered, self.defaults, self.keyword_only, self.params, self.number)

    @computed_once
    def ufunc(self) -> str | None:
        """The ufunc that the operation is, which can write its result into given memory."""
        name = self.given_ufunc or formula.ufunc_of(self.forward)
        return name if name is not None and isinstance(getattr(cpu, name, None), type(cpu.add)) else None

    def documentation(self) -> str:
        """What `help` shows, when somebody asks."""
        from undertow.ops.reference.documentation import text_of

        return text_of(self)

    def derivatives(self) -> str:
        """What the declaration says of derivatives. Plain functions say only this: it is made at import."""
        if not self.edges:
            return "Its result has no gradient."
        used = list(dict.fromkeys([n for names in self.rule_names().values() for n in names]))
        outputs = self.outputs if isinstance(self.outputs, tuple) else ("out",)
        kept = [*[n for n in used if n in self.inputs], *[n for n in used if n in outputs]]
        return (
            f"Differentiable in {' and '.join(self.edges)}. Recorded as {self.node_name}, which keeps "
            f"{' and '.join(kept) or 'no tensor'} for the backward pass."
        )

    @computed_once
    def by_position(self) -> Callable[..., Any]:
        """The function, taking all its arguments in their order; programs give some of them by name only."""
        if not self.keyword_only:
            return self.function
        function, names = self.function, [n if n in self.keyword_only else None for n in self.ordered]

        def call(*args: Any) -> Any:
            named = {n: a for n, a in zip(names, args, strict=True) if n is not None}
            return function(*[a for n, a in zip(names, args, strict=True) if n is None], **named)

        return call

    def by_name(self, args: Sequence[Any]) -> dict[str, Any]:
        """All arguments of a call, as `bind` gives them and an interceptor gets them, by name."""
        return dict(zip(self.ordered, args, strict=True))

    def compute(self, xp: Namespace, values: Mapping[str, Any]) -> Any:
        """The forward, on arguments given by name; those with defaults may be left out."""
        return self.forward(xp, *[values[n] if n in values else self.defaults[n] for n in self.ordered])

    def rule_names(self) -> dict[str, list[str]]:
        """For each rule, the names it takes after `xp, g` (and `needs`, for a joint one, which is called "*")."""
        if isinstance(self.vjp, Joint):
            return {"*": formula.parameters(self.vjp.rule).names[2:]}
        return {i: formula.parameters(rule).names[1:] for i, rule in self.vjp.items() if rule is not None}

    def __repr__(self) -> str:
        return f"<op {self.name}>"


def form_of(op: Op) -> Form:
    """The form of an operation, with its Node class; and that for a number, if there is one."""
    op.check_rules()
    form = Form(op)
    if op.number:
        form.number = Form(op, (op.number,))
    for each in filter(None, (form, form.number)):
        if each.edges:
            each.node_class = node_class(each)
            core_plan.compile_pull(each)
    return form


class Joint:
    """One rule for several inputs that share work: `rule(xp, g, needs, ...)` returns a gradient (or None) for each.

    `needs` holds a bool for each input, in order.
    """

    def __init__(self, inputs: tuple[str, ...], rule: Callable[..., Any]) -> None:
        self.inputs = inputs
        self.rule = rule


#: where a program finds `sin`: undertow.sin, Tensor.sin, Tensor.sin_, undertow.sin_, undertow._foreach_sin
VARIANTS = frozenset(["function", "method", "in_place", "in_place_function", "foreach"])
#: an operation of such a name is found in that namespace alone, unless it says otherwise
NAMESPACES = ("fft_", "linalg_", "sparse_", "special_")


def read_variants(name: str, kind: str, variants: str | None, out: bool | None) -> frozenset[str]:
    """A declaration's `variants=` and `out=` as a set, "out" being one of them; or what is usual for such a name."""
    if variants is None:
        variants = "" if name.startswith(("_", *NAMESPACES)) else "function"
    words = set(variants.split())
    if not words <= VARIANTS:
        raise TypeError(f"{name}: variants are words among {sorted(VARIANTS)}, not {sorted(words - VARIANTS)}")
    if out is None:
        in_namespace = name.startswith(NAMESPACES) and not name.startswith("sparse_")
        out = kind in ("primitive", "nondifferentiable") or in_namespace
    return frozenset(words | {"out"} if out else words)


def names_with(variant: str) -> list[str]:
    """The names, of operations and their aliases, that have a variant."""
    return [name for name, op in REGISTRY.items() if variant in op.variants[name]]


def camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))

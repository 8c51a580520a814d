"""Declaring an operation: one entry gives the function, its Node class, what it saves, and all its rules.

    sin = primitive(
        "sin",
        forward=lambda xp, input: xp.sin(input),
        vjp={"input": lambda xp, g, input: g * xp.conj(xp.cos(input))},
        jvp=ELEMENTWISE,
        batch=ELEMENTWISE,
        promote="float",
    )

`forward` takes arrays. The keys of `vjp` are its tensor inputs (value None: an input without derivative, such as an
index); the rest of its arguments are parameters. A rule names what it uses after `xp, g`, and exactly that is saved:

    an input, `out`              a tensor, released after use, saved only if a rule that names it will run
    `<input>_shape`, `<input>_dtype`, a parameter    a plain value
    `<input>_by_columns`         whether a matrix lies in memory column by column, so that its gradient can, too

Rules return the gradient in any shape that broadcasting made: the engine sums it down, and casts it.

What a call does is in apply.py and record.py, and what a Node does in node.py; form.py is what they must know of an
operation, worked out once. formula.py reads the declaration's functions for everybody else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from undertow.backend import ArrayNamespace, cpu
from undertow.ops.declare.apply import build
from undertow.ops.declare.composite_order import in_declared_order
from undertow.ops.declare.list_of_tensors import build_variadic
from undertow.ops.declare.op import REGISTRY as REGISTRY
from undertow.ops.declare.op import Joint as Joint
from undertow.ops.declare.op import Op as Op
from undertow.ops.declare.op import Vjp, read_variants
from undertow.ops.declare.op import names_with as names_with
from undertow.ops.declare.recorded_namespace import recorded
from undertow.ops.declare.rules import Rule
from undertow.tensor.torch_function import asks


def primitive(
    name: str, forward: Callable[..., Any], vjp: Mapping[str, Vjp] | Joint, jvp: Any, batch: Any, **options: Any
) -> Any:
    """Declare a differentiable operation and return its function.

    node       the Node's class name, if not NameBackward0
    promote    None: operands keep their dtypes; "same": PyTorch's promotion of the differentiable inputs;
               "float": that, and integers become the default float dtype; "numbers": as "same", but bools are refused
    number     the input that may be a Python number on a path of its own (`x * 2.0`)
    numbers    which inputs a program may give as Python numbers: "any" of them, "one" (but not all), or "none" besides
               that `number`. Rules may give them anywhere
    number_node   the Node's class name on that path, where it differs
    number_edge   whether its node still has a (None) edge for the number, as PyTorch's has for most
    optional   inputs that may be None
    outputs    names of the outputs when forward returns a tuple, or "list" when their number varies;
               rules then get `g` as a list (None where nothing flowed) - or, when only one output is
               differentiable, just that output's gradient, and never None
    nondifferentiable   those outputs that have no gradient (indices)
    check_output        the output may be of integer dtype, and then has no gradient
    moves_to            the parameter that names the namespace of the output, if it is not that of the inputs
    half_precision      "in_float32": its numbers are widened before, and the result is rounded
                        (arguments/half_precision.py); "as_is": the forward knows of them. Views always do
    exact               outputs that stay float32 where others are rounded to half precision: what only rules use
    ufunc               the ufunc that forward is, if its formula does not say so: it writes in-place results itself

    order               in which order the elements of results lie in memory (docs/memory-order.md): "rows", one after
                        the other; "operands", as those of the inputs; "second", the same, but the second one counts
                        first; "first", as those of the first input; "channels", with the channels last if those of an
                        input are; "images" and "volumes", that for these alone; "convolution", that for signals, too;
                        "columns", as LAPACK's matrices; "as_computed", which the forward sees to. Unless said,
                        elementwise operations follow their operands, and others return rows; several outputs may have
                        a word each

    variants            where programs find it, in words: "function" of the package (taken for granted where the name
                        has no underscore in front and no namespace), "method" of Tensor, "in_place" (`Tensor.sin_`),
                        "in_place_function" (`undertow.sin_`), "foreach" (`undertow._foreach_sin`)
    out                 whether the function takes `out=`; unless said, all do but views and composites
    autocast            "lower": under autocast it is given the lower precision; "float32": float32
    random              it draws random numbers: "new" ones, of a shape that is given; "like" its input, of whose
                        values they do not depend; "given" the values of its inputs
    piecewise_constant  its derivative is zero wherever there is one
    overlap             what is refused of operands that lie in the memory that the result is written to, in place or
                        as `out`: "part" of it (as of every elementwise operation), or "any". Nothing, unless said
    map_reduce          its functions compute every element from those at its place, as elementwise ones do, and the
                        forward may add them all up in the end: large arrays of one shape are evaluated in blocks
    same_in_numpy       NumPy has a function of this name with the same leading arguments, so rules may use the
                        operation in its place (elementwise ones may always); other shared names need an `adapter`
    """
    return register(Op(name, forward, vjp, jvp=jvp, batch=batch, **options))


def variadic(
    name: str, forward: Callable[..., Any], vjp: Callable[..., Any], jvp: Rule, batch: Any, **options: Any
) -> Any:
    """Declare an operation on a list of tensors, `forward(xp, tensors, ...)`; its rule: list_of_tensors.py."""
    return register(Op(name, forward, {"tensors": vjp}, kind="variadic", jvp=jvp, batch=batch, **options))


def view(name: str, forward: Callable[..., Any], vjp: Mapping[str, Vjp], batch: Any, **options: Any) -> Any:
    """Declare an operation whose output shows the memory of its single tensor input. Views are linear."""
    return register(Op(name, forward, vjp, kind="view", jvp=Rule.LINEAR, batch=batch, **options))


def nondifferentiable(name: str, forward: Callable[..., Any], inputs: tuple[str, ...], **options: Any) -> Any:
    """Declare an operation that has no derivative because its values are not continuous (or not numbers)."""
    return register(Op(name, forward, dict.fromkeys(inputs), kind="nondifferentiable", **options))


def composite(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Register a function made of other operations: their rules are its rules.

    `@composite`, or `@composite(variants="function method", out=True)` with the options that are not about rules.
    `order` is needed only where the result of the last operation does not lie in memory as it should.
    """
    if function is None:
        return functools.partial(composite, **options)
    if "order" in options:
        function = in_declared_order(function, options.pop("order"))
    public = asks(function)
    op = public.op = function.op = Op(public.__name__, public, {}, kind="composite", **options)  # type: ignore[attr-defined]
    REGISTRY[op.name] = op
    return public


def register(op: Op) -> Any:
    """Make the function of an operation, and the name by which rules reach it.

    From here on `xp.name` is `forward` where a rule is given arrays, and the function itself where it is given tensors
    (`recorded_namespace`). Where NumPy has a function of that name, `xp.name` is NumPy's on arrays.
    """
    if op.name in REGISTRY:
        raise TypeError(f"the operation {op.name!r} is declared twice")
    (build_variadic if op.kind == "variadic" else build)(op)
    REGISTRY[op.name] = op
    if not hasattr(cpu, op.name):
        ArrayNamespace.define(op.name, op.forward)
        setattr(recorded, op.name, op.function)
    elif op.elementwise or op.same_in_numpy:
        setattr(recorded, op.name, op.function)
    op.function.op = op
    return op.function


def alias(name: str, function: Any, variants: str | None = None, out: bool | None = None) -> None:
    """Give an operation a second name; rules may use it too where NumPy has the same one."""
    op = REGISTRY[name] = function.op
    op.variants[name] = read_variants(name, op.kind, variants, out)
    if hasattr(cpu, name):
        setattr(recorded, name, function)


def adapter(name: str) -> Callable[[Any], Any]:
    """Decorate a function on tensors that rules reach as `xp.name`, with the arguments NumPy's function takes."""

    def join(function: Callable[..., Any]) -> Any:
        setattr(recorded, name, function)
        return function

    return join

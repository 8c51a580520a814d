"""What the compiled core is told of an operation: plans, each a tuple with named fields.

This file is read twice: core_plan.py fills the plans, and the build (csrc/plan_header.py) makes csrc/plan.h of it, from
which C knows the place of each field, the numbers of the kinds and the limits. A hash of this file is the core's
version: a core that was built from another one is not used. It imports nothing of undertow, because the build loads it
by itself.

Trees of formulas are the nested tuples that csrc/formula/expression.c describes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

Tree = tuple[Any, ...]

# ---- limits: what has more of something is left to Python

MOST_ARGUMENTS = 12
MOST_EDGES = 8
MOST_SAVED_OUTPUTS = 4
MOST_ORDERS = 4
#: what a rule can be given: the gradient, `needs`, and what the node kept
MOST_VALUES = 16


# ---- kinds


class Input(IntEnum):
    """What an argument may be."""

    PARAMETER = 0
    TENSOR = 1
    TENSOR_OR_NONE = 2


class Fact(IntEnum):
    """What a node keeps of an argument in `params`."""

    ITSELF = 0
    SHAPE = 1
    DTYPE = 2
    FIXED = 3  # a value that is always the same
    BY_COLUMNS = 4  # whether a matrix lies in memory column by column


class Promotion(IntEnum):
    """What becomes of operands of different dtypes."""

    NONE = 0
    SAME = 1  # they are cast to a common dtype
    FLOAT = 2  # and that is a floating-point one
    NUMBERS = 3  # as SAME, and none may be bool


class Order(IntEnum):
    """In which order the elements of a result lie in memory: the orders of backend/memory_order.py."""

    AS_COMPUTED = 0
    ROWS = 1
    OPERANDS = 2
    FIRST = 3
    CHANNELS = 4
    COLUMNS = 5
    SECOND = 6
    IMAGES = 7
    VOLUMES = 8
    CONVOLUTION = 9


# ---- an operation


class OperationPlan(NamedTuple):
    """The arguments of an operation, and its one or two forms."""

    names: tuple[str, ...]
    defaults: tuple[tuple[Any, ...], ...]  # () or (default,)
    inputs: tuple[int, ...]  # Input
    positional: int  # how many may be given by position
    number: int  # the argument that may be a Python number; -1: none
    is_view: int
    takes_narrow: int  # whether the forward takes arrays of half precision as they are
    elementwise: int
    widens: int  # whether numbers of half precision are computed with in float32, and the result is rounded
    in_front: int  # whether under vmap it is computed as always, with the dimension of the examples in front
    form: FormPlan
    number_form: FormPlan | None


class FormPlan(NamedTuple):
    """How a result is computed and recorded; arguments, edges and outputs go by their numbers, sets of them by bits."""

    forward: Tree
    node: type | None  # None: not differentiable
    taking_part: int  # the arguments whose dtypes must be equal
    policy: int  # Promotion: what becomes of them if they are not
    settled: int  # the argument that the dtype of the result is compared with; -1: it is not
    any_float: int  # whether a result of another dtype is right if that argument's is a float's
    check_output: int  # whether only a result of floating-point numbers is recorded
    edges: tuple[int, ...]  # their arguments; -1: always None
    saved: tuple[SavedInput, ...]
    values: tuple[Value, ...]
    outputs: tuple[SavedOutput, ...]
    several: int  # whether there are several results, in a tuple
    constant: int  # the outputs that have no gradient
    exact: int  # those that are not rounded to half precision
    order: tuple[int, ...]  # Order, of each of the results; the last one's is that of all further ones, too


class SavedInput(NamedTuple):
    argument: int
    slot: str
    version: str
    users: int  # the edges whose rules need it


class SavedOutput(NamedTuple):
    output: int
    slot: str
    users: int


class Value(NamedTuple):
    """A plain value that rules need, kept in `Node.params`."""

    kind: int  # Fact
    argument: int
    constant: Any


# ---- its in-place form


class InPlacePlan(NamedTuple):
    operation: OperationPlan
    shown: str  # the name that errors tell
    check_history: Any
    times_alpha: Any
    ufunc: Any  # what writes the result into the memory itself; None: the form's result is copied
    alpha: int  # the argument by which the ufunc's second operand is multiplied; -1: none


# ---- a node


class PullPlan(NamedTuple):
    node: type
    kept: tuple[Kept, ...]
    value_count: int
    rules: Rules  # on arrays
    recorded_rules: Rules  # on tensors, in a recorded pass
    several: int  # whether the node has several outputs, and their gradients come in a list
    only: int  # the one of them that has a gradient, which the rules get; -1: they get the list


class Kept(NamedTuple):
    name: str
    slot: str
    version: str | None  # None: an output
    output: int  # its number; -1: an input


class Rules(NamedTuple):
    """A rule for each edge, or one for all of them; they take the gradient, what is kept, the values, and `needs`."""

    edges: tuple[Tree | None, ...]
    joint: Tree | None

"""Node: what one recorded operation does in the backward pass.

Note [Undefined gradients are None]: a gradient that is zero because nothing flowed is None all the way through the
engine. Rules are never called with None; a node with several outputs gets a list in which some may be None.

Note [When saved values die]: unless the pass keeps the graph, a node's saved tensors are dropped when it runs: by a
PrimitiveNode once its rules have what they need, by a FunctionNode after the user's backward. Then `saved` is a Freed
(see saved.py), and asking for them raises GraphFreedError. A node that saved no tensor, because it has no place for
one or None in all of them, can be run again and again. `saved` is an attribute of most nodes, a property over the slots
of a DeclaredNode, and the user's own on a FunctionNode, which keeps its tensors as `_kept`; so `_kept` is what the
library asks for.

Note [Saved outputs]: keeping an output *tensor* would close a cycle (tensor -> node -> tensor), so a node keeps the
output's array and makes a tensor of it again when one is asked for. The output, such tensors and views must share one
version counter, yet most outputs never need any: whoever makes the counter first leaves it with the node
(`counter_of_output`), and everybody else finds it there.

Note [Edges to leaves]: a leaf's AccumulateGrad node is needed once somebody runs or walks the graph, and many graphs
are dropped before. So an operation leaves its edges as a list in which the leaf itself stands for its node; reading
`next_edges` of an OperationNode puts the nodes into the list, and compute_dependencies does so for all nodes that are
to run. That is dearer than finding a node that exists, so it is done once in a graph only: while the node that used a
leaf so is alive (the leaf's `used_by`), the next operation makes the AccumulateGrad node. Whoever makes it puts it into
that list as well, so that it lives as long as any graph with the leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow.backend import cpu, namespace_of_array
from undertow.backend.interface import Array, DType, Namespace
from undertow.backend.public_dtypes import public
from undertow.errors import GraphFreedError
from undertow.graph.edges import Edge
from undertow.graph.edges import OutputEdge as OutputEdge
from undertow.graph.user_lines import Site
from undertow.tensor import Tensor, VersionCounter, extra_of

if TYPE_CHECKING:
    from undertow.graph.saved import Freed

#: process-wide, so that a node's number is always above those of the nodes it leads to
sequence = count()
next_sequence_nr = sequence.__next__

#: AccumulateGrad's number: above every other, so that it runs as soon as it is ready
LAST = 2**64 - 1


class InputMetadata(NamedTuple):
    """Shape, dtype and device of the gradient that a node expects for one of its outputs."""

    shape: Any
    dtype: Any
    device: Any
    is_nested_tensor: bool = False


class NodeExtra:
    """What only some nodes have: hooks, user metadata, version counters and tangents of saved outputs."""

    hooks: Any = None
    metadata: dict[str, Any] | None = None
    saved: dict[str, Any] | None = None  # values shown as `_saved_<name>`, beyond what the class saves
    counters: dict[int, tuple[VersionCounter, int]] | None = None
    wrapper: Any = None  # weak reference to the CopySlices that applies the node to a slice
    tangents: dict[int, Any] | None = None
    #: the stream the operation ran on, if its (first) output is not on the CPU; the gradient is computed there too
    stream: Any = None
    #: the namespace of each output, if they are not all on one device
    spaces: list[Any] | None = None


class StreamExtra(NodeExtra):
    """The extra of all nodes of a stream that have nothing else, for streams whose passes may run in C.

    It is never changed: `node_extra` gives a node that is to have more an extra of its own. So a pass over nodes with
    the same one has no hooks to run, and nothing to wait for (engine/one_stream.py).
    """


class _DeviceOfNode:
    """`node.device`. No property, because a custom Function may well set `ctx.device`."""

    def __get__(self, node: Node, owner: Callable[..., Any] | None = None) -> Any:
        return self if node is None else space_of(node, 0).device


class Node:
    """A recorded operation. Its subclasses are made from the declarations of operations, or by `Function`.

    next_edges   one per differentiable input: None, or the edge to where that input came from (Note [Edges]); kept in
                 recorded_edges
    sequence_nr  when it was recorded; the engine runs later nodes first
    saved        the tensors its rules need (Note [When saved values die])
    params       the other values its rules need; kept
    shape,dtype  what the gradient it receives must look like, if it has one output; if it has several, `_shapes` and
                 `_dtypes` are lists (a custom Function has several, and may well set `ctx.shape`)
    extra        None, or the NodeExtra
    code,lasti   where in the program it was recorded (see graph/user_lines.py); code is None if that was not taken
    """

    __slots__ = ("__weakref__", "code", "dtype", "extra", "lasti", "params", "recorded_edges", "saved",
                 "sequence_nr", "shape")  # fmt: skip

    recorded_edges: tuple[Any, ...] | list[Any]
    sequence_nr: int
    saved: Any
    params: tuple[Any, ...]
    shape: Any
    dtype: Any
    _shapes: list[Any]
    _dtypes: list[Any]
    extra: NodeExtra | None
    code: CodeType | None
    lasti: int

    #: whether several tensors came out of the operation (gradients then arrive as a list)
    multiple_outputs = False
    #: whether it may keep arrays of its outputs, whose version counters it then has to know (Note [Saved outputs])
    keeps_outputs = True
    #: whether it is an AccumulateGrad, and `variable` the leaf (a custom Function may well set `ctx.variable`)
    is_of_leaf = False
    #: whether `pull` wants to be called although every gradient is None
    wants_undefined = False
    #: whether it is shown with its namespace, as what stands for no operation is, and a copy
    is_internal = False
    #: the operation's public name
    op_name = ""
    #: saved attribute -> how to find it; see graph/operation_node.py
    saved_names: dict[str, tuple[str, Any]] = {}  # noqa: RUF012  (filled per class, at declaration)

    def __init__(
        self,
        next_edges: Sequence[Edge | None] = (),
        *,
        shape: Any = None,
        dtype: DType | None = None,
        spaces: Sequence[Any] = (),
        saved: tuple[Any, ...] = (),
        params: tuple[Any, ...] = (),
        sequence_nr: int | None = None,
        site: Site | None = None,
    ) -> None:
        """A node that is made by hand; those of operations are filled slot by slot, which is faster.

        spaces       the namespaces of the outputs' devices; they may be left out if all are on the CPU
        sequence_nr  None: the next one
        site         the line of the user's program that it stands for; None if that was not taken
        """
        self.recorded_edges = tuple(next_edges)
        self.sequence_nr = next_sequence_nr() if sequence_nr is None else sequence_nr
        self.saved = saved
        self.params = params
        self.shape = shape
        self.dtype = dtype
        self.extra = None
        if site is None:
            self.code, self.lasti = None, 0
        else:
            self.code, self.lasti = site.code, site.lasti
        if spaces:
            place_node(self, spaces)

    def pull(self, xp: Namespace, grad: Array, edges: tuple[Edge | None, ...], keep: Any) -> list[Any]:
        """Gradients for `edges` (a new list, None where an edge is None) from the gradient of the output(s).

        xp     the namespace to compute with: a backend's (grad is an array) or the recorded ops' (it is a Tensor)
        edges  `next_edges`, with None in the place of inputs whose gradient nobody wants
        keep   True, or (falsy) the Freed that takes the place of the saved values, which are dropped
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how its gradient is computed")

    @property
    def next_edges(self) -> tuple[Any, ...]:
        return tuple(self.recorded_edges)

    @next_edges.setter
    def next_edges(self, edges: tuple[Edge | None, ...]) -> None:
        self.recorded_edges = edges

    @property
    def _kept(self) -> Any:
        """`saved`, under a name that a custom Function leaves alone."""
        return self.saved

    def release(self, freed: Freed) -> None:
        """Drop saved tensors; `freed` takes their place. See Note [When saved values die]."""
        if self.saved:
            self.saved = freed

    # ---- what a user sees

    def name(self) -> str:
        own = type(self).__name__
        return f"undertow::autograd::{own}" if self.is_internal else own

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        return tuple([(None, 0) if edge is None else (edge[0], edge[1]) for edge in self.next_edges])

    @property
    def metadata(self) -> dict[str, Any]:
        extra = node_extra(self)
        if extra.metadata is None:
            extra.metadata = {}
        return extra.metadata

    @property
    def _output_count(self) -> int:
        return len(self._shapes) if self.multiple_outputs else 1

    @property
    def _input_metadata(self) -> list[InputMetadata]:
        several = self.multiple_outputs
        shapes, dtypes = (self._shapes, self._dtypes) if several else ([self.shape], [self.dtype])
        return [
            InputMetadata(shape, None if dtype is None else public(dtype), space_of(self, nr).device)
            for nr, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        ]

    device = _DeviceOfNode()

    @property
    def requires_grad(self) -> bool:
        return True

    def _sequence_nr(self) -> int:
        return self.sequence_nr

    def _set_sequence_nr(self, number: int) -> None:
        self.sequence_nr = number
        sequence_order.trusted = False

    def __getitem__(self, index: int) -> Any:
        return self if index == 0 else 0  # See Note [Edges]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        raw = [f"_raw_saved_{name}" for name, (kind, _) in self.saved_names.items() if kind != "value"]
        return [*super().__dir__(), *[f"_saved_{name}" for name in self.saved_names], *raw]

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"

    # ---- saved outputs

    def counter_of_output(self, nr: int) -> VersionCounter:
        """The version counter of the nr-th output, made if nobody has yet. See Note [Saved outputs]."""
        extra = node_extra(self)
        if extra.counters is None:
            extra.counters = {}  # no call: see Note [Made once]
        counter: VersionCounter = extra.counters.setdefault(nr, (VersionCounter(), 0))[0]
        return counter

    def watch_output(self, nr: int, counter: VersionCounter) -> None:
        """Note the version at which an output that already has a counter was saved. See Note [Saved outputs]."""
        extra = node_extra(self)
        if extra.counters is None:
            extra.counters = {}
        extra.counters[nr] = counter, counter.value

    def output_edge(self, nr: int) -> Edge:
        """The edge of the nr-th output. An in-place operation on a view is reached through its CopySlices."""
        wrapper = None if self.extra is None or self.extra.wrapper is None else self.extra.wrapper()
        if wrapper is not None:
            return wrapper.edge_of_slice()  # type: ignore[no-any-return]
        return OutputEdge((self, nr)) if self.multiple_outputs else self

    def output_tensor(self, nr: int, array: Array, xp: Namespace) -> Tensor:
        """The nr-th output as a tensor, rebuilt from its saved array."""
        xp = xp if type(array) is cpu.ndarray else namespace_of_array(array)
        rebuilt = Tensor(array, xp, self.output_edge(nr))
        extra_of(rebuilt).counter = self.counter_of_output(nr)
        if self.extra is not None and self.extra.tangents is not None and nr in self.extra.tangents:
            extra_of(rebuilt).tangents = self.extra.tangents[nr]
        return rebuilt


class _SequenceOrder:
    """Whether sequence numbers still say which node can lead to which; `_set_sequence_nr` ends that."""

    trusted = True


sequence_order = _SequenceOrder()


def extra_on(xp: Namespace) -> NodeExtra:
    """The NodeExtra of an operation that has just run on a device other than the CPU."""
    stream = xp.current_stream()
    shared: NodeExtra | None = getattr(stream, "extra_of_nodes", None)
    if shared is not None:
        return shared
    shares = getattr(stream, "shares_extra", False)
    extra = StreamExtra() if shares else NodeExtra()
    extra.stream = stream
    if shares:
        stream.extra_of_nodes = extra
    return extra


def place_node(node: Node, spaces: Sequence[Any]) -> None:
    """Note on which device(s) the outputs of a node lie, if any is not the CPU's."""
    away = [xp for xp in spaces if xp is not cpu]
    if away:
        extra = node_extra(node)
        extra.stream = away[0].current_stream()
        extra.spaces = None if all(xp is away[0] for xp in spaces) else list(spaces)


def stream_of(node: Node) -> Any:
    """The stream that the node's operation ran on; None on the CPU."""
    return None if node.extra is None else node.extra.stream


def space_of(node: Node, nr: int) -> Any:
    """The namespace of the device of the nr-th output, and so of its gradient."""
    extra = node.extra
    if extra is None or extra.stream is None:
        return cpu
    return extra.stream.namespace if extra.spaces is None else extra.spaces[nr]


def node_extra(node: Node) -> NodeExtra:
    extra = node.extra
    if extra is None or type(extra) is StreamExtra:
        made = NodeExtra()
        made.stream = None if extra is None else extra.stream
        if node.extra is extra:  # See Note [Made once]
            node.extra = made
        extra = node.extra
    assert extra is not None
    return extra


def site_of(node: Node) -> str | None:
    """The line that recorded the node, as file:line in function."""
    code = getattr(node, "code", None)
    return str(Site(code, node.lasti)) if isinstance(code, CodeType) else None  # a Function may have set ctx.code


def freed_error(node: Node, freed: Freed) -> GraphFreedError:
    """The error for a node that is run again although a pass has freed it. See Note [When saved values die]."""
    site = getattr(freed, "site", None)
    return GraphFreedError(node.name(), site_of(node), None if site is None else str(site))


def topological_nr(node: Node) -> int:
    """The longest path from the node down to a leaf, in edges: no node leads to one with a greater number."""
    return topological_numbers(node)[node]


def topological_numbers(root: Node) -> dict[Node, int]:
    """The topological number of a node and of every node below it."""
    numbers: dict[Node, int] = {}
    stack = [root]
    while stack:
        top = stack[-1]
        missing = [e[0] for e in top.next_edges if e is not None and e[0] not in numbers]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        numbers[top] = 1 + max((numbers[e[0]] for e in top.next_edges if e is not None), default=-1)
    return numbers

"""Extra: what only some tensors need beside their array, and View, what a tensor knows of the memory it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.tensor.version_counter import NO_COUNTER, VersionCounter

if TYPE_CHECKING:
    from undertow.tensor.tensor import Tensor
    from undertow.tensor.views import Replay

# Note [Made once]
# Counters, Extras and their like are made when first needed, perhaps by several threads at once: all must go on with
# the same one, or a change counted in the other is lost. So the new object is made first, and stored after a second
# look finds the place still empty. CPython switches threads only at calls and at jumps back, of which there are none
# between that look and the store, so no lock is needed.

#: how a view came to be (`View.creation`); all but the first restrict in-place changes
DEFAULT = "default"
NO_GRAD = "in no_grad mode"
INFERENCE = "in inference mode"
MULTIPLE_OUTPUTS = "by a function that returns multiple views"
CUSTOM_FUNCTION = "inside a custom Function"


class View:
    """That a tensor shows part of another's memory, and how to look at it again.

    base      the tensor whose memory it is; never itself a view
    replay    base tensor -> the same view of it, recorded like any op
    creation  how the view came to be, which decides what an in-place change to it may do
    version   the version of the memory that the tensor's edge belongs to (Note [Stale views])

    A view made before the base itself was given another shape in place (Extra.reshaped_at) replays by as_strided.
    """

    __slots__ = ("base", "creation", "replay", "version")

    def __init__(self, base: Tensor, replay: Replay, creation: str, version: int) -> None:
        self.base = base
        self.replay = replay
        self.creation = creation
        self.version = version


#: what only says that .data was set
QUIET = frozenset({"moved", "resized_at"})


class Rare:
    """The facts that few tensors have. Defaults live on the class, so that making one costs nothing."""

    hooks: Any = None  # a leaf's tensor hooks; those of other tensors belong to their node
    post_accumulate_hooks: Any = None
    last_hooks: tuple[Any, ...] = ()  # called after those
    retains_grad = False
    is_number = False  # wraps a Python number: lowest class in type promotion
    grad_dtype: Any = ...  # ... : the tensor's own dtype; None: any
    detached_at = -1  # the sequence number at which detach_() cut its history
    tangents: Any = None  # forward mode: a Tangents, dual level -> tangent (None: cut off from its base's)
    former: tuple[Any, ...] = ()  # what a leaf was before its shape or memory changed: Former of graph/accumulate.py
    reshaped_at = -1  # the version at which an in-place view operation last gave a base another shape
    moved = False  # whether .data gave a base, or one of its views, other memory: views may not show the base any more
    resized_at = -1  # the sequence number at which .data last gave it another shape

    @property
    def is_quiet(self) -> bool:
        """Whether a leaf gets its gradient as if it had none of this: all that happened is that .data was set."""
        return self.__dict__.keys() <= QUIET

    @property
    def only_calls_back(self) -> bool:
        """The same, but that some functions are called when it has its gradient."""
        return self.__dict__.keys() <= {"moved", "resized_at", "post_accumulate_hooks", "last_hooks"}


class Tangents(dict[Any, Any]):
    """The tangents of a tensor, by dual level. A level that ends takes its own out of every one there is."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def _rare(name: str) -> Any:
    """A property of Extra that is kept in its Rare."""

    def read(self: Extra) -> Any:
        return getattr(Rare if self.rare is None else self.rare, name)

    def write(self: Extra, value: object) -> None:
        if self.rare is None:
            made = Rare()
            if self.rare is None:  # See Note [Made once]
                self.rare = made
        setattr(self.rare, name, value)

    return property(read, write)


class Extra:
    """What a tensor needs only once it is a leaf in a graph, changed in place, viewed, or hooked.

    counter     the version counter of its memory, once anybody needs one
    view        the View, if the tensor is one
    accumulate  weak reference to a leaf's AccumulateGrad node
    used_by     weak reference to the node that lets the leaf stand for its AccumulateGrad node (graph/node.py)
    grad        the accumulated gradient
    rare        None, or the Rare that holds the properties below
    """

    # slots, because every recorded op on a leaf or view reads the first three
    __slots__ = ("accumulate", "counter", "grad", "rare", "used_by", "view")

    def __init__(self, view: View | None = None) -> None:
        self.counter: VersionCounter | None = None
        self.view = view
        self.accumulate: Any = None
        self.used_by: Any = None
        self.grad: Tensor | None = None
        self.rare: Rare | None = None

    hooks = _rare("hooks")
    post_accumulate_hooks = _rare("post_accumulate_hooks")
    last_hooks = _rare("last_hooks")
    retains_grad = _rare("retains_grad")
    is_number = _rare("is_number")
    grad_dtype = _rare("grad_dtype")
    detached_at = _rare("detached_at")
    tangents = _rare("tangents")
    former = _rare("former")
    reshaped_at = _rare("reshaped_at")
    moved = _rare("moved")
    resized_at = _rare("resized_at")

    @property
    def inference(self) -> bool:
        return self.counter is NO_COUNTER


#: the Extra of inference tensors that have nothing else to remember: one for all, replaced before it is written to
INFERENCE_EXTRA = Extra()
INFERENCE_EXTRA.counter = NO_COUNTER

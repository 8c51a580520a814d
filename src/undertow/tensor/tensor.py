"""The value that flows: an array, the namespace that computes on it, and the edge its gradient leaves by.

A Tensor is plain data. Operators and methods are attached in `methods.py`, and what a gradient does is the business
of `graph` and `engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from undertow.backend import dtypes
from undertow.backend.interface import Array, Namespace
from undertow.backend.public_dtypes import PUBLIC
from undertow.compiled import core
from undertow.tensor.extra import INFERENCE_EXTRA, Extra, View
from undertow.tensor.lent_operations import lent
from undertow.tensor.size import Size
from undertow.tensor.torch_function import by_default, enable, never, own_function
from undertow.tensor.version_counter import NO_COUNTER, VersionCounter

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.graph.edges import Edge

#: the edge of a leaf that requires grad; its AccumulateGrad node is found (or made) when a graph needs it
LEAF: Any = (None, 0)

#: the subclasses of Tensor that programs have defined (see subclasses.py), for as long as each of them lives
SUBCLASSES: set[ref[type[Tensor]]] = set()


def init_after_new(inherited: Callable[..., None]) -> Callable[..., None]:
    """The `__init__` of a class that has a `__new__`: the arguments were for that, and mean nothing to this."""

    def __init__(self: Tensor, *args: Any, **options: Any) -> None:
        if not hasattr(self, "_array"):
            inherited(self, *args, **options)

    return __init__


def new_of_subclass(cls: type[Tensor], *data: Any, **options: Any) -> Tensor:
    """`Tensor.__new__`, from the first subclass on that has one of its own, which may hand data on to it.

    For all others the arguments are those of `__init__`.
    """
    made = object.__new__(cls)
    if cls.__new__ is not new_of_subclass:
        made._take(lent().from_sizes_or_data(*(data or ((),))))
    return made


class Tensor:
    """An n-dimensional array whose operations can be differentiated.

    Make one with `undertow.tensor(data, requires_grad=True)`, `zeros`, `randn`, `from_numpy`, ...

    array      an array, or a number
    xp         the namespace of its library; None: NumPy
    edge       its place in a graph; None: it has no history
    *sizes     further sizes, of the legacy call `Tensor(2, 3)`
    **options  what the `__new__` of a subclass takes by name

    >>> import undertow as ut
    >>> x = ut.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    # _array  the data; always an array of the backend, never a NumPy scalar
    # _xp     the ArrayNamespace of its device
    # _edge   None: no gradient wanted; LEAF: a leaf that wants one; else the recorded node (see graph's OutputEdge)
    # _extra  None, or the Extra with everything else
    # __dict__  what a program attaches (`x.tag = 1`); it is made when that happens
    __slots__ = ("__dict__", "__weakref__", "_array", "_edge", "_extra", "_xp")

    _array: Array
    _xp: Namespace
    _edge: Any
    _extra: Extra | None

    # NumPy must ask us, not loop over the elements, in `ndarray + tensor`
    __array_priority__ = 1000

    #: whether operations on a subclass that a program defines give tensors of it
    results_keep_class = True

    #: whether it stands for a batch of examples, of which it has the shape of one
    stands_for_many = False

    __torch_function__ = classmethod(by_default)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if vars(cls).get("__torch_function__") is never:
            cls.results_keep_class = False
        elif own_function(cls) is not None:
            enable()
        if "__new__" in vars(cls):
            Tensor.__new__ = new_of_subclass  # type: ignore[method-assign, assignment]
        if "__new__" in vars(cls) and "__init__" not in vars(cls):
            cls.__init__ = init_after_new(cls.__init__)  # type: ignore[method-assign]
        if cls.results_keep_class and not cls.__module__.startswith("undertow."):
            SUBCLASSES.add(ref(cls, SUBCLASSES.discard))

    def __init__(self, array: Array = (), xp: Any = None, edge: Edge | None = None, *sizes: int) -> None:
        if type(self) is not Tensor and not hasattr(xp, "ndarray"):
            if hasattr(self, "_array"):
                return  # `__new__` of a subclass has made it, by _make_subclass
            if type(self).__new__ is not Tensor.__new__:
                array, xp, edge = (), None, None  # the arguments are for `__new__`, which has made one of no elements
        if xp is None or type(xp) is int:  # as PyTorch's: of sizes, or of data
            self._take(lent().from_sizes_or_data(array, xp, edge, *sizes))  # of a tensor, its alias with its history
            return
        self._array = array
        self._xp = xp
        self._edge = edge
        self._extra = None

    def _take(self, made: Tensor) -> None:
        self._array, self._xp, self._edge, self._extra = made._array, made._xp, made._edge, made._extra

    if TYPE_CHECKING:  # what methods.py attaches, in short; src/undertow-stubs lists it for users

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

        __abs__: Callable[..., Any]
        __add__: Callable[..., Any]
        __and__: Callable[..., Any]
        __bool__: Callable[..., Any]
        __complex__: Callable[..., Any]
        __contains__: Callable[..., Any]
        __float__: Callable[..., Any]
        __floordiv__: Callable[..., Any]
        __ge__: Callable[..., Any]
        __getitem__: Callable[..., Any]
        __gt__: Callable[..., Any]
        __index__: Callable[..., Any]
        __int__: Callable[..., Any]
        __invert__: Callable[..., Any]
        __iter__: Callable[..., Any]
        __le__: Callable[..., Any]
        __len__: Callable[..., Any]
        __lt__: Callable[..., Any]
        __matmul__: Callable[..., Any]
        __mod__: Callable[..., Any]
        __mul__: Callable[..., Any]
        __neg__: Callable[..., Any]
        __or__: Callable[..., Any]
        __pos__: Callable[..., Any]
        __pow__: Callable[..., Any]
        __radd__: Callable[..., Any]
        __rmatmul__: Callable[..., Any]
        __rmod__: Callable[..., Any]
        __rmul__: Callable[..., Any]
        __rpow__: Callable[..., Any]
        __rsub__: Callable[..., Any]
        __rtruediv__: Callable[..., Any]
        __setitem__: Callable[..., Any]
        __sub__: Callable[..., Any]
        __truediv__: Callable[..., Any]
        __xor__: Callable[..., Any]

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions; `size()` is the same."""
        return tuple.__new__(Size, self._array.shape)  # the sizes of an array need no check

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self._array.ndim)

    @property
    def dtype(self) -> Any:
        """What kind of numbers the elements are."""
        found = self._array.dtype
        return PUBLIC.get(found) or dtypes.public(found)

    @property
    def device(self) -> Device:
        """Where the memory is."""
        return self._xp.device

    @property
    def is_leaf(self) -> bool:
        """Whether nothing was recorded for it: gradients end here, in `.grad`, if it requires them."""
        edge = current_edge(self)
        return edge is None or edge is LEAF

    @property
    def output_nr(self) -> int:
        """Which of the outputs of `grad_fn` it is."""
        edge = self._edge  # as it was recorded, also where a view may not be used any more
        return 0 if edge is None else int(edge[1])

    @property
    def _version(self) -> int:
        if self._extra is not None and self._extra.inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return version_of(self)


def current_edge(tensor: Tensor) -> Any:
    """The tensor's edge, brought up to date if its memory was changed through a relative.

    Note [Stale views]: an in-place operation gives the base of the changed memory a new history. Views of that memory
    are not searched for; each remembers the version its edge belongs to, and when that has passed, its edge is made
    anew by replaying the view on the base. So whoever wants the edge of a tensor that may be a view asks here.
    """
    extra = tensor._extra
    if extra is None or extra.view is None:
        return tensor._edge
    base = extra.view.base
    base_extra = base._extra
    if base_extra is None or base_extra.counter is None or base_extra.counter.value == extra.view.version:
        return tensor._edge
    if base._edge is None and (tensor._edge is None or tensor._edge is LEAF or base_extra.detached_at < 0):
        return tensor._edge  # nobody recorded the change; the view stays stale until somebody records one
    return refresh(tensor, extra.view, base_extra.counter.value)


def refresh(tensor: Tensor, view: View, version: int) -> Any:
    """Set by graph/history.py: make the edge of a stale view anew."""
    raise NotImplementedError("the graph is not loaded")


def install_refresh(function: Callable[[Tensor, View, int], Any]) -> None:
    global refresh
    refresh = function  # type: ignore[assignment]


def requires_grad(tensor: Tensor) -> bool:
    """Whether a gradient is asked of the tensor, or of the tensor it is a view of (of which it may be cut off)."""
    if tensor._edge is not None:
        return True
    view = None if tensor._extra is None else tensor._extra.view
    return view is not None and view.base._edge is not None and dtypes.is_differentiable(tensor._array.dtype)


def extra_of(tensor: Tensor) -> Extra:
    """The tensor's Extra, made if it has none."""
    extra = tensor._extra
    if extra is None or extra is INFERENCE_EXTRA:
        made = Extra()
        made.counter = None if extra is None else NO_COUNTER
        if tensor._extra is extra:  # See Note [Made once]
            tensor._extra = made
        extra = tensor._extra
    return extra  # type: ignore[return-value]


def version_of(tensor: Tensor) -> int:
    extra = tensor._extra
    if extra is None:
        return 0
    if extra.view is not None:
        extra = extra.view.base._extra
        if extra is None:
            return 0
    counter = extra.counter
    return 0 if counter is None else counter.value


def counter_of(tensor: Tensor) -> VersionCounter:
    """The version counter of the tensor's memory, made if there is none; a view's is its base's.

    See Note [Saved outputs].
    """
    extra = extra_of(tensor)
    if extra.view is not None:
        return counter_of(extra.view.base)
    if extra.counter is None:
        edge = tensor._edge
        if edge is None or edge is LEAF or not edge[0].keeps_outputs:
            made = VersionCounter()
        else:
            made = edge[0].counter_of_output(edge[1])
        if extra.counter is None:  # See Note [Made once]
            extra.counter = made
    return extra.counter


def note_all(tensors: Sequence[Tensor], operation: str, code: Any, lasti: int) -> None:
    """Count a change of each tensor, made by `operation` at a line that is known already."""
    for tensor in tensors:
        counter_of(tensor).note(operation, code, lasti)


if core is not None:
    note_all = core.note_all


def share_memory(source: Tensor, alias: Tensor) -> None:
    """Let `alias`, whose array shares memory with source's, share its version counter."""
    extra_of(alias).counter = counter_of(source)


def without_history(tensor: Tensor) -> Tensor:
    """A plain alias of the tensor, sharing its version counter."""
    alias = Tensor(tensor._array, tensor._xp)
    share_memory(tensor, alias)
    return alias

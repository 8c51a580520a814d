"""FunctionNode: the node of a custom Function, which is the `ctx` that its forward and backward are given."""

from __future__ import annotations

import warnings
from typing import Any

from undertow.autograd.function.intermediates import Kept, guard_attributes, guard_saved, is_guarding
from undertow.backend import namespace_of_array
from undertow.backend.interface import Namespace
from undertow.engine.tasks import current_task
from undertow.engine.validate import conform, expected
from undertow.graph.node import Node, OutputEdge, freed_error, next_sequence_nr, space_of
from undertow.graph.saved import Freed, SavedTensor
from undertow.tensor import Tensor


class FunctionNode(Node):
    """The node of a custom Function, and its `ctx`, which may be given any other attributes.

    saved_tensors     in backward: what `save_for_backward` kept, as a tuple
    needs_input_grad  for each argument of forward, whether a gradient is wanted: a tuple of bool

    >>> import undertow as ut
    >>> class Double(ut.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.factor = 2
    ...         return ctx.factor * x
    ...
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return ctx.factor * g
    >>> x = ut.ones(1, requires_grad=True)
    >>> Double.apply(x).backward()
    >>> x.grad
    tensor([2.])
    """

    # Its attributes are the user's, but those with an underscore and `Node`'s own: see check_names in outputs.py.
    __slots__ = ("__dict__", "_dtypes", "_intermediates", "_kept", "_shapes", "_to_save", "_variable_positions",
                 "_wanted", "needs_input_grad")  # fmt: skip

    multiple_outputs = True
    wants_undefined = True

    _forward_cls: Any = None

    _kept: Any
    _intermediates: Kept | None
    needs_input_grad: tuple[bool, ...]
    _to_save: tuple[Any, ...]
    _variable_positions: list[bool]
    _wanted: tuple[Any, ...] | None  # in a pass: `next_edges`, None where nobody wants the gradient

    # what few calls set, and OWN in intermediates.py names
    materialize_grads = True
    _materialize_non_diff_grads = True
    _is_pure_view = False
    _saved_for_forward: tuple[Any, ...] = ()
    _dirty: tuple[Any, ...] = ()
    _non_differentiable: tuple[Any, ...] = ()
    _non_differentiable_outputs: frozenset[int] = frozenset()

    def __init__(self) -> None:
        # not Node's: a Function may call attributes of its own `shape`, `dtype`, `saved` or `params`
        self.recorded_edges = ()
        self.sequence_nr = next_sequence_nr()
        self._kept = self._to_save = self.needs_input_grad = ()
        self._shapes, self._dtypes, self._variable_positions = [], [], []
        self._intermediates = self.extra = self._wanted = None

    # ---- what forward calls

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for backward: inputs, outputs, or None. Call once, in forward or setup_context."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument is of type {type(tensor).__name__}; "
                    "keep other values as attributes of ctx"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor) -> None:
        """Keep tensors for `jvp`."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError("save_for_forward expects all arguments to be Tensors or None; you can save other "
                                "values as attributes of ctx")  # fmt: skip
        self._saved_for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs forward changed in place; each must be returned.

        *args  the inputs
        """
        self._dirty = args

    def mark_non_differentiable(self, *args: Any) -> None:
        """Say which outputs have no gradient.

        *args  the outputs
        """
        self._non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward sees zeros (the default) or None where no gradient flowed.

        value  True or False
        """
        self.materialize_grads = value

    # ---- what backward reads

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept, as a tuple."""
        if type(self._kept) is Freed:
            raise freed_error(self, self._kept)
        if self.__dict__.get("_in_jvp"):
            saved = self._saved_for_forward
            return guard_saved(self, saved, for_jvp=True) if is_guarding(self) else saved
        if not self._kept and self._to_save:  # read during forward or setup_context; or in a rule that vmap made
            return guard_saved(self, self._to_save) if is_guarding(self) else self._to_save
        once = getattr(self._forward_cls, "clear_saved_tensors_on_access", False)
        if once and self.__dict__.get("_accessed"):
            raise RuntimeError(
                f"{self.name()}: saved_tensors can only be accessed once when clear_saved_tensors_on_access is set; "
                "keep the tuple of the first access"
            )
        found = tuple([s.unpack(self) for s in self._kept])
        if once and _releasing():
            self.__dict__["_accessed"] = True
            self._kept = tuple([SavedTensor(None)] * len(self._kept))
        return guard_saved(self, found) if is_guarding(self) else found

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        if type(self._kept) is Freed:
            raise freed_error(self, self._kept)
        return tuple(self._kept)

    def wants_gradient(self, nr: int) -> bool:
        """Whether anybody wants the gradient of the nr-th tensor among the arguments, in the pass that runs."""
        return self._wanted is None or self._wanted[nr] is not None

    def release(self, freed: Freed) -> None:
        if self._kept:
            for saved in self._kept:
                saved.release()
            self._kept = freed

    # ---- running backward

    def pull(self, xp: Namespace, grad: Any, edges: tuple[Any, ...], keep: Any) -> list[Any]:
        raw = xp.ndarray is not Tensor
        grads = [Tensor(g, namespace_of_array(g)) if raw and g is not None else g for g in grad]
        if self.materialize_grads and any([g is None for g in grad]):
            self._materialize(grads)
        task = current_task()
        outer = None if task is None else task.node
        if task is not None:
            task.node = self
        self._wanted = edges
        try:
            results = self._check_results(self._call_backward(grads))
        finally:
            self._wanted = None
            if task is not None:
                task.node = outer
        if not keep and self._kept:
            self.release(keep)
        return self._fitting([r if r is None or not raw else r._array for r in results], edges, xp)

    def _fitting(self, results: list[Any], edges: tuple[Any, ...], xp: Namespace) -> list[Any]:
        """The results in the shapes and dtypes of the inputs: checked all before any is used."""
        for index, (result, edge) in enumerate(zip(results, edges, strict=True)):
            if result is not None and edge is not None:
                below, nr = edge if type(edge) is OutputEdge else (edge, 0)
                shape, dtype = expected(below, nr)
                if result.shape != shape or result.dtype is not dtype:
                    results[index] = conform(self, index, result, shape, dtype, xp)
        return results

    def apply(self, *grads: Any) -> Any:
        """Call the user's backward by hand: `grad_fn.apply(*gradients)`.

        *grads  a gradient for each output, or None
        """
        return self._call_backward(list(grads))

    def _materialize(self, grads: list[Any]) -> None:
        for nr, g in enumerate(grads):
            skip = nr in self._non_differentiable_outputs and not self._materialize_non_diff_grads
            if g is None and not skip and self._dtypes[nr] is not None:
                arrays = space_of(self, nr)
                grads[nr] = Tensor(arrays.zeros(self._shapes[nr], self._dtypes[nr]), arrays)

    def _call_backward(self, grads: list[Any]) -> Any:
        rule = self._forward_cls._backward_rule()
        if is_guarding(self):
            guard_attributes(self, history=not hasattr(rule, "_differentiable_once"))
        if getattr(self._forward_cls, "boxed_grads_call", False):
            return rule(self, grads)
        arguments = tuple(grads)
        grads.clear()
        return rule(self, *arguments)

    def _check_results(self, results: Any) -> list[Any]:
        """One gradient per tensor input; None for the other inputs; extra values only if None."""
        results = list(results) if isinstance(results, tuple | list) else [results]
        count = len(self._variable_positions)
        if len(results) > count and all(r is None for r in results[count:]):
            results = results[:count]
        if len(results) != count:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {count}, got "
                f"{len(results)}): backward returns one value per argument of forward, None for those without gradient"
            )
        kept = []
        for position, (is_variable, result) in enumerate(zip(self._variable_positions, results, strict=True)):
            if is_variable:
                if result is not None and not isinstance(result, Tensor):
                    raise RuntimeError(
                        f"expected Variable or None (got {type(result).__name__}) at position {position} of what "
                        f"{self.name()} returned"
                    )
                kept.append(result)
            elif result is not None:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different than None at position {position + 1}, but "
                    "the corresponding forward input was not a Variable"
                )
        return kept


def _releasing() -> bool:
    task = current_task()
    return task is not None and not task.keep_graph

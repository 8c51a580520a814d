"""Exceptions that carry their facts.

Each is a subclass of the type PyTorch raises in the same place, so `except RuntimeError` keeps working.
Messages go fact, cause, cure; the facts are fields as well, for programs that want to act on them.
"""

from __future__ import annotations

import warnings
from typing import Any


class UndertowError(Exception):
    """Base of the errors that carry facts; each is also of the type that PyTorch raises in the same place.

    >>> import undertow as ut
    >>> try:
    ...     ut.ones(2, 3).t().view(6)
    ... except ut.errors.UndertowError as error:
    ...     print(type(error).__name__, isinstance(error, RuntimeError))
    IncompatibleViewError True
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args, vars(self))


def _unpickled(kind: type[UndertowError], args: tuple[Any, ...], fields: dict[str, Any]) -> UndertowError:
    """An error as it was: its message is not made a second time, for which some facts would be missing."""
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


class OutOfMemoryError(UndertowError, RuntimeError):
    """A device has not enough memory left, even without what was kept for later.

    >>> import undertow as ut
    >>> try:
    ...     raise ut.OutOfMemoryError("cuda:0: 3 GiB are wanted")
    ... except ut.OutOfMemoryError:  # try again with a smaller batch
    ...     print("smaller")
    smaller
    """


class AutogradError(UndertowError, RuntimeError):
    """A backward pass was asked for something it cannot do.

    >>> import undertow as ut
    >>> try:
    ...     ut.ones(2).sum().backward()
    ... except ut.errors.AutogradError as error:
    ...     print(str(error).partition(":")[0])
    element 0 of tensors does not require grad and does not have a grad_fn
    """


class ModifiedInplaceError(AutogradError):
    """A saved tensor was changed in place between the forward pass and its use in backward.

    saved_by                the node that needs the tensor
    argument                what the node calls it
    shape                   its shape
    version, expected       at which version it is, and was when it was saved
    created_at              the line that recorded the node, or None
    mutated_by              the operation and the line that changed it last, or None
    type_name               its legacy type
    produced_by, output_nr  the node that computed it, and which of its outputs it is; or None

    >>> import undertow as ut
    >>> x, factor = ut.ones(2, requires_grad=True), ut.ones(2)
    >>> y = x * factor
    >>> _ = factor.add_(1)
    >>> try:
    ...     y.sum().backward()
    ... except ut.errors.ModifiedInplaceError as error:
    ...     print(error.saved_by, error.argument, error.version, error.expected)
    MulBackward0 other 1 0
    """

    def __init__(
        self,
        *,
        saved_by: str,
        argument: str,
        type_name: str,
        shape: tuple[int, ...],
        produced_by: str,
        output_nr: int,
        version: int,
        expected: int,
        mutated_by: str | None = None,
        created_at: str | None = None,
    ) -> None:
        self.saved_by = saved_by
        self.argument = argument
        self.shape = shape
        self.version = version
        self.expected = expected
        self.mutated_by = mutated_by
        self.created_at = created_at
        where = f", which is output {output_nr} of {produced_by}" if produced_by else ""
        culprit = f" The last change was {mutated_by}." if mutated_by else ""
        recorded = f" (recorded at {created_at})" if created_at else ""
        super().__init__(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{type_name} {list(shape)}]{where}, is at version {version}; expected version {expected} instead. "
            f"{saved_by}{recorded} saved it as `{argument}`.{culprit} "
            "Hint: use the out-of-place form of that operation, or change a clone() of the tensor."
        )


class GraphFreedError(AutogradError):
    """A second backward pass met a node whose saved values the first one had released.

    node_name    the node
    created_at   the line that recorded it, or None
    freed_at     the line of the pass that released the values, or None

    >>> import undertow as ut
    >>> y = ut.ones(2, requires_grad=True).exp().sum()
    >>> y.backward()
    >>> try:
    ...     y.backward()
    ... except ut.errors.GraphFreedError as error:
    ...     print(error.node_name)
    ExpBackward0
    """

    def __init__(self, node_name: str, created_at: str | None = None, freed_at: str | None = None) -> None:
        self.node_name = node_name
        self.created_at = created_at
        self.freed_at = freed_at
        recorded = f" (recorded at {created_at})" if created_at else ""
        call = f"the backward pass at {freed_at}" if freed_at else "an earlier .backward() or autograd.grad()"
        super().__init__(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            f"already been freed): the saved values of {node_name}{recorded} were released by {call}. Specify "
            "retain_graph=True in the earlier call if you need to backward through the graph a second time or if you "
            "need to access saved tensors after calling backward."
        )


class UnreachableInputError(AutogradError):
    """grad() was asked for a tensor that the outputs do not depend on.

    index    which of the inputs
    shape    its shape
    reason   why no path leads to it

    >>> import undertow as ut
    >>> x, other = ut.ones(2, requires_grad=True), ut.ones(2, requires_grad=True)
    >>> try:
    ...     ut.autograd.grad(x.sum(), (x, other))
    ... except ut.errors.UnreachableInputError as error:
    ...     print(error.index, error.shape)
    1 (2,)
    """

    def __init__(self, index: int, shape: tuple[int, ...] | None, reason: str) -> None:
        self.index = index
        self.shape = shape
        self.reason = reason
        described = f"input {index}" + ("" if shape is None else f" of shape {list(shape)}")
        super().__init__(
            f"One of the differentiated Tensors appears to not have been used in the graph: {described}; {reason}. Set "
            "allow_unused=True if this is the desired behavior."
        )


class EmptyInputsError(AutogradError, ValueError):
    """grad() was asked for no gradients at all.

    >>> import undertow as ut
    >>> try:
    ...     ut.autograd.grad(ut.ones(2, requires_grad=True).sum(), [])
    ... except ut.errors.EmptyInputsError as error:
    ...     print(isinstance(error, ValueError))
    True
    """

    def __init__(self) -> None:
        super().__init__(
            "`inputs` argument to `grad()` cannot be empty: grad requires non-empty inputs. Pass the tensors whose "
            "gradients you want, or call backward()."
        )


class AnomalyError(AutogradError):
    """Anomaly mode found nan (or inf) in a gradient.

    node_name, output_nr   the node, and which of its gradients
    kind                   "nan" or "inf"
    created_at             the line that recorded the node, or None
    cause                  what is known of why

    >>> import undertow as ut
    >>> x = ut.zeros(1, requires_grad=True)
    >>> with ut.autograd.set_detect_anomaly(True):
    ...     try:
    ...         (x.sqrt() * 0).sum().backward()
    ...     except ut.errors.AnomalyError as error:
    ...         print(error.node_name, error.kind)
    SqrtBackward0 nan
    """

    def __init__(self, node_name: str, output_nr: int, kind: str, created_at: str | None, cause: str) -> None:
        self.node_name = node_name
        self.output_nr = output_nr
        self.kind = kind
        self.created_at = created_at
        self.cause = cause
        recorded = f" It was recorded at {created_at}." if created_at else ""
        super().__init__(
            f"Function '{node_name}' returned {kind} values in its {output_nr}th output.{recorded}"
            f"{' ' + cause if cause else ''}"
        )


class NoValuesError(UndertowError, NotImplementedError):
    """What only values could tell was asked of a tensor on the meta device.

    >>> import undertow as ut
    >>> try:
    ...     ut.ones((), device="meta").item()
    ... except ut.errors.NoValuesError as error:
    ...     print(isinstance(error, NotImplementedError))
    True
    """


class NotDifferentiableError(UndertowError, NotImplementedError):
    """A derivative was asked for that does not exist or is not written.

    operation  the name of the operation
    detail     further words

    >>> import undertow as ut
    >>> try:
    ...     ut.special.zeta(ut.tensor(2.0, requires_grad=True), 1.0).backward()
    ... except ut.errors.NotDifferentiableError as error:
    ...     print(error.operation)
    zeta
    """

    def __init__(self, operation: str, detail: str = "") -> None:
        self.operation = operation
        super().__init__(f"the derivative for '{operation}' is not implemented.{' ' + detail if detail else ''}")


class InvalidGradientError(AutogradError):
    """A node returned a gradient that does not fit the tensor it is for.

    node_name, index  the node, and which of its gradients
    got, expected     what it returned, and what fits
    problem           what does not fit, in words

    >>> import undertow as ut
    >>> class Wrong(ut.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return ut.ones(3)
    >>> try:
    ...     Wrong.apply(ut.ones(2, requires_grad=True)).sum().backward()
    ... except ut.errors.InvalidGradientError as error:
    ...     print(error.node_name, error.got, error.expected)
    WrongBackward [3] [2]
    """

    def __init__(self, node_name: str, index: int, problem: str, got: Any, expected: Any) -> None:
        self.node_name, self.index, self.got, self.expected = node_name, index, got, expected
        super().__init__(
            f"Function {node_name} returned an invalid gradient at index {index} - {problem.format(got, expected)}"
        )


class GradcheckError(UndertowError, RuntimeError):
    """Raised by `gradcheck` and `gradgradcheck` when a gradient is not what it should be.

    >>> import undertow as ut
    >>> x = ut.ones(2, dtype=ut.float64, requires_grad=True)
    >>> try:
    ...     ut.autograd.gradcheck(lambda x: 2 * x.detach() + x, (x,))
    ... except ut.autograd.GradcheckError as error:
    ...     print(str(error).splitlines()[0])
    Jacobian mismatch for output 0 with respect to input 0,
    """


class IncompatibleViewError(UndertowError, RuntimeError):
    """No strides show the tensor's memory under the sizes asked for.

    shape, size   what the tensor has, and what was asked for

    >>> import undertow as ut
    >>> try:
    ...     ut.ones(2, 3).t().view(6)
    ... except ut.errors.IncompatibleViewError as error:
    ...     print(error.shape, error.size)
    (3, 2) (6,)
    """

    def __init__(self, shape: tuple[int, ...], size: tuple[int, ...]) -> None:
        self.shape, self.size = shape, size
        super().__init__(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans "
            f"across two contiguous subspaces): sizes {list(shape)} cannot become {list(size)} without "
            "copying. Use .reshape(...) instead."
        )


_always_warn = [False]
_already_warned: set[str] = set()


def set_warn_always(always: bool) -> None:
    """Whether warnings that appear once per process appear every time.

    always  True or False

    >>> import undertow as ut
    >>> ut.set_warn_always(False)
    """
    _always_warn[0] = bool(always)


def is_warn_always_enabled() -> bool:
    """Whether warnings are repeated: see `set_warn_always`.

    >>> import undertow as ut
    >>> ut.is_warn_always_enabled()
    False
    """
    return _always_warn[0]


def warn_once(key: str, message: str, category: type[Warning] = UserWarning, stacklevel: int = 3) -> None:
    """Warn the first time `key` comes by (every time after `set_warn_always(True)`)."""
    if key not in _already_warned or _always_warn[0]:
        _already_warned.add(key)
        warnings.warn(message, category, stacklevel=stacklevel + 1)


def warn_of_volatile() -> None:
    warnings.warn("volatile was removed and now has no effect: use no_grad()", stacklevel=3)


class LinAlgError(UndertowError, RuntimeError):
    """A matrix does not have the inverse or the factorisation asked for.

    >>> import undertow as ut
    >>> try:
    ...     ut.linalg.inv(ut.zeros(2, 2))
    ... except ut.errors.LinAlgError:
    ...     print("singular")
    singular
    """


class FileFormatError(UndertowError, ValueError):
    """A file that is damaged, is not what its name says, or holds more than data.

    >>> import io
    >>> import undertow as ut
    >>> try:
    ...     ut.load(io.BytesIO(b"no model"))
    ... except ut.errors.FileFormatError as error:
    ...     print("cannot be loaded" in str(error))
    True
    """

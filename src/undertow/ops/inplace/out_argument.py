"""`out=`: the result of an operation written into a given tensor.

No derivative is recorded, so nothing involved may ask for one, but where the tensor is of whole numbers or truths. The
tensor takes the result's shape and keeps its dtype.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from types import FunctionType
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.compiled import shortcut
from undertow.graph.accumulate import keep_former
from undertow.modes import Interceptor, current, in_state
from undertow.ops.arguments.operands import NUMBERS, REPEATED, ForeignOperandError
from undertow.ops.declare import REGISTRY
from undertow.ops.declare.apply import call, describe, function_of
from undertow.ops.declare.core_plan import compile_with_out
from undertow.ops.declare.op import Op
from undertow.ops.declare.return_types import ReturnType
from undertow.ops.inplace.checks import check_in_place
from undertow.ops.inplace.forms import write_array
from undertow.ops.inplace.overlap import refuse_overlap, tensors_in
from undertow.tensor import LEAF, Tensor
from undertow.tensor.tensor import requires_grad
from undertow.tensor.torch_function import asks, python_function

#: functions whose `out` must have the dtype of the result, as in PyTorch; others convert to one that can hold it
SAME_DTYPE = frozenset(
    """
    abs addbmm addmm addmv alias_copy amax amin aminmax arange argmax argmin as_strided_copy avg_pool2d avg_pool3d
    baddbmm bitwise_not bmm bucketize ceil complex conj_physical cross cummax cummin diag diagonal_copy diff dot
    empty expand_copy eye fft_ifft fft_ihfft floor frac frexp full gather gelu hardshrink heaviside histc histogram
    index_add index_copy index_reduce index_select inner isin isneginf isposinf kthvalue linalg_cholesky
    linalg_cholesky_ex linalg_cross linalg_det linalg_eigh linalg_eigvalsh linalg_inv linalg_inv_ex
    linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve linalg_lu linalg_lu_factor linalg_lu_factor_ex
    linalg_lu_solve linalg_matrix_norm linalg_multi_dot linalg_norm linalg_qr linalg_slogdet linalg_solve
    linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals linalg_vecdot linalg_vector_norm linear
    linspace log_softmax logcumsumexp logsigmoid logspace lu_solve lu_unpack masked_select matmul mm mode msort
    multinomial mv nan_to_num nanquantile narrow_copy neg nonzero norm ones ormqr permute_copy polar qr quantile
    renorm round scatter scatter_add scatter_reduce searchsorted sgn sign signbit slice_scatter softmax softplus
    softshrink sort split_with_sizes_copy squeeze_copy svd t_copy take take_along_dim tensordot topk transpose_copy
    triangular_solve tril triu trunc unbind_copy unfold_copy unsqueeze_copy vdot view_copy zeros
    """.split()
)

#: functions that compute in the dtype of their `out`, unless they are told another
COMPUTED_IN_OUT = frozenset(["sum", "prod", "cumsum", "cumprod"])

#: functions that make a tensor of nothing: likewise, and of truths, too
MADE_IN_OUT = frozenset("arange empty eye full linspace logspace ones rand randint randn randperm zeros".split())


def write_out(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Array) -> Array:
    """`function(*args, **kwargs)`, written into `out`: a tensor, or a tuple of them for several results."""
    name = getattr(function, "__name__", "the function")
    targets = out if isinstance(out, tuple | list) else (out,)
    for target in targets:
        if not isinstance(target, Tensor):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(target).__name__}")
    involved = tensors_in((args, kwargs, targets)) if current().grad_enabled and holds_gradients(targets) else []
    if any([requires_grad(t) for t in involved]):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad. Leave `out` away, or call it under no_grad."
        )
    intercept = current().intercept
    if isinstance(intercept, Interceptor):
        intercept.check_out(name, tensors_in((args, kwargs, targets)))
    for target in targets:
        check_in_place(target, name)
        check_overlap(function, target, args, kwargs)
    computed = name in MADE_IN_OUT or (name in COMPUTED_IN_OUT and targets[0]._array.dtype != dtypes.bool_)
    if computed and kwargs.get("dtype") is None:
        kwargs = {**kwargs, "dtype": targets[0]._array.dtype}
    result = unrecorded(function, args, kwargs)
    results = result if isinstance(result, tuple | list) else (result,)
    if len(results) != len(targets):
        raise RuntimeError(f"{name}(): out= holds {len(targets)} tensors, but there are {len(results)} results")
    for target, value in zip(targets, results, strict=True):
        fit(target, value._array, name)
    for target, value in zip(targets, results, strict=True):
        write_array(target, value._array, name)
    return type(result)(targets) if isinstance(result, ReturnType) else out


def holds_gradients(targets: Sequence[Tensor]) -> bool:
    """Whether one of them is of a dtype that has derivatives: whole numbers and truths have none to be lost."""
    return any([dtypes.is_differentiable(target._array.dtype) for target in targets])


def unrecorded(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Array:
    return in_state(current().with_grad(False), function, *args, **kwargs)


def check_overlap(function: Callable[..., Any], target: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse an `out` in the memory of operands; the one that an in-place form would change may be all of it."""
    op = getattr(function, "op", None)
    if op is None or op.overlap is None:
        return
    first, *others = [*args, *kwargs.values()]
    has_form = "in_place" in op.variants[op.name]
    refuse_overlap(target, first, "part" if has_form else op.overlap, op.name)
    refuse_overlap(target, others, op.overlap, op.name)


def fit(target: Tensor, array: Array, name: str) -> None:
    """Give `target` the shape of the result, in memory of its own, if it has another; refuse one of a lesser dtype."""
    mine = target._array
    if name in SAME_DTYPE and mine.dtype != array.dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {dtypes.SCALAR_NAMES[array.dtype]}, but got "
            f"{dtypes.SCALAR_NAMES[mine.dtype]} instead: {name} does not convert its result"
        )
    if dtypes.CATEGORY[array.dtype.kind] > dtypes.CATEGORY[mine.dtype.kind]:
        raise RuntimeError(
            f"result type {dtypes.SCALAR_NAMES[array.dtype]} can't be cast to the desired output type "
            f"{dtypes.SCALAR_NAMES[mine.dtype]}: give {name} an `out` of a dtype that can hold the result"
        )
    if mine.shape == array.shape:
        return
    if mine.size:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(mine.shape)}, which does not "
            f"match the required output shape {list(array.shape)}. Give {name} an empty `out`, or one of that shape.",
            stacklevel=4,
        )
    view = None if target._extra is None else target._extra.view
    if view is not None:
        raise RuntimeError(
            f"{name}(): out= is a view of shape {list(mine.shape)} and cannot be given shape {list(array.shape)}"
        )
    if target._edge is LEAF:
        keep_former(target, f"{name}(out=)")
    target._array = target._xp.empty_like(array, dtype=mine.dtype, order="K")


def function_with_out(op: Op) -> Any:
    """The op's function, with a keyword argument `out`; the one without serves operators, methods and rules."""

    def unusual(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = kwargs.pop("out", None)
        args = op.bind(args, kwargs)
        refuse_numbers(op, args)
        return call(op, args) if out is None else write_out(op.function, (), op.by_name(args), out)

    function = function_of(op, unusual)
    function.op = op
    return describe(op, function, compile_with_out(op, function), lambda: _signature_with_out(op))


def refuse_numbers(op: Op, args: tuple[Any, ...]) -> None:
    """Refuse Python numbers where PyTorch's function wants tensors; rules and operators may give them anywhere.

    And refuse what the operator `*` repeats.
    """
    if op.name == "mul" and any([isinstance(value, REPEATED) for value in args]):
        raise TypeError("mul(): arguments must be Tensors, not lists: make them tensors by undertow.tensor(...)")
    kinds = (*NUMBERS, cpu.generic)
    given = [k for k, name in enumerate(op.ordered) if name in op.inputs and isinstance(args[k], kinds)]
    if op.numbers == "any" or (op.numbers == "one" and len(given) < len(op.inputs)):
        return
    wrong = [k for k in given if op.ordered[k] != op.number] or (given if op.numbers == "one" else [])
    if wrong:
        name, value = op.ordered[wrong[0]], args[wrong[0]]
        raise TypeError(
            f"{op.name}(): argument '{name}' (position {wrong[0] + 1}) must be Tensor, not {type(value).__name__}. "
            f"Make it one: undertow.tensor({value})"
        )


def _signature_with_out(op: Op) -> Signature:
    parameter = Parameter("out", Parameter.KEYWORD_ONLY, default=None)
    return Signature([*op.signature().parameters.values(), parameter])


def namespace_function(name: str) -> Callable[..., Any]:
    """The operation as a function of linalg, fft or special: with an argument `out`, if PyTorch's has one."""
    op = REGISTRY[name]
    if "out" not in op.variants[name]:
        return op.function
    if op.kind in ("primitive", "nondifferentiable"):
        return function_with_out(op)
    return with_out(op.function, draws=op.random is not None)


@functools.cache
def public_function(name: str) -> Callable[..., Any]:
    """The same as a function of the package: one object for an operation and its aliases.

    It says where it is found: so a module that holds it can be pickled.
    """
    op = REGISTRY[name]
    if op.kind in ("primitive", "nondifferentiable"):
        return function_with_out(op) if op.name == name or op.name not in REGISTRY else public_function(op.name)
    found = namespace_function(name)
    if found is op.function:
        return besides_the_method(op) if "method" in op.variants[name] else found
    found.__module__, found.__name__, found.__qualname__ = "undertow", name, name
    return found


@functools.cache
def besides_the_method(op: Op) -> Any:
    """A function of the package that is a method, too, and does the same: as in PyTorch, handlers of calls compare the
    two, and hear which of them a program called."""
    if op.kind == "composite":
        function: Any = python_function(op.function)
        if function is op.function:  # without the compiled core a gate is a function, too
            function = function.__wrapped__
        public = asks(copy_of(function, op.name))
        public.op = op
        return public
    function = function_of(op, lambda args, kwargs: call(op, op.bind(args, kwargs)))
    function.op = op
    return describe(op, function, compile_with_out(op, function), op.signature)


def copy_of(function: FunctionType, name: str) -> FunctionType:
    """The same function, as the package has it."""
    copy = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    functools.update_wrapper(copy, function)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__, copy.__name__, copy.__qualname__ = "undertow", name, name
    return copy


def with_out(function: Callable[..., Any], draws: bool) -> Callable[..., Any]:
    """The function with an argument `out`.

    draws  it draws numbers: it must not be called a second time where the first result does not fit, as the core does
    """

    @asks
    @shortcut(function, ForeignOperandError, draws, name="with_out")
    @functools.wraps(function)
    def wrapped(*args: Any, out: Array | None = None, **kwargs: Any) -> Any:
        if out is not None:
            return write_out(function, args, kwargs, out)
        try:
            # as most are called, and a third faster than with the star
            return function(args[0]) if len(args) == 1 and not kwargs else function(*args, **kwargs)
        except ForeignOperandError as error:
            return error.answer(function.__name__, args, kwargs)

    return wrapped

"""gradcheck passes right formulas and names what is wrong with wrong ones, in both of its modes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow import ops
from undertow.autograd.function import Function
from undertow.autograd.gradcheck import (
    GradcheckError,
    get_analytical_jacobian,
    get_numerical_jacobian,
    gradcheck,
    gradgradcheck,
)
from undertow.backend import cpu
from undertow.tensor import LEAF, Tensor

both_modes = pytest.mark.parametrize("fast_mode", [False, True], ids=["slow", "fast"])


def leaf(*shape: int, dtype: str = "float64", requires_grad: bool = True) -> Tensor:
    rng = np.random.default_rng(len(shape))
    values = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)
    return Tensor(np.asarray(values, dtype=dtype), cpu, LEAF if requires_grad else None)


def cube(factor: float = 3.0, offset: float = 0.0, noise: float = 0.0) -> Any:
    """x**3, whose rule multiplies by `factor`, adds `offset` to the gradient, and shakes it by `noise`."""

    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return ops.mul(ops.mul(x, x), x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            right = ops.mul(ops.mul(g, ops.conj(ops.mul(x, x))), factor)
            return ops.add(right, offset + noise * np.random.random())

    return Cube.apply


# ---- what is right


@both_modes
def test_right_formulas_pass(fast_mode: bool) -> None:
    inputs = (leaf(2, 3), leaf(3))
    assert gradcheck(lambda x, y: ops.mul(ops.sin(x), y), inputs, fast_mode=fast_mode) is True
    assert gradgradcheck(lambda x, y: ops.mul(ops.sin(x), y), inputs, fast_mode=fast_mode) is True


@both_modes
def test_a_custom_rule_passes(fast_mode: bool) -> None:
    assert gradcheck(cube(), leaf(4), fast_mode=fast_mode)
    assert gradcheck(cube(), leaf(4, dtype="complex128"), fast_mode=fast_mode)


@both_modes
@pytest.mark.parametrize("case", ["C to C", "C to R", "R to C", "mixed"])
def test_complex(case: str, fast_mode: bool) -> None:
    func, inputs = {
        "C to C": (
            lambda z, w: ops.mul(ops.sin(z), w),
            (leaf(2, dtype="complex128"), leaf(2, dtype="complex128")),
        ),
        "C to R": (lambda z: ops.abs(z), (leaf(3, dtype="complex128"),)),
        "R to C": (lambda x: ops.mul(ops.exp(x), 1 + 2j), (leaf(3),)),
        "mixed": (lambda z, x: (ops.mul(z, x), ops.sin(x)), (leaf(2, dtype="complex128"), leaf(2))),
    }[case]
    assert gradcheck(func, inputs, fast_mode=fast_mode)
    assert gradgradcheck(func, inputs, fast_mode=fast_mode)


@both_modes
def test_several_outputs(fast_mode: bool) -> None:
    assert gradcheck(lambda x, y: (ops.sin(x), ops.mul(x, y), ops.exp(y)), (leaf(2), leaf(2)), fast_mode=fast_mode)
    assert gradgradcheck(lambda x, y: [ops.sin(x), ops.mul(x, y)], [leaf(2), leaf(2)], fast_mode=fast_mode)


@both_modes
def test_inputs_that_are_no_tensors_or_need_no_gradient(fast_mode: bool) -> None:
    inputs = (leaf(3), 2.5, leaf(3, requires_grad=False))
    assert gradcheck(lambda x, c, y: ops.mul(ops.mul(x, c), y), inputs, fast_mode=fast_mode)


@both_modes
@pytest.mark.parametrize("shape", [(), (0,), (2, 0)], ids=str)
def test_small_shapes(shape: tuple[int, ...], fast_mode: bool) -> None:
    assert gradcheck(lambda x: ops.sin(x), leaf(*shape), fast_mode=fast_mode)


@both_modes
def test_inputs_reached_through_a_closure(fast_mode: bool) -> None:
    x = leaf(3)
    assert gradcheck(lambda _: ops.mul(x, x), x, fast_mode=fast_mode)


@both_modes
def test_inputs_keep_their_values(fast_mode: bool) -> None:
    x = leaf(3)
    before = x._array.copy()
    gradcheck(lambda x: ops.sin(x), x, fast_mode=fast_mode)
    assert np.array_equal(x._array, before)
    with pytest.raises(ZeroDivisionError):
        gradcheck(lambda x: ops.sin(x) if np.array_equal(x._array, before) else 1 / 0, x, fast_mode=fast_mode)
    assert np.array_equal(x._array, before)


@both_modes
def test_outputs_without_a_gradient(fast_mode: bool) -> None:
    assert gradcheck(lambda x: (), leaf(2), fast_mode=fast_mode)
    assert gradcheck(lambda x: leaf(2, requires_grad=False), leaf(2), fast_mode=fast_mode)
    assert gradcheck(lambda x: (ops.sin(x), leaf(2, requires_grad=False)), leaf(2), fast_mode=fast_mode)
    with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be zero"):
        gradcheck(lambda x: Tensor(x._array.copy(), cpu), leaf(2), fast_mode=fast_mode)


# ---- what is wrong


@both_modes
def test_a_wrong_factor(fast_mode: bool) -> None:
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(cube(3.1), leaf(3), fast_mode=fast_mode)
    assert gradcheck(cube(3.1), leaf(3), fast_mode=fast_mode, raise_exception=False) is False
    assert issubclass(GradcheckError, RuntimeError)


@both_modes
def test_the_wrong_output_and_input_are_named(fast_mode: bool) -> None:
    def func(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return ops.sin(x), ops.add(ops.cos(x), cube(2.0)(y))

    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 1 with respect to input 1"):
        gradcheck(func, (leaf(2), leaf(2)), fast_mode=fast_mode)


def test_fast_mode_shows_the_jacobians() -> None:
    with pytest.raises(GradcheckError, match=r"(?s)Numerical:.*Analytical:.*max per-element difference \(slow mode\)"):
        gradcheck(cube(3.1), leaf(3), fast_mode=True)


@both_modes
def test_a_wrong_rule_with_complex_outputs(fast_mode: bool) -> None:
    with pytest.raises(GradcheckError, match="While considering the imaginary part of complex outputs only"):
        gradcheck(cube(3.1), leaf(3, dtype="complex128"), fast_mode=fast_mode)


@both_modes
def test_only_the_real_part_is_wrong(fast_mode: bool) -> None:
    class Halved(Function):
        """z -> z, with half of the gradient that comes in through the real part."""

        @staticmethod
        def forward(ctx: Any, z: Tensor) -> Tensor:
            return ops.mul(z, 1.0)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return Tensor(g._array - 0.5 * g._array.real, cpu)

    with pytest.raises(GradcheckError, match="While considering the real part of complex outputs only, Jacobian"):
        gradcheck(Halved.apply, leaf(3, dtype="complex128"), fast_mode=fast_mode, check_batched_grad=False)


@both_modes
def test_a_wrong_second_derivative(fast_mode: bool) -> None:
    class Sine(Function):
        """A right gradient whose own gradient is lost."""

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return ops.sin(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return ops.mul(g, Tensor(np.cos(x._array), cpu))

    assert gradcheck(Sine.apply, leaf(3), fast_mode=fast_mode)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradgradcheck(Sine.apply, leaf(3), fast_mode=fast_mode)


@both_modes
def test_randomness_is_found(fast_mode: bool) -> None:
    np.random.seed(0)
    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(cube(noise=1e-7), leaf(3), fast_mode=fast_mode)
    assert gradcheck(cube(), leaf(3), nondet_tol=1e-5, fast_mode=fast_mode)


@both_modes
def test_a_gradient_that_ignores_what_comes_in(fast_mode: bool) -> None:
    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(cube(offset=1e-3), leaf(2), atol=1e-1, fast_mode=fast_mode)
    assert not gradcheck(cube(offset=1e-3), leaf(2), atol=1e-1, fast_mode=fast_mode, raise_exception=False)
    assert gradcheck(cube(offset=1e-12), leaf(2), atol=1e-1, fast_mode=fast_mode, masked=True,
                     check_undefined_grad=False)  # fmt: skip


def doubled(handle_undefined: Any) -> Any:
    """x -> 2x, with a rule that does what it is told when no gradient flowed."""

    class Doubled(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.set_materialize_grads(False)
            return ops.mul(x, 2.0)

        @staticmethod
        def backward(ctx: Any, g: Tensor | None) -> Any:
            return handle_undefined() if g is None else ops.mul(g, 2.0)

    return Doubled.apply


def refuse() -> None:
    raise RuntimeError("the gradient is missing")


@both_modes
def test_undefined_gradients_must_be_handled(fast_mode: bool) -> None:
    text = "(?s)Expected backward function to handle undefined output grads.*the gradient is missing"
    warning = pytest.warns(UserWarning, match="Backwards compatibility: New undefined gradient support checking")
    with warning, pytest.raises(GradcheckError, match=text):
        gradcheck(doubled(refuse), leaf(2), fast_mode=fast_mode)
    assert gradcheck(doubled(refuse), leaf(2), fast_mode=fast_mode, check_undefined_grad=False)
    assert gradcheck(doubled(lambda: None), leaf(2), fast_mode=fast_mode)


def test_undefined_gradients_must_act_as_zeros() -> None:
    error = pytest.raises(GradcheckError, match="Expected all input grads to be undefined or zero")
    with pytest.warns(UserWarning, match="Backwards compatibility"), error:
        gradcheck(doubled(lambda: Tensor(np.ones(2), cpu)), leaf(2))
    assert gradcheck(doubled(lambda: Tensor(np.zeros(2), cpu)), leaf(2))


def test_one_undefined_gradient_of_several() -> None:
    """The rule of the first output gets None while the second's is defined, and the other way round."""
    missing = []

    class Pair(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            ctx.set_materialize_grads(False)
            return ops.mul(x, 1.0), ops.mul(x, 2.0)

        @staticmethod
        def backward(ctx: Any, first: Tensor | None, second: Tensor | None) -> Tensor | None:
            missing.append((first is None, second is None))
            parts = [ops.mul(g, c) for g, c in ((first, 1.0), (second, 2.0)) if g is not None]
            return None if not parts else parts[0] if len(parts) == 1 else ops.add(*parts)

    assert gradcheck(Pair.apply, leaf(2))
    assert missing[-3:] == [(True, True), (True, False), (False, True)]


@both_modes
def test_batched_gradients(fast_mode: bool) -> None:
    assert gradcheck(lambda x: ops.mul(x, x), leaf(3), check_batched_grad=True, fast_mode=fast_mode)
    assert gradgradcheck(lambda x: ops.mul(x, ops.sin(x)), leaf(3), check_batched_grad=True, fast_mode=fast_mode)


def test_batched_gradients_that_differ() -> None:
    class Counting(Function):
        """A gradient that changes for the worse with every third call."""

        calls = 0

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return ops.mul(x, 1.0)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            Counting.calls += 1
            return ops.mul(g, 1.0 if Counting.calls <= 8 else 1.5)  # 6 for the Jacobian, 2 one by one

    text = "(?s)For output 0 and input 0.*gradcheck or gradgradcheck failed while testing batched gradient"
    with pytest.raises(GradcheckError, match=text):
        gradcheck(Counting.apply, leaf(3), check_batched_grad=True)


def test_batched_gradients_that_raise() -> None:
    class Tired(Function):
        calls = 0

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return ops.mul(x, 1.0)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            Tired.calls += 1
            if Tired.calls > 8:
                raise RuntimeError("enough")
            return g

    with pytest.raises(GradcheckError, match=r"(?s)While computing batched gradients, got: .*enough"):
        gradcheck(Tired.apply, leaf(3), check_batched_grad=True)


def test_outputs_that_change_shape_or_dtype() -> None:
    x = Tensor(np.ones(1), cpu, LEAF)

    def shape(x: Tensor) -> Tensor:
        return ops.add(x, Tensor(np.zeros(2), cpu)) if x._array[0] >= 1 else x

    def dtype(x: Tensor) -> Tensor:
        return ops.to_dtype(x, np.dtype("float32")) if x._array[0] >= 1 else x

    for func in (shape, dtype):
        text = f"return outputs with the same {func.__name__} when inputs are perturbed"
        for fast_mode in (False, True):
            with pytest.raises(AssertionError, match=text):
                gradcheck(func, x, fast_mode=fast_mode)


@both_modes
def test_outputs_that_have_another_shape_wherever_an_input_is_moved(fast_mode: bool) -> None:
    x = Tensor(np.ones(2), cpu, LEAF)
    with pytest.raises(AssertionError, match="return outputs with the same shape when inputs are perturbed"):
        gradcheck(lambda x: x if x._array[1] == 1 else ops.sum(x), x, fast_mode=fast_mode)


# ---- arguments


@both_modes
def test_some_input_must_require_a_gradient(fast_mode: bool) -> None:
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x, leaf(2, requires_grad=False), raise_exception=False, fast_mode=fast_mode)


def test_single_precision_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="Input #1 requires gradient and is not a double precision"):
        gradcheck(lambda x, y: ops.mul(y, 2.0), (leaf(1), leaf(1, dtype="float32")), atol=1e-1, eps=1e-3)


def test_inputs_that_share_memory_with_themselves() -> None:
    x = Tensor(np.broadcast_to(np.ones(1), (2, 2)), cpu, LEAF)
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(lambda x: x, x, raise_exception=False)


def test_other_errors_pass_through() -> None:
    def broken(x: Tensor) -> Tensor:
        raise RuntimeError("not a GradcheckError")

    with pytest.raises(RuntimeError, match="not a GradcheckError"):
        gradcheck(broken, leaf(2), raise_exception=False)


CONTRADICTIONS = [
    (
        gradcheck,
        ["check_backward_ad=False"],
        "Expected at least one of check_forward_ad or check_backward_ad",
    ),
    (
        gradcheck,
        ["check_backward_ad=False", "check_forward_ad=True", "check_batched_grad=True"],
        "Setting check_batched_grad=True requires check_backward_ad",
    ),
    (
        gradcheck,
        ["check_batched_forward_grad=True"],
        "Setting check_batched_forward_grad=True requires check_forward_ad",
    ),
    (
        gradgradcheck,
        ["check_rev_over_rev=False"],
        "Expected at least one of check_fwd_over_rev or check_rev_over_rev",
    ),
    (
        gradgradcheck,
        ["check_fwd_over_rev=True", "check_rev_over_rev=False"],
        "Setting check_undefined_grad=True requires check_rev_over_rev",
    ),
    (
        gradgradcheck,
        [
            "check_fwd_over_rev=True",
            "check_rev_over_rev=False",
            "check_undefined_grad=False",
            "check_batched_grad=True",
        ],
        "Setting check_batched_grad=True requires check_rev_over_rev",
    ),
]


@pytest.mark.parametrize(("function", "switches", "text"), CONTRADICTIONS)
def test_contradicting_arguments(function: Any, switches: list[str], text: str) -> None:
    arguments = {name: value == "True" for name, _, value in (s.partition("=") for s in switches)}
    with pytest.raises(AssertionError, match=text):
        function(ops.sin, leaf(2), **arguments)


@pytest.mark.parametrize(
    ("function", "argument"), [(gradcheck, "check_forward_ad"), (gradgradcheck, "check_fwd_over_rev")]
)
def test_forward_mode_is_checked(function: Any, argument: str) -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return ops.sin(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return ops.mul(WrongCosine.apply(ctx.saved_tensors[0]), g)

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Tensor:
            return ops.mul(t, 3.0)

    class WrongCosine(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return ops.cos(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return ops.neg(ops.mul(ops.sin(ctx.saved_tensors[0]), g))

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Tensor:
            return ops.mul(t, 3.0)

    assert function(ops.sin, leaf(2), **{argument: True})
    assert function(Wrong.apply, leaf(2))
    with pytest.raises(GradcheckError, match="Jacobian computed with forward mode mismatch for output 0"):
        function(Wrong.apply, leaf(2), **{argument: True})


def test_given_output_gradients() -> None:
    x, weight = leaf(3), leaf(3)
    assert gradgradcheck(ops.sin, x, weight)
    assert gradgradcheck(ops.sin, x, (leaf(3, requires_grad=False),))
    assert gradgradcheck(ops.sin, x, gen_non_contig_grad_outputs=True)


def test_random_state_is_left_alone() -> None:
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    gradcheck(ops.sin, leaf(3), fast_mode=True, check_batched_grad=True)
    gradgradcheck(ops.sin, leaf(3))
    assert np.random.random() == expected


def test_dtypes_of_gradients() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert gradcheck(
            lambda x: ops.mul(x, 2.0), leaf(2, dtype="float32"), atol=1e-1, eps=1e-3, check_grad_dtypes=True
        )


# ---- deprecated


def test_numerical_jacobian() -> None:
    a, b = leaf(2, 2), leaf(2, 2)

    def func(inputs: Any) -> tuple[Tensor, Tensor]:
        x, y = inputs
        return ops.add(ops.mul(x, 2.0), y), ops.add(x, ops.mul(y, 2.0))

    deprecation = pytest.warns(FutureWarning, match="`get_numerical_jacobian` was part of PyTorch's private API")
    with deprecation:
        (only,) = get_numerical_jacobian(func, (a, b), target=a, eps=1e-6)
    with deprecation:
        first, second = get_numerical_jacobian(func, (a, b), eps=1e-6)
    np.testing.assert_allclose(only._array, 2 * np.eye(4), atol=1e-7)
    np.testing.assert_allclose(first._array, 2 * np.eye(4), atol=1e-7)
    np.testing.assert_allclose(second._array, np.eye(4), atol=1e-7)
    with deprecation, pytest.raises(ValueError, match=r"Expected grad_out to be 1\.0"):
        get_numerical_jacobian(func, (a, b), grad_out=2.0)
    with deprecation, pytest.raises(ValueError, match="Expected output to be non-complex"):
        get_numerical_jacobian(lambda z: z[0], (leaf(2, dtype="complex128"),))


def test_analytical_jacobian() -> None:
    a, b = leaf(2, 2), leaf(2, 2)
    deprecation = pytest.warns(FutureWarning, match="`get_analytical_jacobian` was part of PyTorch's private API")
    with deprecation:
        jacobians, reentrant, sizes, types = get_analytical_jacobian((a, b), ops.add(ops.mul(a, 2.0), b))
    np.testing.assert_allclose(jacobians[0]._array, 2 * np.eye(4))
    np.testing.assert_allclose(jacobians[1]._array, np.eye(4))
    assert (reentrant, sizes, types) == (True, True, True)
    with deprecation:
        _, reentrant, _, _ = get_analytical_jacobian((a,), cube(noise=1e-6)(a))
    assert not reentrant
    with deprecation, pytest.raises(ValueError, match=r"Expected grad_out to be 1\.0"):
        get_analytical_jacobian((a,), ops.sin(a), grad_out=2.0)
    with deprecation, pytest.raises(ValueError, match="Expected output to be non-complex"):
        get_analytical_jacobian((a,), ops.mul(a, 1j))


def test_complex_inputs_scale_the_tolerance_of_the_fast_mode() -> None:
    """What the slow mode accepts element by element, the fast mode accepts for random combinations of the elements."""
    z = ut.tensor([0.004 + 0.006j, 0.007 + 0.002j], dtype=ut.complex128, requires_grad=True)

    def function(z):
        return ops.reciprocal(ops.norm(z))

    def accepts(atol: float, fast_mode: bool) -> bool:
        return gradcheck(function, z, eps=1e-6, atol=atol, rtol=0.0, fast_mode=fast_mode, raise_exception=False)

    tight = next(atol for atol in 10.0 ** np.arange(-8.0, 3.0, 0.1) if accepts(atol, fast_mode=False))
    assert tight < 1  # the gradient is about 1e4
    assert accepts(1.1 * tight, fast_mode=True)

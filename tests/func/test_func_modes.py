"""Functions that differentiate do so whatever is switched off around them; and what they say about wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.autograd import Function, forward_ad, functional
from undertow.func import grad, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap

X = np.array([0.5, 2.0])


def cubes(x: Any) -> Any:
    return x**3


def total(x: Any) -> Any:
    return (x**3).sum()


def ones(x: Any) -> Any:
    return ut.ones_like(x)


FIRST: dict[str, Callable[[Any], Any]] = {
    "grad": grad(total),
    "vjp": lambda x: vjp(cubes, x)[1](ones(x))[0],
    "jvp": lambda x: jvp(cubes, (x,), (ones(x),))[1],
    "linearize": lambda x: linearize(cubes, x)[1](ones(x)),
    "jacrev": lambda x: jacrev(cubes)(x).sum(0),
    "jacfwd": lambda x: jacfwd(cubes)(x).sum(0),
    "vmap of grad": vmap(grad(cubes)),
    "grad of vmap": grad(lambda x: vmap(cubes)(x).sum()),
    "functional.vjp": lambda x: functional.vjp(cubes, x, ones(x))[1],
    "functional.jvp": lambda x: functional.jvp(cubes, x, ones(x))[1],
    "functional.jacobian": lambda x: functional.jacobian(cubes, x).sum(0),
    "vectorized": lambda x: functional.jacobian(cubes, x, vectorize=True).sum(0),
    "forward-mode": lambda x: functional.jacobian(cubes, x, strategy="forward-mode").sum(0),
    "sparse": lambda x: functional.jacobian(cubes, x, sparsity=np.eye(2), triplets=True)[2],
}
SECOND: dict[str, Callable[[Any], Any]] = {
    "grad of grad": vmap(grad(grad(cubes))),
    "hessian": lambda x: hessian(total)(x).sum(0),
    "hvp": lambda x: functional.hvp(total, x, ones(x))[1],
    "vhp": lambda x: functional.vhp(total, x, ones(x))[1],
    "functional.hessian": lambda x: functional.hessian(total, x).sum(0),
    "forward over reverse": lambda x: functional.hessian(total, x, outer_jacobian_strategy="forward-mode").sum(0),
}
ALL = {**{name: (f, 3 * X**2) for name, f in FIRST.items()}, **{name: (f, 6 * X) for name, f in SECOND.items()}}
OFF: dict[str, Callable[[], Any]] = {
    "no_grad": ut.no_grad,
    "inference_mode": ut.inference_mode,
    "forward mode off": lambda: forward_ad.set_fwd_grad_enabled(False),
}


@rows("name", ALL)
@rows("mode", OFF)
@rows("made", ["outside", "inside"])
def test_derivatives_where_something_is_switched_off(name: str, mode: str, made: str) -> None:
    """In PyTorch some of these are zeros."""
    f, expected = ALL[name]
    x = ut.tensor(X)
    with OFF[mode]():
        found = f(ut.tensor(X) if made == "inside" else x)
        assert ut.is_inference_mode_enabled() == (mode == "inference_mode")
        assert ut.is_grad_enabled() == (mode == "forward mode off")
        assert forward_ad.is_fwd_grad_enabled() == (mode != "forward mode off")
    assert np.allclose(found.numpy(), expected)
    assert not found.requires_grad


def test_a_mode_inside_the_function_has_its_effect() -> None:
    def f(x: Any) -> Any:
        with ut.inference_mode():
            c = x**2
        return (x - c).sum()

    with ut.inference_mode():
        assert grad(f)(ut.tensor(X)).tolist() == [1, 1]
    with forward_ad.set_fwd_grad_enabled(False):
        assert ut.is_grad_enabled()


# ---- messages


@pytest.mark.parametrize("output", [None, ()])
def test_functions_without_output(output: Any) -> None:
    x = ut.ones(2)
    for call in (
        lambda: vjp(lambda _: output, x),
        lambda: jvp(lambda _: output, (x,), (x,)),
        lambda: jacrev(lambda _: output)(x),
        lambda: jacfwd(lambda _: output)(x),
        lambda: linearize(lambda _: output, x),
    ):
        with pytest.raises(RuntimeError, match="Expected f to be a function that has non-empty output"):
            call()


@pytest.mark.parametrize("output", [1, 2.5, "abc"])
def test_functions_that_return_something_else(output: Any) -> None:
    x = ut.ones(2)
    for call in (
        lambda: vjp(lambda _: output, x),
        lambda: jvp(lambda _: (x, output), (x,), (x,)),
        lambda: jacrev(lambda _: [output])(x),
        lambda: jacfwd(lambda _: {"a": output})(x),
    ):
        with pytest.raises(RuntimeError, match="to return only tensors, got unsupported type"):
            call()


def test_arguments_of_jvp() -> None:
    x = ut.ones(2)
    for primals, tangents, words in [
        (x, (x,), "Expected primals to be a tuple"),
        ((), (), "at least one Tensor"),
        (((),), ((),), "at least one Tensor"),
        ((1.0,), (x,), "primals to only contain Tensors"),
        ((x,), (1.0,), "tangents to only contain Tensors"),
        ((x,), [x], "same python structure"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            jvp(ut.sin, primals, tangents)


def test_chunks_have_a_size() -> None:
    with pytest.raises(ValueError, match="jacrev: `chunk_size` should be greater than 0"):
        jacrev(ut.sin, chunk_size=0)


def test_cotangents_of_another_structure() -> None:
    _, pull = vjp(lambda x: (x, (x, x)), ut.tensor(1.0))
    with pytest.raises(RuntimeError, match="Expected pytree structure of cotangents to be the same"):
        pull(((ut.tensor(1.0), (ut.tensor(1.0), ut.tensor(1.0))),))


def test_models_that_cannot_be_stacked() -> None:
    models = [ut.nn.Linear(2, 2) for _ in range(3)]
    models[0].weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"same \.requires_grad"):
        stack_module_state(models)


def test_dimensions_that_a_vmap_staticmethod_returns() -> None:
    def custom(found: Any) -> Any:
        members = {"forward": lambda x: x.sin(), "setup_context": lambda ctx, inputs, output: None,
                   "vmap": lambda info, in_dims, x: found(x)}  # fmt: skip
        return type("Custom", (Function,), {k: staticmethod(v) for k, v in members.items()})

    for found in (lambda x: (x, (None,)), lambda x: ([x], (None,)), lambda x: ((x, x), (0,)), lambda x: (x, "0")):
        with pytest.raises(RuntimeError, match="returned an incompatible"):
            vmap(custom(found).apply)(ut.ones(2, 3))
    with pytest.raises(RuntimeError, match="to have two returns"):
        vmap(custom(lambda x: x).apply)(ut.ones(2, 3))


def test_arguments_by_name_only_are_refused() -> None:
    class Custom(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, *, y: Any) -> Any:
            return x + y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

    for apply in (Custom.apply, vmap(Custom.apply)):
        with pytest.raises(NotImplementedError, match="kwarg-only Tensor args"):
            apply(ut.ones(2), y=ut.ones(2))


@pytest.mark.parametrize("save", ["save_for_backward", "save_for_forward"])
def test_an_input_that_is_returned_and_saved(save: str) -> None:
    class Custom(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            getattr(ctx, save)(inputs[0])

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    with pytest.raises(RuntimeError, match="An input that has been returned as-is"):
        grad(lambda x: Custom.apply(x.clone()))(ut.tensor(2.0))


class Sine(Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        (x,) = ctx.saved_tensors
        return tangent * x.cos()


def test_jvp_of_a_function_at_a_tensor_of_inference_mode() -> None:
    with ut.inference_mode():
        x = ut.tensor(X) * 2
        _, tangent = jvp(Sine.apply, (x,), (x,))
    np.testing.assert_allclose(tangent.numpy(), 2 * X * np.cos(2 * X))

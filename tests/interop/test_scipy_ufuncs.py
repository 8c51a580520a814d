"""SciPy's special functions on tensors: values, and derivatives of first and second order in every direction."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.autograd import gradcheck, gradgradcheck
from undertow.func import grad, jvp, vmap
from undertow.interop.scipy.ufuncs import FLAT, PARTIALS, SPECIAL
from undertow.ops import REGISTRY

special = pytest.importorskip("scipy.special")

RNG = np.random.default_rng(0)


def between(low: float, high: float) -> Any:
    return RNG.uniform(low, high, 3)


#: arguments in the middle of where each function is defined; (0.2, 2) for those that are not named
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "betainc": (1.5, np.array([2.0, 3.0, 0.5]), between(0.1, 0.9)),
    "betaincc": (1.5, 2.0, between(0.1, 0.9)),
    "betaincinv": (1.5, 2.0, between(0.1, 0.9)),
    "betainccinv": (1.5, 2.0, between(0.1, 0.9)),
    "binom": (between(5, 7), between(1, 3)),
    "boxcox": (between(0.5, 2), between(0.3, 2)),
    "boxcox1p": (between(0.5, 2), between(0.3, 2)),
    "chdtr": (3.0, between(0.5, 2)),
    "chdtrc": (3.0, between(0.5, 2)),
    "ellipe": (between(0.1, 0.8),),
    "ellipk": (between(0.1, 0.8),),
    "erfcinv": (between(0.1, 1.9),),
    "erfinv": (between(-0.9, 0.9),),
    "expn": (4, between(0.5, 2)),
    "gammainc": (np.array([1.5, 2.0, 0.5]), between(0.5, 2)),
    "gammaincc": (1, between(0.5, 2)),
    "gammaincinv": (1.5, between(0.1, 0.9)),
    "gammainccinv": (1.5, between(0.1, 0.9)),
    "hyp0f1": (1.5, between(-1, 1)),
    "hyp1f1": (1.5, 2.5, between(-1, 1)),
    "hyp2f1": (1.5, 0.5, 2.5, between(-0.5, 0.5)),
    "hyperu": (1.5, 0.5, between(0.5, 2)),
    "iv": (np.array([0.5, 1.0, 2.5]), between(0.5, 2)),
    "ive": (1.5, between(0.5, 2)),
    "jv": (2, between(0.5, 5)),
    "kn": (2, between(0.5, 2)),
    "kv": (1.5, between(0.5, 2)),
    "kve": (1.5, between(0.5, 2)),
    "logit": (between(0.1, 0.9),),
    "ndtri": (between(0.1, 0.9),),
    "ndtri_exp": (between(-2, -0.3),),
    "pdtr": (np.array([0.0, 2.0, 3.0]), between(0.5, 2)),
    "pdtrc": (2, between(0.5, 2)),
    "stdtr": (3.5, between(-1, 1)),
    "stdtrit": (3.5, between(0.1, 0.9)),
    "wofz": (between(-1, 1) + 1j * between(0.1, 1),),
    "yn": (2, between(0.5, 5)),
    "yv": (1.5, between(0.5, 5)),
}
COMPLEX = ["erf", "erfc", "erfi", "dawsn", "wofz", "exp1", "loggamma", "hyp0f1", "jv", "iv", "yv", "kv"]


@functools.cache
def arguments(name: str) -> tuple[Any, ...]:
    return ARGUMENTS.get(name) or tuple([between(0.2, 2) for _ in range(getattr(special, name).nin)])


def differentiable(name: str) -> tuple[list[Any], Any]:
    """The arguments that have a derivative, as tensors, and the function of them alone."""
    given = arguments(name)
    known = [k for k in range(len(given)) if name not in PARTIALS or PARTIALS[name][k] is not None]

    def function(*tensors: Any) -> Any:
        chosen = dict(zip(known, tensors, strict=True))
        return getattr(special, name)(*[chosen.get(k, a) for k, a in enumerate(given)])

    return [ut.tensor(given[k], requires_grad=True) for k in known], function


@pytest.mark.parametrize("name", sorted({*PARTIALS, *SPECIAL}))
class TestFunctions:
    def test_values(self, name: str) -> None:
        tensors, function = differentiable(name)
        expected = getattr(special, name)(*arguments(name))
        found = function(*tensors)
        assert found.requires_grad
        assert np.allclose(found.detach().numpy(), expected, rtol=1e-12)
        assert found.dtype == expected.dtype
        small = getattr(special, name)(
            *[
                np.asarray(a, np.result_type(a, "f4")) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
                for a in arguments(name)
            ]
        )
        reduced = function(*[t.detach().to(ut.complex64 if t.dtype.kind == "c" else ut.float32) for t in tensors])
        if small.dtype in (np.float32, np.complex64):
            assert np.allclose(reduced.numpy(), small, rtol=1e-4, atol=1e-5)

    def test_first_derivatives(self, name: str) -> None:
        tensors, function = differentiable(name)
        assert gradcheck(function, tensors, check_forward_ad=True, check_batched_grad=True)

    def test_second_derivatives(self, name: str) -> None:
        tensors, function = differentiable(name)
        assert gradgradcheck(function, tensors, check_fwd_over_rev=True)

    def test_batches(self, name: str) -> None:
        tensors, function = differentiable(name)
        if any(isinstance(a, np.ndarray) for k, a in enumerate(arguments(name)) if not is_known(name, k)):
            return  # its orders are fixed, one for each element
        points = [t.detach() for t in tensors]
        assert np.allclose(vmap(function)(*points).numpy(), function(*points).numpy())
        if points[0].dtype.kind == "f":
            slopes = vmap(grad(function))(*points)
            assert np.allclose(slopes.numpy(), grad(lambda *p: function(*p).sum())(*points).numpy())


def is_known(name: str, place: int) -> bool:
    return name not in PARTIALS or PARTIALS[name][place] is not None


@pytest.mark.parametrize("name", COMPLEX)
def test_complex(name: str) -> None:
    *orders, _ = arguments(name)
    orders = [1.5 for _ in orders]
    z = ut.tensor(between(0.3, 1) + 1j * between(0.2, 1), requires_grad=True)
    if name == "loggamma":
        with pytest.raises(NotImplementedError, match='"digamma" not implemented'):
            special.loggamma(z).sum().abs().backward()
        return
    assert gradcheck(lambda z: getattr(special, name)(*orders, z), z, check_forward_ad=True)
    assert gradgradcheck(lambda z: getattr(special, name)(*orders, z), z)


def test_unknown_derivatives_are_errors() -> None:
    a, x = ut.tensor([0.5, 1.5], requires_grad=True), ut.tensor([0.3, 0.6], requires_grad=True)
    message = "derivative of scipy.special.betainc by argument 0 is not implemented"
    with pytest.raises(NotImplementedError, match=message):
        special.betainc(a, 2.0, x).sum().backward()
    with pytest.raises(NotImplementedError, match=message):
        jvp(lambda a: special.betainc(a, 2.0, x), (a,), (a,))
    (slope,) = ut.autograd.grad(special.betainc(a, 2.0, x).sum(), x)
    assert slope.shape == (2,)
    assert jvp(lambda x: special.betainc(a, 2.0, x), (x,), (x,))[1].shape == (2,)


@pytest.mark.parametrize("name", sorted(FLAT))
def test_flat_functions_have_no_gradient(name: str) -> None:
    x = ut.tensor([-1.5, 2.5], requires_grad=True)
    found = getattr(special, name)(x)
    assert not found.requires_grad
    assert np.allclose(found.numpy(), getattr(special, name)(x.detach().numpy()))


def test_broadcasting_in_a_batch() -> None:
    """Examples of different ranks are aligned as single ones are."""
    x, m = ut.tensor(RNG.uniform(1, 2, (4, 3))), ut.tensor(RNG.uniform(1, 2, 4))
    found = vmap(special.poch)(x, m)
    assert np.allclose(found.numpy(), special.poch(x.numpy(), m.numpy()[:, None]))
    assert np.allclose(vmap(special.poch, in_dims=(1, None))(x, m).numpy(), special.poch(x.numpy().T, m.numpy()))


def test_the_tables_name_what_exists() -> None:
    assert all(operation in REGISTRY for operation in SPECIAL.values())
    assert all(isinstance(getattr(special, name), np.ufunc) for name in (*SPECIAL, *PARTIALS, *FLAT))
    assert all(len(partials) == getattr(special, name).nin for name, partials in PARTIALS.items())

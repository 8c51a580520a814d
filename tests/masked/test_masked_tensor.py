"""MaskedTensor and masked reductions: PyTorch's values, masks and gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow import masked
from undertow.masked import as_masked_tensor, masked_tensor

DATA = np.array([[1.0, 2.0, 3.0, -1.0], [4.0, 5.0, 6.0, 0.5], [0.5, -2.0, 1.5, 2.5]])
MASK = np.array([[True, False, True, True], [False, False, False, False], [True, True, True, True]])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # PyTorch calls its masked tensors a prototype
        yield


# ---- the programs of the seed


def test_mask_before_division() -> None:
    x = ut.tensor([1.0, 1.0], requires_grad=True)
    div = ut.tensor([0.0, 1.0])

    mask = div != 0
    safe = ut.zeros_like(x)
    safe[mask] = x[mask] / div[mask]
    loss = safe.sum()
    loss.backward()
    assert x.grad.tolist() == [0.0, 1.0]


def test_masked_tensor_after_division() -> None:
    x = ut.tensor([1.0, 1.0], requires_grad=True)
    div = ut.tensor([0.0, 1.0])

    y = x / div
    mask = div != 0
    loss = as_masked_tensor(y, mask).sum()
    loss.backward()
    assert x.grad.tolist() == [0.0, 1.0]


# ---- reductions on ordinary tensors

REDUCTIONS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *[
        (n, (d,), {"keepdim": k})
        for n in ("sum", "prod", "mean", "amin", "amax")
        for d in (0, -1, (0, 1))
        for k in (0, 1)
    ],
    *[(n, (d, u), {}) for n in ("var", "std") for d in (0, 1, (0, 1)) for u in (True, False)],
    *[(n, (d,), {}) for n in ("logsumexp", "softmax", "log_softmax", "softmin", "cumsum", "cumprod") for d in (0, 1)],
    *[("norm", (p, 1), {"keepdim": True}) for p in (1, 2, 3.0, float("inf"), -float("inf"))],
    ("normalize", (2.0, 1), {}),
    ("normalize", (1.0, 0), {}),
    ("median", (1,), {}),
    ("argmin", (1,), {}),
    ("argmax", (0,), {"keepdim": True}),
]


def there(result: np.ndarray[Any, Any], mask: np.ndarray[Any, Any], name: str, args: Any) -> Any:
    """The part of a result that is defined: PyTorch leaves the rest open."""
    if result.shape == mask.shape and name in ("softmax", "log_softmax", "softmin", "cumsum", "cumprod", "normalize"):
        return np.where(mask, result, 0)
    dim = args[name == "norm"]
    return np.where(mask.any(axis=dim, keepdims=result.ndim == 2).reshape(result.shape), result, 0)


@pytest.mark.torch
@rows(("name", "args", "kwargs"), REDUCTIONS, ids=lambda v: str(v))
def test_values_and_gradients_are_those_of_pytorch(name: str, args: Any, kwargs: Any, torch: Any) -> None:
    kwargs = {k: bool(v) for k, v in kwargs.items()}
    found = []
    for L, m in ((ut, masked), (torch, torch.masked)):
        x = L.tensor(DATA, requires_grad=True)
        y = getattr(m, name)(x, *args, mask=L.tensor(MASK), **kwargs)
        if name.startswith("arg"):
            found.append((y.numpy(), DATA))
            continue
        weights = np.where(np.isfinite(y.detach().numpy()), np.arange(1.0, y.numel() + 1).reshape(y.shape), 0)
        total = (L.where(L.tensor(weights) != 0, y, 0.0) * L.tensor(weights)).sum()
        total.backward()
        found.append((there(y.detach().numpy(), MASK, name, args), x.grad.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    np.testing.assert_allclose(np.where(MASK, found[0][1], 0), np.where(MASK, found[1][1], 0), rtol=1e-9, atol=1e-12)


@pytest.mark.torch
def test_logaddexp(torch: Any) -> None:
    both = []
    for L, m in ((ut, masked), (torch, torch.masked)):
        y = m.logaddexp(L.tensor(DATA), L.tensor(DATA * 2), input_mask=L.tensor(MASK), other_mask=L.tensor(~MASK))
        both.append(y.numpy())
    np.testing.assert_allclose(both[0], both[1])


def test_without_a_mask_they_are_the_plain_reductions() -> None:
    x = ut.tensor(DATA)
    assert masked.sum(x).item() == DATA.sum()
    assert masked.mean(ut.tensor([1, 2])).item() == 1.5
    np.testing.assert_allclose(masked.var(x, 1).numpy(), DATA.var(1, ddof=1))
    np.testing.assert_allclose(masked.prod(x, (0, 1)).numpy(), DATA.prod())
    assert masked.amax(ut.tensor([3, 7, 5]), mask=ut.tensor([True, False, True])).item() == 5
    assert masked.amin(ut.tensor([3, 7, 5]), mask=ut.tensor([False, True, True])).item() == 5


def test_masks_are_broadcast_and_must_be_bools() -> None:
    assert masked.sum(ut.ones(2, 3), mask=ut.tensor([True, False, True])).item() == 4
    with pytest.raises(TypeError, match="mask must have dtype bool"):
        masked.sum(ut.ones(3), mask=ut.ones(3))


def test_complex_variance() -> None:
    z = ut.tensor([1 + 1j, 3 - 2j, 9 + 9j])
    found = masked.var(z, mask=ut.tensor([True, True, False]))
    np.testing.assert_allclose(found.numpy(), np.var([1 + 1j, 3 - 2j], ddof=1), rtol=1e-6)


# ---- MaskedTensor

PROGRAMS = """
a + a; a - 1; 2 * a; a / 2; 3 / a; a // 2; a % 2; a ** 2; -a; abs(a); a == a; a < 2; a >= d
a.sin(); a.exp(); a.sqrt(); a.abs(); a.clamp(0, 2); a.round(); a.sign(); a.logit(); a.pow(2)
a.add(1); a.mul(a); a.maximum(a); a.fmin(a); a.atan2(a); a.remainder(2); a.eq(a)
a.sum(); a.sum(dim=1); a.sum(dim=0, keepdim=True); a.mean(dim=1); a.prod(dim=1); a.amin(dim=0); a.amax(dim=1)
a.var(dim=1); a.std(dim=1); a.argmin(dim=1); a.argmax(dim=0); a.all(dim=1)
a.softmax(1); a.softmax(0)
a.t(); a.transpose(0, 1); a.reshape(12); a.view(4, 3); a.unsqueeze(0); a.expand(2, 3, 4); a.contiguous()
a[0]; a[:, 1]; a[1:, ::2]; a.select(0, 2); a.split(2); a.clone(); a.detach(); a.double(); a.float()
d + a; d - a; d * a; d / a; d // a; L.add(d, a); L.add(a, 2); L.pow(a, 2); L.square(a)
L.sin(a); L.exp(a); L.sqrt(a); L.logit(a); L.clamp(a, 0, 2); L.maximum(a, a); L.fmod(a, a); L.atan2(a, d)
L.sum(a); L.sum(a, 1); L.mean(a, dim=1); L.prod(a, 1); L.amax(a, 1); L.amin(a, dim=0, keepdim=True); L.var(a, dim=1)
L.argmax(a, 1); L.std(a, 1); L.softmax(a, 1); L.transpose(a, 0, 1)
L.where(d > 0, a, a); L.where(d > 0, L.exp(a), other); L.cat([a, other]); L.stack([a, other], 1); L.clone(a)
a.add_(a); a.add_(1); a.sub_(d); a.mul_(a); a.div_(2); a.pow_(2); a.sin_(); a.exp_(); a.sqrt_(); a.abs_(); a.neg_()
a.clamp_(0, 2); a.logit_(); a.round_(); a.sign_(); a.remainder_(2); a.atan2_(a); a.floor_()
"""


@pytest.mark.torch
@rows("program", [p.strip() for p in PROGRAMS.replace("\n", ";").split(";") if p.strip()])
def test_operations_are_those_of_pytorch(program: str, torch: Any) -> None:
    found = []
    for L, make in ((ut, masked_tensor), (torch, torch.masked.masked_tensor)):
        d = L.tensor(DATA)
        given = {"a": make(d, L.tensor(MASK)), "other": make(2 * d, L.tensor(~MASK)), "d": d, "L": L}
        result = eval(program, given)
        if program.split("(")[0].endswith("_"):
            assert result is given["a"]
        results = result if isinstance(result, tuple) else (result,)
        found.append([(r.to_tensor(0).numpy(), r.get_mask().numpy()) for r in results])
    for (value, mask), (expected, expected_mask) in zip(*found, strict=True):
        np.testing.assert_array_equal(mask, expected_mask)
        np.testing.assert_allclose(value, expected, rtol=1e-6)


GRADIENTS = """
(a * a).sum(); a.exp().mean(); a.sqrt().sum(dim=1).sum(); (a / 2).prod(dim=0).sum(); a.amax(dim=1).sum()
a.softmax(1).amax(dim=1).sum(); a.var(dim=1).sum(); a.log().sum(); (1 / (a - 2)).sum(); a[0].sum()
a.t().amin(dim=0).sum(); L.sum(L.exp(a) * 2); L.mean(L.log(a)); L.sum(L.softmax(a, 1) * a)
"""


@pytest.mark.torch
@pytest.mark.parametrize("program", [p.strip() for p in GRADIENTS.replace("\n", ";").split(";") if p.strip()])
def test_gradients_are_masked(program: str, torch: Any) -> None:
    """The data has negative numbers and poles behind the mask."""
    data = np.where(MASK, np.abs(DATA) + 0.25, [[-1.0], [2.0], [0.0]])
    found = []
    for L, make in ((ut, masked_tensor), (torch, torch.masked.masked_tensor)):
        a = make(L.tensor(data), L.tensor(MASK), requires_grad=True)
        eval(program, {"a": a, "L": L}).backward()
        found.append(a.grad)
    assert masked.is_masked_tensor(found[0])
    np.testing.assert_array_equal(found[0].get_mask().numpy(), MASK)
    np.testing.assert_allclose(found[0].to_tensor(0).numpy(), found[1].to_tensor(0).numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.torch
def test_it_is_shown_as_in_pytorch(torch: Any) -> None:
    for data in (DATA, DATA[0], DATA * 1e6, DATA.astype(np.int64), DATA[None] > 1, DATA[0, 0], DATA[1, 0]):
        mask = {3: MASK[None], 2: MASK, 1: MASK[0], 0: np.array(data == 1)}[np.ndim(data)]
        shown = [
            repr(m(L.tensor(data), L.tensor(mask)))
            for L, m in ((ut, masked_tensor), (torch, torch.masked.masked_tensor))
        ]
        assert shown[0] == shown[1]


def test_what_it_says_of_itself() -> None:
    a = masked_tensor(ut.tensor(DATA), ut.tensor(MASK), requires_grad=True)
    assert (tuple(a.shape), a.ndim, a.dim(), a.numel(), len(a)) == ((3, 4), 2, 2, 12, 3)
    assert (a.dtype, a.requires_grad, a.is_leaf, a.grad) == (ut.float64, True, True, None)
    assert (a.size(1), str(a.device)) == (4, "cpu")
    assert a.sum().grad_fn is not None
    assert not masked.is_masked_tensor(a.get_data())


def test_the_data_is_copied_or_continued() -> None:
    x = ut.tensor([1.0, 2.0], requires_grad=True)
    mask = ut.tensor([True, False])
    assert not masked_tensor(x * 2, mask).requires_grad
    m = as_masked_tensor(x * 2, mask)
    assert m.requires_grad
    m.get_data().sum().backward()
    assert x.grad.tolist() == [2.0, 0.0]  # what is masked out has no gradient, though get_data shows it


def test_gradients_given_to_backward_may_be_masked() -> None:
    a = masked_tensor(ut.ones(2), ut.tensor([True, False]), requires_grad=True)
    (a * 3).backward(masked_tensor(ut.tensor([2.0, 9.0]), ut.tensor([True, False])))
    assert a.grad.to_tensor(0).tolist() == [6.0, 0.0]


def test_operations_without_a_rule_refuse_it() -> None:
    a = masked_tensor(ut.ones(2), ut.tensor([True, False]))
    for call in (ut.addcmul, ut.lerp):
        with pytest.raises(TypeError, match="must be Tensor, not MaskedTensor"):
            call(a, a, a)
    for call in (ut.sort, ut.max, ut.det, ut.ravel, np.sin):
        with pytest.raises(TypeError):
            call(a)
    with pytest.raises(TypeError, match="condition"):
        ut.where(a, a, a)


def test_in_place_forms_leave_the_given_data_alone() -> None:
    data = ut.tensor([1.0, 2.0])
    a = before = as_masked_tensor(data, ut.tensor([True, False]))
    a += 1
    a *= a
    assert a is before and a.to_tensor(0).tolist() == [4.0, 0.0]
    assert data.tolist() == [1.0, 2.0]


def test_in_place_forms_are_recorded() -> None:
    x = ut.tensor([1.0, 0.0, 4.0], requires_grad=True)
    a = as_masked_tensor(x * 1, x > 0)
    a.sqrt_().mul_(3)
    a.sum().backward()
    assert x.grad.tolist() == [1.5, 0.0, 0.75]


def test_what_cannot_be_changed_in_place() -> None:
    leaf = masked_tensor(ut.ones(2), ut.tensor([True, False]), requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf.add_(1)
    a = masked_tensor(ut.tensor([1, 2]), ut.tensor([True, False]))
    with pytest.raises(RuntimeError, match="can't be cast"):
        a.div_(2)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        a.add_(ut.ones(3, 2, dtype=ut.int64))
    with pytest.raises(ValueError, match="Input masks must match"):
        a.add_(masked_tensor(ut.tensor([1, 2]), ut.tensor([True, True])))


def test_a_function_by_cases_without_overflow() -> None:
    """exp(x) for negative x and 1 beyond: the branch that is not taken overflows, and has no part in the gradient."""
    x = ut.tensor([-10.0, -5.0, 0.0, 5.0, 1000.0], requires_grad=True)
    negative = x.detach() < 0
    y = ut.where(negative, ut.exp(as_masked_tensor(x, negative)), masked_tensor(ut.ones(5), ~negative))
    assert y.get_mask().all()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [np.exp(-10), np.exp(-5), 0, 0, 0], rtol=1e-6)


def test_errors() -> None:
    ones, mask = ut.ones(2), ut.tensor([True, False])
    with pytest.raises(TypeError, match="data must be a Tensor"):
        masked_tensor([1.0], mask)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mask must be a Tensor"):
        masked_tensor(ones, [True, False])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mask must have dtype bool"):
        masked_tensor(ones, ones)
    with pytest.raises(TypeError, match="not supported in MaskedTensor"):
        masked_tensor(ut.ones(2, dtype=ut.complex64), mask)
    with pytest.raises(ValueError, match=r"data.dim\(\) must equal mask.dim\(\)"):
        masked_tensor(ut.ones(1, 2), mask)
    with pytest.raises(ValueError, match=r"data.size\(\) must equal mask.size\(\)"):
        masked_tensor(ut.ones(3), mask)
    with pytest.raises(ValueError, match="Input masks must match"):
        masked_tensor(ones, mask) + masked_tensor(ones, ~mask)
    with pytest.raises(ValueError, match="masked out"):
        masked_tensor(ones, mask)[1].item()


def test_what_pytorch_has_no_rule_for() -> None:
    a = masked_tensor(ut.tensor([1.0, 5.0, 2.0]), ut.tensor([True, False, True]))
    assert (ut.tensor(3.0) ** a).to_tensor(0).tolist() == [3.0, 0.0, 9.0]
    assert ut.sub(a, a, alpha=2).to_tensor(0).tolist() == [-1.0, 0.0, -2.0]
    assert ut.logsumexp(a, 0).item() == pytest.approx(np.logaddexp(1, 2))
    assert (2 - a).to_tensor(0).tolist() == [1.0, 0.0, 0.0]
    np.testing.assert_allclose(a.log_softmax(0).exp().sum().item(), 1, rtol=1e-6)
    assert a.any().item()
    assert a.flip(0).cumsum(0).to_tensor(0).tolist() == [2.0, 0.0, 3.0]
    assert a.norm(1).item() == 3.0
    assert a.median(0).item() == 1.0
    assert a.relu().permute(0).get_mask().tolist() == [True, False, True]

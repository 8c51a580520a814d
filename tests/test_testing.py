"""`undertow.testing`: PyTorch's arguments, and what they compare."""

from __future__ import annotations

import pytest
from undertow.futures import Future, collect_all, wait_all

import undertow as ut
from undertow.testing import assert_close, default_tolerances


def test_assert_close_compares_what_it_is_told_to() -> None:
    x = ut.arange(6.0).reshape(2, 3)
    turned = x.t().contiguous().t()
    assert_close(x, turned)
    with pytest.raises(AssertionError, match="attribute 'stride' do not match"):
        assert_close(x, turned, check_stride=True)
    with pytest.raises(AssertionError, match="attribute 'layout' do not match"):
        assert_close(x, x.to_sparse())
    assert_close(x, x.to_sparse(), check_layout=False)
    with pytest.raises(AssertionError, match="the loss: Tensor-likes are not close"):
        assert_close(x, x + 1, msg=lambda text: f"the loss: {text}")
    with pytest.raises(TypeError, match="allow_subclasses"):
        assert_close(x, ut.nn.Parameter(x), allow_subclasses=False)
    with pytest.raises(ValueError, match="got no atol"):
        assert_close(x, x, rtol=1e-3)
    assert default_tolerances(ut.float64, ut.ones(1)) == (1.3e-6, 1e-5)


def test_futures() -> None:
    first, second = Future(), Future()
    both = collect_all([first, second]).then(lambda done: sum(wait_all(done.value())))
    with pytest.raises(RuntimeError, match="before the value was set"):
        first.value()
    first.set_result(1)
    assert not both.done()
    second.set_result(2)
    assert both.wait() == 3
    failing = first.then(lambda done: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.wait()

"""The meta device: shapes, dtypes and strides without memory."""

from __future__ import annotations

import copy
import pickle
import resource
from types import ModuleType
from typing import Any

import pytest

import undertow as ut
from undertow.errors import NoValuesError

F = ut.nn.functional
BILLION = 10**9


def meta(*shape: int, **options: Any) -> Any:
    return ut.empty(*shape, device="meta", **options)


def test_a_billion_elements_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    x = meta(BILLION, requires_grad=True)
    loss = ((x * 2 + 1).exp().clamp(min=0) ** 2).sum()
    loss.backward()
    assert loss.shape == () and x.grad.shape == (BILLION,) and x.grad.is_meta
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


LARGE = {
    "max_pool2d": (lambda: F.max_pool2d(meta(64, 3, 224, 224), 3, 2, 1), (64, 3, 112, 112)),
    "conv2d": (lambda: F.conv2d(meta(64, 3, 224, 224), meta(64, 3, 7, 7), stride=2, padding=3), (64, 64, 112, 112)),
    "embedding": (lambda: F.embedding(meta(64, 128, dtype=ut.int64), meta(50257, 768)), (64, 128, 768)),
    "cross_entropy": (lambda: F.cross_entropy(meta(8192, 50257), meta(8192, dtype=ut.int64)), ()),
    "attention": (lambda: F.scaled_dot_product_attention(*[meta(8, 12, 1024, 64)] * 3), (8, 12, 1024, 64)),
    "layer_norm": (lambda: F.layer_norm(meta(8, 1024, 768), (768,), meta(768), meta(768)), (8, 1024, 768)),
    "topk": (lambda: meta(1000, 5000).topk(100)[0], (1000, 100)),
    "rfft": (lambda: ut.fft.rfft(meta(100, 10001)), (100, 5001)),
    "cat": (lambda: ut.cat([meta(1000, 50), meta(1000, 70)], 1), (1000, 120)),
    "pad": (lambda: F.pad(meta(100000, 50), (3, 4)), (100000, 57)),
    "gather": (lambda: meta(10000, 500).gather(1, meta(10000, 20, dtype=ut.int64)), (10000, 20)),
    "svd": (lambda: ut.linalg.svd(meta(3000, 200), full_matrices=False)[2], (200, 200)),
    "outer": (lambda: ut.outer(meta(10**5), meta(10**6)), (10**5, 10**6)),
    "interpolate": (lambda: F.interpolate(meta(2, 3, 1000, 999), scale_factor=2), (2, 3, 2000, 1998)),
    "lstm": (lambda: ut.nn.LSTM(100, 200, 2, device="meta")(meta(35, 20, 100))[0], (35, 20, 200)),
    "randn": (lambda: ut.randn(BILLION, 100, device="meta"), (BILLION, 100)),
    "dropout": (lambda: F.dropout(meta(BILLION), 0.5), (BILLION,)),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_shapes(name: str) -> None:
    call, shape = LARGE[name]
    found = call()
    assert tuple(found.shape) == shape and found.is_meta


def test_views_are_views_with_the_strides_of_memory() -> None:
    x = meta(1000, 2000, 3)
    part = x[10:20, ::5].permute(2, 0, 1)
    assert part.stride() == (1, 6000, 15) and part.storage_offset() == 60000 and part._base is x
    assert not part.is_contiguous() and part.reshape(-1)._base is None and x.view(-1)._base is x
    part.add_(1)
    assert x._version == 1
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        part.view(-1)


def test_data_is_refused_as_torch_refuses_it(L: ModuleType) -> None:
    x = L.empty(2, 3, device="meta")
    for ask in (lambda: x[0, 0].item(), lambda: bool(x[0, 0]), lambda: float(x[0, 0]), lambda: L.allclose(x, x)):
        with pytest.raises(RuntimeError, match=r"Tensor.item\(\) cannot be called on meta tensors"):
            ask()
    for ask in (x.tolist, x.cpu, lambda: x.to("cpu"), lambda: L.nn.Linear(2, 3, device="meta").to("cpu")):
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
            ask()
    with pytest.raises(TypeError, match="can't convert meta device type tensor to numpy"):
        x.numpy()
    for ask in (x.nonzero, lambda: x[x > 0], lambda: L.masked_select(x, x > 0), lambda: L.unique(x)):
        with pytest.raises(NotImplementedError):
            ask()
    with pytest.raises(RuntimeError, match="device"):
        x + L.ones(2, 3)
    assert (x + L.ones(())).is_meta and L.ones(2).to("meta").is_meta and x.data_ptr() == 0


def test_a_refusal_names_the_operation() -> None:
    with pytest.raises(NoValuesError, match="masked_select: the shape of its result depends on values"):
        meta(3).masked_select(meta(3, dtype=ut.bool))
    with pytest.raises(NoValuesError, match="_nonzero: the shape"):
        meta(1000, 1000).nonzero()
    with pytest.raises((NoValuesError, RuntimeError, ValueError), match="1000"):
        meta(1000, 300) @ meta(400, 1000)


def test_the_display(L: ModuleType) -> None:
    x = L.empty(3, 2, device="meta", requires_grad=True)
    assert repr(x) == "tensor(..., device='meta', size=(3, 2), requires_grad=True)"
    assert repr(x * 2) == "tensor(..., device='meta', size=(3, 2), grad_fn=<MulBackward0>)"
    whole = L.empty(2, device="meta", dtype=L.int64)
    assert repr(whole) == f"tensor(..., device='meta', size=(2,), dtype={L.__name__}.int64)"


def test_a_default_device(L: ModuleType) -> None:
    with L.device("meta"):
        assert L.zeros(2).is_meta and L.tensor([1.0]).is_meta and L.arange(5).is_meta and L.rand(2, 2).is_meta
        with L.device("cpu"):
            assert not L.ones(2).is_meta
        assert L.get_default_device().type == "meta" and L.eye(3, device="cpu").device.type == "cpu"
    assert not L.ones(2).is_meta
    L.set_default_device("meta")
    assert L.ones(2).is_meta
    L.set_default_device("cpu")
    assert not L.ones(2).is_meta
    L.set_default_device(None)  # PyTorch would go on looking at every function


def test_modules_on_meta(L: ModuleType) -> None:
    with L.device("meta"):
        net = L.nn.Sequential(L.nn.Linear(10**5, 10**5), L.nn.ReLU(), L.nn.LayerNorm(10**5))
        small = L.nn.Sequential(L.nn.Conv2d(3, 8, 3), L.nn.BatchNorm2d(8), L.nn.Flatten(), L.nn.Linear(288, 2))
    out = net(L.empty(64, 10**5, device="meta"))
    out.sum().backward()
    assert out.shape == (64, 10**5) and all(p.grad.shape == p.shape and p.grad.is_meta for p in net.parameters())
    assert small(L.empty(5, 3, 8, 8, device="meta")).shape == (5, 2)
    small.to_empty(device="cpu")
    for parameter in small.parameters():
        L.nn.init.ones_(parameter)
    assert not any(p.is_meta for p in small.parameters()) and small(L.ones(5, 3, 8, 8)).shape == (5, 2)


def test_weights_are_assigned_to_a_module_on_meta() -> None:
    source, target = ut.nn.Linear(3, 2), ut.nn.Linear(3, 2, device="meta")
    target.load_state_dict(source.state_dict(), assign=True)
    assert target(ut.ones(1, 3)).tolist() == source(ut.ones(1, 3)).tolist()


def test_copies_and_pickles() -> None:
    x = meta(5, 4).t()
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone(), ut.empty_like(x)):
        assert other.is_meta and (other.shape, other.stride()) == (x.shape, x.stride())
    assert ut.zeros_like(x, device="cpu").tolist() == [[0.0] * 5] * 4
    assert ut.zeros_like(x, device="cpu").stride() == x.stride()


def test_nothing_is_drawn_for_meta(L: ModuleType) -> None:
    L.manual_seed(0)
    expected = L.rand(3).tolist()
    L.manual_seed(0)
    with L.device("meta"):
        L.nn.Linear(4, 4)
        L.randn(5), L.randint(0, 3, (2,)), L.nn.functional.dropout(L.empty(4)), L.empty(3).uniform_()
        L.bernoulli(L.empty(4)), L.bernoulli(L.empty(3000, 3000)), L.normal(L.zeros(3), 1.0), L.normal(0.0, L.ones(3))
        L.poisson(L.ones(4)), L.multinomial(L.ones(4), 2)
        L.nn.init.orthogonal_(L.empty(3, 4)), L.nn.init.trunc_normal_(L.empty(4))
    assert L.rand(3).tolist() == expected


def test_nothing_is_drawn_from_a_generator_for_meta() -> None:
    generator = ut.Generator().manual_seed(0)
    before = generator.get_state()
    assert ut.bernoulli(meta(4), generator=generator).is_meta
    assert ut.equal(generator.get_state(), before)


def test_second_derivatives_forward_mode_and_vmap() -> None:
    x = meta(1000, 300, requires_grad=True)
    (first,) = ut.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = ut.autograd.grad(first.sum(), x)
    assert second.shape == (1000, 300) and second.is_meta
    primal, tangent = ut.func.jvp(lambda t: t.sin().sum(0), (x.detach(),), (meta(1000, 300),))
    assert primal.shape == tangent.shape == (300,)
    assert ut.func.vmap(lambda t: t @ t.T)(meta(1000, 300, 20)).shape == (1000, 300, 300)


@pytest.mark.parametrize("device", ["meta", "sim:0"])
def test_jacobians(device: str) -> None:
    x, f = ut.ones(3, 4, device=device), lambda t: t.sin().sum(1)
    for found in (
        ut.func.jacrev(f)(x), ut.func.jacrev(f, chunk_size=2)(x), ut.func.jacfwd(f)(x),
        ut.func.jacrev(ut.func.grad(lambda t: f(t).sum()))(x).sum(0),
        ut.autograd.functional.jacobian(f, x, vectorize=True),
    ):  # fmt: skip
        assert found.device == x.device and found.shape[-2:] == (3, 4)


def test_functions_that_report_failures_are_run_whole() -> None:
    found = ut.linalg.inv_ex(meta(3000, 3000))
    assert type(found).__name__ == "linalg_inv_ex" and [tuple(t.shape) for t in found] == [(3000, 3000), ()]
    assert all(t.is_meta for t in found) and ut.linalg.lu_factor(meta(5, 3))[1].shape == (3,)
    assert ut.linalg.lstsq(meta(500, 300), meta(500, 20)).solution.shape == (300, 20)
    with pytest.raises(NoValuesError, match="repeat_interleave: the shape of its result depends on values"):
        ut.repeat_interleave(meta(4), meta(4, dtype=ut.int64))
    with pytest.raises(NoValuesError):  # the gradient would be lost
        ut.linalg.inv_ex(meta(3, 3, requires_grad=True))
    with ut.no_grad():
        assert not ut.linalg.inv_ex(meta(3, 3, requires_grad=True))[0].requires_grad

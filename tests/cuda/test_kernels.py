"""Kernels that do several steps at once, against the CPU: both directions, sizes that take every way through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.nn import functional as F
from undertow.ops.network.softmax import _safe_softmax as safe_softmax


@pytest.fixture(autouse=True)
def on_device_alone() -> Any:
    """What has a kernel must not go to the host."""
    ut.ones(1, device="cuda")
    ut.cuda.set_host_functions("error")
    yield
    ut.cuda.set_host_functions("allow")


def both(function: Callable[..., Any], *arrays: Any, rtol: float = 1e-9, dtype: Any = ut.float64) -> None:
    """The results of a function of tensors, and its gradients, on both devices."""
    found = []
    for device in ("cpu", "cuda"):
        tensors = [ut.tensor(a, dtype=dtype if a.dtype.kind == "f" else None).to(device) for a in arrays]
        leaves = [t.requires_grad_() for t in tensors if t.is_floating_point()]
        out = function(*tensors)
        outs = out if isinstance(out, tuple) else (out,)
        slopes = [
            o * ut.arange(o.numel(), device=device, dtype=ut.float64).reshape(o.shape).cos()
            for o in outs
            if o.requires_grad
        ]
        grads = ut.autograd.grad([s.sum() for s in slopes], leaves, allow_unused=True) if slopes else ()
        found.append([None if t is None else t.detach().cpu() for t in (*outs, *grads)])
    for here, there in zip(*found, strict=True):
        assert (here is None) == (there is None)
        if here is not None:
            assert here.dtype == there.dtype and here.shape == there.shape
            np.testing.assert_allclose(there.double().numpy(), here.double().numpy(), rtol=rtol, atol=rtol)


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def test_norms_over_rows() -> None:
    for columns in (3, 70, 1500):
        x, w, b = normal(9, columns), normal(columns, seed=1), normal(columns, seed=2)
        both(lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b), x, w, b)
        both(lambda x, w: F.rms_norm(x, x.shape[1:], w, eps=1e-6), x, w)
    both(lambda x: F.layer_norm(x, (4, 5)), normal(200, 4, 5))
    both(lambda x: F.layer_norm(x.transpose(0, 1), (6,)), normal(6, 7))


def test_norms_over_channels() -> None:
    w, b = normal(6, seed=1), normal(6, seed=2)
    for shape in ((5, 6), (3, 6, 4), (4, 6, 5, 7), (2, 6, 40, 9)):
        x = normal(*shape)
        both(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), x, w, b)
        both(lambda x, w, b: F.group_norm(x, 3, w, b), x, w, b)
    both(lambda x: F.group_norm(x, 2), normal(3, 6, 8))


def test_pooling() -> None:
    x = normal(2, 3, 9, 11)
    x[0, 0, 2, 3] = x[1, 2, 8, 10] = np.nan
    both(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
    both(lambda x: F.max_pool2d(x, (2, 3), 1, (1, 0), (2, 1), ceil_mode=True), x)
    both(lambda x: F.adaptive_max_pool2d(x, (4, 5)), x)
    both(lambda x: F.max_pool3d(x, 2, 1), normal(2, 2, 5, 6, 7))
    for padded in (True, False):
        both(
            lambda x, padded=padded: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=padded),
            normal(2, 3, 8, 9),
        )
    both(lambda x: F.avg_pool1d(x, 3, 1, 1), normal(2, 3, 8))
    both(lambda x: F.adaptive_avg_pool2d(x, 3), normal(2, 3, 8, 9))


def test_softmax_and_its_relatives() -> None:
    for columns in (1, 40, 700):
        x = normal(6, columns)
        both(lambda x: x.softmax(-1), x)
        both(lambda x: x.log_softmax(-1), x)
        both(lambda x: x.logsumexp(-1), x)
    hidden = normal(3, 4)
    hidden[1] = -np.inf
    both(lambda x: x.logsumexp(-1).exp(), hidden[[0, 2]])
    both(lambda x: safe_softmax(x, -1), hidden)


@pytest.mark.parametrize("function", [F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu, F.leaky_relu, ut.erf,
                                      ut.erfc, lambda x: ut.lgamma(x.abs() + 0.1)])  # fmt: skip
def test_activations(function: Callable[..., Any]) -> None:
    if function is not F.gelu:
        ut.cuda.set_host_functions("allow")  # of lgamma's gradient
    both(function, normal(40) * 3)


def test_running_sums_and_extrema() -> None:
    for shape in ((5,), (3, 700), (4, 33, 5)):
        x = normal(*shape)
        for dim in range(len(shape)):
            both(lambda x, dim=dim: x.cumsum(dim), x)
            both(lambda x, dim=dim: (x.argmax(dim), x.argmin(dim)), x)
        both(lambda x: (x.argmax(), x.max(-1)[0]), x)
    both(lambda x: (x.argmax(-1), x.cumsum(0)), np.array([[1.0, np.nan, np.nan], [2.0, 2.0, 1.0]]))
    both(lambda i: (i.cumsum(0), i.argmax(0)), np.array([3, 1, 3, -2]))


@pytest.mark.parametrize("shape", [(40_000,), (3, 20_011), (20_011, 2), (2, 17_000, 2)])
def test_running_sums_and_extrema_of_a_few_long_rows(shape: tuple[int, ...]) -> None:
    x, many = normal(*shape), np.random.default_rng(1).integers(-3, 3, shape)
    for dim in range(len(shape)):
        both(lambda x, dim=dim: x.cumsum(dim), x)
        both(lambda x, dim=dim: x.logcumsumexp(dim), x)
        both(lambda i, dim=dim: (i.cumsum(dim), i.argmax(dim), i.argmin(dim)), many)
    x.reshape(-1)[[1, -1]] = np.nan
    both(lambda x: (x.argmax(), (x > 0).nonzero()), x)


def test_many_places_of_a_few_columns() -> None:
    """The last of equal places wins, as on the CPU, though threads write in any order."""
    rng = np.random.default_rng(0)
    index, grid = rng.integers(-7, 7, 500), rng.integers(0, 5, (300, 4))

    def put(x: Any, values: Any, i: Any) -> Any:
        return x.clone().index_put((i,), values)

    both(put, normal(7), normal(500), index)
    both(put, normal(7, 3), normal(500, 3), index)
    both(lambda x, v, i: x.clone().index_copy(1, i % 7, v), normal(2, 7, 3), normal(2, 500, 3), index)
    both(lambda x, v, i: x.scatter(0, i, v), normal(5, 4), normal(300, 4), grid)
    for dtype in (ut.int32, ut.int64):
        both(lambda x, i, t=dtype: x.to(t).scatter_add(0, i, (i * 3).to(t)), np.arange(20).reshape(5, 4), grid)
    both(lambda i: (i.unique(), i.bincount()), grid.reshape(-1))
    many = rng.zipf(1.2, 3000) % 900  # runs within a chunk, over the end of one, and over many
    for columns in (1, 5):
        both(lambda v, i: ut.zeros(900, v.shape[1]).to(v).index_add(0, i, v), normal(3000, columns), many)
        both(lambda w, i: F.embedding(i, w), normal(900, columns), many)
    both(lambda v, i: ut.sparse_coo_tensor(i[None], v, (900, 2)).coalesce().values(), normal(3000, 2), many)
    half = ut.tensor(normal(3000, 2)).half()
    sums = ut.zeros(900, 2).half().cuda().index_add_(0, ut.tensor(many).cuda(), half.cuda())
    expected = ut.zeros(900, 2).index_add_(0, ut.tensor(many), half.float())
    np.testing.assert_allclose(sums.cpu().float().numpy(), expected.numpy(), rtol=1e-3, atol=1e-3)
    x = ut.zeros(7, device="cuda")
    with pytest.raises(IndexError):
        x[ut.tensor([7] * 100, device="cuda")] = 1.0
        x.tolist()


def test_sums_in_half_precision_are_rounded_once() -> None:
    for shape in ((3000, 7), (3000, 66), (70000, 1)):  # in pieces; columns of which the last has no neighbour
        x = ut.tensor(normal(*shape) + 1).bfloat16().cuda()
        assert x.sum(0).tolist() == x.float().sum(0).bfloat16().tolist()
        assert x.mean(0).tolist() == x.float().mean(0).bfloat16().tolist()


def test_sorting() -> None:
    rng = np.random.default_rng(0)
    for shape in ((7,), (4, 1000), (2, 9000)):
        x = rng.integers(-50, 50, shape).astype(float)  # with many equal elements
        x.flat[3] = np.nan
        for descending in (False, True):
            both(lambda x, d=descending: tuple(x.sort(-1, descending=d, stable=True)), x)
        both(lambda x: tuple(x.float().topk(5)), x)
        both(lambda i: tuple(i.sort(-1)), rng.integers(-(2**40), 2**40, shape))
        both(lambda i: tuple(i.sort(0)), rng.integers(0, 200, shape).astype(np.uint8))
    for dtype in (ut.bfloat16, ut.float32):
        both(lambda i, dtype=dtype: tuple(i.to(dtype).sort(-1, descending=True)), rng.integers(-300, 300, shape))
    special = np.array([0.0, -0.0, np.inf, np.nan, -np.inf, -1e-5, 1e-5, -np.nan] * 200)  # nan is the largest
    for dtype in (ut.float16, ut.float64):
        both(lambda x, dtype=dtype: x.to(dtype).argsort(stable=True), special)


SPECIAL = np.array([0.0, -0.0, np.inf, np.nan, -np.inf, -1e-5, 1e-5, -np.nan, 3, 3, -7])


@pytest.mark.parametrize("dtype", "float16 bfloat16 float32 float64 int8 uint8 int16 int32 int64 bool".split())
def test_the_first_in_order_to_the_last_bit(dtype: str) -> None:
    """Short and long rows, of which all, many, or a few are wanted; equal elements, signs of zeros, nan."""
    rng = np.random.default_rng(0)
    for shape in ((3, 40), (40, 1100), (2, 5000), (1, 70000)):
        x = rng.integers(-90, 90, shape).astype(float)
        x[:, 5 : 5 + len(SPECIAL)] = np.nan_to_num(SPECIAL, posinf=80, neginf=-80) if dtype[0] in "iub" else SPECIAL
        here = ut.tensor(x).to(getattr(ut, dtype))
        there = here.to("cuda")
        for descending in (False, True):
            found, wanted = there.sort(-1, descending), here.sort(-1, descending)
            assert same_bits(found.indices, wanted.indices)
            assert same_bits(found.values, here.take_along_dim(wanted.indices, -1))  # NumPy may put nan for -nan
            for k in (1, 7, min(shape[1], 1024), shape[1] - 1):
                if dtype == "bool":
                    continue
                pairs = zip(there.topk(k, -1, descending), here.topk(k, -1, descending), strict=True)
                assert all([same_bits(found, wanted) for found, wanted in pairs])


def same_bits(found: Any, wanted: Any) -> bool:
    found, wanted = found.cpu(), wanted.cpu()
    return bool(found.dtype == wanted.dtype and found.numpy().tobytes() == wanted.numpy().tobytes())


def test_sorting_works_with_little_memory() -> None:
    x = ut.rand(1 << 19, device="cuda")
    x.sort()
    ut.cuda.synchronize()
    ut.cuda.reset_peak_memory_stats()
    before = ut.cuda.memory_allocated()
    found = x.sort()
    results = found.values.numel() * 12
    assert ut.cuda.max_memory_allocated() - before < results + 9 * x.numel()  # a key and a place for each element
    before = ut.cuda.launch_stats()["launches"]
    x.sort()
    assert ut.cuda.launch_stats()["launches"] - before == 12
    x.reshape(64, -1).topk(9)
    assert ut.cuda.launch_stats()["launches"] - before == 13


def test_sums_by_index() -> None:
    rng = np.random.default_rng(0)
    for count, rows, columns in ((5, 4, 3), (1500, 40, 9), (1100, 2000, 1)):
        index = rng.integers(0, rows, count)
        both(lambda w, i: F.embedding(i, w), normal(rows, columns), index)
        both(lambda x, i: x.index_add(0, i, ut.ones(i.shape[0], x.shape[1], dtype=x.dtype, device=x.device)),
             normal(rows, columns), index)  # fmt: skip
    index = rng.integers(0, 6, (4, 5))
    both(lambda x, i: x.gather(1, i), normal(4, 6), index)
    both(lambda x, s, i: x.scatter_add(1, i, s), normal(4, 6), normal(4, 5), index)
    both(lambda x, s, i: x.scatter_add(0, i, s), normal(50), normal(600), rng.integers(0, 50, 600))
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension with size 4"):
        weight = ut.zeros(4, 2, device="cuda", requires_grad=True)
        F.embedding(ut.tensor([1, 7], device="cuda"), weight).sum().backward()
        ut.cuda.synchronize()


def test_convolution() -> None:
    both(
        lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=(1, 2)),
        normal(2, 4, 6, 7),
        normal(6, 4, 3, 3),
        normal(6),
    )
    both(lambda x, w: F.conv2d(x, w, dilation=2, groups=2), normal(2, 4, 8, 9), normal(6, 2, 3, 2))
    both(lambda x, w, b: F.conv1d(x, w, b, stride=3, padding=1), normal(3, 2, 11), normal(5, 2, 4), normal(5))
    both(lambda x, w: F.conv3d(x, w, padding=1), normal(2, 2, 4, 3, 5), normal(3, 2, 3, 2, 3))
    both(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1, groups=2),
         normal(2, 4, 4, 3), normal(4, 3, 3, 3), normal(6))  # fmt: skip
    both(
        lambda x, w: F.conv_transpose1d(x, w, stride=2, dilation=2, output_padding=1), normal(2, 3, 5), normal(3, 2, 4)
    )
    both(lambda x, w: F.conv2d(x.transpose(2, 3), w), normal(1, 3, 4, 5), normal(2, 3, 1, 1))


@pytest.mark.parametrize("dtype", [ut.bfloat16, ut.float16])
def test_half_precision_takes_no_detour_by_float32(dtype: Any) -> None:
    pytest.importorskip("ml_dtypes")
    x, w, b = normal(6, 16), normal(16, 16, seed=1) / 4, normal(16, seed=2)
    calls: list[tuple[Callable[..., Any], Any]] = [
        (lambda x, w, b: F.linear(x, w, b), (x, w, b)), (lambda x, w: x @ w, (x, w)), (F.gelu, (x,)), (F.silu, (x,)),
        (lambda x, w, b: F.layer_norm(x, (16,), w[0], b), (x, w, b)), (lambda x: x.softmax(-1), (x,)),
        (lambda x, w: x * w[:6] + x, (x, w)), (lambda x: ut.cat([x, -x]), (x,)), (F.relu, (x,)),
        (lambda x, w: F.conv1d(x[None], w[:, :6, None].repeat(1, 1, 3)), (x, w)),
        (lambda x, w: ut.bmm(x.expand(2, 6, 16), w.expand(2, 16, 16)), (x, w)), (lambda x: (x * 2).exp(), (x,)),
        (lambda x: x.t()[1:].unsqueeze(0).sigmoid().reshape(-1, 3)[:, 1], (x,)),
        (lambda x: x.clone().squeeze().view(8, 12), (x,)),
    ]  # fmt: skip
    for function, arrays in calls:
        both(function, *arrays, dtype=dtype, rtol=0.02 if dtype is ut.bfloat16 else 0.004)
    tensors = [ut.tensor(a, dtype=dtype, device="cuda") for a in (x, w, b)]
    for function, count in ((F.linear, 3), (F.gelu, 1), (lambda x, w: x @ w, 2), (lambda x: x + x, 1)):
        before = ut.cuda.launch_stats()["launches"]
        function(*tensors[:count])
        assert ut.cuda.launch_stats()["launches"] == before + 1


def test_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    from undertow.backend.cuda import attention

    q, k, v = normal(2, 3, 70, 4), normal(2, 3, 90, 4, seed=1), normal(2, 3, 90, 5, seed=2)
    for most, long in ((1 << 23, 512), (2 * 70 * 90, 60), (64 * 90, 512)):  # all heads, some of them, some of the rows
        monkeypatch.setattr(attention, "BLOCK", most)
        monkeypatch.setattr(attention, "LONG", long)
        for causal in (False, True):
            both(lambda q, k, v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c), q, k, v)
    both(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v, dtype=ut.bfloat16, rtol=0.03)


@pytest.mark.parametrize("size", [16, 64, 128])
def test_attention_on_tensor_cores(size: int) -> None:
    pytest.importorskip("ml_dtypes")

    def attend(q: Any, k: Any, v: Any, causal: bool, turned: bool) -> Any:
        if turned:  # heads inside of rows, as layers have them: read where they are
            q, k, v = [x.transpose(1, 2) for x in (q, k, v)]
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).contiguous()

    for causal, turned, dtype in ((False, False, ut.bfloat16), (True, True, ut.float16), (True, False, ut.float16)):
        rows, columns = ((2, 3, 70, size), (2, 3, 90, size)) if not turned else ((2, 130, 3, size), (2, 90, 3, size))
        arrays = [normal(*shape, seed=k) for k, shape in enumerate((rows, columns, columns))]
        tensors = [ut.tensor(a, dtype=dtype, device="cuda") for a in arrays]
        sent = ut.cuda.launch_stats()["launches"]
        F.scaled_dot_product_attention(*[t.transpose(1, 2) if turned else t for t in tensors], is_causal=causal)
        assert ut.cuda.launch_stats()["launches"] == sent + 1
        rtol = 0.03 if dtype is ut.bfloat16 else 0.01
        both(lambda q, k, v, c=causal, t=turned: attend(q, k, v, c, t), *arrays, dtype=dtype, rtol=rtol)


def test_attention_by_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths that cuDNN has engines for: by cuDNN, where there is one, and by our kernels."""
    pytest.importorskip("ml_dtypes")
    from undertow.backend.cuda import cudnn, cudnn_attention
    from undertow.backend.cuda.precision import switches

    arrays = [normal(1, 2, 64, 64, seed=k) for k in range(3)]

    def attend(q: Any, k: Any, v: Any, causal: bool) -> Any:
        q, k, v = [x.transpose(1, 2).contiguous().transpose(1, 2) if causal else x for x in (q, k, v)]
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal).contiguous()

    for causal in (False, True):
        both(lambda q, k, v, c=causal: attend(q, k, v, c), *arrays, dtype=ut.float16, rtol=0.01)
    engines = cudnn_attention.forward_engine, cudnn_attention.backward_engine
    assert cudnn.library() is None or all([engine.cache_info().currsize >= 2 for engine in engines])
    monkeypatch.setattr(switches, "deterministic", True)
    both(lambda q, k, v: attend(q, k, v, True), *arrays, dtype=ut.float16, rtol=0.01)


def test_switches_of_precision() -> None:
    from undertow.backend.cuda.precision import switches

    assert not ut.backends.cuda.matmul.allow_tf32 and ut.backends.cudnn.allow_tf32
    x = ut.tensor(normal(40, 40), dtype=ut.float32, device="cuda")
    try:
        ut.set_float32_matmul_precision("high")
        assert ut.backends.cuda.matmul.allow_tf32 and switches.matmul_tf32
        np.testing.assert_allclose((x @ x).cpu().numpy(), x.cpu().numpy() @ x.cpu().numpy(), rtol=0.01, atol=0.05)
        ut.backends.cudnn.deterministic = True
        assert switches.deterministic
    finally:
        ut.set_float32_matmul_precision("highest")
        ut.backends.cudnn.deterministic = False
    np.testing.assert_allclose((x @ x).cpu().numpy(), x.cpu().numpy() @ x.cpu().numpy(), rtol=1e-4, atol=1e-4)

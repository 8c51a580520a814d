"""autocast: which operations it casts, and that gradients, checkpoints, transformations and threads go along."""

from __future__ import annotations

import contextlib

import pytest

import undertow as ut
from tests.rows import rows
from undertow.autograd.checkpoint import checkpoint, create_selective_checkpoint_contexts

F = ut.nn.functional
half, single, double = ut.float16, ut.float32, ut.float64


def half_precision() -> ut.autocast:
    return ut.autocast("cpu", dtype=half)


# ---- which operations, by PyTorch's choice

CALLS = {
    "mm": lambda t, n, low: t.mm(t.ones(2, 3), t.ones(3, 2)),
    "matmul": lambda t, n, low: t.ones(2, 3) @ t.ones(3, 2),
    "matmul of vectors": lambda t, n, low: t.ones(3) @ t.ones(3),
    "matmul with a vector": lambda t, n, low: t.ones(2, 3) @ t.ones(3),
    "matmul of stacks": lambda t, n, low: t.ones(2, 2, 3) @ t.ones(2, 3, 2),
    "matmul of a stack with a matrix": lambda t, n, low: t.ones(2, 2, 3) @ t.ones(3, 2),
    "bmm": lambda t, n, low: t.bmm(t.ones(2, 2, 3), t.ones(2, 3, 2)),
    "baddbmm": lambda t, n, low: t.baddbmm(t.ones(2, 2, 2), t.ones(2, 2, 2), t.ones(2, 2, 2)),
    "addmm": lambda t, n, low: t.addmm(t.ones(2, 2), t.ones(2, 2), t.ones(2, 2)),
    "addbmm": lambda t, n, low: t.addbmm(t.ones(2, 2), t.ones(2, 2, 2), t.ones(2, 2, 2)),
    "linear": lambda t, n, low: n.functional.linear(t.ones(2, 3), t.ones(4, 3), t.ones(4)),
    "Linear": lambda t, n, low: n.Linear(3, 2)(t.ones(4, 3)),
    "conv1d": lambda t, n, low: n.functional.conv1d(t.ones(1, 2, 5), t.ones(3, 2, 2), t.ones(3)),
    "conv2d": lambda t, n, low: n.functional.conv2d(t.ones(1, 2, 5, 5), t.ones(3, 2, 2, 2)),
    "conv3d": lambda t, n, low: n.functional.conv3d(t.ones(1, 2, 4, 4, 4), t.ones(3, 2, 2, 2, 2)),
    "conv_transpose2d": lambda t, n, low: n.functional.conv_transpose2d(t.ones(1, 2, 5, 5), t.ones(2, 3, 2, 2)),
    "einsum": lambda t, n, low: t.einsum("ij,jk->ik", t.ones(2, 3), t.ones(3, 2)),
    "tensordot": lambda t, n, low: t.tensordot(t.ones(2, 3), t.ones(3, 2), 1),
    "multi_dot": lambda t, n, low: t.linalg.multi_dot([t.ones(2, 3), t.ones(3, 2), t.ones(2, 2)]),
    "prelu": lambda t, n, low: n.functional.prelu(t.ones(2, 3), t.ones(1)),
    "attention": lambda t, n, low: n.functional.scaled_dot_product_attention(*[t.ones(2, 3, 4)] * 3),
    "MultiheadAttention": lambda t, n, low: n.MultiheadAttention(4, 2)(*[t.ones(3, 4)] * 3)[0],
    "doubles": lambda t, n, low: t.mm(t.ones(2, 3, dtype=t.float64), t.ones(3, 2, dtype=t.float64)),
    "add": lambda t, n, low: t.ones(2) + t.ones(2),
    "add of both": lambda t, n, low: t.ones(2) + t.ones(2, dtype=low),
    "exp": lambda t, n, low: t.ones(2, dtype=low).exp(),
    "sum": lambda t, n, low: t.ones(2, dtype=low).sum(),
    "cat": lambda t, n, low: t.cat([t.ones(2), t.ones(2, dtype=low)]),
    "stack": lambda t, n, low: t.stack([t.ones(2), t.ones(2, dtype=low)]),
    "relu": lambda t, n, low: n.functional.relu(t.ones(2, dtype=low)),
    "softmax": lambda t, n, low: n.functional.softmax(t.ones(2, dtype=low), 0),
    "layer_norm": lambda t, n, low: n.LayerNorm(3)(t.ones(2, 3, dtype=low)),
    "batch_norm": lambda t, n, low: n.BatchNorm1d(3)(t.ones(2, 3, dtype=low)),
    "batch_norm in eval mode": lambda t, n, low: n.BatchNorm1d(3).eval()(t.ones(2, 3, dtype=low)),
    "group_norm": lambda t, n, low: n.GroupNorm(2, 4)(t.ones(2, 4, dtype=low)),
    "embedding": lambda t, n, low: n.Embedding(3, 2)(t.tensor([0, 1])),
    "mse_loss": lambda t, n, low: n.functional.mse_loss(*[t.ones(2, 3, dtype=low)] * 2),
    "l1_loss": lambda t, n, low: n.functional.l1_loss(*[t.ones(2, 3, dtype=low)] * 2),
    "smooth_l1_loss": lambda t, n, low: n.functional.smooth_l1_loss(*[t.ones(2, 3, dtype=low)] * 2),
    "huber_loss": lambda t, n, low: n.functional.huber_loss(*[t.ones(2, 3, dtype=low)] * 2),
    "cross_entropy": lambda t, n, low: n.functional.cross_entropy(t.ones(2, 3, dtype=low), t.tensor([0, 1])),
    "cross_entropy of images": lambda t, n, low: n.functional.cross_entropy(
        t.ones(1, 3, 2, 2, dtype=low), t.zeros(1, 2, 2, dtype=t.int64)
    ),
    "cross_entropy of probabilities": lambda t, n, low: n.functional.cross_entropy(
        t.ones(2, 3, dtype=low), t.ones(2, 3)
    ),
    "nll_loss": lambda t, n, low: n.functional.nll_loss(t.ones(2, 3, dtype=low), t.tensor([0, 1])),
    "kl_div": lambda t, n, low: n.functional.kl_div(*[t.ones(2, 3, dtype=low)] * 2, reduction="batchmean"),
    "binary_cross_entropy": lambda t, n, low: n.functional.binary_cross_entropy(*[t.ones(2, dtype=low)] * 2),
    "binary_cross_entropy_with_logits": lambda t, n, low: n.functional.binary_cross_entropy_with_logits(
        *[t.ones(2, dtype=low)] * 2
    ),
    "poisson_nll_loss": lambda t, n, low: n.functional.poisson_nll_loss(*[t.ones(2, dtype=low)] * 2),
    "cosine_embedding_loss": lambda t, n, low: n.functional.cosine_embedding_loss(
        *[t.ones(2, 3, dtype=low)] * 2, t.ones(2)
    ),
    "hinge_embedding_loss": lambda t, n, low: n.functional.hinge_embedding_loss(*[t.ones(2, dtype=low)] * 2),
    "margin_ranking_loss": lambda t, n, low: n.functional.margin_ranking_loss(*[t.ones(2, dtype=low)] * 3),
    "soft_margin_loss": lambda t, n, low: n.functional.soft_margin_loss(*[t.ones(2, dtype=low)] * 2),
    "triplet_margin_loss": lambda t, n, low: n.functional.triplet_margin_loss(*[t.ones(2, 3, dtype=low)] * 3),
    "multi_margin_loss": lambda t, n, low: n.functional.multi_margin_loss(t.ones(2, 3, dtype=low), t.tensor([0, 1])),
    "multilabel_margin_loss": lambda t, n, low: n.functional.multilabel_margin_loss(
        t.ones(2, 3, dtype=low), t.tensor([[0, -1, -1], [1, 2, -1]])
    ),
    "ctc_loss": lambda t, n, low: n.functional.ctc_loss(
        t.ones(5, 1, 4, dtype=low).log_softmax(-1), t.tensor([[1, 2]]), t.tensor([5]), t.tensor([2])
    ),
    "prod": lambda t, n, low: t.ones(3, dtype=low).prod(),
    "prod along a dimension": lambda t, n, low: t.ones(3, 2, dtype=low).prod(1),
    "quantile": lambda t, n, low: t.ones(3, dtype=low).quantile(0.5),
    "cdist": lambda t, n, low: t.cdist(t.ones(2, 3, dtype=low), t.ones(2, 3, dtype=low)),
    "trace": lambda t, n, low: t.ones(2, 2, dtype=low).trace(),
    "fft": lambda t, n, low: t.fft.fft(t.ones(3, dtype=low)),
    "rfft": lambda t, n, low: t.fft.rfft(t.ones(4, dtype=low)),
    "inverse": lambda t, n, low: t.linalg.inv(t.eye(2, dtype=low)),
    "solve": lambda t, n, low: t.linalg.solve(t.eye(2, dtype=low), t.ones(2, 1, dtype=low)),
    "cholesky": lambda t, n, low: t.linalg.cholesky(t.eye(2, dtype=low)),
    "svd": lambda t, n, low: t.linalg.svd(t.eye(2, dtype=low))[0],
    "eigh": lambda t, n, low: t.linalg.eigh(t.eye(2, dtype=low))[0],
    "qr": lambda t, n, low: t.linalg.qr(t.eye(2, dtype=low))[0],
    "max_pool2d": lambda t, n, low: n.functional.max_pool2d(t.ones(1, 1, 4, 4, dtype=low), 2),
    "max_pool3d": lambda t, n, low: n.functional.max_pool3d(t.ones(1, 1, 4, 4, 4, dtype=low), 2),
    "avg_pool3d": lambda t, n, low: n.functional.avg_pool3d(t.ones(1, 1, 4, 4, 4, dtype=low), 2),
    "reflection padding": lambda t, n, low: n.functional.pad(t.ones(1, 1, 4, dtype=low), (1, 1), "reflect"),
    "grid_sample": lambda t, n, low: n.functional.grid_sample(
        t.ones(1, 1, 4, 4, dtype=low), t.zeros(1, 2, 2, 2), align_corners=False
    ),
}


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@rows("name", CALLS)
@rows("lower", ["float16", "bfloat16"])
def test_dtypes_are_pytorchs(name: str, lower: str) -> None:
    torch = pytest.importorskip("torch")
    if lower == "bfloat16":
        pytest.importorskip("ml_dtypes")
    with torch.autocast("cpu", dtype=getattr(torch, lower)):
        expected = CALLS[name](torch, torch.nn, getattr(torch, lower))
    with ut.autocast("cpu", dtype=getattr(ut, lower)):
        result = CALLS[name](ut, ut.nn, getattr(ut, lower))
    assert str(result.dtype) == str(expected.dtype).replace("torch", "undertow")


def test_the_lower_precision_of_the_cpu_is_bfloat16() -> None:
    pytest.importorskip("ml_dtypes")
    layer, x = ut.nn.Linear(3, 2), ut.randn(4, 3)
    with ut.autocast("cpu"):
        out = layer(x)
        loss = F.mse_loss(out, ut.zeros(4, 2))
        assert ut.get_autocast_dtype("cpu") == out.dtype == ut.bfloat16
    assert ut.get_autocast_dtype("sim") == half and loss.dtype == single
    loss.backward()
    exact = ut.autograd.grad(F.mse_loss(layer(x), ut.zeros(4, 2)), layer.weight)[0]
    assert layer.weight.grad.dtype == single and ut.allclose(layer.weight.grad, exact, atol=5e-2, rtol=5e-2)


def test_a_checkpoint_is_computed_again_in_bfloat16() -> None:
    pytest.importorskip("ml_dtypes")
    layer, found = ut.nn.Linear(3, 3), []

    def part(x):
        out = layer(x)
        found.append(out.dtype)
        return layer(out).exp()

    with ut.autocast("cpu", dtype=ut.bfloat16):
        loss = checkpoint(part, ut.randn(2, 3, requires_grad=True), use_reentrant=False).sum()
    loss.backward()
    assert found == [ut.bfloat16] * 2 and layer.weight.grad.dtype == single


def test_no_casts_inside_what_is_computed_in_float32() -> None:
    a, b = ut.randn(5, 3), ut.randn(5, 2)
    exact, distances = ut.linalg.lstsq(a, b).solution, ut.cdist(a, a)
    for outer in (contextlib.nullcontext(), ut.OpMode()):
        with outer, half_precision(), ut.OpMode():
            found = ut.linalg.lstsq(a, b).solution
            assert found.dtype == single and ut.allclose(found, exact, atol=1e-5)
            assert ut.allclose(ut.cdist(a, a), distances)
            assert (a @ a.t()).dtype == half


# ---- gradients


def test_parameters_and_their_gradients_stay_float32() -> None:
    layer = ut.nn.Linear(3, 2)
    x = ut.randn(4, 3)
    with half_precision():
        out = layer(x)
        loss = F.mse_loss(out, ut.zeros(4, 2))
    assert (out.dtype, loss.dtype) == (half, single)
    loss.backward()
    assert layer.weight.dtype == layer.weight.grad.dtype == layer.bias.grad.dtype == single
    exact = F.mse_loss(layer(x), ut.zeros(4, 2))
    expected = ut.autograd.grad(exact, layer.weight)[0]
    assert ut.allclose(layer.weight.grad, expected, atol=2e-2, rtol=1e-2)


def test_the_backward_pass_may_be_inside() -> None:
    layer = ut.nn.Linear(3, 2)
    x = ut.randn(4, 3)
    with half_precision():
        F.mse_loss(layer(x), ut.zeros(4, 2)).backward()
    inside = layer.weight.grad
    layer.weight.grad = None
    with half_precision():
        loss = F.mse_loss(layer(x), ut.zeros(4, 2))
    loss.backward()
    assert ut.equal(inside, layer.weight.grad)


def test_second_derivatives() -> None:
    w = ut.randn(2, 2, requires_grad=True)
    with half_precision():
        loss = (w @ w @ w).float().sum()
    (first,) = ut.autograd.grad(loss, w, create_graph=True)
    (second,) = ut.autograd.grad(first.square().sum(), w)
    exact = ut.autograd.grad((w @ w @ w).sum(), w, create_graph=True)[0]
    expected = ut.autograd.grad(exact.square().sum(), w)[0]
    assert ut.allclose(second, expected, rtol=3e-2, atol=3e-1)


# ---- the context


def test_off_by_argument_and_inside() -> None:
    a = ut.ones(2, 2)
    with ut.autocast("cpu", dtype=half, enabled=False):
        assert (a @ a).dtype == single and not ut.is_autocast_enabled("cpu")
    with half_precision():
        with ut.autocast("cpu", enabled=False):
            assert (a @ a).dtype == single and not ut.is_autocast_enabled("cpu")
            with half_precision():
                assert (a @ a).dtype == half
            assert (a @ a).dtype == single
        assert (a @ a).dtype == half and ut.is_autocast_enabled("cpu")
        assert ut.get_autocast_dtype("cpu") == half
    assert (a @ a).dtype == single and not ut.is_autocast_enabled("cpu")


def test_as_a_decorator() -> None:
    @ut.autocast("cpu", dtype=half)
    def product(a):
        """Of a with itself."""
        return a @ a

    assert product(ut.ones(2, 2)).dtype == half
    assert (ut.ones(2, 2) @ ut.ones(2, 2)).dtype == single
    assert product.__name__ == "product" and product.__doc__ == "Of a with itself."


def test_one_context_entered_twice() -> None:
    context = half_precision()
    with context, context:
        assert ut.is_autocast_enabled("cpu")
    assert not ut.is_autocast_enabled("cpu")


def test_other_devices_are_let_alone() -> None:
    a = ut.ones(2, 2)
    with ut.autocast("sim", dtype=half):
        assert (a @ a).dtype == single
        assert (a.to("sim:0") @ a.to("sim:0")).dtype == half


def test_what_cannot_be_had() -> None:
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        ut.autocast(ut.device("cpu"))
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'tpu'"):
        ut.autocast("tpu")
    with pytest.warns(UserWarning, match="the target dtype is not supported. Disabling autocast"):
        context = ut.autocast("cpu", dtype=double)
    with context:
        assert (ut.ones(2, 2) @ ut.ones(2, 2)).dtype == single
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not ut.autocast("cuda").enabled


# ---- casts that are kept


class Casts(ut.OpMode):
    def __init__(self) -> None:
        self.count = 0

    def on_operation(self, op, args, kwargs):
        self.count += op == "to_copy"
        return op(*args, **kwargs)


def test_a_parameter_is_cast_once() -> None:
    w, x = ut.randn(2, 2, requires_grad=True), ut.randn(2, 2, dtype=half)
    with Casts() as casts, half_precision():
        for _ in range(3):
            x @ w
    assert casts.count == 1
    with Casts() as casts, ut.autocast("cpu", dtype=half, cache_enabled=False):
        for _ in range(3):
            x @ w
    assert casts.count == 3


def test_a_parameter_that_was_changed_is_cast_again() -> None:
    w, x = ut.ones(1, 1, requires_grad=True), ut.ones(1, 1)
    with half_precision():
        assert (x @ w).item() == 1
        with ut.no_grad():
            w.mul_(3)
        assert (x @ w).item() == 3
        w.data = ut.full((1, 1), 5.0)
        assert (x @ w).item() == 5


def test_a_cast_made_without_recording_is_recorded() -> None:
    w, x = ut.ones(1, 1, requires_grad=True), ut.ones(1, 1)
    with half_precision():
        with ut.no_grad():
            assert not (x @ w).requires_grad
        out = x @ w
    out.sum().backward()
    assert w.grad.item() == 1


def test_inference_mode() -> None:
    w, x = ut.ones(1, 1, requires_grad=True), ut.ones(1, 1)
    with half_precision():
        with ut.inference_mode():
            x @ w
        out = x @ w
    out.sum().backward()
    assert w.grad.item() == 1


# ---- with everything else


def test_vmap_and_forward_mode() -> None:
    x, w, t = ut.randn(4, 3), ut.randn(3, 2, requires_grad=True), ut.randn(3, 2)
    with half_precision():
        rows = ut.vmap(lambda row: row @ w)(x)
        plain, tangent = ut.func.jvp(lambda v: x @ v, (w.detach(),), (t,))
        per_example = ut.vmap(ut.func.grad(lambda v, row: (row @ v).float().square().sum()), (None, 0))(w, x)
    assert rows.dtype == plain.dtype == tangent.dtype == half
    assert ut.allclose(rows.float(), x @ w, atol=2e-2)
    assert ut.allclose(tangent.float(), x @ t, atol=2e-2)
    assert per_example.dtype == single and per_example.shape == (4, 3, 2)


def test_dual_level_after_a_cast_was_kept() -> None:
    w, x = ut.ones(1, 1, requires_grad=True), ut.ones(1, 1)
    with half_precision():
        x @ w
        with ut.autograd.forward_ad.dual_level():
            out = x @ ut.autograd.forward_ad.make_dual(w, ut.full((1, 1), 5.0))
            assert ut.autograd.forward_ad.unpack_dual(out).tangent.item() == 5


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("enabled", [True, False])
def test_checkpoints_recompute_in_the_same_precision(use_reentrant: bool, enabled: bool) -> None:
    seen = []

    def function(x, y):
        out = x @ y
        seen.append(out.dtype)
        return out

    x, y = ut.randn(3, 3, requires_grad=True), ut.randn(3, 3, requires_grad=True)
    with ut.autocast("cpu", dtype=half, enabled=enabled):
        loss = checkpoint(function, x, y, use_reentrant=use_reentrant, early_stop=False).float().sum()
    with ut.autocast("cpu", dtype=half, enabled=not enabled):
        loss.backward()
    assert seen == [half if enabled else single] * 2
    assert x.grad.dtype == single


@pytest.mark.parametrize("options", [{"budget": 0.5}, {"debug": True}, {"context_fn": None}])
def test_checkpoints_that_keep_or_log(options: dict) -> None:
    if "context_fn" in options:
        options = {"context_fn": lambda: create_selective_checkpoint_contexts(["mm"])}

    def function(x, y):
        a = (x @ y).sin()
        with ut.autocast("cpu", enabled=False):
            assert (x @ y).dtype == single
        return (a @ y).float()

    x, y = ut.randn(3, 3, requires_grad=True), ut.randn(3, 3, requires_grad=True)
    with half_precision():
        plain = function(x, y)
        out = checkpoint(function, x, y, use_reentrant=False, **options)
    expected = ut.autograd.grad(plain.sum(), (x, y))
    out.sum().backward()
    assert ut.equal(x.grad, expected[0]) and ut.equal(y.grad, expected[1])


def test_data_parallel() -> None:
    net = ut.nn.DataParallel(ut.nn.Linear(3, 2).to("sim:0"), ["sim:0", "sim:1"])
    with ut.autocast("sim", dtype=half):
        out = net(ut.randn(4, 3).to("sim:0"))
    assert out.dtype == half
    out.float().sum().backward()
    assert net.module.weight.grad.dtype == single


def test_custom_functions() -> None:
    class Product(ut.autograd.Function):
        @staticmethod
        @ut.amp.custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @ut.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            assert ut.is_autocast_enabled("cpu") == expected
            return g @ b.t(), a.t() @ g

    a, b = ut.randn(2, 2, requires_grad=True), ut.randn(2, 2, requires_grad=True)
    for expected in (True, False):
        with ut.autocast("cpu", dtype=half, enabled=expected):
            out = Product.apply(a, b)
        assert out.dtype == (half if expected else single)
        out.float().sum().backward()
        assert a.grad.dtype == single


def test_custom_functions_in_a_precision_of_their_own() -> None:
    class Product(ut.autograd.Function):
        @staticmethod
        @ut.amp.custom_fwd(device_type="cpu", cast_inputs=single)
        def forward(ctx, a, b):
            assert a.dtype == single and not ut.is_autocast_enabled("cpu")
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @ut.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g @ b.t(), a.t() @ g

    a, b = ut.randn(2, 2, dtype=half, requires_grad=True), ut.randn(2, 2, requires_grad=True)
    with half_precision():
        out = Product.apply(a, b)
    assert out.dtype == single
    out.sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (half, single)


def test_a_model_trains() -> None:
    ut.manual_seed(0)
    model = ut.nn.Sequential(ut.nn.Linear(2, 16), ut.nn.LayerNorm(16), ut.nn.ReLU(), ut.nn.Linear(16, 2))
    optimizer = ut.optim.Adam(model.parameters(), lr=0.02)
    scaler = ut.amp.GradScaler("cpu")
    x = ut.randn(64, 2)
    labels = (x.prod(1) > 0).long()
    for _ in range(60):
        optimizer.zero_grad()
        with half_precision():
            loss = F.cross_entropy(model(x), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert loss.item() < 0.2


def test_what_declarations_say_of_autocast_is_known() -> None:
    from undertow.ops.declare import REGISTRY

    assert {op.autocast for op in REGISTRY.values()} == {None, "lower", "float32"}


def test_pairs_of_half_precision_become_complex_numbers_of_single() -> None:
    pairs = ut.tensor([[1.0, 2.0]], dtype=ut.float16, requires_grad=True)
    with half_precision():
        numbers = ut.view_as_complex(pairs)
    assert numbers.dtype == ut.complex64
    numbers.real.sum().backward()
    assert pairs.grad.dtype == ut.float16 and pairs.grad.tolist() == [[1.0, 0.0]]

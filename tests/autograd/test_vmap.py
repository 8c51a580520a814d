"""vmap: every sample against a loop, gradients of batches, nesting, randomness, custom Functions, what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.ops.systems import Case, as_array, cases, every, leaf, like
from undertow import pytree
from undertow.autograd import Function
from undertow.autograd.vmap import VmapError, vmap
from undertow.tensor import Tensor

pytestmark = [pytest.mark.filterwarnings("ignore:There is a performance drop"),
              pytest.mark.filterwarnings("ignore::RuntimeWarning")]  # fmt: skip

#: what an example returns (how many places, yes or no) depends on its values
DEPENDS_ON_VALUES = {"allclose", "equal"}
DEPENDS_ON_ARGUMENT = {"nonzero": "tuple", "where": "places", "repeat_interleave": ""}
RANDOM = {"bernoulli", "poisson", "binomial", "multinomial", "normal", "randint_like", "rand_like", "randn_like",
          "dropout", "_uniform", "_normal", "_exponential", "_cauchy", "_log_normal", "_geometric", "_random",
          "_bernoulli_like"}  # fmt: skip


def works_for_examples(case: Case) -> bool:
    op, note = case.sample.op, case.sample.note
    if op in DEPENDS_ON_VALUES | RANDOM or (op, note) == ("as_strided", "outside"):
        return False
    if op == "as_strided_copy":  # its offset counts from the memory that the examples of a loop share
        return False
    return not (op in DEPENDS_ON_ARGUMENT and DEPENDS_ON_ARGUMENT[op] in note)


CASES = [c for c in cases() if c.specs and works_for_examples(c)]


def batches(case: Case, size: int = 3) -> list[Any]:
    """A batch for every array: the row's values, and others near to them where they are differentiable."""
    rng = case.rng("batch")
    found = []
    for k, array in enumerate(case.arrays):
        step = 1e-3 if k in case.differentiable else 0
        found.append(np.stack([array + step * j * like(rng, array) if step else array for j in range(size)]))
    return found


def tensors_of(results: list[Any]) -> list[Any]:
    return [r for r in results if isinstance(r, Tensor)]


def randomness_of(case: Case) -> str:
    """The two that draw numbers to find what does not depend on them, and one that would draw with other options.

    All others must not draw any.
    """
    return "different" if case.sample.op in ("svd_lowrank", "pca_lowrank", "native_dropout") else "error"


@every(CASES)
def test_vmap_is_a_loop(case: Case) -> None:
    given = batches(case)
    rows = [[r for r in case.forward([b[j].copy() for b in given]) if isinstance(r, np.ndarray)] for j in range(3)]
    batched = vmap(lambda *xs: tensors_of(case.call(list(xs))), randomness=randomness_of(case))
    found = batched(*[leaf(b, False) for b in given])
    for got, wanted in zip(found, zip(*rows, strict=True), strict=True):
        np.testing.assert_allclose(as_array(got), np.stack(wanted), rtol=1e-9, atol=1e-11)


@every([c for c in cases() if c.differentiable])
def test_batched_gradients_are_a_loop(case: Case) -> None:
    if not case.has_gradient():
        return
    rng = case.rng("seeds")
    seeds = [np.stack([like(rng, c) for _ in range(2)]) for c in case.cotangents]
    rows = [case.gradient_at(case.arrays, [s[j] for s in seeds]) for j in range(2)]
    leaves, outputs = case.recorded(case.arrays, case.differentiable)
    found = ut.autograd.grad(
        list(outputs.values()), case.chosen(leaves), [leaf(s, False) for s in seeds], is_grads_batched=True,
        allow_unused=True,
    )  # fmt: skip
    for got, wanted in zip(found, zip(*rows, strict=True), strict=True):
        if got is None:
            assert wanted[0] is None
        else:
            np.testing.assert_allclose(as_array(got), np.stack(wanted), rtol=1e-9, atol=1e-11)


@every([c for c in CASES if c.differentiable and not c.sample.kink])
def test_vmap_of_grad_is_a_loop(case: Case) -> None:
    if not case.has_gradient():
        return
    given = batches(case, 2)
    rows = [case.gradient_at([b[j].copy() for b in given], case.cotangents) for j in range(2)]

    def loss(*chosen: Tensor) -> Tensor:
        tensors = [leaf(a, False) for a in case.arrays]
        for k, x in zip(case.differentiable, chosen, strict=True):
            tensors[k] = x
        results = case.call(tensors)
        parts = [(results[k] * leaf(c.conj(), False)).sum()
                 for k, c in zip(case.differentiable_results, case.cotangents, strict=True)]  # fmt: skip
        total = sum(parts[1:], parts[0])
        return total.real if total.is_complex() else total

    numbers = tuple(range(len(case.differentiable)))
    gradients = vmap(ut.func.grad(loss, numbers), randomness=randomness_of(case))
    found = gradients(*[leaf(given[k], False) for k in case.differentiable])
    for got, wanted in zip(found, zip(*rows, strict=True), strict=True):
        array = as_array(got)
        expected = np.stack([np.zeros(array.shape[1:]) if w is None else w for w in wanted])
        if np.all(np.isfinite(expected)):
            scale = max(1.0, abs(expected).max()) if expected.size else 1.0
            np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-9 * scale)


# ---- dimensions and structures


def test_dimensions_and_structures() -> None:
    x, y = ut.arange(6.0).reshape(2, 3), ut.ones(3)

    def f(pair: Any, scale: float) -> Any:
        return {"sum": pair["a"] + pair["b"], "both": [pair["a"] * scale]}

    found = vmap(f, in_dims=({"a": 0, "b": None}, None), out_dims=1)({"a": x, "b": y}, 2.0)
    assert found["sum"].tolist() == (x + 1).t().tolist() and found["both"][0].tolist() == (2 * x).t().tolist()
    assert vmap(lambda a: a.sum(), in_dims=-1)(x).tolist() == [3, 5, 7]
    assert vmap(lambda a: y)(x).tolist() == [[1, 1, 1]] * 2
    assert vmap(lambda a: (a, 3), out_dims=(0, None))(x)[1] == 3


def test_nesting() -> None:
    x, y = ut.arange(3.0), ut.arange(2.0)
    table = vmap(lambda a: vmap(lambda b: a * 10 + b)(y))(x)
    assert table.tolist() == [[0, 1], [10, 11], [20, 21]]
    assert vmap(vmap(lambda a, b: a - b, (None, 0)), (0, None))(x, y).shape == (3, 2)


def test_chunks() -> None:
    x = ut.arange(10.0).reshape(5, 2)
    for chunk_size in (1, 2, 5, 9):
        assert vmap(lambda a: a * 2, chunk_size=chunk_size)(x).tolist() == (x * 2).tolist()
        assert vmap(lambda a: a * 2, out_dims=1, chunk_size=chunk_size)(x).tolist() == (x * 2).t().tolist()
    with pytest.raises(ValueError, match="chunk_size should be None or greater than 0"):
        vmap(lambda a: a, chunk_size=0)


def test_shape_is_that_of_an_example() -> None:
    seen: list[Any] = []
    vmap(lambda a: seen.append((a.shape, a.ndim, a.dtype, a.size(0))) or a)(ut.ones(4, 3))
    assert seen == [((3,), 1, ut.float32, 3)]


def test_graphs_run_through_vmap() -> None:
    x, w = ut.randn(4, 3, requires_grad=True), ut.randn(3, requires_grad=True)
    rows = vmap(lambda a: (a * w).sin().sum())(x)
    found = ut.autograd.grad(rows.sum(), (x, w))
    wanted = ut.autograd.grad((x * w).sin().sum(), (x, w))
    for got, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: vmap(lambda: 1)(), ValueError, "got no inputs"),
        (lambda: vmap(lambda a: a, in_dims=None)(1), ValueError, "expected `in_dims` to be int or"),
        (lambda: vmap(lambda a: a, in_dims=(None,))(ut.ones(2)), ValueError, "Expected at least one Tensor to vmap"),
        (lambda: vmap(lambda a: a)(3), ValueError, "We cannot vmap over non-Tensor arguments"),
        (lambda: vmap(lambda a: a, in_dims=2)(ut.ones(2)), ValueError, "dimensionality 1 so expected in_dim"),
        (lambda: vmap(lambda a, b: a)(ut.ones(2), ut.ones(3)), ValueError, "same size in the mapped dimension"),
        (lambda: vmap(lambda a, b: a, in_dims=(0,))(ut.ones(2), ut.ones(2)), ValueError, "not compatible with the str"),
        (lambda: vmap(lambda a: 3)(ut.ones(2)), ValueError, "must only return Tensors"),
        (lambda: vmap(lambda a: a, out_dims=None)(ut.ones(2)), ValueError, "can not return a BatchedTensor when out"),
        (lambda: vmap(lambda a: a, out_dims="x"), ValueError, "`out_dims` must be an int"),
        (lambda: vmap(lambda a: a, randomness="often"), RuntimeError, "Only allowed values for randomness"),
        (lambda: vmap(lambda a: a.item())(ut.ones(2)), RuntimeError, "calling .item\\(\\) on a Tensor"),
        (lambda: vmap(lambda a: a if a > 0 else -a)(ut.ones(2)), RuntimeError, "data-dependent control flow"),
        (lambda: vmap(lambda a: a.backward())(ut.ones(2)), RuntimeError, "backward\\(\\) called inside"),
        (lambda: vmap(lambda a: a.requires_grad_())(ut.ones(2)), RuntimeError, "requires_grad_\\(\\)"),
        (lambda: vmap(lambda a: np.asarray(a))(ut.ones(2)), RuntimeError, "not possible under vmap"),
        (lambda: vmap(lambda a: ut.add(a, a, out=ut.ones(2)))(ut.ones(2, 2)), RuntimeError, "out= is not supported"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_gradients_of_what_all_examples_share_are_refused() -> None:
    w = ut.ones(3, requires_grad=True)
    with pytest.raises(VmapError, match="the same for all examples"):
        vmap(lambda a: ut.autograd.grad((a * w).sum(), w)[0])(ut.ones(2, 3))


# ---- in place


def test_in_place() -> None:
    x = ut.zeros(2, 3)

    def f(a: Tensor) -> Tensor:
        made = ut.zeros_like(a)
        made[0] = a[1] + 1
        a.add_(1)
        return made

    assert vmap(f)(x).tolist() == [[1, 0, 0]] * 2
    assert x.tolist() == [[1, 1, 1]] * 2
    shared = ut.zeros(3)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(lambda a: shared.add_(a))(x)
    assert shared.tolist() == [0, 0, 0]


def test_a_loop_is_announced_once() -> None:
    from undertow.ops.declare import REGISTRY, primitive

    plain = primitive("_one_by_one", lambda xp, input: input * 2, {"input": lambda xp, g: g * 2}, None, None)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                assert vmap(plain)(ut.ones(3)).tolist() == [2, 2, 2]
        assert [str(w.message)[:34] for w in seen] == ["There is a performance drop because"[:34]]
    finally:
        del REGISTRY["_one_by_one"]


# ---- randomness


@pytest.mark.parametrize("draw", [
    lambda a: a + ut.rand(3), lambda a: a + ut.randn(3), lambda a: a * 0 + ut.bernoulli(ut.full((3,), 0.5)),
    lambda a: a + ut.normal(0.0, 1.0, (3,)), lambda a: a + ut.rand_like(ut.ones(3)),
])  # fmt: skip
def test_randomness(draw: Any) -> None:
    x = ut.zeros(16, 3)
    with pytest.raises(RuntimeError, match="We do not yet support calling random operations inside of vmap"):
        vmap(draw)(x)
    same = vmap(draw, randomness="same")(x)
    assert all(row == same[0].tolist() for row in same.tolist())
    different = vmap(draw, randomness="different")(x)
    assert different.shape == (16, 3) and len({tuple(row) for row in different.tolist()}) > 1


# ---- custom Functions


class Made(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x * w * w

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return g * w * w, 2 * g * x * w

    @staticmethod
    def jvp(ctx: Any, x_t: Tensor, w_t: Tensor) -> Tensor:
        x, w = ctx.saved_tensors
        return x_t * w * w + 2 * x * w * w_t


class Own(Made):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, w: Tensor) -> Any:
        assert info.randomness == "error"
        assert all(d is None or t.shape[d] == info.batch_size for d, t in zip(in_dims, (x, w), strict=True))
        front = [t if d in (0, None) else t.movedim(d, 0) for d, t in zip(in_dims, (x, w), strict=True)]
        return Own.apply(*front), 0


@pytest.mark.parametrize("function", [Made, Own])
def test_custom_functions(function: Any) -> None:
    x, w = ut.randn(4, 3, dtype=ut.float64), ut.randn(3, dtype=ut.float64)
    t = ut.ones(3, dtype=ut.float64)

    def loss(f: Any) -> Any:
        return lambda a, b: f(a, b).sin().sum()

    def plain(a: Tensor, b: Tensor) -> Tensor:
        return a * b * b

    for transform in (
        lambda f: vmap(f, (0, None))(x, w),
        lambda f: vmap(ut.func.grad(f, (0, 1)), (0, None))(x, w) if function is Made else (),
        lambda f: ut.func.grad(lambda b: vmap(f, (0, None))(x, b).sum())(w),
        lambda f: vmap(lambda a: ut.func.jvp(lambda b: f(b, w), (a,), (t,)))(x),
        lambda f: ut.func.jvp(lambda b: vmap(f, (0, None))(x, b), (w,), (t,)),
        lambda f: ut.func.hessian(f, 1)(x[0], w),
    ):
        found, wanted = (pytree.flatten(transform(loss(f)))[0] for f in (function.apply, plain))
        for got, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-9)


def test_custom_functions_without_rule_are_refused() -> None:
    class Bare(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

    class Both(Own):
        generate_vmap_rule = True

    with pytest.raises(RuntimeError, match="You tried to vmap over Bare, but it does not have vmap support"):
        vmap(Bare.apply)(ut.ones(2))
    with pytest.raises(RuntimeError, match="has both generate_vmap_rule=True and an overriden vmap"):
        vmap(Both.apply)(ut.ones(2), ut.ones(2))


READING: dict[str, Any] = {
    "cov": lambda x: ut.cov(x, aweights=x[0].abs()),
    "embedding_bag": lambda x: ut.embedding_bag((x * 2).long().abs() % 3, ut.ones(3, 2)),
    "linalg_lu_factor": lambda x: ut.linalg.lu_factor(x)[0],
    "linalg_lu_solve": lambda x: ut.linalg.lu_solve(x, ut.linalg.lu_factor(x).pivots, x),
    "lu_unpack": lambda x: ut.lu_unpack(x, ut.linalg.lu_factor(x).pivots)[0],
    "linalg_lstsq": lambda x: ut.linalg.lstsq(x[:, :1], x[:, 1:], driver="gelsd").residuals,
    "linalg_cond": lambda x: ut.linalg.cond(x, 1),
    "unravel_index": lambda x: ut.unravel_index((x * 2).long().abs() % 3, (2, 2))[1],
    "quantile": lambda x: ut.quantile(x, x[0].sigmoid(), 1),
}


@pytest.mark.parametrize("name", READING)
def test_functions_that_read_values_run_for_each_example(name: str) -> None:
    x = ut.tensor(np.random.default_rng(0).random((4, 3, 2, 2)) + 0.1, requires_grad=True)
    found, wanted = ut.vmap(ut.vmap(READING[name]))(x), [[READING[name](b) for b in a] for a in x]
    np.testing.assert_allclose(found.detach().numpy(), [[b.detach().numpy() for b in a] for a in wanted], rtol=1e-12)
    if found.requires_grad:
        total = sum([b.sum() for a in wanted for b in a])
        np.testing.assert_allclose(ut.autograd.grad(found.sum(), x)[0], ut.autograd.grad(total, x)[0], rtol=1e-9)


def test_results_keep_their_names_and_the_loop_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.errors._already_warned", set())
    with pytest.warns(UserWarning, match="performance drop because linalg_lu_factor has no batching rule"):
        found = ut.vmap(ut.linalg.lu_factor)(ut.eye(2).expand(3, 2, 2))
    assert found.LU.shape == (3, 2, 2) and found.pivots.shape == (3, 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ut.equal(x, x),
        lambda x: ut.allclose(x, x),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: float(x.sum()),
    ],
)
def test_reading_values_is_refused(function: Any) -> None:
    with pytest.raises(VmapError):
        ut.vmap(function)(ut.ones(2, 2))


def test_what_is_read_is_refused_where_there_is_no_example() -> None:
    with pytest.raises(VmapError, match="Use undertow's operations, or loop over the examples"):
        ut.vmap(READING["cov"])(ut.ones(0, 2, 2))


@pytest.mark.parametrize("dtype", [ut.float64, ut.int64, ut.bool])
def test_new_tensors_in_the_likeness_of_a_batch_are_batches(dtype: Any) -> None:
    """So that they can be written into."""

    def f(x: Any) -> Any:
        made = [x.new_zeros((3,), dtype=dtype), x.new_ones(3, dtype=dtype), x.new_full((3,), 1, dtype=dtype)]
        made.append(x.new_empty(3, dtype=dtype).zero_())
        for one in made:
            one[1] = x.sum() > 1
        return made

    x = ut.tensor([[0.0, 0.5], [1.0, 2.0]])
    for batch, examples in zip(ut.vmap(f)(x), zip(*map(f, x), strict=True), strict=True):
        assert batch.dtype == dtype
        assert batch.tolist() == [e.tolist() for e in examples]
    assert ut.vmap(lambda x: x.new_ones((0, 2)))(ut.ones(2, 0)).shape == (2, 0, 2)


def test_a_new_tensor_that_an_example_is_copied_into() -> None:
    def f(y: Any, x: Any) -> Any:
        made = x.new_zeros((5,))
        made.copy_(y)
        made[0] = 3 * y[1]
        return made.sum()

    assert ut.func.vmap(ut.func.grad(f))(ut.randn(3, 5), ut.randn(3)).tolist() == [[0, 4, 1, 1, 1]] * 3


# ---- random numbers, in place and in the shape of a batch

FILLS = ["uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "bernoulli_"]


def is_one_value(rows: Any) -> bool:
    return all(row.tolist() == rows[0].tolist() for row in rows)


@pytest.mark.parametrize("name", FILLS)
def test_filling_a_batch(name: str) -> None:
    def fill(x: Any) -> Any:
        return getattr(x.clone(), name)()

    x = ut.zeros(3, 50)
    assert is_one_value(ut.vmap(fill, randomness="same")(x))
    assert not is_one_value(ut.vmap(fill, randomness="different")(x))
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        ut.vmap(fill)(x)


@pytest.mark.parametrize("name", FILLS)
def test_filling_what_all_examples_share(name: str) -> None:
    shared = ut.zeros(50)

    def fill(x: Any) -> Any:
        getattr(shared, name)()
        return x + shared

    assert is_one_value(ut.vmap(fill, randomness="same")(ut.zeros(3, 50)))
    before = shared.tolist()
    with pytest.raises(RuntimeError, match="called random operation while in randomness error mode"):
        ut.vmap(fill)(ut.zeros(3, 50))
    with pytest.raises(RuntimeError, match="different inplace randomness on an unbatched tensor"):
        ut.vmap(fill, randomness="different")(ut.zeros(3, 50))
    assert shared.tolist() == before


@pytest.mark.parametrize(("outer", "refusal"), [("different", "different inplace"), ("error", "randomness error mode")])
@pytest.mark.parametrize("inside", ["neither", "inner"])
def test_filling_what_the_examples_of_an_outer_vmap_share(L: Any, outer: str, refusal: str, inside: str) -> None:
    def fill(y: Any) -> Any:
        return (L.zeros(50) if inside == "neither" else y * 1).normal_()

    def both(x: Any) -> Any:
        return L.vmap(fill, randomness="same")(L.zeros(4, 50)) + x

    with pytest.raises(RuntimeError, match=refusal):
        L.vmap(both, randomness=outer)(L.zeros(3, 50))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's forward mode says so of itself
@pytest.mark.parametrize("draws", ["whole", "each"])
def test_the_same_numbers_for_what_a_gradient_inside_depends_on(L: Any, draws: str) -> None:
    """The point is the same for all examples, and the direction is not."""
    each = L.vmap(lambda p: p.softmax(0).multinomial(20, replacement=True), randomness="different")

    def loss(p: Any) -> Any:
        kept = each(p.detach()) if draws == "each" else p.detach().softmax(1).multinomial(20, replacement=True)
        return (kept.sum(1) * (p**2).sum(1)).sum()

    def curvature(direction: Any) -> Any:
        return L.func.jvp(L.func.grad(loss), (L.linspace(-1.0, 1.0, 6).reshape(3, 2),), (direction,))[1]

    directions = L.ones(4, 3, 2)
    rows = L.vmap(curvature, randomness="same")(directions)
    assert (rows == rows[:1]).all() and rows.any()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        L.vmap(curvature)(directions)


def test_the_same_numbers_are_refused_for_examples_that_a_gradient_inside_leaves_different(L: Any) -> None:
    def slope(p: Any) -> Any:
        return L.func.grad(lambda q: (q * L.bernoulli(p)).sum())(L.ones(2))

    with pytest.raises(RuntimeError, match="does not currently support same randomness with a batched tensor input"):
        L.vmap(slope, randomness="same")(L.tensor([[0.25, 0.5], [0.5, 0.25]]))


def test_drawing_in_the_shape_of_a_batch() -> None:
    x = ut.zeros(3, 50)
    for draw in (ut.rand_like, ut.randn_like, lambda x: ut.randint_like(x, 1000), lambda x: ut.bernoulli(x, 0.5)):
        assert is_one_value(ut.vmap(draw, randomness="same")(x))
        assert not is_one_value(ut.vmap(draw, randomness="different")(x))
    kept = ut.vmap(lambda x: ut.nn.functional.dropout(x, 0.5), randomness="same")(ut.ones(3, 50))
    assert is_one_value(kept)
    with pytest.raises(RuntimeError, match="does not currently support same randomness with a batched tensor input"):
        ut.vmap(ut.bernoulli, randomness="same")(x)


def test_probabilities_of_each_example() -> None:
    p = ut.tensor([[0.0] * 50, [1.0] * 50])
    filled = ut.vmap(lambda p: ut.zeros_like(p).bernoulli_(p), randomness="different")(p)
    assert filled.tolist() == p.tolist()
    assert ut.vmap(lambda p: p.new_zeros(50).bernoulli_(p.mean()), randomness="different")(p).tolist() == p.tolist()
    with pytest.raises(RuntimeError, match="there exists a Tensor `other` in extra_args that has more elements"):
        ut.vmap(ut.zeros(50).bernoulli_, randomness="different")(p)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_what_is_drawn_has_no_tangent(randomness: str) -> None:
    """Also where the tangents of a tensor are a batch, and the tensor is not."""
    x = ut.rand(3)
    assert not ut.func.jacfwd(ut.bernoulli, randomness=randomness)(x).any()
    slope = ut.func.jacfwd(lambda x: x * ut.rand_like(x).clamp(0.5, 0.5), randomness=randomness)(x)
    assert slope.tolist() == (ut.eye(3) / 2).tolist()


@pytest.mark.parametrize("chunk_size", [1, 2, 7, 100])
def test_chunks_draw_the_same_numbers(chunk_size: int) -> None:
    def f(x: Any) -> Any:
        return x + ut.rand(4) + ut.rand_like(x)

    x = ut.zeros(7, 4)
    ut.manual_seed(0)
    expected = ut.vmap(f, randomness="same")(x)
    ut.manual_seed(0)
    found = ut.vmap(f, randomness="same", chunk_size=chunk_size)(x)
    assert is_one_value(found)
    assert found.tolist() == expected.tolist()
    assert ut.rand(1).item() != expected[0, 0].item()
    assert not is_one_value(ut.vmap(f, randomness="different", chunk_size=chunk_size)(x))


MISMATCHES: list[tuple[Any, tuple[int, ...], tuple[int, ...]]] = [
    (ut.dot, (2, 2), (2,)),
    (ut.dot, (3,), (2,)),
    (ut.mm, (2, 2, 2), (2, 2)),
    (ut.mm, (2, 6), (3, 4)),
    (ut.mv, (2, 2), (2, 2)),
    (ut.bmm, (2, 2, 2), (2,)),
    (ut.bmm, (2, 3, 4), (2, 2, 6)),
]


@pytest.mark.parametrize(("product", "one", "other"), MISMATCHES)
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
def test_products_of_examples_that_do_not_fit(product: Any, one: Any, other: Any, in_dims: Any) -> None:
    shapes = [(5, *s) if d == 0 else s for s, d in zip((one, other), in_dims, strict=True)]
    with pytest.raises(
        RuntimeError, match=r"for each example, but got one of size|size mismatch, got examples of sizes"
    ):
        ut.vmap(product, in_dims)(*[ut.ones(s) for s in shapes])


def test_a_batch_that_is_not_in_front_has_gradients_under_no_grad() -> None:
    x, seeds = ut.arange(6.0).reshape(3, 2), ut.ones(3, 2)

    def one(row: ut.Tensor, seed: ut.Tensor) -> ut.Tensor:
        _, pull = ut.func.vjp(lambda value: value**2, row)
        return pull(seed)[0]

    with ut.no_grad():
        for dims in ((0, 0), (1, 0)):
            found = ut.vmap(one, in_dims=dims)(x if dims[0] == 0 else x.T, seeds)
            assert found.equal(2 * x)


class Box:
    def __init__(self, value: object, label: str) -> None:
        self.value, self.label = value, label


def test_a_registered_container_is_batched_and_differentiated(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (pytree.REGISTERED, ut.utils._pytree.SUPPORTED_NODES):
        monkeypatch.setitem(table, Box, None)  # and so it is taken out in the end
    ut.utils._pytree.register_pytree_node(
        Box, lambda box: ([box.value], box.label), lambda parts, name: Box(parts[0], name)
    )
    found = ut.vmap(lambda box: Box(box.value.sum(), box.label + "!"))(Box(ut.ones(3, 2), "sum"))
    assert found.value.tolist() == [2, 2, 2] and found.label == "sum!"
    assert ut.func.grad(lambda box: (box.value**2).sum())(Box(ut.ones(2), "")).value.tolist() == [2, 2]
    assert ut.vmap(lambda box, x: box.value * x, in_dims=(None, 0))(Box(2, ""), ut.ones(2)).tolist() == [2, 2]
    with pytest.raises(ValueError, match="vmap over non-Tensor arguments"):
        ut.vmap(lambda box: box.value)(Box("a", ""))


def test_each_example_may_have_an_index_of_its_own() -> None:  # in PyTorch only inside flex_attention
    table, at = ut.randn(3, 4, requires_grad=True), ut.tensor([3, 0, 0])
    found = ut.vmap(lambda k: table[1, k])(at)
    assert ut.equal(found, table[1, at]) and ut.equal(ut.vmap(lambda k: table[:, k])(at), table[:, at].T)
    (grad,) = ut.autograd.grad(found.sum(), table)
    assert grad[1].tolist() == [2, 0, 0, 1] and grad.sum() == 3


@pytest.mark.parametrize(
    "copy",
    [
        lambda x, format: x.clone(memory_format=format),
        lambda x, format: x.contiguous(memory_format=format),
        lambda x, format: x.to(memory_format=format),
        lambda x, format: ut.zeros_like(x, memory_format=format),
    ],
)
def test_an_example_cannot_be_laid_out_with_its_channels_last(copy: Any) -> None:
    batch = ut.rand(2, 3, 4, 5, 6)
    with pytest.raises(RuntimeError, match=r"vmap: clone with memory_format=channels_last is not possible under vmap"):
        ut.vmap(lambda x: copy(x, ut.channels_last))(batch)
    assert ut.vmap(lambda x: copy(x, ut.contiguous_format))(batch).is_contiguous()
    with pytest.raises(RuntimeError, match=r"channels_last"):
        ut.vmap(lambda x: copy(x, ut.channels_last))(batch[0])


def test_an_example_says_whether_its_channels_are_last() -> None:
    found = []
    batch = ut.rand(2, 3, 4, 5, 6)
    for one in (batch, batch.movedim(-1, 2), batch[:, :, :1]):
        ut.vmap(lambda x: (found.append(x.is_contiguous(memory_format=ut.channels_last)), x)[1])(one)
    assert found == [False, True, False]


@pytest.mark.parametrize(
    "look",
    [lambda x: x.transpose(0, -1), lambda x: x.swapaxes(-1, 0), lambda x: x.squeeze(0), lambda x: x.squeeze((0,)),
     lambda x: x.view(1), lambda x: x[None], lambda x: x.permute(()), lambda x: x.expand(2)],
)  # fmt: skip
def test_views_of_numbers_are_views(look: Any) -> None:
    def changed(x: Any) -> Any:
        number = x.clone()
        view = look(number)
        number.mul_(5)
        return view.sum() / view.numel()

    assert ut.vmap(changed)(ut.tensor([1.0, 2.0])).tolist() == [5.0, 10.0]
    assert ut.vmap(ut.func.grad(changed))(ut.tensor([1.0, 2.0])).tolist() == [5.0, 5.0]


def test_numbers_have_no_other_dimensions() -> None:
    for look in (lambda x: x.transpose(0, 1), lambda x: x.squeeze(1), lambda x: x.squeeze((-2,))):
        with pytest.raises(IndexError, match="Dimension out of range"):
            ut.vmap(look)(ut.ones(2))


PAIRS = [((3, 4), (3, 4)), ((3, 4), (3,)), ((3,), (3, 4)), ((3, 2, 4), (3, 4)), ((3,), (3,))]


@pytest.mark.parametrize("shapes", PAIRS, ids=str)
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", "float64"), ("int64", "float32")], ids=str)
def test_elementwise_operations_on_examples_of_any_rank_and_dtype(
    shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, str]
) -> None:
    """As one by one: batches beside batches and beside tensors that are the same for all, in one vmap and in two."""
    ut.manual_seed(0)
    x, y = [(ut.rand(shape) * 9).to(getattr(ut, d)) for shape, d in zip(shapes, dtypes, strict=True)]
    for function in (ut.mul, ut.maximum, lambda a, b: (a + 2.5) * b, lambda a, b: ut.add(a, b, alpha=2)):
        rows = [function(a, b) for a, b in zip(x, y, strict=True)]
        found = ut.vmap(function)(x, y)
        assert found.dtype == rows[0].dtype
        assert ut.equal(found, ut.stack(rows))
        beside = ut.vmap(function, in_dims=(0, None))(x, y[0])
        assert ut.equal(beside, ut.stack([function(a, y[0]) for a in x]))
        table = ut.vmap(ut.vmap(function, in_dims=(None, 0)), in_dims=(0, None))(x, y)
        assert ut.equal(table, ut.stack([ut.stack([function(a, b) for b in y]) for a in x]))


def test_tangents_of_what_is_the_same_for_all_examples_may_be_batches() -> None:
    x, directions = ut.tensor([0.5, 1.5]), ut.eye(2)

    def along(direction: ut.Tensor) -> ut.Tensor:
        _, tangent = ut.func.jvp(lambda x: (x * x).sin() - x / 2 + x.sum(), (x,), (direction,))
        return tangent

    expected = ut.diag((x * x).cos() * 2 * x - 0.5) + 1
    ut.testing.assert_close(ut.vmap(along)(directions), expected)


@pytest.mark.parametrize("in_dim", [0, 1])
def test_many_vectors_by_one_matrix_are_one_product(in_dim: int) -> None:
    matrix = ut.randn(3, 4, dtype=ut.float64, requires_grad=True)
    vectors = ut.randn(5, 3, dtype=ut.float64).movedim(0, in_dim).requires_grad_()
    for multiply in (lambda v: v @ matrix, lambda v: matrix.T @ v, lambda v: ut.mv(matrix.T, v)):
        found, expected = ut.vmap(multiply, in_dim)(vectors), vectors.movedim(in_dim, 0) @ matrix
        assert found.grad_fn.name() == "MmBackward0"
        ut.testing.assert_close(found, expected)
        gradients = [ut.autograd.grad(product.sin().sum(), (vectors, matrix)) for product in (found, expected)]
        ut.testing.assert_close(*gradients)


def test_vectors_that_do_not_fit_a_matrix() -> None:
    for multiply in (lambda v: v @ ut.ones(3, 4), lambda v: ut.mv(ut.ones(4, 3), v)):
        with pytest.raises(RuntimeError, match="size mismatch, got examples of sizes"):
            ut.vmap(multiply)(ut.ones(5, 2))

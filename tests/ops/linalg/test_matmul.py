"""Products, activations and losses: errors, node structure, precision, and what samples cannot say."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow import ops
from undertow.backend import special
from undertow.ops.linalg.rule_parts import LinAlgError


def ones(*shape: int, requires_grad: bool = False) -> Any:
    return ut.ones(*shape, requires_grad=requires_grad)


def longs(*shape: int) -> Any:
    return ut.ones(*shape, dtype=ut.int64)


# ---- errors say what PyTorch's say

WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: ones(2, 3) @ ones(2, 3), RuntimeError, r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)"),
    (lambda: ones(2, 3) @ longs(3, 2), RuntimeError,
     "expected m1 and m2 to have the same dtype, but got: float != long"),
    (lambda: ops.mm(ones(3), ones(3, 2)), RuntimeError, "self must be a matrix"),
    (lambda: ops.mm(ones(2, 3), ones(3)), RuntimeError, "mat2 must be a matrix"),
    (lambda: ones(3) @ ones(4), RuntimeError, r"inconsistent tensor size, expected tensor \[3\] and src \[4\]"),
    (lambda: ops.dot(ones(3, 1), ones(3)), RuntimeError, "1D tensors expected, but got 2D and 1D tensors"),
    (lambda: ops.dot(ones(3), longs(3)), RuntimeError,
     "expected both vectors to have same dtype, but found Float and Long"),
    (lambda: ops.vdot(ones(3), ones(4)), RuntimeError, "inconsistent tensor size"),
    (lambda: ones(2, 3) @ ones(2), RuntimeError, r"size mismatch, got input \(2\), mat \(2x3\), vec \(2\)"),
    (lambda: ops.mv(ones(3), ones(3)), RuntimeError, r"vector \+ matrix @ vector expected, got 1, 1, 1"),
    (lambda: ops.mv(ones(2, 3), longs(3)), RuntimeError, "must have the same dtype, but got Long, Float, and Long"),
    (lambda: ut.tensor(1.0) @ ones(2), RuntimeError, "at least 1D, but they are 0D and 1D"),
    (lambda: ops.bmm(ones(2, 3), ones(2, 4, 2)), RuntimeError, "batch1 must be a 3D tensor"),
    (lambda: ops.bmm(ones(2, 3, 4), ones(4, 2)), RuntimeError, "batch2 must be a 3D tensor"),
    (lambda: ops.bmm(ones(2, 3, 4), ones(2, 3, 4)), RuntimeError, r"to be: \[2, 4\] but got: \[2, 3\]"),
    (lambda: ops.bmm(ones(2, 3, 4), longs(2, 4, 2)), RuntimeError, "expected scalar type Float but found Long"),
    (lambda: ones(2, 3, 4) @ ones(3, 4, 2), RuntimeError, r"tensor a \(2\) must match the size of tensor b \(3\)"),
    (lambda: ones(2, 3, 4) @ ones(2, 3, 4), RuntimeError, r"to be: \[2, 4\] but got: \[2, 3\]"),
    (lambda: ones(2, 3, 4) @ ones(3, 4), RuntimeError, r"cannot be multiplied \(6x4 and 3x4\)"),
    (lambda: ops.addmm(ones(5), ones(2, 3), ones(3, 2)), RuntimeError, r"expanded size of the tensor \(2\) must match"),
    (lambda: ops.addmm(longs(2), ones(2, 3), ones(3, 2)), RuntimeError,
     "must have the same dtype, but got Long and Float"),
    (lambda: ops.addmm(ones(2), ones(2, 3), ones(4, 2)), RuntimeError, r"cannot be multiplied \(2x3 and 4x2\)"),
    (lambda: ops.addmm(ones(2, 2), ones(2, 3, 1), ones(3, 2)), RuntimeError, "mat1 must be a matrix, got 3-D tensor"),
    (lambda: ops.addmv(ones(3), ones(2, 3), ones(3)), RuntimeError, r"got input \(3\), mat \(2x3\), vec \(3\)"),
    (lambda: ops.addr(ones(2, 2), ones(2), ones(4)), RuntimeError, r"expanded size of the tensor \(4\) must match"),
    (lambda: ops.addr(ones(2, 2), ones(2, 2), ones(4)), RuntimeError, "Expected 1-D argument vec1, but got 2-D"),
    (lambda: ops.addbmm(ones(5), ones(2, 3, 4), ones(3, 4, 5)), RuntimeError, "same number of batches, got 2 and 3"),
    (lambda: ops.baddbmm(ones(4), ones(2, 3, 4), ones(2, 4, 5)), RuntimeError,
     "Target sizes: .2, 3, 5..  Tensor sizes"),
    (lambda: ops.outer(ones(2, 2), ones(4)), RuntimeError, "outer: Expected 1-D argument self, but got 2-D"),
    (lambda: ops.inner(ones(2, 3), ones(4)), RuntimeError, "the last dimension must match on both input tensors"),
    (lambda: ops.tensordot(ones(2, 3), ones(4, 3), 1), RuntimeError, "contracted dimensions need to match"),
    (lambda: ops.tensordot(ones(2, 3), ones(4, 3), 3), RuntimeError, "but got dims=3"),
    (lambda: ops.tensordot(ones(2, 3), ones(4, 3), ([1], [0, 1])), RuntimeError, "should have same length"),
    (lambda: ops.tensordot(ones(2, 3), longs(3, 2), 1), RuntimeError, "both inputs should have same dtype"),
    (lambda: ops.linear(ones(2, 3), ones(4, 2)), RuntimeError, r"cannot be multiplied \(2x3 and 2x4\)"),
    (lambda: ops.linear(ones(2, 3), ones(4, 3), ones(5)), RuntimeError, r"must match the existing size \(5\)"),
    (lambda: ops.linear(longs(2, 3), ones(4, 3)), RuntimeError, "must have the same dtype, but got Long and Float"),
    (lambda: ops.linear(ones(2, 3), ones(3), ones(1)), RuntimeError, "mat2 must be a matrix, got 1-D tensor"),
    (lambda: ops.bilinear(ones(5, 3), ones(5, 2), ones(4, 2, 2)), RuntimeError,
     "input1 size does not match weight size"),
    (lambda: ops.trace(ones(3)), RuntimeError, "expected a matrix, but got tensor with dim 1"),
    (lambda: ops.linalg_cross(ones(3, 2), ones(3, 2)), RuntimeError, "must have length 3. Got 2 and 2"),
    (lambda: ops.linalg_cross(ones(2, 3), ones(3)), RuntimeError, "same number of dimensions"),
    (lambda: ops.linalg_multi_dot([ones(2, 3)]), RuntimeError, "expected at least 2 tensors but got 1"),
    (lambda: ops.einsum("ij,jk->ik", ones(2, 3), ones(4, 2)), RuntimeError,
     "does not broadcast with previously seen size 3"),
    (lambda: ops.einsum("ij,jk->iz", ones(2, 3), ones(3, 2)), RuntimeError, "output subscript z does not appear"),
    (lambda: ops.einsum("ij", ones(2, 3, 4)), RuntimeError, r"\(2\) does not match the number of dimensions \(3\)"),
    (lambda: ops.einsum("ij,jk", ones(2, 3)), RuntimeError, "fewer operands were provided than specified"),
    (lambda: ops.einsum("ij", ones(2, 3), ones(2)), RuntimeError, "more operands were provided than specified"),
    (lambda: ops.einsum("ii->i", ones(2, 3)), RuntimeError,
     "is repeated for operand 0 but the sizes don't match, 3 != 2"),
    (lambda: ops.einsum("ij->ii", ones(2, 3)), RuntimeError, "output subscript i appears more than once"),
    (lambda: ops.einsum("i1->i", ones(2, 3)), RuntimeError, r"subscripts must be in \[a-zA-Z\]"),
    (lambda: ops.einsum("ij,jk->ik", ones(2, 3), longs(3, 2)), RuntimeError,
     "expected scalar type Float but found Long"),
    (lambda: ops.einsum("ij->i"), ValueError, "must specify the equation string and at least one operand"),
    (lambda: ops.einsum(ones(2), [99]), ValueError, r"not within the valid range \[0, 52\)"),
    (lambda: ops.linalg_inv(ones(2, 3)), RuntimeError,
     "must be batches of square matrices, but they are 2 by 3 matrices"),
    (lambda: ops.linalg_inv(ones(2)), RuntimeError, "must have at least 2 dimensions"),
    (lambda: ops.linalg_inv(longs(2, 2)), RuntimeError,
     "Expected a floating point or complex tensor as input. Got Long"),
    (lambda: ops.linalg_inv(ut.zeros(2, 2)), LinAlgError, "the input matrix is singular"),
    (lambda: ops.linalg_solve(ut.zeros(2, 2), ones(2)), LinAlgError, "the input matrix is singular"),
    (lambda: ops.linalg_solve(ut.eye(2), ones(3)), RuntimeError, r"Incompatible shapes of A and B .* \(2x2 and 3x1\)"),
    (lambda: ops.linalg_cholesky(-ut.eye(2)), LinAlgError, "not positive-definite"),
    (lambda: ops.matrix_power(ones(3, 2), 2), RuntimeError, "they are 3 by 2 matrices"),
    (lambda: ops.linalg_qr(ones(3, 2, requires_grad=True), "r"), NotImplementedError, "depends on Q"),
    (lambda: ops.linalg_qr(ones(3, 2, requires_grad=True), "complete"), NotImplementedError, "nrows > ncols"),
    (lambda: ops.softmax(ones(2, 3), 5), IndexError, r"expected to be in range of \[-2, 1\], but got 5"),
    (lambda: ops.softmax(longs(2, 3), 0), NotImplementedError, "not implemented for 'Long'"),
    (lambda: ops.relu(ut.ones(2, dtype=ut.complex64)), NotImplementedError,
     "\"relu\" not implemented for 'ComplexFloat'"),
    (lambda: ops.erf(ut.ones(2, dtype=ut.complex64)), NotImplementedError,
     "\"erf\" not implemented for 'ComplexFloat'"),
    (lambda: ops.mse_loss(longs(2), longs(2)), NotImplementedError, "\"mse_cpu\" not implemented for 'Long'"),
    (lambda: ops.gelu(longs(2)), NotImplementedError, "not implemented for 'Long'"),
    (lambda: ops.gelu(ones(2), approximate="exact"), RuntimeError, "must be either none or tanh"),
    (lambda: ops.glu(ones(3)), RuntimeError, "Halving dimension must be even, but dimension 0 is size 3"),
    (lambda: ops.prelu(ones(1, 7), ones(3)), RuntimeError, "parameter numbers = 3 and channel size = 7"),
    (lambda: ops.celu(ones(2), 0.0), RuntimeError, "alpha cannot be 0 for CELU"),
    (lambda: ops.softshrink(ones(2), -1.0), RuntimeError, "lambda must be in range"),
    (lambda: ops.hardtanh(ones(2), 1.0, 0.0), ValueError, "min_val cannot be greater than max_val"),
    (lambda: ops.dropout(ones(2), 1.5), ValueError, "has to be between 0 and 1, but got 1.5"),
    (lambda: ops.layer_norm(ones(2, 7), (3,)), RuntimeError,
     r"Given normalized_shape=\[3\], expected input with shape"),
    (lambda: ops.batch_norm(ones(1, 3), None, None, training=True), ValueError, "more than 1 value per channel"),
    (lambda: ops.batch_norm(ones(2, 3), None, None), RuntimeError, "running_mean must be defined in evaluation mode"),
    (lambda: ops.batch_norm(ones(2, 3), None, None, ones(4), None, True), RuntimeError,
     "weight should contain 3 elements not 4"),
    (lambda: ops.batch_norm(ones(2, 3), ones(4), ones(3)), RuntimeError,
     "running_mean should contain 3 elements not 4"),
    (lambda: ops.batch_norm(longs(2, 3), None, None, training=True), NotImplementedError,
     "\"batch_norm\" not implemented for 'Long'"),
    (lambda: ops.rms_norm(longs(2, 3), (3,)), NotImplementedError, "\"rms_norm\" not implemented for 'Long'"),
    (lambda: ops.group_norm(ones(2, 4), 2, ones(3)), RuntimeError, "equal to the number of channels in input"),
    (lambda: ops.group_norm(ones(2, 4), 3), RuntimeError, "to be divisible by num_groups"),
    (lambda: ops.mse_loss(ones(2), ones(2), reduction="men"), ValueError, "men is not a valid value for reduction"),
    (lambda: ops.huber_loss(ones(2), ones(2), delta=-1.0), RuntimeError, "non-positive values for delta"),
    (lambda: ops.smooth_l1_loss(ones(2), ones(2), beta=-1.0), RuntimeError, "negative values for beta"),
    (lambda: ops.binary_cross_entropy(ones(2) * 2, ones(2)), RuntimeError, "should be between 0 and 1"),
    (lambda: ops.binary_cross_entropy(ones(2), ones(1, 2)), ValueError, "that is different to the input size"),
    (lambda: ops.binary_cross_entropy_with_logits(ones(2), ones(1, 2)), ValueError, "must be the same as input size"),
    (lambda: ops.gaussian_nll_loss(ones(2), ones(2), -ones(2)), ValueError, "var has negative entry"),
    (lambda: ops.kl_div(ones(2), ones(2), reduction="men"), ValueError, "men is not a valid value for reduction"),
    (lambda: ops.nll_loss(ones(1, 7), ut.tensor([9])), IndexError, "Target 9 is out of bounds"),
    (lambda: ops.nll_loss(ones(1, 7), ut.tensor([-1])), IndexError, "Target -1 is out of bounds"),
    (lambda: ops.cross_entropy(ones(1, 7), ut.tensor([9])), IndexError, "Target 9 is out of bounds"),
    (lambda: ops.nll_loss(ones(1, 7), longs(2)), ValueError, r"batch_size \(1\) to match target batch_size \(2\)"),
    (lambda: ops.nll_loss(ones(1, 7), ones(1)), RuntimeError,
     "expected target dtype to be Long or Byte, but got Float"),
    (lambda: ops.nll_loss(ut.tensor(1.0), ut.tensor(1)), ValueError, r"Expected 1 or more dimensions \(got 0\)"),
    (lambda: ops.nll_loss(ones(3, 4), longs(3, 2)), RuntimeError, "0D or 1D target tensor expected"),
    (lambda: ops.nll_loss(ones(1, 7), longs(1), ones(3)), RuntimeError, "either for all 7 classes or no classes"),
    (lambda: ops.cross_entropy(ones(1, 7), longs(1), label_smoothing=2.0), RuntimeError, "between 0.0 and 1.0. Got: 2"),
    (lambda: ops.cross_entropy(ones(1, 7), longs(1, 7)), RuntimeError, "Expected floating point type for target"),
    (lambda: ops.nll_loss(ones(1, 2), longs(1), ones(2, requires_grad=True)), RuntimeError,
     "with respect to argument 'weight'"),
]  # fmt: skip


@rows(("call", "error", "words"), WRONG, ids=[words for _, _, words in WRONG])
def test_wrong_arguments(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_broadcasting_in_a_loss_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="different to the input size"):
        ops.mse_loss(ones(2, 3), ones(3))
    with pytest.warns(UserWarning, match="different to the input size"):
        ops.l1_loss(ones(2, 3), ones(3))


# ---- the graph


def test_products_of_one_node() -> None:
    a, v = ones(2, 2, requires_grad=True), ones(2, requires_grad=True)
    assert [(x @ y).grad_fn.name() for x, y in ((a, a), (a, v), (v, v))] == [
        "MmBackward0",
        "MvBackward0",
        "DotBackward0",
    ]
    node = ops.addmm(v, a, a).grad_fn
    assert node.name() == "AddmmBackward0"
    assert [n.variable is x for (n, _), x in zip(node.next_functions, (v, a, a), strict=True)] == [True] * 3


def test_a_product_saves_only_what_the_gradient_needs() -> None:
    a, b = ones(2, 2, requires_grad=True), ones(2, 2)
    node = (a @ b).grad_fn
    assert node._saved_mat2 is b and node._saved_self is None


def test_cross_entropy_saves_no_probabilities() -> None:
    scores = ones(3, 4, requires_grad=True)
    node = ops.cross_entropy(scores, longs(3)).grad_fn
    assert node._saved_self is scores
    tensors = [node._saved_self, node._saved_target, node._saved_weight]
    assert set(node.saved_slots) == {"saved_input", "saved_target", "saved_weight"} and tensors[2] is None


def test_weights_changed_before_backward_are_an_error() -> None:
    x, weight = ones(2, 3, requires_grad=True), ones(4, 3, requires_grad=True)
    out = ops.linear(x, weight)
    with ut.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradients_of_a_linear_layer_have_the_layout_of_its_weight() -> None:
    x, weight = ones(5, 3), ones(4, 3, requires_grad=True)
    ops.linear(x, weight).sum().backward()
    assert weight.grad.numpy().flags.c_contiguous


# ---- numbers


def test_relu_stops_an_infinite_gradient() -> None:
    x = ut.tensor([-1.0, 2.0], requires_grad=True)
    ops.relu(x).backward(ut.tensor([math.inf, math.inf]))
    assert x.grad.tolist() == [0, math.inf]


def test_a_negative_target_is_not_taken_for_the_last_class() -> None:
    with pytest.raises(IndexError, match="Target -2 is out of bounds"):
        ops.cross_entropy(ones(2, 3), ut.tensor([0, -2]))


def test_nothing_but_ignored_targets() -> None:
    loss = ops.cross_entropy(ones(2, 3), ut.tensor([-100, -100]))
    assert math.isnan(loss.item())
    assert ops.cross_entropy(ones(2, 3), ut.tensor([-100, -100]), reduction="sum").item() == 0


def test_a_certain_and_wrong_probability_costs_a_hundred() -> None:
    loss = ops.binary_cross_entropy(ut.tensor([0.0, 1.0]), ut.tensor([1.0, 0.0]), reduction="none")
    assert loss.tolist() == [100, 100]


def test_beta_zero_ignores_the_addend() -> None:
    nothing = ut.tensor([math.nan, math.nan])
    assert ops.addmm(nothing, ones(2, 2), ones(2, 2), beta=0).tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("name", ["erf", "erfc"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_error_functions_agree_with_those_of_the_c_library(name: str, dtype: Any) -> None:
    x = np.concatenate([np.linspace(-7, 27, 4001), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, 5e-324, 0.46875, 4.0]])
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    wanted = np.array([getattr(math, name)(v) for v in x.tolist()])
    few = np.concatenate([getattr(special, name)(part) for part in np.array_split(x, 50)])
    for found in (getattr(special, name)(x), few):
        assert found.dtype == dtype
        eps = 5e-7 if dtype is np.float32 and name == "erf" else 2 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(found.astype(float), wanted, rtol=0, atol=eps)
    np.testing.assert_array_equal(np.signbit(special.erf(x[x == 0])), np.signbit(x[x == 0]))


def test_erfc_keeps_its_digits_far_out() -> None:
    x = np.linspace(1, 26, 501)
    wanted = [math.erfc(v) for v in x]
    np.testing.assert_allclose(special.erfc(x), wanted, rtol=1e-13)


def test_large_values_raise_no_warnings() -> None:
    x = ut.tensor([-1e4, -100.0, 100.0, 1e4], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("elu", "selu", "celu", "silu", "mish", "softplus", "logsigmoid", "gelu", "softsign"):
            ops.sum(getattr(ops, name)(x)).backward()
        ops.binary_cross_entropy_with_logits(x, ut.tensor([0.0, 0.0, 1.0, 1.0])).backward()
        ops.cross_entropy(ops.reshape(x, (2, 2)), ut.tensor([0, 1])).backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_the_gradient_of_a_singular_determinant_is_that_of_its_cofactors() -> None:
    a = ut.tensor([[1.0, 2.0], [2.0, 4.0]], requires_grad=True)
    ops.det(a).backward()
    np.testing.assert_allclose(a.grad.numpy(), [[4, -2], [-2, 1]], atol=1e-5)


def test_einsum_multiplies_in_a_good_order() -> None:
    # left to right, the first product alone would have 10**10 elements
    column, row = ut.ones(100_000, 1), ut.ones(1, 100_000)
    assert ops.einsum("ab,bc,cd->ad", row, column, row[:, :5]).shape == (1, 5)
    assert ops.einsum("ab,bc,cd->ad", column[:2], row, column).tolist() == [[100_000], [100_000]]


# ---- layers with a state


def test_batch_norm_moves_its_statistics() -> None:
    mean, var = ut.zeros(3), ut.ones(3)
    x = ut.tensor(np.arange(6.0, dtype=np.float32).reshape(2, 3))
    ops.batch_norm(x, mean, var, training=True, momentum=0.1)
    np.testing.assert_allclose(mean.numpy(), [0.15, 0.25, 0.35], rtol=1e-6)
    np.testing.assert_allclose(var.numpy(), [1.35, 1.35, 1.35], rtol=1e-6)


def test_dropout_keeps_the_mean_and_drops_in_the_gradient() -> None:
    x = ut.ones(10_000, requires_grad=True)
    y = ops.dropout(x, 0.25, generator=ut.Generator().manual_seed(0))
    values = y.detach().numpy()
    assert set(values.tolist()) == {0.0, float(np.float32(1) / np.float32(0.75))}
    assert abs(values.mean() - 1) < 0.05
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), values)
    assert ops.dropout(x, 0.5, train=False) is x


@pytest.mark.torch
def test_tensordot_keeps_small_integers(torch: ModuleType) -> None:
    mine, theirs = [
        L.tensordot(L.full((1, 1), 100, dtype=L.int8), L.full((2, 3), 2, dtype=L.int8), ([0, 1], [0, 1]))
        for L in (ut, torch)
    ]
    assert mine.item() == theirs.item() and str(mine.dtype).endswith("int8")

"""Transforms of vectors and matrices, the registries, and what libraries derive from, against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import undertow as ut

VALUES = np.random.default_rng(0).normal(size=(4, 6))
MATRICES = np.random.default_rng(1).normal(size=(4, 3, 3))

TRANSFORMS = {
    "softplus": (lambda d, L: d.SoftplusTransform(), VALUES),
    "softmax": (lambda d, L: d.SoftmaxTransform(), VALUES),
    "stick": (lambda d, L: d.StickBreakingTransform(), VALUES),
    "corr_cholesky": (lambda d, L: d.CorrCholeskyTransform(), VALUES),
    "power": (lambda d, L: d.PowerTransform(L.tensor(2.0)), abs(VALUES)),
    "lower_cholesky": (lambda d, L: d.LowerCholeskyTransform(), MATRICES),
    "positive_definite": (lambda d, L: d.PositiveDefiniteTransform(), MATRICES),
    "reshape": (lambda d, L: d.ReshapeTransform((6,), (2, 3)), VALUES),
    "independent": (lambda d, L: d.IndependentTransform(d.ExpTransform(), 1), VALUES),
    "cat": (lambda d, L: d.CatTransform([d.ExpTransform(), d.identity_transform], -1, [2, 4]), VALUES),
    "stack": (lambda d, L: d.StackTransform([d.ExpTransform(), d.TanhTransform()] * 3, -1), VALUES),
    "abs": (lambda d, L: d.AbsTransform(), VALUES),
    "cdf": (lambda d, L: d.CumulativeDistributionTransform(d.Normal(L.zeros((), dtype=L.float64), 1.0)), VALUES),
    "composed": (lambda d, L: d.ComposeTransform([d.ExpTransform(), d.StickBreakingTransform()]), VALUES),
    "composed_twice": (
        lambda d, L: d.ComposeTransform([d.ReshapeTransform((6,), (2, 3)), d.SoftplusTransform()]),
        VALUES,
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", TRANSFORMS)
def test_values_inverses_and_volumes_are_pytorchs(torch, name: str) -> None:
    make, values = TRANSFORMS[name]
    found = []
    for L in (ut, torch):
        transform, x = make(L.distributions, L), L.tensor(values)
        y = transform(x)
        row = [y, transform.inv(y)]
        if transform.bijective and name not in ("lower_cholesky", "positive_definite"):
            row.append(transform.log_abs_det_jacobian(x, y))
        found.append([value.numpy() for value in row])
        shape = tuple(transform.forward_shape(tuple(x.shape)))
        assert shape == tuple(y.shape) and tuple(transform.inverse_shape(shape)) == tuple(x.shape)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


CONSTRAINTS = [
    lambda c: c.real, lambda c: c.positive, lambda c: c.unit_interval, lambda c: c.interval(-1.0, 3.0),
    lambda c: c.greater_than(2.0), lambda c: c.less_than(1.0), lambda c: c.real_vector, lambda c: c.simplex,
    lambda c: c.corr_cholesky, lambda c: c.independent(c.positive, 1),
    lambda c: c.cat([c.positive, c.real], -1, [2, 4]),
]  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("number", range(len(CONSTRAINTS)))
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registries_lead_where_pytorchs_lead(torch, number: int, registry: str) -> None:
    found = []
    for L in (ut, torch):
        constraint = CONSTRAINTS[number](L.distributions.constraints)
        y = getattr(L.distributions, registry)(constraint)(L.tensor(VALUES))
        assert bool(constraint.check(y).all())
        found.append(y.numpy())
    np.testing.assert_allclose(*found, rtol=1e-10, atol=1e-12)


def test_a_library_registers_its_own() -> None:
    constraints = ut.distributions.constraints

    class Even(constraints.Constraint):
        def check(self, value):
            return value % 2 == 0

    with pytest.raises(NotImplementedError, match="Cannot transform Even constraints"):
        ut.distributions.transform_to(Even())
    ut.distributions.transform_to.register(Even(), lambda constraint: ut.distributions.AffineTransform(0, 2))
    assert ut.distributions.transform_to(Even())(ut.tensor(3.0)).item() == 6
    assert constraints.is_dependent(constraints.dependent) and not constraints.is_dependent(constraints.real)
    with pytest.raises(TypeError, match="Expected constraint to be either a Constraint subclass or instance"):
        ut.distributions.biject_to.register(3, lambda constraint: None)


@pytest.mark.torch
def test_transformed_distributions_that_change_the_shape(torch) -> None:
    rows = []
    for L in (ut, torch):
        d = L.distributions
        made = d.TransformedDistribution(d.Normal(L.zeros(2, 3), L.ones(3)), [d.StickBreakingTransform()])
        value = L.tensor([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])
        rows.append((tuple(made.batch_shape), tuple(made.event_shape), *made.log_prob(value).tolist()))
    assert rows[0] == pytest.approx(rows[1]) if not isinstance(rows[0][0], tuple) else rows[0][:2] == rows[1][:2]
    assert rows[0][2:] == pytest.approx(rows[1][2:], rel=1e-5)


@pytest.mark.torch
def test_properties_that_are_computed_once(torch) -> None:
    for L in (ut, torch):
        utils = L.distributions.utils
        calls = []

        class Some:
            @utils.lazy_property
            def value(self, calls=calls):
                calls.append(1)
                return 3

        some = Some()
        assert some.value == some.value == 3 and len(calls) == 1 and isinstance(Some.value, property)
        vector = L.arange(6.0)
        matrix = utils.vec_to_tril_matrix(vector)
        assert matrix.shape == (3, 3) and utils.tril_matrix_to_vec(matrix).tolist() == vector.tolist()
        assert utils.logits_to_probs(L.zeros(2), is_binary=True).tolist() == [0.5, 0.5]
        with pytest.raises(ValueError, match="cannot be expressed as the lower triangular part"):
            utils.vec_to_tril_matrix(L.arange(5.0))

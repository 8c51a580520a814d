"""Complex numbers."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, constant, distinct, normal, positive


def viewed_pairs(library: Any, pairs: Any) -> Any:
    """The last dimension must be contiguous, whatever the memory layout of the input."""
    return library.view_as_complex(library.mul(pairs, 1.0))


SAMPLES = [
    Sample("conj", normal(3, 4), complex=True),
    Sample("conj_physical", normal(3, 4), complex=True),
    Sample("resolve_conj", normal(3, 4), complex=True),
    Sample("resolve_neg", normal(3, 4), complex=True),
    Sample("is_conj", normal(3, 4), complex=True),
    Sample("is_neg", normal(3, 4), complex=True),
    Sample("real", normal(3, 4), complex=True),
    Sample("real", normal(), complex=True, note="0-d"),
    Sample("imag", normal(3, 4), complex_only=True),
    Sample("imag", normal(), complex_only=True, note="0-d"),
    Sample("view_as_real", normal(3, 4), complex_only=True),
    Sample("view_as_real", normal(), complex_only=True, note="0-d"),
    Sample("view_as_real", normal(0, 3), complex_only=True, reference=False, note="empty"),
    Sample("view_as_complex", normal(3, 2), call=viewed_pairs, reference=viewed_pairs),
    Sample("view_as_complex", normal(2), call=viewed_pairs, reference=viewed_pairs, note="0-d"),
    Sample("_complex_from_pairs", normal(3, 2), reference=viewed_pairs),
    Sample("complex", normal(3, 4), normal(4)),
    Sample("complex", normal(), normal(), note="0-d"),
    Sample("polar", positive(3, 4), normal(4)),
    Sample("angle", distinct(3, 4), complex=True),
    Sample("angle", constant([0.0, 1.0, -1.0]), complex=True, kink=True, note="zero"),
]

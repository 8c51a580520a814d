"""Histograms of weights."""

from __future__ import annotations

import undertow as ut


def test_histograms_of_weights() -> None:
    x = ut.tensor([1.0, 2.0, 2.5, 9.0])
    found = ut.histogram(x, ut.tensor([1.0, 2.0, 3.0]), weight=ut.tensor([1.0, 2.0, 3.0, 4.0]))
    assert (found.hist.tolist(), found.bin_edges.tolist()) == ([1.0, 5.0], [1.0, 2.0, 3.0])

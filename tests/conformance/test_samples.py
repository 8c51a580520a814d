"""The program that compares undertow with PyTorch on PyTorch's samples: what it hands over, and what it finds."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import undertow as ut
from conformance.samples import Judge, Outcome, as_page, compare, compare_strides, translated


def test_arguments_keep_strides_dtypes_and_shared_memory(torch: ModuleType) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    part, turned, options = translated((x[1:, ::2], x.t(), {"dtype": torch.int64, "other": [x, 2]}))
    assert (part.stride(), part.storage_offset(), turned.stride()) == ((4, 2), 4, (1, 4))
    assert options["dtype"] is ut.int64 and options["other"][1] == 2
    turned.zero_()
    assert part.tolist() == [[0, 0], [0, 0]]


def test_what_differs_is_named(torch: ModuleType) -> None:
    compare(ut.ones(2), torch.ones(2))
    for mine in (ut.ones(2) * 2, ut.ones(3), ut.ones(2, dtype=ut.float64), (ut.ones(2), ut.ones(2))):
        with pytest.raises(Outcome):
            compare(mine, torch.ones(2))
    with pytest.raises(Outcome, match="strides"):
        compare_strides(ut.ones(2, 3), torch.ones(3, 2).t())


def entry(torch: ModuleType, name: str, op: Any) -> Any:
    """As the database describes a function."""
    sample = SimpleNamespace(input=torch.rand(2, 3, dtype=torch.float64, requires_grad=True), args=(), kwargs={})
    sample.output_process_fn_grad = lambda result: result
    return SimpleNamespace(
        name=name, op=op, variant_test_name="", dtypes={torch.float64}, inplace_variant=None, error_inputs_func=None,
        supports_autograd=True, supports_forward_ad=True, sample_inputs=lambda *_, **__: iter([sample]),
    )  # fmt: skip


def test_a_function_is_judged(torch: ModuleType) -> None:
    judged = Judge(entry(torch, "sin", torch.sin))
    judged.run()
    assert judged.differences == []
    assert {"values", "strides", "layouts", "first", "second", "tangents", "vmap"} <= set(judged.counts)


def test_a_wrong_function_is_found(torch: ModuleType) -> None:
    judged = Judge(entry(torch, "sin", torch.cos))
    judged.run()
    kinds = {line.partition(":")[0] for line in judged.differences}
    assert {"values", "layouts", "first", "second", "tangents"} <= kinds
    page = as_page({"functions": 1, "counts": dict(judged.counts), "absent": ["cauchy"]})
    assert "| gradients | 1 | 1 |" in page and "`cauchy`" in page

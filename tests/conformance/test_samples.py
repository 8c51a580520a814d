"""The program that compares undertow with PyTorch on PyTorch's samples: what it hands over, and what it finds."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import undertow as ut
from conformance.samples import Judge, Outcome, as_page, compare, compare_strides, is_stated, rebound, translated
from conformance.stateful_samples import ModuleJudge, OptimizerJudge


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
    page = as_page({"entries": 1, "counts": dict(judged.counts), "absent": ["cauchy"]})
    assert "| gradients | 1 | 0 | 1 |" in page and "`cauchy`" in page


def test_a_tensor_given_twice_is_one_tensor(torch: ModuleType) -> None:
    x = torch.ones(2, requires_grad=True)
    first, rest = translated([x, {"other": x}])
    assert first is rest["other"] and first.requires_grad


def test_functions_among_arguments_are_undertows(torch: ModuleType) -> None:
    assert translated(torch.nn.functional.pairwise_distance) is ut.nn.functional.pairwise_distance
    assert rebound(torch.testing.make_tensor) is not torch.testing.make_tensor


def test_other_dtypes_are_compared(torch: ModuleType) -> None:
    info = entry(torch, "abs", torch.neg)
    info.dtypes = {torch.float64, torch.int64}
    sample = SimpleNamespace(input=torch.tensor([3]), args=(), kwargs={}, output_process_fn_grad=lambda result: result)
    of_floats = info.sample_inputs
    info.sample_inputs = lambda _, dtype, **__: iter([sample]) if dtype == torch.int64 else of_floats()
    judged = Judge(info)
    judged.run()
    assert judged.counts["dtypes"] == judged.counts["dtypes differ"] == 1


def test_what_is_stated_counts_for_itself() -> None:
    line = "first: cholesky_solve. float64 sample 6: result 1 differs by 35.2 (of 43.5)"
    assert is_stated(line) and not is_stated(line.replace("cholesky_solve", "linalg.solve"))


def arguments(*positional: Any, **named: Any) -> Any:
    return SimpleNamespace(args=positional, kwargs=named)


def module_judge(torch: ModuleType, mine: Any) -> ModuleJudge:
    def samples(*_: Any, **__: Any) -> Any:
        given = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
        return [SimpleNamespace(constructor_input=arguments(4), forward_input=arguments(given))]

    judge = ModuleJudge(SimpleNamespace(
        name="nn.BatchNorm1d", module_cls=torch.nn.BatchNorm1d, module_inputs_func=samples,
        module_error_inputs_func=None, supports_gradgrad=True,
    ))  # fmt: skip
    judge.mine = mine
    judge.run()
    return judge


def test_a_module_is_judged(torch: ModuleType) -> None:
    judged = module_judge(torch, ut.nn.BatchNorm1d)
    assert judged.differences == [] and judged.counts["modules"] == 4


def test_a_wrong_module_is_found(torch: ModuleType) -> None:
    class BatchNorm1d(ut.nn.BatchNorm1d):
        def forward(self, input: ut.Tensor) -> ut.Tensor:
            return super().forward(input) + 0 * input.sum() + (input - input.detach())

    assert any(["differs by" in line for line in module_judge(torch, BatchNorm1d).differences])


def optimizer_judge(torch: ModuleType, mine: Any) -> OptimizerJudge:
    judge = OptimizerJudge(SimpleNamespace(
        optim_cls=torch.optim.Adam, supported_impls=(), supports_complex=True, step_requires_closure=False,
        only_supports_sparse_grads=False,
        optim_inputs_func=lambda **_: [SimpleNamespace(kwargs={"lr": 0.1}, desc="a rate")],
        scheduler_inputs=[[lambda optimizer: SimpleNamespace(step=lambda: None)]],
        optim_error_inputs_func=lambda *_: [SimpleNamespace(
            optimizer_error_input=SimpleNamespace(params=None, kwargs={"lr": -1}))],
    ))  # fmt: skip
    judge.mine = mine
    judge.run()
    return judge


def test_an_optimizer_is_judged(torch: ModuleType) -> None:
    judged = optimizer_judge(torch, ut.optim.Adam)
    assert judged.differences == [] and judged.counts["optimizers"] == 6 and judged.counts["optimizer errors"] == 1


def test_a_wrong_optimizer_is_found(torch: ModuleType) -> None:
    assert len(optimizer_judge(torch, lambda params, lr: ut.optim.SGD(params, lr=abs(lr))).differences) == 7

"""How many floating-point operations products take, forward and backward, by module."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from undertow.utils.flop_counter import FlopCounterMode, register_flop_formula

import undertow as ut
from undertow.instrument.flop_counter import registered
from undertow.modes import current


def counted(lib: Any, function: Any, mode: Any) -> int:
    with mode(display=False) as counter:
        function(lib)
    return int(counter.get_total_flops())


PROGRAMS = {
    "mm": lambda lib: lib.ones(3, 4) @ lib.ones(4, 5),
    "bmm": lambda lib: lib.ones(2, 3, 4) @ lib.ones(2, 4, 5),
    "linear": lambda lib: lib.nn.Linear(4, 5)(lib.ones(3, 4)),
    "linear, backward": lambda lib: lib.nn.Linear(4, 5)(lib.ones(3, 4, requires_grad=True)).sum().backward(),
    "linear, weight only": lambda lib: lib.nn.Linear(4, 5)(lib.ones(3, 4)).sum().backward(),
    "convolution": lambda lib: lib.nn.Conv2d(4, 6, 3, padding=1)(lib.ones(2, 4, 8, 8)),
    "in groups": lambda lib: lib.nn.Conv2d(4, 6, 3, groups=2)(lib.ones(2, 4, 8, 8)),
    "transposed": lambda lib: lib.nn.ConvTranspose2d(4, 6, 3, stride=2)(lib.ones(2, 4, 8, 8)),
    "convolution, backward": lambda lib: (
        lib.nn.Conv2d(4, 6, 3)(lib.ones(2, 4, 8, 8, requires_grad=True)).sum().backward()
    ),
    "addmm": lambda lib: lib.addmm(lib.ones(5), lib.ones(3, 4), lib.ones(4, 5)),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_many_as_torch_counts(torch: ModuleType, name: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode as Theirs

    assert counted(ut, PROGRAMS[name], FlopCounterMode) == counted(torch, PROGRAMS[name], Theirs)


def test_by_module(capsys: pytest.CaptureFixture[str]) -> None:
    model = ut.nn.Sequential(ut.nn.Linear(4, 8), ut.nn.Sequential(ut.nn.Linear(8, 2)))
    with FlopCounterMode(depth=3) as counter:
        model(ut.ones(3, 4)).sum().backward()
    counts = counter.get_flop_counts()
    assert counts["Sequential.0"] == {"linear": 192, "linear_backward": 192}
    assert counts["Sequential.1.0"] == counts["Sequential.1"] == {"linear": 96, "linear_backward": 192}
    assert counts["Global"] == counts["Sequential"] and counter.get_total_flops() == 672
    printed = capsys.readouterr().out
    assert "Sequential.1.0" in printed and "100.00%" in printed
    assert current().intercept is None


def test_recurrent_layers_and_sums_of_products() -> None:
    assert counted(ut, lambda lib: lib.nn.LSTM(3, 4)(lib.ones(5, 2, 3)), FlopCounterMode) == 2 * 10 * 16 * (3 + 4)
    equation = "bij,bjk->bik"
    product = counted(ut, lambda lib: lib.einsum(equation, lib.ones(2, 3, 4), lib.ones(2, 4, 5)), FlopCounterMode)
    assert product == 2 * 2 * 3 * 4 * 5


def test_formulas_of_programs() -> None:
    def cost(input: Any, other: Any, *, out_shape: Any, **options: Any) -> int:
        assert input == (2, 3) and out_shape == (2, 3)
        return 7 if other == (3,) else 8

    with FlopCounterMode(
        display=False, custom_mapping={ut.mul: cost, "aten::mm": lambda a, b, out_shape: 1}
    ) as counter:
        x = ut.ones(2, 3, requires_grad=True)
        (x * ut.ones(3)) @ ut.ones(3, 3)
        x * 2.0
    assert counter.get_flop_counts() == {"Global": {"mul": 15, "mm": 1}}
    with pytest.raises(ValueError, match="named by its function"):
        register_flop_formula(3)(cost)
    try:
        register_flop_formula(["exp", ut.log])(lambda input, out_shape: 5)
        assert counted(ut, lambda lib: lib.ones(1).exp().log(), FlopCounterMode) == 10
    finally:
        registered.clear()

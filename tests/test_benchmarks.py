"""The benchmarks run and print what they should. Nothing here looks at how fast anything is."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest

import undertow as ut
from benchmarks import cases, derivatives, growth, large, measure, memory, models, report, sampling, saved, survey
from tests.rows import rows
from undertow.compiled import core
from undertow.ops import REGISTRY

ROOT = Path(__file__).parents[1]
HAS_TORCH = importlib.util.find_spec("torch") is not None


def run(*arguments: str, module: str = "benchmarks") -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", module, *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=300, cwd=ROOT)


# ---- the command


def test_a_table_and_its_figures(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    chosen = ["--only", "sin, not recorded", "--only", "chain of mul"]
    done = run("--quick", "--repeats", "1", "--threads", "1", *chosen, "--json", str(file))
    assert done.returncode == 0, done.stderr
    title, _, header, *rows = done.stdout.splitlines()
    assert title.startswith("1 thread (undertow ")
    assert header.split() == ["undertow", "torch", "ratio", "middle", "half", "budget"]
    figure = r"[\d.]+ (s|ms|us|ns)"
    compared = rf"{figure}  +[\d.]+  +[\d.]+-[\d.]+" if HAS_TORCH else "-  +-  +-"
    budgets = ["" if core is None else rf"  +{budget}( MISSED)?" for budget in (r"0\.80", r"0\.50")]
    assert re.fullmatch(rf"sin, not recorded +{figure} / op  +{compared}{budgets[0]}\s*", rows[0])
    assert re.fullmatch(rf"backward, chain of mul +{figure} / node  +{compared}{budgets[1]}\s*", rows[1])

    (table,) = json.loads(file.read_text())
    assert [row["name"] for row in table["rows"]] == ["sin, not recorded", "backward, chain of mul"]
    assert table["threads"] == 1 and all(row["ours"] > 0 for row in table["rows"])


def test_two_threads_as_markdown() -> None:
    arguments = ["--quick", "--repeats", "1", "--threads", "2", "--markdown", "--only", "tanh(", "--only", "mul, not"]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 threads (")
    assert lines[2:4] == [
        "|  | undertow | torch | ratio | middle half | budget |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    assert lines[4].startswith("| tanh(a * b + c).sum(), 200,000 elements, both ways | ")
    assert len(lines) == 5  # a single small operation has no use for two threads


def test_the_list_of_cases() -> None:
    done = run("--list")
    assert done.stdout.splitlines() == [case.name for case in cases.all_cases()]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "nothing like it"], "no case matches"),
        (["--repeats", "0"], "--repeats and --threads take numbers from 1 up"),
        (["--threads", "zero"], "invalid int value: 'zero'"),
    ],
)
def test_bad_options(arguments: list[str], complaint: str) -> None:
    done = run(*arguments)
    assert done.returncode != 0
    assert complaint in done.stderr and "Traceback" not in done.stderr


def test_the_survey_prints_a_row_for_an_expression() -> None:
    done = run("--only", "a.sum(0)", "--repeats", "1", module="benchmarks.survey")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^a\.sum\(0\) +[\d.]+ [nu]s", done.stdout, re.M)
    assert "failed" not in done.stdout


def test_large_arrays_with_several_numbers_of_threads() -> None:
    done = run(
        "--threads", "1", "2", "--repeats", "1", "--scale", "0.002", "--only", "sum of", module="benchmarks.large"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [text for text in lines if text[0] == "s"] == ["sum of rows of 20", "sum of columns"]
    assert len([text for text in lines if re.match(r" +[12] +[\d.]+ ", text)]) == 4


@pytest.mark.parametrize("name", large.PROGRAMS)
def test_programs_over_large_arrays(name: str) -> None:
    large.PROGRAMS[name][1](ut, 4096)()


# ---- its parts


def test_names_tell_cases_apart() -> None:
    names = [case.name for case in cases.all_cases()]
    assert len(set(names)) == len(names)


def test_every_budget_is_used() -> None:
    used = {case.budget for case in cases.all_cases()} - {None}
    assert used == set(cases.BUDGETS.values())


@pytest.mark.parametrize("name", ["small_mlp", "small_mlp_of_operators", "medium_mlp", "lstm", "elementwise"])
def test_every_model_runs(name: str) -> None:
    smaller: dict[str, Any] = {"medium_mlp": {"width": 8}, "lstm": {"steps": 3}, "elementwise": {"size": 10}}
    step = getattr(models, name)(ut, **smaller.get(name, {}))
    step()
    step()


@pytest.mark.parametrize("name", ["transformer_block", "small_cnn"])
def test_every_network_runs(name: str) -> None:
    smaller: dict[str, Any] = {
        "transformer_block": {"batch": 2, "length": 3, "width": 8, "heads": 2},
        "small_cnn": {"batch": 2, "size": 8},
    }
    step = getattr(models, name)(ut, **smaller[name])
    step()
    step()


@pytest.mark.parametrize(
    "name", ["softmax", "log_softmax", "layer_norm", "rms_norm", "cross_entropy", "gelu", "logsumexp", "batch_norm"]
)
def test_every_function_of_rows_runs(name: str) -> None:
    step = models.over_rows(ut, name, size=4)
    step()
    step()


@pytest.mark.parametrize("name", ["hvp", "jacobian", "bundle_adjustment"])
def test_every_derivative_runs(name: str) -> None:
    smaller: dict[str, Any] = {
        "hvp": {"batch": 3, "sizes": (4, 3, 2)},
        "jacobian": {"vectorize": True},
        "bundle_adjustment": {"observations": 2},
    }
    step = getattr(derivatives, name)(ut, **smaller[name])
    step()
    step()


@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
def test_cameras_see_the_same_in_both_libraries() -> None:
    torch = importlib.import_module("torch")
    camera, point = [0.1 * k + 0.2 for k in range(11)], [1.0, 2.0, 3.0]
    found = [
        lib.autograd.functional.jacobian(
            lambda c, p, lib=lib: derivatives.projected(lib, c, p),
            (lib.tensor(camera, dtype=lib.float64), lib.tensor(point, dtype=lib.float64)),
        )
        for lib in (ut, torch)
    ]
    for ours, theirs in zip(*found, strict=True):
        assert [pytest.approx(row) for row in theirs.tolist()] == ours.tolist()


def test_work_of_the_same_library_may_be_compared() -> None:
    case = cases.Case("x", "op", lambda lib: lambda: 1.0, other=lambda lib: lambda: 4.0)
    assert sampling.interleave(*measure.compared(case, [ut]), 3).ratio == 0.25


@rows("code", survey.expressions())
def test_every_surveyed_expression_has_a_gradient(code: str) -> None:
    eval(code, survey.operands(ut)).sum().backward()


@rows("code", survey.expressions(survey.PLAIN))
def test_every_plain_expression_has_a_value(code: str) -> None:
    assert eval(code, survey.operands(ut)) is not None


def test_samples_are_taken_in_turn() -> None:
    order: list[str] = []

    def sampler(name: str, values: Any) -> sampling.Sampler:
        return lambda: (order.append(name), next(values))[1]

    figures = sampling.interleave(sampler("a", chain([9.0, 2.0], count(2, 0))), sampler("b", count(4.0, 0)), 5)
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a", "a", "b"]
    assert figures == sampling.Figures(ours=2.0, theirs=4.0, ratio=0.5, low=0.5, high=0.5)


def test_one_library_alone_gets_no_ratio() -> None:
    assert sampling.interleave(lambda: 3.0, None, 3) == sampling.Figures(3.0)


def test_a_statement_is_timed_with_the_collector_on() -> None:
    seen: list[bool] = []
    names = {"seen": seen, "isenabled": __import__("gc").isenabled}
    sampling.statement("seen.append(isenabled())", names, seconds=1e-4)()
    assert seen and all(seen)


def test_a_fresh_subject_is_used_once() -> None:
    sample = sampling.fresh(lambda: [1], "subject.pop()", seconds=1e-5)
    assert sample() > 0


@pytest.mark.parametrize(
    ("seconds", "shown"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.5e-6, "4.5 us"), (8.1e-7, "810 ns")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert report.duration(seconds) == shown


def test_a_missed_budget_is_marked() -> None:
    row = {"name": "x", "unit": "op", "ours": 1e-6, "theirs": 1e-6, "ratio": 1.0, "low": 0.9, "high": 1.1}
    assert report.cells({**row, "budget": 0.8}) == ["x", "1 us / op", "1 us", "1.00", "0.90-1.10", "0.80 MISSED"]
    assert report.cells({**row, "budget": 1.0})[-1] == "1.00"
    assert report.cells({**row, "budget": None})[-1] == ""
    assert report.closing([{**row, "budget": 0.8}, {**row, "budget": 1.2}]) == "1 of 2 within their budget.\n"


# ---- memory


def test_saved_bytes_are_those_of_the_operands() -> None:
    found = {name: memory.saved_bytes(ut, operation) / memory.UNIT for name, operation in memory.OPERATIONS.items()}
    assert found["a + b"] == found["a.sum()"] == 0
    assert found["sin(a)"] == found["exp(a)"] == 1
    assert found["a * b"] == found["a @ b"] == 2


def test_the_page_of_saved_values() -> None:
    text = saved.page()
    assert "| `mul` | `MulBackward0` | `other` for `input`, `input` for `other` |  |  |" in text
    assert "| `exp` | `ExpBackward0` |  | `out` |  |" in text
    assert "| `_sum_all` | `SumBackward0` |  |  | `input_shape` |" in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert all(line.count("|") == 6 for line in rows)
    assert len(rows) > 200


def test_the_page_agrees_with_the_nodes() -> None:
    for op in REGISTRY.values():
        slots = getattr(op.node_class, "saved_slots", None)
        if slots is not None:
            row = saved.row_of(op)
            arrays = [part.split("`")[1] for part in f"{row.inputs}, {row.outputs}".split(", ") if part]
            assert {f"saved_{name}" for name in arrays} == set(slots), op.name


def test_growth() -> None:
    done = run("--only", "nodes", "--most", "100", "--turns", "1", module="benchmarks.growth")
    line = next(line for line in done.stdout.splitlines() if line.startswith("nodes"))
    assert re.search(r"nodes +100 +[\d.]+ ms +[\d,.]+ ns +[\d.]+ MB", line)
    figures = {"nodes": [[100, 1e-4, 0], [1000, 1e-3, 3e7]], "threads": [[1, 0.02, 1e8], [2, 0.01, 1e8]]}
    assert growth.as_page(figures).count("\n") >= 5
    assert growth.picture(figures).count("<circle") == 2

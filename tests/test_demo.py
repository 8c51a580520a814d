"""`python -m undertow`: the demo, the facts about the machine, and the errors for bad options."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from typing import Any

import pytest

import undertow as ut
from undertow import demo
from undertow.demo import training
from undertow.demo.model import ARMS, accuracy_of, loss_of, parameters, spirals


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "undertow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


# ---- the command line


def test_the_demo_trains_and_checks_its_gradients() -> None:
    done = run("demo", "--steps", "40", "--hidden", "8")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"^  step +\d+/40  loss \d\.\d{4}  accuracy +\d+%  .*s( left)?$", done.stdout, re.M)) == 10
    assert re.search(r"^loss +fell from \d\.\d+ to \d\.\d+$", done.stdout, re.M)
    assert re.search(r"^gradients +agree with finite differences", done.stdout, re.M)
    assert re.search(r"^speed +\d+\.\d\d ms per step", done.stdout, re.M)
    assert "docs/index.md" in done.stdout
    assert "\r" not in done.stdout


def test_quiet_prints_the_summary_alone() -> None:
    done = run("demo", "--steps", "2", "--hidden", "4", "--seed", "3", "--quiet")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["loss", "accuracy", "gradients", "speed"]


def test_alone_it_prints_its_version_and_help() -> None:
    done = run()
    assert done.returncode == 0
    assert done.stdout.startswith(f"undertow {ut.__version__}\n")
    assert "demo" in done.stdout and "info" in done.stdout


def test_info_names_versions_devices_and_threads() -> None:
    done = run("info")
    assert (done.returncode, done.stderr) == (0, "")
    facts = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert facts["undertow"] == ut.__version__
    assert facts["Python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert {"numpy", "BLAS", "processors", "device"} <= set(facts)
    assert re.search(r"^device cpu +available", done.stdout, re.M)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["demo", "--steps", "0"], "argument --steps: expected a whole number from 1 to 1000000, got '0'"),
        (["demo", "--steps", "many"], "argument --steps: expected a whole number"),
        (["demo", "--hidden", "-3"], "argument --hidden: expected a whole number from 1 to 4096, got '-3'"),
        (["demo", "--seed", "1.5"], "argument --seed: expected a whole number from 0 to"),
        (["demo", "--colour"], "unrecognized arguments: --colour"),
        (["dmeo"], "invalid choice: 'dmeo'"),
    ],
)
def test_bad_options_are_named(arguments: list[str], complaint: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error_to_report() -> None:
    command = [sys.executable, "-u", "-m", "undertow", "demo", "--steps", "200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaints = process.stderr.read()
    assert process.returncode == 1
    assert complaints == ""


# ---- what makes it fail


def test_a_wrong_gradient_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(points: Any, arms: Any, params: list[Any]) -> Any:
        loss = loss_of(points, arms, params)
        return 2 * loss - loss.detach()  # the value of the loss, with twice its gradient

    monkeypatch.setattr(training, "loss_of", doubled)
    out = io.StringIO()
    assert demo.run_demo(steps=3, hidden=4, seed=0, quiet=True, stream=out) == 1
    assert "gradients  WRONG: " in out.getvalue()
    assert "Jacobian mismatch" in out.getvalue()


def test_a_loss_that_rises_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    adam = training.Adam
    monkeypatch.setattr(training, "Adam", lambda params: adam(params, rate=-0.05))
    out = io.StringIO()
    assert demo.run_demo(steps=5, hidden=4, seed=0, quiet=True, stream=out) == 1
    assert "DID NOT FALL" in out.getvalue()


# ---- its parts


def test_the_data_follow_the_seed() -> None:
    (points, arms), (same, _), (other, _) = spirals(30, 1), spirals(30, 1), spirals(30, 2)
    assert points.shape == (30, 2) and points.dtype == ut.float32
    assert points.equal(same) and not points.equal(other)
    assert sorted(set(arms.tolist())) == list(range(ARMS))


def test_training_learns_the_spiral() -> None:
    trained = training.train(steps=300, hidden=16, seed=0)
    assert trained.improved
    assert trained.accuracy > 0.8


def test_accuracy_counts_right_answers() -> None:
    points, arms = spirals(30, 0)
    params = parameters(4, 0)
    with ut.no_grad():
        for p in params:
            p.zero_()
        params[-1][1] = 1.0  # the bias of arm 1: the answer is always 1
    assert accuracy_of(points, arms, params) == pytest.approx(1 / ARMS)


def test_the_picture_has_the_size_asked_for() -> None:
    rows = training.picture(parameters(4, 0), columns=20, rows=7)
    assert [len(row) for row in rows] == [20] * 7
    assert set("".join(rows)) <= set(".o#")

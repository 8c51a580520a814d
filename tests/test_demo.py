"""`python -m undertow`: the demo, the facts about the machine, and the errors for bad options."""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import undertow as ut
from undertow import demo
from undertow.__main__ import main
from undertow.demo import training
from undertow.demo.digits import HEIGHT, SIDE, WIDTH, digits, glyphs
from undertow.demo.drawing import curve, images_beside


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "undertow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


# ---- the command line


def test_the_demo_trains_and_checks_its_gradients() -> None:
    done = run("demo", "--epochs", "1", "--hidden", "8")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"^  step +\d+/400  loss \d\.\d{4}  .*s( left)?$", done.stdout, re.M)) == 10
    assert re.search(r"^ +\d\.\d\d \|\*", done.stdout, re.M)
    assert re.search(r"^  reads \d", done.stdout, re.M)
    assert re.search(r"^accuracy +\d+\.\d% of images", done.stdout, re.M)
    assert re.search(r"^saved +to a file, and loaded again: the same answers$", done.stdout, re.M)
    assert re.search(r"^loss +fell from \d\.\d+ to \d\.\d+$", done.stdout, re.M)
    assert re.search(r"^gradients +agree with finite differences", done.stdout, re.M)
    assert re.search(r"^speed +\d+\.\d\d ms per step", done.stdout, re.M)
    assert "docs/index.md" in done.stdout
    assert "\r" not in done.stdout


def test_quiet_prints_the_summary_alone() -> None:
    done = run("demo", "--epochs", "1", "--hidden", "4", "--seed", "3", "--quiet")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["loss", "accuracy", "saved", "gradients", "speed"]


def test_the_network_can_be_kept(tmp_path: Path) -> None:
    file = tmp_path / "digits.pt"
    done = run("demo", "--epochs", "1", "--hidden", "4", "--quiet", "--save", str(file))
    assert done.returncode == 0 and f"saved      to {file}" in done.stdout
    model = training.network(4)
    assert str(model.load_state_dict(ut.load(file))) == "<All keys matched successfully>"


@pytest.mark.parametrize("hidden", [3, 12])
def test_it_draws_a_plot_where_matplotlib_is(hidden: int, tmp_path: Path) -> None:
    file = tmp_path / "demo.png"
    done = run("demo", "--epochs", "1", "--hidden", str(hidden), "--quiet", "--plot", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    assert file.exists() == has_matplotlib
    assert ("No plot: matplotlib is not installed." in done.stdout) != has_matplotlib


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
    assert re.search(r"^compiled core  (used|not used|not there)", done.stdout, re.M)
    assert re.search(r"^device cpu +available", done.stdout, re.M)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["demo", "--epochs", "0"], "argument --epochs: expected a whole number from 1 to 1000, got '0'"),
        (["demo", "--epochs", "many"], "argument --epochs: expected a whole number"),
        (["demo", "--save", "no/such/folder/x.npz"], "argument --save: expected a file in a folder that exists"),
        (["demo", "--hidden", "-3"], "argument --hidden: expected a whole number from 1 to 4096, got '-3'"),
        (["demo", "--seed", "1.5"], "argument --seed: expected a whole number from 0 to"),
        (["demo", "--colour"], "unrecognized arguments: --colour"),
        (["dmeo"], "invalid choice: 'dmeo'"),
    ],
)
def test_bad_options_are_named(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_bad_option_ends_the_process_without_a_traceback() -> None:
    done = run("demo", "--epochs", "0")
    assert done.returncode == 2
    assert "argument --epochs: expected a whole number" in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error_to_report() -> None:
    command = [sys.executable, "-u", "-m", "undertow", "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaints = process.stderr.read()
    assert process.returncode == 1
    assert complaints == ""


# ---- what makes it fail


def result(**options: Any) -> tuple[int, str]:
    out = io.StringIO()
    return demo.run_demo(epochs=1, hidden=4, seed=0, quiet=True, stream=out, **options), out.getvalue()


def test_a_wrong_gradient_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    right = training.loss_of

    def doubled(model: Any, images: Any, labels: Any) -> Any:
        loss = right(model, images, labels)
        return 2 * loss - loss.detach()  # the value of the loss, with twice its gradient

    monkeypatch.setattr(training, "loss_of", doubled)
    code, text = result()
    assert code == 1
    assert "gradients  WRONG: " in text and "Jacobian mismatch" in text


def test_a_loss_that_rises_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    sgd = ut.optim.SGD
    monkeypatch.setattr(ut.optim, "Adam", lambda params, lr: sgd(params, lr=0.01, maximize=True))
    code, text = result()
    assert code == 1 and "DID NOT FALL" in text


def test_a_network_that_comes_back_otherwise_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "saved_and_loaded", lambda model, path: training.network(4))
    code, text = result()
    assert code == 1 and "OTHER ANSWERS" in text


# ---- its parts


def test_the_data_follow_the_seed() -> None:
    (images, labels), (same, _), (other, _) = digits(300, 1)[:], digits(300, 1)[:], digits(300, 2)[:]
    assert images.shape == (300, 1, SIDE, SIDE) and images.dtype == ut.float32
    assert images.equal(same) and not images.equal(other)
    assert sorted(set(labels.tolist())) == list(range(10))


@pytest.mark.parametrize(
    ("reach", "rows", "columns"), [(0, (2, 9), (3, 8)), (1, (1, 10), (2, 9)), (12, (0, 12), (0, 12))]
)
def test_digits_stay_within_reach(reach: int, rows: tuple[int, int], columns: tuple[int, int]) -> None:
    images, _ = digits(500, 0, noise=0.0, reach=reach)[:]
    inked = images[:, 0].amax(0) > 0
    for dim, (first, end) in ((1, rows), (0, columns)):
        places = inked.any(dim).nonzero().flatten().tolist()
        assert (places[0], places[-1] + 1) == (first, end)


def test_a_digit_is_that_of_the_font() -> None:
    (image,), (label,) = digits(1, 5, noise=0.0, reach=0)[:]
    found = image[0, 2 : 2 + HEIGHT, 3 : 3 + WIDTH]
    assert ((found > 0) == (glyphs()[label] > 0)).all()


def test_training_learns_to_read() -> None:
    trained = training.train(epochs=3, hidden=32, seed=0)
    assert trained.improved
    assert trained.accuracy > 0.7


def test_accuracy_counts_right_answers() -> None:
    trained = training.Trained(training.network(2), [1.0], ut.data.Subset(digits(200, 0), range(100)), 1.0)
    with ut.no_grad():
        for p in trained.model.parameters():
            p.zero_()
        trained.model[3].bias[7] = 1.0  # the answer is always 7
    _, labels = trained.some(100)
    assert trained.accuracy == (labels == 7).sum().item() / 100


def test_a_curve_has_its_size_and_extremes() -> None:
    rows = curve([2.0] * 50 + [0.5] * 50, columns=20, rows=5)
    assert rows == ["   2.00 |**********", "        |", "        |", "        |", "   0.50 |          **********"]
    assert curve([3.0], columns=9, rows=2) == ["   3.00 |*", "   3.00 |"]
    assert curve([1.0, 0.0], columns=9, rows=2) == ["   1.00 |*", "   0.00 | *"]


def test_images_beside_each_other() -> None:
    images = ut.tensor([[[0.0, 1.0], [1.0, 0.0]], [[0.5, 2.0], [-1.0, 0.5]]])
    assert images_beside(images, ["a", "bc"]) == ["a     bc", "  @@  ==@@", "@@      =="]

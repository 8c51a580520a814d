"""Every example runs in its quick size, gets better at what it does, and has its page in the documentation."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rows import run_all

ROOT = Path(__file__).parents[1]
INDEX, PAGES = ROOT / "docs" / "examples.md", ROOT / "docs" / "examples"
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "common")
#: how much better: the last loss (or error) is at most this share of the first, in the quick size
SHARES = {
    "char_lstm": 0.6,
    "cnn_digits": 0.8,
    "complex_filter": 0.01,
    "hmc_sampler": 0.4,
    "hogwild": 0.2,
    "neural_ode": 0.5,
    "scipy_fit": 0.2,
    "transformer_sort": 0.8,
    "two_processes": 0.75,
    "variational_inference": 0.25,
    "wave_in_place": 0.01,
}
#: those that start processes of their own; the others share one, which loads matplotlib once
ALONE = ["hogwild", "two_processes"]
TOGETHER = [name for name in EXAMPLES if name not in ALONE]
PROGRAM = """
import importlib, sys, traceback
if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    for name in sys.argv[2:]:
        print("EXAMPLE", name)
        try:
            first, last = importlib.import_module(name).main(["--quick", "--plot", name + ".png"])
            print("RESULT", first, last)
        except Exception:
            traceback.print_exc()
"""


@pytest.mark.slow
@pytest.mark.parametrize("names", [*[[name] for name in ALONE], TOGETHER], ids="+".join)
def test_the_example_converges(names: list[str], tmp_path: Path) -> None:
    if importlib.util.find_spec("scipy") is None:
        names = [name for name in names if name != "scipy_fit"]
    if "two_processes" in names:
        pytest.importorskip("mpi4py")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-W", "error", program, ROOT / "examples", *names]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    _, *printed = re.split(r"^EXAMPLE (\S+)$", done.stdout, flags=re.M)
    assert printed[::2] == names
    run_all(
        [(name, {"name": name, "text": text}) for name, text in zip(printed[::2], printed[1::2], strict=True)],
        lambda row: check_run(**row, picture=tmp_path / f"{row['name']}.png"),
    )


def check_run(name: str, text: str, picture: Path) -> None:
    found = re.search(r"^RESULT (\S+) (\S+)$", text, re.M)
    assert found is not None
    assert float(found[2]) <= SHARES[name] * float(found[1])
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    assert picture.exists() == has_matplotlib
    assert ("No plot: matplotlib is not installed." in text) != has_matplotlib


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_is_documented_and_short(name: str) -> None:
    assert f"](../examples/{name}.py)" in INDEX.read_text(encoding="utf-8")
    assert f"](../../examples/{name}.py)" in (PAGES / f"{name}.md").read_text(encoding="utf-8")
    lines = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150 and lines[-2:] == ['if __name__ == "__main__":', "    main()"]


@pytest.mark.parametrize("name", [*EXAMPLES, "demo"])
def test_the_example_has_a_page_with_a_picture(name: str) -> None:
    index, page = (path.read_text(encoding="utf-8") for path in (INDEX, PAGES / f"{name}.md"))
    assert f"](examples/{name}.md)" in index and f"](examples/small/{name}.png)" in index
    assert f"]({name}.png)" in page
    headings = ["## Run it", "## How it works", "## Try next"]
    assert [line for line in page.splitlines() if line.startswith("## ")] == headings
    picture = (PAGES / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n") and len(picture) < 60_000


def test_there_are_no_pages_of_examples_that_are_gone() -> None:
    assert sorted(path.stem for path in PAGES.glob("*.md")) == sorted([*EXAMPLES, "demo"])
    assert sorted(path.stem for path in PAGES.glob("*.png")) == sorted([*EXAMPLES, "demo"])


def test_the_command_line_explains_itself() -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "scipy_fit.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--quick" in done.stdout and "SciPy fits a curve" in done.stdout

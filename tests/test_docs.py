"""Every Python example in README.md and docs/ runs, and prints what the page says it prints; files they name exist.

A page is one program: its ```python blocks run in order and share their names.  A ```text block that
follows a Python block is the exact output of that block; without one, the block must print nothing.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import undertow
from tools.site.reference import resolve

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```\n)?", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
#: a file or folder in backticks: `apply.py`, `ops/declare/apply.py`, `csrc/call/`
NAMED = re.compile(r"`((?:[\w.]+/)*[\w.]+\.(?:py|c|h)|(?:[\w.]+/)+)`")
#: made by the build, and PyTorch's own tests
ELSEWHERE = {"csrc/plan.h", "test/test_autograd.py", "test_eager_transforms.py"}
FOLDERS = ("src", "csrc", "tests", "docs", "benchmarks", "conformance", "examples", "tools", "web/replay/src")


class Example(NamedTuple):
    line: int
    code: str
    output: str


def read_examples(text: str) -> list[Example]:
    return [
        Example(text.count("\n", 0, found.start()) + 2, found["code"], found["output"] or "")
        for found in EXAMPLE.finditer(text)
    ]


def run_page(text: str, name: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for example in read_examples(text):
        padding = "\n" * (example.line - 1)  # so that a traceback shows the line of the page
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(padding + example.code, name, "exec"), names)
        assert printed.getvalue() == example.output, f"{name}:{example.line} prints something else"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run_and_print_what_they_say(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    run_page(page.read_text(encoding="utf-8"), str(page))


def test_the_environment_variables_are_told() -> None:
    """Those that are read; undertow tells its own processes of two others."""
    read = re.compile(r"""(?:environ|is_set)[^\n]*["'](UNDERTOW_[A-Z_]+)["']""")
    files = [ROOT / "setup.py", *(ROOT / "src" / "undertow").rglob("*.py")]
    found = {name for file in files for name in read.findall(file.read_text(encoding="utf-8"))}
    told = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert len(found) > 8 and [name for name in found if name not in told] == []


def test_names_of_the_library_exist() -> None:
    """`ut.nn.Linear` between backticks, on any page."""
    missing = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for path in re.findall(r"`[^`\n]*?(?<![\w.])(?:ut|undertow)\.([A-Za-z_][\w.]*\w)[^`\n]*`", prose):
            try:
                resolve(f"undertow.{path}")
            except (AttributeError, ImportError):
                missing.append(f"{page.relative_to(ROOT)}: {path}")
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_exist(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.fixture(scope="module")
def files() -> str:
    """Every file and folder of the repository, a line each, as "/src/undertow/ops/" or "/src/undertow/modes.py"."""
    found = [path for folder in FOLDERS for path in [ROOT / folder, *(ROOT / folder).rglob("*")]]
    return "".join(f"/{path.relative_to(ROOT).as_posix()}{'/' * path.is_dir()}\n" for path in found)


def missing_files(text: str, files: str) -> list[str]:
    """The files and folders that a page names, from any folder on, and that are not there."""
    return [name for name in sorted(set(NAMED.findall(text)) - ELSEWHERE) if f"/{name}\n" not in files]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path, files: str) -> None:
    assert missing_files(page.read_text(encoding="utf-8"), files) == []


def test_a_file_that_is_gone_is_reported(files: str) -> None:
    text = "See `ops/declare/apply.py`, `plan.c`, `csrc/call/`, `ops/declare/templates.py`, `engine.c` and `csrc/old/`."
    assert missing_files(text, files) == ["csrc/old/", "ops/declare/templates.py"]


#: `record_change` in `ops/inplace/forms.py`, also over the end of a line
IN_FILE = re.compile(r"`(\w+)`,? in\s+`((?:[\w.]+/)*[\w.]+\.(?:py|c|h))`")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_said_to_be_in_a_file_is_there(page: Path, files: str) -> None:
    lost = []
    for name, file in IN_FILE.findall(page.read_text(encoding="utf-8")):
        paths = re.findall(rf"^/(.*(?<![^/]){re.escape(file)})$", files, re.M)
        if paths and not any(re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8")) for path in paths):
            lost.append(f"{name} in {file}")
    assert lost == []


def test_the_error_in_the_readme_is_the_one_that_is_raised() -> None:
    program = "\n\nx, factor = ut.ones(3, requires_grad=True), ut.ones(3)\n\ny = x * factor\nfactor.add_(1)\n"
    names: dict[str, Any] = {"ut": undertow}
    exec(compile(program, "train.py", "exec"), names)
    with pytest.raises(undertow.errors.ModifiedInplaceError) as raised:
        names["y"].sum().backward()
    shown = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"undertow.errors.ModifiedInplaceError: {raised.value} ```" in shown


PAGE = "A page.\n\n```python\nx = 2\n```\n\n```python\nprint(x + 1)\n```\n\n```text\n{output}\n```\n"


def test_the_reader_sees_both_examples() -> None:
    expected = [Example(4, "x = 2\n", ""), Example(8, "print(x + 1)\n", "3\n")]
    assert read_examples(PAGE.format(output="3")) == expected
    run_page(PAGE.format(output="3"), "page.md")


def test_a_wrong_output_is_reported_with_its_line() -> None:
    with pytest.raises(AssertionError, match=re.escape("page.md:8 prints something else")):
        run_page(PAGE.format(output="4"), "page.md")

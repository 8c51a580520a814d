"""What the site is made of: every page is listed, links stay on the site, and the reference has everything public."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import undertow as ut
from tools.site import kinks, pages, reference, texts

INDEX = (pages.DOCS / "index.md").read_text(encoding="utf-8")


def test_the_index_lists_every_page_once() -> None:
    listed = [page for group in pages.groups(INDEX).values() for page in group]
    there = [path.name for path in pages.DOCS.glob("*.md") if path.name != "index.md"]
    assert sorted(listed) == sorted([*there, "readme.md", "contributing.md", "changelog.md"])
    assert list(pages.groups(INDEX)) == ["Start", "Use", "Understand", "Maintain"]


def test_links_lead_to_pages_of_the_site() -> None:
    text = "[a](../README.md) [ten.md](ten.md#x) [`x.c`](../csrc/x.c) [dir](../examples) [p](../examples/p.py) [o](https://o)"
    assert pages.for_site(text, "docs/page.md") == (
        "[a](readme.md) [](ten.md#x) `x.c` `dir` [p](programs/p.py) [o](https://o)"
    )
    assert pages.for_site("[a](docs/page.md)", "README.md") == "[a](page.md)"
    assert pages.for_site("![a](../seeing/page.png)", "docs/examples/x.md") == "![a](../seeing/page.png)"


def test_docstrings_become_markdown() -> None:
    doc = """One *star*, `x_y`.

    first   what it is
    second  the other,
            on two lines

        x + y

    >>> 1 + 1
    2
    """
    assert texts.markdown(doc) == (
        "One \\*star\\*, `x_y`.\n\n- `first`: what it is\n- `second`: the other,\n  on two lines\n\n"
        "```text\nx + y\n```\n\n```pycon\n>>> 1 + 1\n2\n```"
    )


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return reference.pages()


def test_the_reference_has_every_public_function(made: dict[str, str]) -> None:
    everything = "\n".join(made.values())
    described = set(re.findall(r"^:{4,5}\{py:\w+\} ([\w.]+)", everything, re.M))
    for path in ("undertow", "undertow.Tensor", "undertow.linalg", "undertow.nn"):
        place = reference.resolve(path)
        public = [n for n in reference.public_names(place) if callable(getattr(place, n, None))]
        assert [n for n in public if f"{path}.{n}" not in described] == []
    assert "As PyTorch's function of this name" not in everything


def test_the_reference_shows_what_examples_return_and_kinks(made: dict[str, str]) -> None:
    text = made["functions-pointwise.md"]
    start = text.index("{py:function} undertow.abs(")
    shown = text[start : text.index(":::::", start)]
    assert f">>> ut.abs(ut.tensor([0.25, 0.75]))\n{ut.tensor([0.25, 0.75])!r}" in shown
    assert "gradient of input: g * sgn(input)" in shown and "[rule 2](../kinks.md)" in shown
    assert len(kinks.kinks()) > 50


def test_no_page_is_left_for_the_site_to_find(tmp_path: Path) -> None:
    from tools.site.__main__ import prepare

    prepare(tmp_path / "source")
    links = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
    for page in (tmp_path / "source").rglob("*.md"):
        missing = [n for n in links.findall(page.read_text(encoding="utf-8")) if not (page.parent / n).exists()]
        assert missing == [], page.name

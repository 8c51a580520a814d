"""From the pages under docs/ to those of the site. They stay readable where they are; here they get a navigation.

The index is the table of contents: each of its sections with a table of pages is a group.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

#: what is on the site though it lies above docs/: file or folder -> page or folder of the site
SHOWN = {
    "README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md",
    "examples": "programs",
}  # fmt: skip

SECTION = re.compile(r"^## (.+)$", re.M)
ENTRY = re.compile(r"^\| \[[^\]]+\]\(([^)#]+\.md)\)", re.M)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def groups(index: str) -> dict[str, list[str]]:
    """The pages of each section of the index, in its order, as they are called on the site."""
    parts = SECTION.split(index)
    sections = zip(parts[1::2], parts[2::2], strict=True)
    found = {title: [place_on_site(f"docs/{link}") for link in ENTRY.findall(text)] for title, text in sections}
    return {title: [page for page in pages if page is not None] for title, pages in found.items() if pages}


#: how much a page of a group is preferred by the search to one elsewhere; a word of a page counts 5, of its title 15
PREFERRED = {"Start": 3, "Use": 3, "Understand": 2, "Maintain": -20}


def ranks(index: str) -> dict[str, float]:
    """What a page is preferred by, as the search calls it; of those of a group, the earlier one."""
    return {
        page.removesuffix(".md"): round(PREFERRED[group] - 0.01 * n, 2)
        for group, pages in groups(index).items()
        for n, page in enumerate(pages)
    }


def place_on_site(file: str) -> str | None:
    """Where a file of the repository is on the site; None if it is not."""
    path = PurePosixPath(normpath(file))
    if path.parts[0] == "docs":
        return str(path.relative_to("docs"))
    if str(path) in SHOWN:
        return SHOWN[str(path)] if path.suffix else None  # a site shows no folders
    if path.suffix and path.parts[0] in SHOWN:
        return str(SHOWN[path.parts[0]] / path.relative_to(path.parts[0]))
    return None


def for_site(text: str, file: str) -> str:
    """The text of a file of the repository, with links that lead to pages of the site; others are their words alone."""
    page = place_on_site(file)
    assert page is not None

    def follow(found: re.Match[str]) -> str:
        image, words, link, anchor = found.groups(default="")
        target = place_on_site(f"{PurePosixPath(file).parent}/{link}")
        if target is None:
            return f"`{words}`" if re.fullmatch(r"[\w./-]+", words) else words
        words = "" if words == link else words  # the site puts the title of the page there
        return f"{image}[{words}]({relpath(target, str(PurePosixPath(page).parent))}{anchor})"

    return LINK.sub(follow, text)


def with_navigation(index: str) -> str:
    """The index with what Sphinx makes the navigation of."""
    all_groups = {**groups(index), "Reference": ["reference/index.md"]}
    return index + "".join([listed(pages, title) for title, pages in all_groups.items()])


def listed(pages: list[str], title: str | None = None) -> str:
    """The end of a page that has others below it."""
    caption = "" if title is None else f":caption: {title}\n"
    return f"\n```{{toctree}}\n:hidden:\n{caption}\n" + "\n".join(pages) + "\n```\n"

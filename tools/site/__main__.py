"""`python -m tools.site [FOLDER]`: the site, in FOLDER (build/docs unless said). Warnings are errors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.site import names, pages, questions, reference
from tools.site.pages import DOCS, ROOT


def prepare(source: Path) -> None:
    """Write everything that Sphinx reads into an empty folder."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("*.md", "__pycache__"))
    shutil.copytree(ROOT / "examples", source / pages.SHOWN["examples"], ignore=shutil.ignore_patterns("__pycache__"))
    shown = [ROOT / name for name in pages.SHOWN if name.endswith(".md")]
    for path in [*DOCS.rglob("*.md"), *shown]:
        file = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        if file == "docs/index.md":
            text = pages.with_navigation(text)
        text = pages.for_site(text, file)
        if file == "docs/examples.md":
            text += pages.listed([f"examples/{page.name}" for page in sorted((DOCS / "examples").glob("*.md"))])
        write(source / str(pages.place_on_site(file)), text)
    made = reference.pages()
    for name, text in made.items():
        write(source / "reference" / name, text)
    write(source / "_static" / "search_data.js", names.script(made) + questions.script())


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main(folder: str = "build/docs") -> int:
    source = ROOT / "build" / "docs-source"
    prepare(source)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-q",
            "-W",
            "--keep-going",
            "-E",
            "-j",
            "auto",
            "-b",
            "html",
            str(source),
            folder,
        ]
    ).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

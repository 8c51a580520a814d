"""The page's JavaScript is built from web/replay, and what is committed is what these sources give."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import undertow.instrument.replay as replay

SOURCES = Path(__file__).parents[2] / "web" / "replay"
BUILT = Path(replay.__file__).parent

pytestmark = pytest.mark.skipif(not SOURCES.exists(), reason="an installed package has no sources of the page")


def digest() -> str:
    """As build.mjs makes it."""
    files = ["build.mjs", "package.json", *sorted(f"src/{path.name}" for path in (SOURCES / "src").iterdir())]
    found = hashlib.sha256()
    for name in files:
        found.update(f"{name}\n".encode())
        found.update((SOURCES / name).read_bytes())
    return found.hexdigest()


@pytest.mark.parametrize("name", ["page.js", "page.css"])
def test_what_is_committed_was_built_from_these_sources(name: str) -> None:
    stated = re.search(r"Sources: (\w+)", (BUILT / name).read_text(encoding="utf-8"))
    assert stated is not None and stated[1] == digest(), "run `npm install && npm run build` in web/replay"


@pytest.mark.slow
def test_a_new_build_gives_the_same_files(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None or not (SOURCES / "node_modules").exists():
        pytest.skip("needs Node and `npm install` in web/replay")
    subprocess.run([node, "build.mjs", str(tmp_path)], cwd=SOURCES, check=True, timeout=120)
    for name in ("page.js", "page.css"):
        assert (tmp_path / name).read_bytes() == (BUILT / name).read_bytes()

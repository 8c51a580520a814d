"""The questions that tables of the pages answer, and where: docs/_static/questions.js finds them by their words."""

from __future__ import annotations

import json
import re

from tools.site import pages

#: the pages whose tables have a question, or what somebody wants, in one column and links in the other
ASKING = ("index.md", "how-do-i.md")

ROW = re.compile(r"^\| ([^|]+) \| (.+) \|$", re.M)


def questions() -> list[tuple[str, list[str]]]:
    """Each question, and the pages (with the place on them) that answer it, in the order of the links."""
    found = []
    for page in ASKING:
        for row in ROW.findall((pages.DOCS / page).read_text(encoding="utf-8")):
            links = [link + anchor for cell in row for _, _, link, anchor in pages.LINK.findall(cell)]
            places = [place_of(link) for link in links if link.partition("#")[0].endswith(".md")]
            words = next((cell for cell in row if not pages.LINK.search(cell)), "")
            if words and places:
                found.append((re.sub(r"^\.\.\. |[`*]", "", words), places))
    return found


def place_of(link: str) -> str:
    """`nn.md#several-devices` -> `nn#several-devices`, as the search calls its pages."""
    file, _, anchor = link.partition("#")
    place = str(pages.place_on_site(f"docs/{file}")).removesuffix(".md")
    return f"{place}#{anchor}" if anchor else place


def script() -> str:
    return f"const QUESTIONS = {json.dumps(questions(), separators=(',', ':'))};\n"

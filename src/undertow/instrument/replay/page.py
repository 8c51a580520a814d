"""The page: one HTML file with the recording in it, which needs no network."""

from __future__ import annotations

import json
import os
from typing import Any

FOLDER = os.path.dirname(__file__)


def page_text(content: dict[str, Any]) -> str:
    """The whole page as text."""
    import html

    data = json.dumps(content, separators=(",", ":"), allow_nan=False)
    # what would end the element that holds it cannot stand in it; \u003c is the same character in JSON
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(content['title'])}</title>\n<style>{_part('page.css')}</style>\n</head>\n<body>\n"
        f'<script type="application/json" id="recording">{data}</script>\n'
        f"<script>{_part('page.js')}</script>\n</body>\n</html>\n"
    )


def write_page(path: str, content: dict[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(page_text(content))


def _part(name: str) -> str:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read().replace("</script", "<\\/script").replace("</style", "<\\/style")

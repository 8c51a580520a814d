"""What docs/kinks.md says of each function, from its tables."""

from __future__ import annotations

import re
from collections import defaultdict

from tools.site.pages import DOCS

#: | `F.abs(x)` | `[0]` | `[0]` | 2 | ...
ROW = re.compile(
    r"^\| `(?P<call>F\.(?P<name>\w+)\(.*?)` \| `(?P<at>[^`]*)` \| `(?P<gradient>[^`]*)` \| (?P<rule>\d)", re.M
)


def kinks() -> dict[str, list[str]]:
    """For each function that has some, sentences on its gradient where there is no derivative."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in ROW.finditer((DOCS / "kinks.md").read_text(encoding="utf-8")):
        call = row["call"].replace("F.", "")
        found[row["name"]].append(
            f"`{call}` at x = `{row['at']}` has the gradient `{row['gradient']}` ([rule {row['rule']}](../kinks.md))."
        )
    return dict(found)

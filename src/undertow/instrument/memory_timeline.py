"""The memory timeline of a profile: what is alive when, where it was made, what is left at the end.

>>> import undertow as ut
>>> kept = []
>>> with ut.profiler.profile(profile_memory=True) as prof:
...     for _ in range(2):
...         kept.append((ut.ones(1000) * 2).exp())
>>> timeline = prof.memory_timeline()
>>> timeline.peak_bytes
12000
>>> [(block.operation, block.bytes) for block in timeline.leaks().blocks]
[('exp', 4000), ('exp', 4000)]
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, NamedTuple

from undertow.autograd.interceptors.observer import name_of
from undertow.autograd.saved_tensors.ledger import readable
from undertow.graph.user_lines import Site
from undertow.instrument.memory import Allocations

STYLE = "body{font:14px system-ui;margin:2em} svg{width:100%;border:1px solid #999}"


class Block(NamedTuple):
    """An array: what made it, where, and from when to when (in microseconds; None: it is still there) it lived."""

    number: int
    operation: str
    line: str
    module: str
    bytes: int
    begin: float
    end: float | None


class Snapshot:
    """The blocks that are alive at one time."""

    def __init__(self, time: float, blocks: list[Block]) -> None:
        self.time, self.blocks = time, blocks

    @property
    def bytes(self) -> int:
        return sum(block.bytes for block in self.blocks)

    def by(self, field: str) -> dict[str, int]:
        """Bytes by "operation", "line" or "module", the largest first."""
        sums: dict[str, int] = defaultdict(int)
        for block in self.blocks:
            sums[getattr(block, field)] += block.bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def __sub__(self, earlier: Snapshot) -> Snapshot:
        """What is alive in this one, and was not in an earlier one."""
        known = {block.number for block in earlier.blocks}
        return Snapshot(self.time, [block for block in self.blocks if block.number not in known])

    def __str__(self) -> str:
        lines = [f"{readable(self.bytes)} in {len(self.blocks)} arrays at {self.time / 1000:.3f} ms"]
        for field in ("operation", "module", "line"):
            for name, size in list(self.by(field).items())[:10]:
                if name:
                    lines.append(f"  {field:<10} {readable(size):>10}  {name}")
        return "\n".join(lines)


class MemoryTimeline:
    """What `profile.memory_timeline()` returns. It knows what operations and nodes made in it, and nothing older."""

    def __init__(self, allocations: Allocations, begin: int) -> None:
        self.curve = [((time - begin) / 1000, alive) for time, alive in allocations.curve()]
        self.blocks = _blocks(allocations, begin)
        self.peak_time, self.peak_bytes = max(self.curve, key=lambda point: point[1], default=(0.0, 0))

    def at(self, time: float | None = None) -> Snapshot:
        """What was alive at a time, in microseconds since the profile began; by default at the peak."""
        time = self.peak_time if time is None else time
        alive = [b for b in self.blocks if b.begin <= time and (b.end is None or b.end > time)]
        return Snapshot(time, alive)

    def leaks(self) -> Snapshot:
        """What was made in the profile and not given back in it. What the program still wants is there, too."""
        last = self.curve[-1][0] if self.curve else 0.0
        return Snapshot(last, [block for block in self.blocks if block.end is None])

    def __str__(self) -> str:
        return f"Peak: {self.at()}\nLeft at the end: {self.leaks()}"

    def as_dict(self) -> dict[str, Any]:
        return {"curve": self.curve, "blocks": [block._asdict() for block in self.blocks]}

    def write(self, path: str) -> None:
        """Write it as JSON, or as a page with a picture if the name ends in .html."""
        text = self._page() if str(path).endswith(".html") else json.dumps(self.as_dict())
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def _page(self) -> str:
        import html

        width, height = 1000, 300
        last = self.curve[-1][0] if self.curve else 1.0
        points = [
            f"{width * t / (last or 1):.1f},{height - height * b / (self.peak_bytes or 1):.1f}" for t, b in self.curve
        ]
        return (
            f"<!doctype html><meta charset=utf-8><title>Memory</title><style>{STYLE}</style>"
            f"<h1>Memory: at most {readable(self.peak_bytes)}</h1>"
            f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none"><polyline fill="#9cf4" stroke="#36c" '
            f'points="0,{height} {" ".join(points)} {width},{height}"/></svg><pre>{html.escape(str(self))}</pre>'
        )


def _blocks(allocations: Allocations, begin: int) -> list[Block]:
    begun: dict[int, tuple[float, int]] = {}
    ended: dict[int, float] = {}
    for change in allocations.changes:
        time = (change.time - begin) / 1000
        if change.bytes >= 0:
            begun[change.number] = time, change.bytes
        else:
            ended[change.number] = time
    found = []
    for number, (time, size) in begun.items():
        maker = allocations.makers[number]
        line = "" if maker.code is None else str(Site(maker.code, maker.lasti))
        found.append(Block(number, name_of(maker.what), line, maker.module, size, time, ended.get(number)))
    return found

"""What a frame of the replay page costs: `python -m benchmarks.page [--update]`.

Chromium itself counts the CPU time of the page's main thread, which other programs hardly disturb. Two graphs of some
5,000 nodes with all groups open, one long, one wide; 60 frames a second leave 16 ms for each.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import undertow as ut
from benchmarks.report import as_markdown, as_text
from tests.instrument.browser import Browser, Page
from tools.figures import store

FRAMES = 180
SIZES = [(1200, 800), (1920, 1080)]
HEADER = ["graph, window", "nodes", "first paint", "frame of the replay", "frame of a zoom"]

PLAY = "if (n === 0) { page.replay.seek(0); page.replay.speed.value = 2; page.replay.play(); }"
WHEEL = """page.graph.canvas.dispatchEvent(new WheelEvent("wheel",
    {deltaY: n % 40 < 20 ? 10 : -10, clientX: 400, clientY: 300, cancelable: true}))"""
LOOP = """new Promise((done) => { let n = 0; const frame = () => { %s; n += 1;
    if (n < %d) requestAnimationFrame(frame); else done(n); }; requestAnimationFrame(frame); })"""


class Branch(ut.nn.Module):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.linear, self.steps = ut.nn.Linear(4, 4), steps

    def forward(self, x: Any) -> Any:
        for _ in range(self.steps):
            x = self.linear(x).tanh()
        return x


class Wide(ut.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branches = ut.nn.ModuleList([Branch(35) for _ in range(70)])

    def forward(self, x: Any) -> Any:
        return sum(branch(x) for branch in self.branches)


def models() -> dict[str, ut.nn.Module]:
    return {"long": ut.nn.Sequential(*[Branch(20) for _ in range(120)]), "wide": Wide()}


def main_thread(page: Page, action: str) -> float:
    """Milliseconds of the main thread's CPU time in a frame."""
    before = task_seconds(page)
    page.value(LOOP % (action, FRAMES))
    return (task_seconds(page) - before) * 1e3 / FRAMES


def task_seconds(page: Page) -> float:
    found = {each["name"]: each["value"] for each in page.call("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def row(browser: Browser, name: str, file: Path, size: tuple[int, int]) -> list[Any]:
    page = browser.open(file, *size)
    page.wait_for(
        "window.page && page.graph.lastFrame !== undefined && performance.getEntriesByType('paint').length > 0"
    )
    page.call("Performance.enable", timeDomain="threadTicks")
    nodes, paint = page.value("[page.pass.count, performance.getEntriesByType('paint')[0].startTime]")
    page.value("page.graph.openAll()")
    page.frame()
    return [f"{name}, {size[0]} x {size[1]}", nodes, paint, main_thread(page, PLAY), main_thread(page, WHEEL)]


def rows() -> list[list[Any]]:
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        found = []
        for name, model in models().items():
            file = Path(folder) / f"{name}.html"
            with ut.instrument.watch(file):
                model(ut.randn(2, 4)).sum().backward()
            found += [row(browser, name, file, size) for size in SIZES]
        return found


def table(found: list[list[Any]]) -> list[list[str]]:
    lines = [
        [name, f"{nodes:,}", f"{paint / 1e3:.1f} s", f"{play:.1f} ms", f"{zoom:.1f} ms"]
        for name, nodes, paint, play, zoom in found
    ]
    return [HEADER, *lines]


def as_page(figures: list[list[Any]]) -> str:
    return as_markdown(table(figures))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write docs/figures/page.json, and docs/seeing.md")
    options = parser.parse_args(arguments)
    found = rows()
    print(as_text(table(found)), end="")
    if options.update:
        store("page", "page", "python -m benchmarks.page --update", found)


if __name__ == "__main__":
    main()

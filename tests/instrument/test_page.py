"""The page in a real browser: opened, clicked, played, read back; skipped where there is no browser."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.instrument.browser import Browser, Page, needs_browser

pytestmark = [needs_browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as made:
        yield made


class Block(ut.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = ut.nn.Linear(4, 4), ut.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).tanh()) + x


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = ut.nn.Sequential(*[Block() for _ in range(6)], ut.nn.Linear(4, 2))
    path = tmp_path_factory.mktemp("page") / "page.html"
    with ut.instrument.watch(path=path):
        model(ut.randn(3, 4)).pow(2).sum().backward()
    return path


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    opened = browser.open(file)
    opened.wait_for("window.page && page.graph.lastFrame !== undefined")
    yield opened
    assert opened.errors() == []


def place_of(page: Page, finder: str) -> tuple[float, float]:
    """Where an item of the graph is in the window."""
    page.frame()
    x, y = page.value(
        f"""(() => {{ const item = page.graph.items.find({finder}); const [x, y] = page.graph.screenPlace(item);
        const box = page.graph.canvas.getBoundingClientRect(); return [box.left + x, box.top + y]; }})()"""
    )
    return x, y


def pixels(page: Page) -> Any:
    """What the window shows, as rows of (red, green, blue). The browser reads its own picture, a hundred times as fast
    as Python would."""
    width, height, data = page.value(
        f"""new Promise((done) => {{ const image = new Image(); image.onload = () => {{
        const canvas = document.createElement("canvas"); canvas.width = image.width; canvas.height = image.height;
        const context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
        const reader = new FileReader();
        reader.onload = () => done([image.width, image.height, reader.result.split(",")[1]]);
        reader.readAsDataURL(new Blob([context.getImageData(0, 0, image.width, image.height).data])); }};
        image.src = "data:image/png;base64,{base64.b64encode(page.screenshot()).decode()}"; }})"""
    )
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)[:, :, :3]


# ---- what is there


def test_it_opens_with_the_whole_pass(page: Page) -> None:
    assert page.value("page.pass.count") == page.value("page.pass.order.length") > 40
    assert "0 pending" in page.value("page.status.textContent")
    assert page.value("document.querySelector('.details h2').textContent") == "The pass"
    assert page.value("performance.getEntriesByType('resource').length") == 0


def test_a_click_on_a_node_tells_of_it(page: Page) -> None:
    page.value("page.graph.openAll()")
    page.value("page.search.value = 'Tanh'; page.graph.find('Tanh')")
    page.click(*place_of(page, "(item) => item.title === 'Tanh'"))
    text = page.value("document.querySelector('.details').textContent")
    for part in ("TanhBackward0", "test_page.py", "saved", "result", "rules", "norm", "gradients go to"):
        assert part in text
    assert page.value("document.querySelectorAll('.histogram rect').length") == 24


def test_groups_open_and_close(page: Page) -> None:
    page.value("page.graph.closeAll()")
    closed = page.value("page.graph.items.length")
    place = place_of(page, "(item) => item.group && item.group.key === '3'")
    page.click(*place)
    assert page.value("document.querySelector('.details h2').textContent") == "3"
    page.click(*place)  # the second click opens it
    assert page.value("page.graph.items.length") > closed
    assert page.value("page.graph.boxes.map((box) => box.group.key)") == ["3"]
    page.key("Escape")
    assert page.value("page.graph.items.length") == closed


def test_nothing_is_lost_by_folding(page: Page) -> None:
    shown = """page.graph.items.reduce((sum, item) => sum + (item.group ? item.group.members.length : 1), 0)"""
    for action in ("closeAll", "openAll"):
        page.value(f"page.graph.{action}()")
        assert page.value(shown) == page.value("page.pass.count")
    assert page.value("page.graph.links.reduce((sum, link) => sum + link.count, 0)") == page.value(
        "page.pass.edgeCount"
    )


# ---- replaying


def test_replaying_node_by_node(page: Page) -> None:
    page.value("page.replay.seek(0)")
    count = page.value("page.pass.count")
    assert page.value("page.pass.counts(-1)") == {"done": 0, "running": 0, "ready": 0, "pending": count}
    for step in range(1, 6):
        page.key(".")
        counts = page.value("page.pass.counts(page.replay.time)")
        assert counts["done"] == step - 1 + (counts["running"] == 0) and sum(counts.values()) == count
    page.key(",")
    assert page.value("page.pass.counts(page.replay.time).done") in (3, 4)


def test_a_node_is_ready_only_after_all_that_lead_to_it(page: Page) -> None:
    assert page.value(
        """page.pass.order.every((node) => page.pass.into[node].every((before) =>
        page.pass.end[before] <= page.pass.ready[node] && page.pass.ready[node] <= page.pass.begin[node]))"""
    )


def test_playing_comes_to_the_end(page: Page) -> None:
    page.value("page.replay.speed.value = 4; page.replay.seek(0)")
    page.key(" ")
    assert page.value("page.replay.playing")
    page.wait_for("!page.replay.playing")
    assert page.value("page.replay.time") == page.value("page.pass.duration")


def test_lanes_and_memory_move_the_time(page: Page) -> None:
    box = page.value("(({left, top, width}) => [left, top, width])(page.lanes.canvas.getBoundingClientRect())")
    page.click(box[0] + 110 + (box[2] - 120) / 2, box[1] + 10)
    assert page.value("page.replay.time / page.pass.duration") == pytest.approx(0.5, abs=0.02)
    assert page.value("page.graph.selected.node") is not None
    assert page.value("page.memory.data[1].every((size) => size >= 0)")


# ---- how it looks


def test_the_picture_follows_the_time(page: Page) -> None:
    page.value("page.graph.openAll(); page.replay.seek(page.pass.duration); page.graph.choose(null)")
    after = pixels(page)
    page.value("page.replay.seek(0)")
    before = pixels(page)
    done, pending = (169, 214, 184), (241, 243, 245)

    def count(picture: Any, colour: tuple[int, int, int]) -> int:
        return int((picture[100:500, :850] == colour).all(-1).sum())

    assert count(after, done) > 1000 > 10 * count(before, done)
    assert count(before, pending) > 1000


@pytest.mark.parametrize("action", ["openAll", "closeAll"])
def test_frames_that_draw_what_changed_end_where_a_whole_drawing_does(page: Page, action: str) -> None:
    page.value(f"page.graph.{action}(); page.replay.seek(0)")
    for share in (0.2, 0.7, 0.9, 0.4):  # forwards, and back
        page.value(f"page.replay.seek({share} * page.pass.duration)")
        page.frame()
    in_steps = pixels(page)
    page.value("page.graph.picture.drawn = null; page.graph.paint()")
    assert np.array_equal(in_steps, pixels(page))


def test_a_frame_of_the_replay_draws_only_what_changed(page: Page) -> None:
    page.value("page.graph.openAll(); page.replay.seek(0)")
    page.frame()
    page.value(
        """(() => { const { picture } = page.graph; const draw = picture.drawItems; window.counts = [];
        picture.drawItems = function (items, time) { counts.push(items.length); draw.call(this, items, time); }; })()"""
    )
    page.key(".")
    page.key(".")
    assert page.value("counts.length") == 2
    assert all(0 < count <= 6 for count in page.value("counts"))


def test_a_hand_moves_the_picture_and_sees_all_of_it_when_it_rests(page: Page) -> None:
    wheel = "new WheelEvent('wheel', {deltaY: -300, clientX: 300, clientY: 300, cancelable: true})"
    page.value("page.graph.openAll()")
    page.frame()
    page.value("page.graph.picture.drawn.count = 5000")  # as if there were so many to draw
    drawn = "page.graph.picture.drawn.look.transform === page.graph.transform"
    page.value(f"page.graph.canvas.dispatchEvent({wheel}); page.graph.draw()")
    page.wait_for(f"!page.graph.moving && {drawn}")
    moved = pixels(page)
    page.value("page.graph.picture.drawn = null; page.graph.paint()")
    assert np.array_equal(moved, pixels(page))


def test_dark_mode(browser: Browser, file: Path) -> None:
    page = browser.open(file, dark=True)
    page.wait_for("window.page && page.graph.lastFrame !== undefined")
    corner = pixels(page)[300, 5]
    assert int(corner.max()) < 60
    assert page.errors() == []


@pytest.mark.parametrize("size", [(360, 640), (800, 600), (1920, 1080)])
def test_all_sizes(browser: Browser, file: Path, size: tuple[int, int]) -> None:
    page = browser.open(file, *size)
    page.wait_for("window.page && page.graph.lastFrame !== undefined")
    assert page.value("document.documentElement.scrollWidth") <= size[0]
    assert page.value("page.graph.width > 100 && page.graph.height > 100")
    assert page.errors() == []


@pytest.mark.parametrize("size", [(1200, 800), (480, 800)])
def test_everything_fits_above_the_lanes(browser: Browser, file: Path, size: tuple[int, int]) -> None:
    page = browser.open(file, *size)
    page.wait_for("window.page && page.graph.lastFrame !== undefined")
    page.key("e")
    page.key("f")
    inside = page.value(
        """(() => { const { graph } = page, { top, bottom } = graph.bounds(), { y, k } = graph.transform;
        const height = graph.place.clientHeight;
        return [graph.canvas.clientHeight - height, y + k * top, height - y - k * bottom]; })()"""
    )
    assert inside[0] == 0 and inside[1] > 0 and inside[2] > 0, inside


def test_printing_is_on_white_paper(browser: Browser, file: Path) -> None:
    page = browser.open(file, dark=True)
    page.wait_for("window.page && page.graph.lastFrame !== undefined")
    page.value("dispatchEvent(new Event('beforeprint'))")
    assert int(pixels(page)[300, 5].min()) > 200
    page.value("dispatchEvent(new Event('afterprint'))")
    assert int(pixels(page)[300, 5].max()) < 60


# ---- other recordings


def test_a_recording_without_a_pass(browser: Browser, tmp_path: Path) -> None:
    with ut.instrument.watch(path=tmp_path / "empty.html"):
        pass
    page = browser.open(tmp_path / "empty.html")
    assert "No backward pass" in page.value("document.body.textContent") and page.errors() == []


def test_nan_is_marked(browser: Browser, tmp_path: Path) -> None:
    x = ut.tensor([0.0, 1.0], requires_grad=True)
    ut.instrument.watch((x.sqrt() * 0).sum(), path=tmp_path / "nan.html")
    page = browser.open(tmp_path / "nan.html")
    assert "nan begins" in page.value("document.querySelector('.details').textContent")
    page.click(*place_of(page, "(item) => item.title === 'Sqrt'"))
    assert "first nan" in page.value("document.querySelector('.details').textContent")


class Residual(ut.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = [ut.nn.Conv2d(width, width, 3, padding=1) for _ in range(2)]
        self.bn1, self.bn2 = ut.nn.BatchNorm2d(width), ut.nn.BatchNorm2d(width)

    def forward(self, x: Any) -> Any:
        return (self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())) + x).relu()


class Cells(ut.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = ut.nn.LSTMCell(4, 8)

    def forward(self, x: Any) -> Any:
        state = ut.zeros(2, 8), ut.zeros(2, 8)
        for step in x:
            state = self.cell(step, state)
        return state[0]


def transformer() -> Any:
    layer = ut.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return ut.nn.TransformerEncoder(layer, 3)(ut.randn(2, 5, 8)).pow(2).sum()


def resnet() -> Any:
    blocks = [ut.nn.Sequential(Residual(4), Residual(4)) for _ in range(4)]
    return ut.nn.Sequential(ut.nn.Conv2d(3, 4, 3), *blocks)(ut.randn(2, 3, 8, 8)).mean((2, 3)).pow(2).sum()


def lstm() -> Any:
    return Cells()(ut.randn(20, 2, 4)).sum()


def devices() -> Any:
    x, y = [ut.randn(4, 4, device=f"sim:{k}", requires_grad=True) for k in range(2)]
    return ((x @ x).tanh().to("sim:1") * y.sin()).sum().to("cpu") + (x * 2).sum().to("cpu")


@pytest.mark.parametrize("size", [(1400, 900), (800, 600), (360, 640)])
@pytest.mark.parametrize(
    ("run", "least", "threads"), [(transformer, 100, 1), (resnet, 100, 1), (lstm, 200, 1), (devices, 10, 3)]
)
def test_graphs_of_models(
    browser: Browser, tmp_path: Path, run: Callable[[], Any], least: int, threads: int, size: tuple[int, int]
) -> None:
    with ut.instrument.watch(path=tmp_path / "model.html"):
        run().backward()
    page = browser.open(tmp_path / "model.html", *size)
    page.wait_for("window.page && page.graph.lastFrame !== undefined")
    assert page.value("page.pass.count") >= least and page.value("page.graph.items.length") <= 400
    assert page.value("page.lanes.lanes.filter((lane) => lane.nodes.length).length") == threads
    assert page.value("document.documentElement.scrollWidth") <= size[0]
    page.value("page.replay.seek(0)")
    page.key("e")
    page.frame()
    assert page.value("page.graph.items.length") == page.value("page.pass.count")
    for _ in range(5):
        page.key(".")
    assert page.value("page.replay.time") > 0
    assert page.errors() == []


def test_a_hundred_thousand_nodes_open_folded(browser: Browser, tmp_path: Path) -> None:
    layer = ut.nn.Linear(2, 2)
    group = ut.nn.Sequential(*[layer, ut.nn.Tanh()] * 25)
    with ut.instrument.watch(path=tmp_path / "huge.html"):
        ut.nn.Sequential(*[ut.nn.Sequential(*[group] * 40) for _ in range(50)])(ut.ones(1, 2)).sum().backward()
    page = browser.open(tmp_path / "huge.html")
    page.wait_for("window.page && page.graph.lastFrame !== undefined")
    assert page.value("page.pass.count") > 100_000 and page.value("page.graph.items.length") <= 400
    page.key(".")
    page.frame()
    assert page.errors() == []


def test_thousands_of_nodes_open_folded_and_unfolded(browser: Browser, tmp_path: Path) -> None:
    model = ut.nn.Sequential(*[ut.nn.Sequential(*[Block() for _ in range(10)]) for _ in range(30)])
    with ut.instrument.watch(path=tmp_path / "large.html"):
        model(ut.randn(3, 4)).sum().backward()
    page = browser.open(tmp_path / "large.html")
    page.wait_for("window.page && page.graph.lastFrame !== undefined")
    assert page.value("page.pass.count") > 2000 and page.value("page.graph.items.length") <= 400
    page.value("page.graph.openAll()")
    page.frame()
    assert page.value("page.graph.items.length") == page.value("page.pass.count")
    assert page.value("page.graph.items.every((item) => Number.isFinite(item.x) && Number.isFinite(item.y))")
    assert page.errors() == []

"""Event files: what is written, read back by a reader of our own and, where it is installed, by TensorBoard."""

from __future__ import annotations

import importlib.util
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from undertow.utils.tensorboard import SummaryWriter

import undertow as ut
from undertow.instrument.event_files.messages import varint
from undertow.instrument.event_files.records import masked

# ---- a reader


def records(path: Path) -> Iterator[bytes]:
    data, place = path.read_bytes(), 0
    while place < len(data):
        length = data[place : place + 8]
        assert data[place + 8 : place + 12] == masked(length)
        (size,) = struct.unpack("<Q", length)
        content = data[place + 12 : place + 12 + size]
        assert data[place + 12 + size : place + 16 + size] == masked(content)
        yield content
        place += 16 + size


def fields(message: bytes) -> dict[int, list[Any]]:
    """A message as field -> values."""
    found: dict[int, list[Any]] = {}
    place = 0

    def number() -> int:
        nonlocal place
        value, shift = 0, 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        key = number()
        kind = key & 7
        if kind == 0:
            value: Any = number()
        else:
            size = {1: 8, 5: 4}.get(kind) or number()
            value = message[place : place + size]
            place += size
            value = (
                struct.unpack("<d", value)[0] if kind == 1 else struct.unpack("<f", value)[0] if kind == 5 else value
            )
        found.setdefault(key >> 3, []).append(value)
    return found


def events_in(folder: Path) -> list[dict[int, list[Any]]]:
    (path,) = folder.glob("events.out.tfevents.*")
    first, *others = [fields(each) for each in records(path)]
    assert first[3] == [b"brain.Event:2"]
    return others


def value_of(event: dict[int, list[Any]]) -> dict[int, list[Any]]:
    return fields(fields(event[5][0])[1][0])


# ---- what is written


def test_scalars(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 0.5, 3, walltime=12.0)
        writer.add_scalar("loss", ut.tensor(0.25, requires_grad=True), -1)
        writer.add_scalar("loss", 1)
    first, second, third = events_in(tmp_path)
    assert first[1] == [12.0] and first[2] == [3] and value_of(first) == {1: [b"loss"], 2: [0.5]}
    assert second[2] == [2**64 - 1] and value_of(second)[2] == [0.25] and third[2] == [0]


def test_several_scalars_have_folders_of_their_own(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("run/a", {"sin": 1.0, "cos": 2.0}, 5)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["run_a_cos", "run_a_sin"]
    (event,) = events_in(tmp_path / "run_a_cos")
    assert value_of(event) == {1: [b"run/a"], 2: [2.0]}


def test_histograms(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("h", ut.tensor([1.0, 2.0, 2.0, 5.0, float("nan")]), 1, bins=4)
        with pytest.raises(ValueError, match="no finite number"):
            writer.add_histogram("h", ut.tensor([float("inf")]))
    (event,) = events_in(tmp_path)
    found = fields(value_of(event)[5][0])
    assert [found[k][0] for k in range(1, 6)] == [1.0, 5.0, 4.0, 10.0, 34.0]
    assert struct.unpack("<4d", found[6][0]) == (2.0, 3.0, 4.0, 5.0)
    assert struct.unpack("<4d", found[7][0]) == (1.0, 2.0, 0.0, 1.0)


def pixels_of(png: bytes, row: int) -> bytes:
    start = png.index(b"IDAT") + 4
    (size,) = struct.unpack(">I", png[start - 8 : start - 4])
    raw = zlib.decompress(png[start : start + size])
    return b"".join([raw[k + 1 : k + 1 + row] for k in range(0, len(raw), row + 1)])


def test_pictures(tmp_path: Path) -> None:
    picture = ut.arange(24).reshape(3, 2, 4).to(ut.uint8)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("bytes", picture)
        writer.add_image("numbers", ut.tensor([[0.0, 0.5], [1.0, 2.0]]), dataformats="HW")
        writer.add_images("many", ut.zeros(3, 1, 2, 2))
        with pytest.raises(ValueError, match="in the order 'CHW'"):
            writer.add_image("wrong", ut.zeros(2, 2))
    first, second, third = [fields(value_of(event)[4][0]) for event in events_in(tmp_path)]
    assert (first[1], first[2], first[3]) == ([2], [4], [3])
    assert pixels_of(first[4][0], 12) == picture.permute(1, 2, 0).contiguous().numpy().tobytes()
    assert list(pixels_of(second[4][0], 2)) == [0, 128, 255, 255]
    assert (third[1], third[2]) == ([2], [6])


def test_texts(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("note", "größer", 2)
    (event,) = events_in(tmp_path)
    value = value_of(event)
    assert value[1] == [b"note/text_summary"] and fields(value[8][0])[8] == ["größer".encode()]
    assert fields(fields(value[9][0])[1][0])[1] == [b"text"]


def test_a_graph(tmp_path: Path) -> None:
    model = ut.nn.Sequential(ut.nn.Linear(3, 4), ut.nn.ReLU(), ut.nn.Sequential(ut.nn.Linear(4, 1)))
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(model, ut.ones(2, 3))
        with pytest.raises(RuntimeError, match="no graph to show"):
            writer.add_graph(ut.nn.ReLU(), ut.ones(2))
    (event,) = events_in(tmp_path)
    nodes = [fields(node) for node in fields(event[4][0])[1]]
    names = [node[1][0].decode() for node in nodes]
    assert len(set(names)) == len(names) == 7
    assert {"0/weight", "2/0/bias"} <= set(names)
    relu = next(node for node in nodes if node[2] == [b"Relu"])
    assert relu[1][0].startswith(b"1/") and relu[3][0].startswith(b"0/Linear")


def test_threads_add_whole_records(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, flush_secs=0) as writer:
        threads = [threading.Thread(target=lambda: [writer.add_scalar("x", k, k) for k in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.flush()
    assert len(events_in(tmp_path)) == 200


def test_where_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="-mine") as writer:
        assert writer.get_logdir().startswith("runs") and writer.get_logdir().endswith("-mine")
        writer.add_scalar("x", 1.0)
    assert len(list((tmp_path / writer.log_dir).iterdir())) == 1
    with pytest.raises(NotImplementedError, match="purge_step"):
        SummaryWriter(purge_step=3)


def test_numbers_of_many_bits() -> None:
    assert varint(0) == b"\0" and varint(127) == b"\x7f" and len(varint(-1)) == 10


# ---- TensorBoard itself


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
def test_tensorboard_reads_it(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        model = ut.nn.Linear(3, 2)
        with SummaryWriter(tmp_path) as writer:
            for step in range(3):
                writer.add_scalar("loss", 1.0 / (step + 1), step)
            writer.add_histogram("weights", model.weight, 7)
            writer.add_image("picture", ut.rand(3, 5, 4), 1)
            writer.add_text("note", "hello", 2)
            writer.add_graph(model, ut.ones(1, 3))
        found = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0, "scalars": 0})
        found.Reload()
        assert [(e.step, e.value) for e in found.Scalars("loss")] == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
        (histogram,) = found.Histograms("weights")
        assert histogram.step == 7 and histogram.histogram_value.num == 6
        (picture,) = found.Images("picture")
        assert (picture.height, picture.width) == (5, 4)
        (text,) = found.Tensors("note/text_summary")
        assert text.tensor_proto.string_val == [b"hello"]
        names = [node.name for node in found.Graph().node]
        assert "weight" in names and any(name.startswith("Linear") for name in names)

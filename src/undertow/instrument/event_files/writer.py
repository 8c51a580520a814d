"""SummaryWriter: numbers, histograms, pictures, texts and graphs for TensorBoard, without installing it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from undertow.backend import cpu
from undertow.backend.interface import Array
from undertow.instrument.event_files import messages, png
from undertow.instrument.event_files.graph_nodes import graph_nodes
from undertow.instrument.event_files.records import record
from undertow.tensor import Tensor

_numbers = count()


class SummaryWriter:
    """Writes an event file into `log_dir`; `tensorboard --logdir ...` shows it. torch.utils.tensorboard's names.

    log_dir          the folder; None: runs/<date>_<machine><comment>
    comment          the end of that name
    flush_secs       how many seconds what was added may stay in memory
    filename_suffix  the end of the file's name
    purge_step       an error: begin a new folder for a run that goes on
    max_queue        accepted, without effect

    >>> import tempfile, undertow as ut
    >>> from undertow.utils.tensorboard import SummaryWriter
    >>> with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
    ...     for step in range(3):
    ...         writer.add_scalar("loss", 1 / (step + 1), step)
    ...     writer.add_histogram("weights", ut.randn(100), 2)
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if log_dir is None:
            log_dir = os.path.join("runs", f"{time.strftime('%b%d_%H-%M-%S')}_{socket.gethostname()}{comment}")
        if purge_step is not None:
            raise NotImplementedError(
                "SummaryWriter(purge_step=...) is not supported: start a new log_dir for the run that goes on"
            )
        self.log_dir = os.fspath(log_dir)
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        # Guards _files and the files in it: programs add from several threads.
        self._lock = threading.Lock()
        self._files: dict[str, Any] = {}
        self._flushed = time.monotonic()

    def get_logdir(self) -> str:
        return self.log_dir

    # ---- what can be added

    def add_scalar(
        self,
        tag: str,
        scalar_value: Array,
        global_step: int | None = None,
        walltime: float | None = None,
        **further: Any,
    ) -> None:
        """A number, which becomes a point of the curve `tag`.

        scalar_value  a number, or a tensor of one element
        global_step   the step it belongs to
        walltime      seconds since 1970; None: now
        **further     accepted, without effect
        """
        self._add(messages.scalar(tag, float(_array(scalar_value))), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers, which become points of curves in one picture; each has a folder of its own.

        main_tag         the name of the picture
        tag_scalar_dict  names of curves and numbers
        global_step      the step they belong to
        walltime         seconds since 1970; None: now
        """
        for name, value in tag_scalar_dict.items():
            folder = f"{main_tag.replace('/', '_')}_{name}"
            self._add(messages.scalar(main_tag, float(_array(value))), global_step, walltime, folder)

    def add_histogram(
        self,
        tag: str,
        values: Tensor,
        global_step: int | None = None,
        bins: int = 64,
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How numbers are distributed; those that are not finite are left out.

        tag          its name
        values       a tensor, or an array
        global_step  the step it belongs to
        bins         how many intervals; one of PyTorch's words counts as 64
        walltime     seconds since 1970; None: now
        max_bins     accepted, without effect
        """
        if not isinstance(bins, int):
            bins = 64  # PyTorch's names for ways to choose their number
        numbers = _array(values).ravel().astype("float64")
        numbers = numbers[cpu.isfinite(numbers)]
        if not numbers.size:
            raise ValueError(f"add_histogram({tag!r}): there is no finite number in it")
        counts, limits = cpu.histogram(numbers, bins)
        facts = [numbers.min(), numbers.max(), numbers.size, numbers.sum(), (numbers * numbers).sum()]
        value = messages.histogram(tag, [float(n) for n in facts], limits[1:].tolist(), counts.tolist())
        self._add(value, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Array,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: bytes from 0 to 255, or numbers from 0 to 1. `dataformats` is CHW, HWC or HW.

        tag          its name
        img_tensor   the picture
        global_step  the step it belongs to
        walltime     seconds since 1970; None: now
        """
        pixels = _pixels(_array(img_tensor), dataformats)
        height, width, channels = pixels.shape
        if channels not in png.KINDS:
            raise ValueError(f"add_image({tag!r}): a picture has 1, 2, 3 or 4 channels, this one has {channels}")
        file = png.encode(pixels.tobytes(), height, width, channels)
        self._add(messages.image(tag, height, width, channels, file), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Tensor,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Several pictures of one size, beside each other.

        tag          its name
        img_tensor   the pictures
        global_step  the step they belong to
        walltime     seconds since 1970; None: now
        dataformats  the order of the dimensions: NCHW, NHWC or NHW
        """
        pictures = [_pixels(each, dataformats.replace("N", "")) for each in _array(img_tensor)]
        columns = max(1, min(8, len(pictures)))
        empty = cpu.zeros_like(pictures[0])
        pictures += [empty] * (-len(pictures) % columns)
        rows = [cpu.concatenate(pictures[k : k + columns], 1) for k in range(0, len(pictures), columns)]
        self.add_image(tag, cpu.concatenate(rows, 0), global_step, walltime, "HWC")

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A figure of matplotlib, as a picture.

        tag          its name
        global_step  the step it belongs to
        close        whether it is cleared afterwards
        walltime     seconds since 1970; None: now
        """
        figure.canvas.draw()
        self.add_image(tag, cpu.asarray(figure.canvas.buffer_rgba()), global_step, walltime, "HWC")
        if close:
            figure.clear()

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """A text, which TensorBoard shows as Markdown.

        tag          its name
        text_string  the text
        global_step  the step it belongs to
        walltime     seconds since 1970; None: now
        """
        self._add(messages.text(tag, text_string), global_step, walltime)

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, **further: Any) -> None:
        """The graph of a model called with an input, by modules.

        input_to_model  a tensor, or a tuple of arguments
        verbose         accepted, without effect
        **further       accepted, without effect
        """
        graph = messages.graph_of(graph_nodes(model, input_to_model))
        self._write(messages.event(time.time(), graph=graph), "")

    # ---- the files

    def _add(self, value: bytes, step: int | None, walltime: float | None, folder: str = "") -> None:
        when = time.time() if walltime is None else walltime
        self._write(messages.event(when, 0 if step is None else int(step), value=value), folder)

    def _write(self, event: bytes, folder: str) -> None:
        content = record(event)
        with self._lock:
            self._file(folder).write(content)
            if time.monotonic() - self._flushed > self.flush_secs:
                self._flush()

    def _file(self, folder: str) -> Any:
        file = self._files.get(folder)
        if file is None:
            place = os.path.join(self.log_dir, folder) if folder else self.log_dir
            os.makedirs(place, exist_ok=True)
            name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}"
            file = self._files[folder] = open(os.path.join(place, name + self.filename_suffix), "ab")  # noqa: SIM115
            file.write(record(messages.event(time.time(), version="brain.Event:2")))
        return file

    def _flush(self) -> None:
        for file in self._files.values():
            file.flush()
        self._flushed = time.monotonic()

    def flush(self) -> None:
        """Write to the disk what was added so far."""
        with self._lock:
            self._flush()

    def close(self) -> None:
        """End the files; what is added later begins new ones."""
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _array(value: Array) -> Any:
    """Numbers as an array of the CPU."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()._array
    return cpu.asarray(value)


def _pixels(array: Array, order: str) -> Any:
    """A picture in the order HWC, in bytes."""
    order = order.upper()
    if sorted(order) not in (["C", "H", "W"], ["H", "W"]) or array.ndim != len(order):
        raise ValueError(f"a picture of shape {list(array.shape)} cannot have its dimensions in the order {order!r}")
    array = array[None] if len(order) == 2 else array
    order = f"C{order}" if len(order) == 2 else order
    array = cpu.transpose(array, [order.index(letter) for letter in "HWC"])
    if array.dtype.kind == "f":
        array = (array.astype("float64").clip(0.0, 1.0) * 255 + 0.5).astype("uint8")
    return cpu.ascontiguousarray(array.astype("uint8"))

"""Two processes train one network: gradients are exchanged while the backward pass still runs, and the plot shows it.

The program starts itself twice, by the launcher of undertow.distributed. Each process has half of the examples, and a
hook notes when a bucket of gradients sets out and when it has come.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from common import options, plot

import undertow as ut
import undertow.distributed as dist
from undertow import nn
from undertow.nn.parallel import DistributedDataParallel

FOLDER = "UNDERTOW_EXAMPLE_FOLDER"
WIDTHS = {True: 128, False: 512}


class Timeline:
    """What happened when, in one process."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float, float]] = []
        self.quickest: list[tuple[str, float, float]] = []
        self.threads: list[threading.Thread] = []

    def note(self, name: str, started: float) -> None:
        self.spans.append((name, started, time.perf_counter()))

    def end_step(self) -> None:
        """Keep the spans of the quickest step: others were disturbed."""
        for thread in self.threads:
            thread.join()
        took = [max([b for *_, b in spans]) - spans[0][1] for spans in (self.spans, self.quickest) if spans]
        if took[0] == min(took):
            self.quickest = self.spans
        self.spans, self.threads = [], []

    def exchange(self, _: object, bucket: dist.GradBucket) -> dist.Future:
        """Average a bucket, and note how long that takes."""
        started, buffer = time.perf_counter(), bucket.buffer()
        work = dist.all_reduce(buffer, dist.ReduceOp.AVG, async_op=True)

        def watch() -> None:
            while not work.is_completed():
                time.sleep(1e-4)
            self.note("exchange", started)

        self.threads.append(threading.Thread(target=watch))
        self.threads[-1].start()
        return work.get_future().then(lambda future: buffer)


def train(folder: Path, quick: bool, seed: int) -> None:
    """What each process does."""
    dist.init_process_group("mpi", timeout=120)
    ut.manual_seed(seed)
    width = WIDTHS[quick]
    layers = [nn.Linear(8, width), nn.Tanh(), *[m for _ in range(6) for m in (nn.Linear(width, width), nn.Tanh())]]
    model = DistributedDataParallel(
        nn.Sequential(*layers, nn.Linear(width, 1)), bucket_cap_mb=width * width * 4 / 2**20
    )
    timeline = Timeline()
    model.register_comm_hook(None, timeline.exchange)
    optimizer = ut.optim.Adam(model.parameters(), lr=1e-3)
    x = ut.randn(1024, 8)
    y = ut.tanh(x[:, :1] * x[:, 1:2]) + 0.5 * x[:, 2:3]
    sampler = ut.data.DistributedSampler(range(len(x)), seed=seed)
    losses: list[float] = []
    for epoch in range(12 if quick else 40):
        sampler.set_epoch(epoch)
        total = ut.zeros(())
        for batch in ut.tensor(list(sampler)).chunk(2):
            optimizer.zero_grad()
            started = time.perf_counter()
            loss = nn.functional.mse_loss(model(x[batch]), y[batch])
            timeline.note("forward", started)
            started = time.perf_counter()
            loss.backward()
            timeline.note("backward", started)
            started = time.perf_counter()
            optimizer.step()
            timeline.note("step", started)
            timeline.end_step()
            total += loss.detach() / 2
        dist.all_reduce(total, dist.ReduceOp.AVG)
        losses.append(total.item())
    if dist.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps({"losses": losses, "spans": timeline.quickest}))


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "two_processes", argv)
    if FOLDER in os.environ:
        train(Path(os.environ[FOLDER]), chosen.quick, chosen.seed)
        return 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "undertow.distributed.run", "-n", "2", __file__, "--seed", str(chosen.seed)]
        paths = os.pathsep.join([str(Path(ut.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, FOLDER: folder, "PYTHONPATH": paths}
        subprocess.run([*command, *["--quick"] * chosen.quick], check=True, env=environment)
        found = json.loads((Path(folder) / "found.json").read_text())
    losses, spans = found["losses"], found["spans"]
    print(f"loss of the first epoch {losses[0]:.4f}, of the last {losses[-1]:.4f}")
    exchanges = [(start, stop) for name, start, stop in spans if name == "exchange"]
    end = max([start for start, _ in exchanges])  # the last gradient has been computed
    hidden = sum([min(stop, end) - start for start, stop in exchanges]) / sum([b - a for a, b in exchanges])
    print(f"{len(exchanges)} buckets of gradients; {100 * hidden:.0f} % of their time was behind the backward pass")

    def draw(axes: object) -> None:
        first = min([start for _, start, _ in spans])
        colors = {"forward": "tab:blue", "backward": "tab:orange", "waits": "wheat", "step": "tab:green"}
        stop = next(stop for name, _, stop in spans if name == "backward")
        bars = [(n, a, min(b, end) if n == "backward" else b) for n, a, b in spans if n != "exchange"]
        for name, start, until in [*bars, ("waits", end, stop)]:
            axes.barh(0, (until - start) * 1e3, left=(start - first) * 1e3, color=colors[name], label=name)
        for k, (start, until) in enumerate(sorted(exchanges), 1):
            axes.barh(k, (until - start) * 1e3, left=(start - first) * 1e3, color="tab:red")
        axes.set(title="A step of one of two processes", xlabel="ms", ylabel="buckets of gradients on their way")
        axes.legend(loc="upper left")

    plot(chosen.plot, draw)
    return losses[0], losses[-1]


if __name__ == "__main__":
    main()

"""Runs tests in a worker process, and starts another when one crashes or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

SHIM = Path(__file__).parent / "shim"
WORKER = Path(__file__).parent / "worker.py"
IMPORT_SECONDS = 120.0


@dataclass(frozen=True)
class Result:
    test: str
    status: str  # passed, failed, skipped, crashed, timeout
    error: str = ""
    where: str = ""
    traceback: str = ""
    seconds: float = 0.0


@dataclass
class Settings:
    test_dir: Path
    reference: bool = False
    slow: bool = True
    timeout: float = 60.0
    log: Path = field(default_factory=lambda: Path(os.devnull))


class ImportFailed(RuntimeError):
    """The test files themselves could not be imported."""


def environment(settings: Settings) -> dict[str, str]:
    """The worker's environment: the shim first on PYTHONPATH, so that children of tests find it too."""
    env = dict(os.environ)
    if not settings.reference:
        paths = [str(SHIM), env.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    env["PYTORCH_TEST_WITH_SLOW"] = "1" if settings.slow else "0"
    return env


class Worker:
    """One child process and the pipe its messages come through."""

    def __init__(self, settings: Settings):
        read_end, write_end = os.pipe()
        self.log = settings.log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), str(settings.test_dir), str(write_end)],
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            pass_fds=(write_end,),
            env=environment(settings),
            cwd=settings.test_dir,
            start_new_session=True,
        )
        os.close(write_end)
        self.channel = read_end
        self.pending = b""

    def ask(self, tests: Iterable[str]) -> None:
        """Hand over the list of tests; the worker ends after the last."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("".join(f"{test}\n" for test in tests).encode())
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it died; the next read of the channel says so

    def hear(self, seconds: float) -> dict | None:
        """The next message; None when the worker has ended; TimeoutError when it stays silent."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.channel], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(self.channel, 1 << 16)
            if not chunk:
                return None
            self.pending += chunk
        line, _, self.pending = self.pending.partition(b"\n")
        return json.loads(line)

    def end(self) -> int:
        """Wait for the process, ending it and its children if need be; its exit status."""
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.stop()
        self._kill_group()
        os.close(self.channel)
        self.log.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        return self.process.returncode

    def stop(self) -> None:
        """Ask for the tracebacks of all threads (they go to the log), then kill."""
        self.process.send_signal(signal.SIGABRT)
        try:
            self.process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # nothing of the worker's session is left
            os.killpg(self.process.pid, signal.SIGKILL)


def start(settings: Settings) -> tuple[Worker, list[str]]:
    """A worker that has imported the test files, and the ids it found there."""
    worker = Worker(settings)
    try:
        message = worker.hear(IMPORT_SECONDS)
    except TimeoutError:
        message = None
        worker.stop()
    if message is None:
        worker.end()
        raise ImportFailed(f"the test files could not be imported; see {settings.log}")
    return worker, message["collected"]


def collect(settings: Settings) -> list[str]:
    """The ids of all tests the files hold."""
    worker, found = start(settings)
    worker.ask([])
    worker.end()
    return found


def run(settings: Settings, tests: list[str], notify: Callable[[Result], None]) -> list[Result]:
    """Run the tests in as few processes as crashes and hangs allow, telling each result as it comes."""
    results: list[Result] = []
    left = list(tests)
    while left:
        worker, _ = start(settings)
        worker.ask(left)
        for result in _listen(worker, settings.timeout, left[0]):
            left.remove(result.test)
            results.append(result)
            notify(result)
    return results


def _listen(worker: Worker, timeout: float, first: str) -> Iterable[Result]:
    """Results of one worker until it ends; the last may be a crash or a timeout.

    A worker that dies between two tests costs none of them, unless it has finished none at all.
    """
    current, began = first, time.monotonic()
    while True:
        try:
            message = worker.hear(timeout)
        except TimeoutError:
            worker.stop()
            worker.end()
            if current is not None:
                yield Result(current, "timeout", f"no result after {timeout:g} s", seconds=timeout)
            return
        if message is None:
            break
        if "start" in message:
            current, began = message["start"], time.monotonic()
        else:
            yield Result(**message)
            current = None
    status = worker.end()
    if current is not None:
        yield Result(current, "crashed", _describe(status), seconds=time.monotonic() - began)


def _describe(status: int) -> str:
    if status < 0:
        return f"the process died of {signal.Signals(-status).name}"
    return f"the process ended with status {status}"

"""Several processes that call one function, each with its number."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import traceback
from collections.abc import Callable
from typing import Any


class ProcessException(Exception):
    def __init__(self, msg: str, error_index: int, pid: int | None) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """The function raised in one of the processes; the message has its traceback."""


class ProcessExitedException(ProcessException):
    """One of the processes ended by a signal, or with an exit code."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int | None, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _call(fn: Callable[..., Any], index: int, args: tuple[Any, ...], errors: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.put(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """The processes that `spawn(join=False)` has started."""

    def __init__(self, processes: list[Any], error_queues: list[Any]) -> None:
        self.processes, self.error_queues = processes, error_queues

    def pids(self) -> list[int | None]:
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one ends; whether all have. If one failed, the others are ended, and its error is raised."""
        waiting = {process.sentinel: process for process in self.processes if process.is_alive()}
        if waiting:
            multiprocessing.connection.wait(list(waiting), timeout)
        codes = [process.exitcode for process in self.processes]
        failed = [n for n, code in enumerate(codes) if code not in (0, None)]
        if not failed:
            return all(code == 0 for code in codes)
        # Ranks of one group end each other when one dies: the cause is the one that nobody asked to end.
        cause = min(failed, key=lambda n: codes[n] == -signal.SIGTERM)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join()
        self._raise(cause)
        return True

    def _raise(self, index: int) -> None:
        process, errors = self.processes[index], self.error_queues[index]
        if not errors.empty():
            message = f"\n\n-- Process {index} terminated with the following error:\n{errors.get()}"
            raise ProcessRaisedException(message, index, process.pid)
        code = process.exitcode
        raise ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
    **kwargs: Any,
) -> ProcessContext | None:
    """Start `nprocs` processes that call `fn(number, *args)`, and wait for them."""
    context: Any = multiprocessing.get_context(start_method)
    errors = [context.SimpleQueue() for _ in range(nprocs)]
    processes = [context.Process(target=_call, args=(fn, n, args, errors[n]), daemon=daemon) for n in range(nprocs)]
    for process in processes:
        process.start()
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call `fn(rank, *args)` in `nprocs` processes, and wait for them unless `join` is False."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)

"""When to profile: `schedule(wait, warmup, active, repeat)`, and what to do with a trace that is ready."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from enum import Enum
from typing import Any


class ProfilerAction(Enum):
    """What a profile does in one step.

    >>> import undertow as ut
    >>> ut.profiler.schedule(wait=1, warmup=0, active=1)(1)
    <ProfilerAction.RECORD_AND_SAVE: 3>
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerActivity(Enum):
    """Where to look. Simulated devices run on threads of the CPU, and are seen with it.

    >>> import undertow as ut
    >>> [activity.name for activity in ut.profiler.ProfilerActivity][:1]
    ['CPU']
    """

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


def supported_activities() -> set[ProfilerActivity]:
    """What a profile can see here: the CPU.

    >>> import undertow as ut
    >>> ut.profiler.ProfilerActivity.CPU in ut.profiler.supported_activities()
    True
    """
    return {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A function of the step: `wait` steps nothing, `warmup` steps to no purpose, `active` steps recorded, and again.

    repeat      how many such rounds; 0: as long as the profile lasts
    skip_first  steps before the first round
    skip_first_wait  1: the first round does not wait

    >>> [schedule(wait=1, warmup=1, active=2)(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(
            "Invalid profiler schedule arguments: wait, warmup, repeat and skip_first must not be negative, and "
            f"active must be positive; got wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, "
            f"skip_first={skip_first}"
        )
    period = wait + warmup + active

    def action_of(step: int) -> ProfilerAction:
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if repeat and step // period >= repeat:
            return ProfilerAction.NONE
        place = step % period
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == period - 1 else ProfilerAction.RECORD

    return action_of


def always(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Any:
    """For `on_trace_ready`: writes each trace into a folder, under a name that tells the machine and the time.

    dir_name     the folder, which is made if it is not there
    worker_name  how names begin; None: machine and process
    use_gzip     whether they are compressed

    >>> import undertow as ut
    >>> handler = ut.profiler.tensorboard_trace_handler("runs")  # profile(on_trace_ready=handler)
    """

    def handle(profile: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
        profile.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}{ending}"))

    return handle

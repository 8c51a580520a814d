"""What a bug report says of the machine, as PyTorch's `collect_env` collects it."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any


def run(command: Any) -> tuple[int, str, str]:
    """The exit status, the output and the errors of a command."""
    done = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def get_cpu_info(run_lambda: Callable[..., Any] = run) -> str:
    return f"Architecture: {platform.machine()}\nModel name: {platform.processor() or platform.machine()}"


def get_gcc_version(run_lambda: Callable[..., Any] = run) -> str | None:
    status, output, _ = run_lambda(["gcc", "--version"])
    return output.splitlines()[0] if status == 0 and output else None


def get_gpu_info(run_lambda: Callable[..., Any] = run) -> str | None:
    """The names of the GPUs that undertow sees; None without one."""
    from undertow import cuda

    names = [cuda.get_device_name(n) for n in range(cuda.device_count())]
    return "\n".join([f"GPU {n}: {name}" for n, name in enumerate(names)]) or None


def get_nvidia_driver_version(run_lambda: Callable[..., Any] = run) -> None:
    """Not looked for."""


def get_pretty_env_info() -> str:
    """The versions that matter, one to a line.

    >>> get_pretty_env_info().splitlines()[0].split(":")[0]
    'undertow version'
    """
    facts = {
        "undertow version": sys.modules["undertow"].__version__,
        "Python version": sys.version.split()[0],
        "NumPy version": version("numpy"),
        "OS": platform.platform(),
        "CPU": platform.machine(),
        "GPU": get_gpu_info() or "none",
    }
    return "\n".join([f"{name}: {fact}" for name, fact in facts.items()])


def main() -> None:
    print(get_pretty_env_info())

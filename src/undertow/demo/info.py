"""`python -m undertow info`: what a bug report should say about the machine."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import undertow as ut
from undertow import compiled
from undertow.backend import cpu, namespace_of

PACKAGES = ("numpy", "cupy", "scipy", "ml_dtypes", "safetensors", "mpi4py", "threadpoolctl", "torch")
DEVICES = ("cpu", "cuda:0", "sim:0")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def describe() -> str:
    """Versions, devices and thread counts, one per line."""
    rows = [("undertow", ut.__version__), ("Python", f"{platform.python_version()} on {platform.platform()}")]
    rows += [(name, version) for name in PACKAGES if (version := version_of(name))]
    rows += [("compiled core", compiled.status), ("BLAS", blas())]
    rows += [(f"device {device}", availability(device)) for device in DEVICES]
    rows += [("processors", f"{os.cpu_count()}, of which this process may use {usable_processors()}")]
    rows += [("BLAS threads", blas_threads())]
    rows += [("backward", "the calling thread runs all CPU nodes")]
    return "".join(f"{name:<14} {value}\n" for name, value in rows)


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def blas() -> str:
    found = cpu.module.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()


def availability(device: str) -> str:
    try:
        return f"available ({namespace_of(device).module.__name__})"
    except (ImportError, RuntimeError) as error:
        return f"not available: {error}"


def usable_processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def blas_threads() -> str:
    given = [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ]
    return ", ".join(given) or f"the library's default; set {THREAD_VARIABLES[1]} to change it"

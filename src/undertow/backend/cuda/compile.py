"""From the text of kernels to their addresses: by NVRTC, or on the emulated device by the host's compiler.

What was compiled is kept on disk, by the text and what compiled it, so that a program that has run once starts quickly:
in $UNDERTOW_CUDA_CACHE, or undertow/cuda in the user's folder of caches.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from undertow.backend.cuda import device, libraries
from undertow.backend.cuda.kernel_text import head_of

HOST_OPTIONS = ("-O1", "-w", "-std=c++17", "-fwrapv", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-shared",
                "-fPIC")  # fmt: skip


class Entry(NamedTuple):
    """A kernel of a text: its name, the structure of its arguments, and whether its threads work together."""

    name: str
    arguments: str
    cooperative: bool = False


def compile_kernels(text: str, entries: Sequence[Entry]) -> tuple[int, ...]:
    """The addresses of the kernels in a text."""
    threads = {True: "1", False: "block"}
    runners = "".join(f"RUNNER({e.name}, {e.arguments}, {threads[e.cooperative]})\n" for e in entries)
    text = f"{head_of(text)}{text}\n{runners}"
    names = tuple([e.name for e in entries])
    return on_host(text, names) if device.is_emulated() else on_device(text, names)


# ---- what is kept


def folder() -> Path:
    named = os.environ.get("UNDERTOW_CUDA_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undertow" / "cuda"


def kept(text: str, maker: str, ending: str) -> Path:
    """The file of what a text was compiled to."""
    digest = hashlib.sha256(f"{maker}\n{text}".encode()).hexdigest()[:32]
    return folder() / f"{digest}{ending}"


def keep(place: Path, content: bytes) -> None:
    """Write a file in one step, because another process may write it too; where that is impossible, not at all."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, place)
    except OSError:
        pass


# ---- on the emulated device

#: the libraries that kernels are in, which must stay loaded
_loaded: list[Any] = []


@functools.cache
def host_compiler() -> str:
    found = shutil.which(os.environ.get("CXX", "g++").split()[0]) or shutil.which("c++")
    if found is None:
        raise RuntimeError("the emulated cuda device needs a C++ compiler, and there is no g++ on the PATH")
    return found


def host_library(text: str) -> Any:
    """A library that the host's compiler makes of a text."""
    place = kept(text, " ".join(HOST_OPTIONS), ".so")
    if not place.exists():
        with tempfile.TemporaryDirectory() as working:
            source, made = Path(working) / "kernels.cpp", Path(working) / "kernels.so"
            source.write_text(text)
            command = [host_compiler(), *HOST_OPTIONS, "-o", str(made), str(source), "-lm"]
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)
            if outcome.returncode:
                raise RuntimeError(f"a kernel cannot be compiled:\n{outcome.stderr}\n{text}")
            keep(place, made.read_bytes())
            library = ctypes.CDLL(str(place if place.exists() else made))
    else:
        library = ctypes.CDLL(str(place))
    _loaded.append(library)
    return library


def on_host(text: str, names: Sequence[str]) -> tuple[int, ...]:
    library = host_library(text)
    return tuple([ctypes.cast(getattr(library, f"{name}_on_host"), ctypes.c_void_p).value or 0 for name in names])


# ---- on the device


@functools.cache
def nvrtc() -> Any:
    return ctypes.CDLL(libraries.find("nvrtc"))


@functools.cache
def nvrtc_version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def options() -> list[bytes]:
    properties = device.properties()
    arch = f"sm_{properties['major']}{properties['minor']}"
    return [f"--gpu-architecture={arch}".encode(), b"-std=c++17", b"-default-device", b"--fmad=false"]


def on_device(text: str, names: Sequence[str]) -> tuple[int, ...]:
    place = kept(text, f"nvrtc {nvrtc_version()} {options()}", ".cubin")
    try:
        cubin = place.read_bytes()
    except OSError:
        cubin = to_cubin(text)
        keep(place, cubin)
    found: tuple[int, ...] = device.extension().load(cubin, tuple(names))
    return found


def to_cubin(text: str) -> bytes:
    library, program = nvrtc(), ctypes.c_void_p()

    def check(status: int) -> None:
        if status:
            size = ctypes.c_size_t()
            library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            library.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"NVRTC cannot compile a kernel (status {status}):\n{log.value.decode()}\n{text}")

    given = options()
    check(library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None))
    check(library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given)))
    size = ctypes.c_size_t()
    check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    cubin = ctypes.create_string_buffer(size.value)
    check(library.nvrtcGetCUBIN(program, cubin))
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw

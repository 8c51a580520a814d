"""Where CUDA's libraries are: in wheels beside undertow, in the toolkit, or where the system looks."""

from __future__ import annotations

import ctypes.util
import functools
import glob
import os
import shutil
import sys

#: what is asked for -> the file, and the wheel that brings it
FILES = {
    "nvrtc": ("libnvrtc.so.1*", "nvidia-cuda-nvrtc"),
    "cublas": ("libcublas.so.1*", "nvidia-cublas"),
    "cublasLt": ("libcublasLt.so.1*", "nvidia-cublas"),
    "cusolver": ("libcusolver.so.1*", "nvidia-cusolver"),
    "cudnn": ("libcudnn.so.9*", "nvidia-cudnn"),
}


def _toolkit() -> list[str]:
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    compiler = shutil.which("nvcc")
    beside = [os.path.dirname(os.path.dirname(os.path.realpath(compiler)))] if compiler else []
    return [*named, *beside, "/usr/local/cuda"]


@functools.cache
def find(name: str) -> str:
    """The path of a library; RuntimeError with what to install if there is none."""
    pattern, wheel = FILES[name]
    places = [os.path.join(place, "nvidia", "*", "lib") for place in sys.path if place]
    places += [os.path.join(home, *rest) for home in _toolkit() for rest in (["lib64"], ["targets", "*", "lib"])]
    for place in places:
        found = [path for path in sorted(glob.glob(os.path.join(place, pattern))) if "builtins" not in path]
        if found:
            return found[0]
    system = ctypes.util.find_library(name)
    if system is None:
        raise RuntimeError(
            f"device 'cuda' needs {pattern.split('.so')[0]}.so, which was not found: install the CUDA toolkit, or "
            f"pip install {wheel}-cu12 (or the one for your version of CUDA)."
        )
    return system

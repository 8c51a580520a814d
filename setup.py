"""Builds the compiled core, undertow._core. Without a C compiler it is left out, and undertow runs as pure Python.

UNDERTOW_SYMBOLS=1     keeps the symbols that debuggers and profilers show; without it they are stripped
UNDERTOW_SANITIZE=1    the same, with the checks of the address and undefined-behaviour sanitizers (see `make sanitize`)
"""

import glob
import os
import sys

import numpy
from setuptools import Extension, setup

sys.path.insert(0, "csrc")
import plan_header

plan_header.write()


def is_set(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]

if is_set("UNDERTOW_SANITIZE"):
    compile_args, link_args = ["-g", "-O1", *SANITIZERS], SANITIZERS
elif is_set("UNDERTOW_SYMBOLS"):
    compile_args, link_args = ["-g", "-O3"], []
else:
    compile_args, link_args = ["-O3"], ["-Wl,--strip-all"] if sys.platform.startswith("linux") else []

setup(
    ext_modules=[
        Extension(
            "undertow._core",
            sources=sorted(glob.glob("csrc/**/*.c", recursive=True)),
            depends=sorted(glob.glob("csrc/**/*.h", recursive=True)),
            include_dirs=["csrc", numpy.get_include()],
            define_macros=[
                ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
                ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
            ],
            extra_compile_args=[
                *compile_args,
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",  # Python says what its callbacks take
                "-Wno-missing-field-initializers",  # {NULL} ends Python's tables
                "-fno-math-errno",
                "-fno-trapping-math",
                "-ffp-contract=off",
                "-fvisibility=hidden",
            ],
            extra_link_args=link_args,
            optional=True,
        )
    ]
)

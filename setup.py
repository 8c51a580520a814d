"""Builds the compiled core, undertow._core, and what drives GPUs, undertow._cuda.

Without a C compiler both are left out: undertow runs as pure Python, on the CPU. Neither needs CUDA to be built.

UNDERTOW_SYMBOLS=1     keeps the symbols that debuggers and profilers show; without it they are stripped
UNDERTOW_SANITIZE=1    the same, with the checks of the address and undefined-behaviour sanitizers (see `make sanitize`)
"""

import glob
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

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

FLOATING_POINT = ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
SOURCES = sorted(glob.glob("csrc/**/*.c", recursive=True))
WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",  # Python says what its callbacks take
    "-Wno-missing-field-initializers",  # {NULL} ends Python's tables
]


def extension(name: str, sources: list[str], options: list[str]) -> Extension:
    return Extension(
        f"undertow.{name}",
        sources=sources,
        depends=sorted(glob.glob("csrc/**/*.h", recursive=True)),
        include_dirs=["csrc", numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION")],
        extra_compile_args=[*compile_args, *WARNINGS, *options, "-fvisibility=hidden"],
        extra_link_args=link_args,
        optional=True,
    )


class BuildOnAllCores(build_ext):
    """As setuptools builds an extension, but the files of one are compiled side by side, not one after the other."""

    def build_extension(self, extension):
        compile_one = self.compiler.compile

        def compile_all(sources, **options):
            with ThreadPoolExecutor(os.cpu_count()) as compilers:
                found = list(compilers.map(lambda source: compile_one([source], **options), sources))
            return [name for names in found for name in names]

        self.compiler.compile = compile_all
        try:
            super().build_extension(extension)
        finally:
            self.compiler.compile = compile_one


setup(
    cmdclass={"build_ext": BuildOnAllCores},
    ext_modules=[
        extension("_core", [path for path in SOURCES if not path.startswith("csrc/cuda/")], FLOATING_POINT),
        extension("_cuda", [path for path in SOURCES if path.startswith("csrc/cuda/")], []),
    ],
)

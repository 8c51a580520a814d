"""Builds the compiled core, undertow._core. Without a C compiler it is left out, and undertow runs as pure Python."""

import glob
import sys

import numpy
from setuptools import Extension, setup

sys.path.insert(0, "csrc")
import plan_header

plan_header.write()

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
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",  # Python says what its callbacks take
                "-Wno-missing-field-initializers",  # {NULL} ends Python's tables
                "-O3",
                "-fno-math-errno",
                "-fno-trapping-math",
                "-ffp-contract=off",
                "-fvisibility=hidden",
            ],
            optional=True,
        )
    ]
)

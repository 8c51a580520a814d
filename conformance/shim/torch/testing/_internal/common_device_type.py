"""Tests written once for any device, made into a class of tests for the CPU.

Where there is a GPU, tests for GPUs alone run on it; they keep the names that they have for the CPU.
"""

from __future__ import annotations

import functools
import inspect
import unittest
from collections.abc import Iterator
from typing import Any

import torch
from torch._dtypes import ADDED, DType, dtype_name

from .parametrized import Case, expand

DEVICE = "cpu"
GPUS = [f"cuda:{index}" for index in range(torch.cuda.device_count())]

#: classes of tests that skip themselves on the CPU
ON_GPUS = ("TestAutogradStreamSynchronization",)


def instantiate_device_type_tests(
    generic: Any, scope: dict[str, Any], except_for: Any = None, only_for: Any = None
) -> None:
    """Replace the class in `scope` by `<name>CPU`, whose tests are handed the device (and dtype)."""
    del scope[generic.__name__]
    members: dict[str, Any] = {"device_type": DEVICE}
    for name, test in vars(generic).items():
        if name.startswith("test") and callable(test):
            members[name] = None  # hides the generic test from the loader
            members.update(_for_device(name, test, generic.__name__ in ON_GPUS))
    cls = type(f"{generic.__name__}{DEVICE.upper()}", (generic,), members)
    cls.__module__ = generic.__module__
    scope[cls.__name__] = cls


def _for_device(name: str, test: Any, on_gpu: bool) -> Iterator[tuple[str, Any]]:
    on_gpu = bool(GPUS) and (on_gpu or getattr(test, "on_gpu", False))
    offered = {"device": GPUS[0], "devices": GPUS} if on_gpu else {"device": DEVICE, "devices": [DEVICE]}
    arguments = {key: offered[key] for key in inspect.signature(test).parameters if key in offered}
    cases = [Case(DEVICE, arguments, [])]
    kinds = getattr(test, "dtypes", None)
    if kinds:
        cases = [Case(f"{DEVICE}_{dtype_name(kind)}", {**arguments, "dtype": kind}, []) for kind in kinds]
    test.cases = [outer.joined(inner) for outer in cases for inner in getattr(test, "cases", [Case("", {}, [])])]
    return expand(name, test)


def dtypes(*kinds: Any) -> Any:
    """One test per dtype; a test that asks its dtype what NumPy's cannot answer is given one that can."""

    def decorate(test: Any) -> Any:
        asks = set(ADDED) & set(inspect.unwrap(test).__code__.co_names)
        test.dtypes = [DType(kind) if asks else kind for kind in kinds]
        return test

    return decorate


def _for_another_device(*kinds: Any) -> Any:
    return lambda test: test


dtypesIfCUDA = dtypesIfMPS = _for_another_device


def deviceCountAtLeast(count: int) -> Any:
    """The test takes a list of devices, and needs at least `count`."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run(self: Any, devices: Any, **kwargs: Any) -> None:
            if len(devices) < count:
                raise unittest.SkipTest(f"fewer than {count} devices detected")
            test(self, devices=devices, **kwargs)

        run.on_gpu = count > 1  # type: ignore[attr-defined]
        return run

    return decorate


def onlyCUDA(test: Any) -> Any:
    @functools.wraps(test)
    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        if not GPUS:
            raise unittest.SkipTest("only runs on CUDA")
        test(self, *args, **kwargs)

    run.on_gpu = True  # type: ignore[attr-defined]
    return run


def _unchanged(test: Any) -> Any:
    return test


onlyCPU = skipMeta = expectedFailureMPS = _unchanged

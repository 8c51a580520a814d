"""The test case class, decorators and helpers that PyTorch's test files import."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import random
import re
import subprocess
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import undertow
from torch import autograd

from .comparison import Rules, check_equal
from .parametrized import instantiate_parametrized_tests, parametrize, subtest

IS_MACOS = sys.platform == "darwin"
IS_WINDOWS = sys.platform == "win32"
TEST_WITH_TORCHDYNAMO = False
TEST_XPU = False
TEST_WITH_SLOW = os.environ.get("PYTORCH_TEST_WITH_SLOW") == "1"
SEED = 1234


class TestCase(unittest.TestCase):
    def setUp(self) -> None:
        random.seed(SEED)
        np.random.seed(SEED)
        undertow.manual_seed(SEED)
        self._check_default_dtype()
        self._grad_enabled = undertow.is_grad_enabled()

    def tearDown(self) -> None:
        self._check_default_dtype()
        undertow.set_grad_enabled(self._grad_enabled)

    def _check_default_dtype(self) -> None:
        if undertow.get_default_dtype() != np.dtype("float32"):
            raise AssertionError(f"the default dtype is {undertow.get_default_dtype()}, not float32")

    def assertEqual(self, x: Any, y: Any, msg: Any = None, **rules: Any) -> None:
        try:
            check_equal(x, y, Rules(**rules))
        except AssertionError as error:
            found = str(error)
            text = found if msg is None else msg(found) if callable(msg) else f"{found}\n{msg}"
            raise AssertionError(text) from None

    def assertNotEqual(self, x: Any, y: Any, msg: Any = None, **rules: Any) -> None:
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, msg, **rules)

    def assertNotWarn(self, call: Callable[[], Any], msg: str = "") -> None:
        with warnings.catch_warnings(record=True) as caught, set_warn_always_context(True):
            warnings.simplefilter("always")
            call()
        self.assertTrue(len(caught) == 0, msg)

    @contextlib.contextmanager
    def assertWarnsOnceRegex(self, category: type[Warning], regex: str = "") -> Iterator[None]:
        with warnings.catch_warnings(record=True) as caught, set_warn_always_context(True):
            warnings.simplefilter("always")
            yield
        self.assertTrue(caught, "no warning caught")
        self.assertTrue(any(type(warning.message) is category for warning in caught))
        messages = [str(warning.message) for warning in caught]
        self.assertTrue(any(re.match(regex, message) for message in messages), f"{regex}, {messages}")

    def assertExpectedInline(self, actual: Any, expect: str) -> None:
        self.assertMultiLineEqual(expect, str(actual))

    def assertExpected(self, text: str, subname: str | None = None) -> None:
        """The text equals the file `expect/<Class>.<test>[-subname].expect` beside the test file."""
        if not isinstance(text, str):
            raise TypeError("assertExpected is for strings")
        module = sys.modules[type(self).__module__]
        suffix = f"-{subname}" if subname else ""
        name = f"{type(self).__name__}.{self._testMethodName}{suffix}.expect"
        expected = Path(str(module.__file__)).resolve().parent / "expect" / name
        self.assertMultiLineEqual(expected.read_text(), text)

    @staticmethod
    def runWithPytorchAPIUsageStderr(code: str) -> str:
        """What the code, run by a child process, writes to standard error; the child must succeed."""
        env = {**os.environ, "PYTORCH_API_USAGE_STDERR": "1"}
        child = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        if child.returncode:
            raise AssertionError(f"the child process failed:\n{child.stderr}")
        return child.stderr

    def genSparseTensor(self, size: Any, sparse_dim: int, nnz: int, is_uncoalesced: bool, device: Any, dtype: Any):
        """A random sparse tensor, its indices and its values."""
        from torch.testing import make_tensor

        values = make_tensor([nnz, *size[sparse_dim:]], device=device, dtype=dtype, low=-1, high=1)
        spread = undertow.tensor(list(size[:sparse_dim]), dtype=np.float32).unsqueeze(1)
        indices = (undertow.rand(sparse_dim, nnz) * spread).to(np.dtype("int64"))
        if is_uncoalesced:
            halves = [indices[:, : nnz // 2, ...], indices[:, : (nnz + 1) // 2, ...]]
            indices = undertow.cat(halves, 1)
        tensor = undertow.sparse_coo_tensor(indices, values, tuple(size), dtype=dtype, device=device)
        tensor = tensor.detach().clone() if is_uncoalesced else tensor.coalesce()
        return tensor, tensor._indices().clone(), tensor._values().clone()


def gradcheck(fn: Any, inputs: Any, **kwargs: Any) -> bool:
    return autograd.gradcheck(fn, inputs, **_strict(kwargs))


def gradgradcheck(fn: Any, inputs: Any, grad_outputs: Any = None, **kwargs: Any) -> bool:
    return autograd.gradgradcheck(fn, inputs, grad_outputs, **_strict(kwargs))


def _strict(kwargs: dict[str, Any]) -> dict[str, Any]:
    """PyTorch's own tests check batched gradients too, and in fast mode, unless they say otherwise."""
    for name in ("check_batched_grad", "fast_mode"):
        if kwargs.get(name) is None:
            kwargs[name] = True
    return kwargs


@contextlib.contextmanager
def set_warn_always_context(enabled: bool) -> Iterator[None]:
    before = undertow.is_warn_always_enabled()
    undertow.set_warn_always(enabled)
    try:
        yield
    finally:
        undertow.set_warn_always(before)


@contextlib.contextmanager
def disable_gc() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def slowTest(test: Any) -> Any:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        if not TEST_WITH_SLOW:
            raise unittest.SkipTest("test is slow; run with PYTORCH_TEST_WITH_SLOW to enable test")
        test(*args, **kwargs)

    return run


def scoped_load_inline(test: Any) -> Any:
    """Hands the test a compiler of inline C++ extensions; undertow has none."""

    def load_inline(*args: Any, **kwargs: Any) -> Any:
        raise AttributeError("undertow has no inline C++ extensions")

    @functools.wraps(test)
    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        test(self, load_inline, *args, **kwargs)

    del run.__wrapped__
    return run


def _unchanged(test: Any) -> Any:
    return test


def _with_arguments(*args: Any, **kwargs: Any) -> Any:
    """A decorator about platforms and builds that this one is not; used bare or with arguments."""
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return args[0]
    return _unchanged


skipIfMPS = skipIfNoLapack = skipIfSlowGradcheckEnv = _unchanged
skipIfTorchDynamo = skipIfWindows = skipIfXpu = skipCUDANonDefaultStreamIf = _with_arguments


def run_tests() -> None:
    unittest.main()

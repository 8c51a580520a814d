"""The shim answers `import torch` in a child process, and its assertions assert."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SHIM = Path(__file__).resolve().parents[2] / "conformance" / "shim"

EQUAL = [
    "1, 1.0",
    "torch.tensor([1.0, 2.0]), [1, 2]",
    "torch.tensor(3), 3",
    "torch.tensor([True]), True",
    "(torch.ones(2), [3, None]), [torch.ones(2), (3, None)]",
    "torch.tensor([float('nan')]), torch.tensor([float('nan')])",
    "torch.tensor(1.0), torch.tensor(1.000001)",
    "torch.Size([2, 3]), (2, 3)",
    "torch.zeros(2, 3).shape, torch.Size([2, 3])",
    "torch.tensor([1.0]), torch.tensor([1.5]), atol=1, rtol=0",
    "torch.tensor([1]), torch.tensor([1.0]), exact_dtype=False",
    "{'a': torch.ones(1)}, {'a': torch.ones(1)}",
    "repr(torch.Size([2, 3])), 'torch.Size([2, 3])'",
]
UNEQUAL = [
    "1, 2",
    "1.0, 1.001",
    "1234567890123456789, 1234567890123456788",
    "torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1])",
    "torch.tensor([1]), torch.tensor([1.0])",
    "torch.tensor([1.0], dtype=torch.double), torch.tensor([1.0])",
    "torch.ones(2), torch.ones(2, 1)",
    "torch.ones(1), None",
    "None, torch.ones(1)",
    "torch.tensor([1.0]), torch.tensor([float('nan')])",
    "torch.tensor([float('nan')]), torch.tensor([float('nan')]), equal_nan=False",
    "torch.tensor(1.0, dtype=torch.double), torch.tensor(1.00001, dtype=torch.double)",
    "(1, 2), (1, 2, 3)",
    "{'a': 1}, {'b': 1}",
    "float('inf'), -float('inf')",
    "'a', 'b'",
]


def run_shim(code):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SHIM), os.environ.get("PYTHONPATH", "")])}
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    return child.stdout.splitlines()


@pytest.fixture(scope="module")
def verdicts():
    checks = "\n".join(f"judge({pair!r}, lambda: case.assertEqual({pair}))" for pair in EQUAL + UNEQUAL)
    lines = run_shim(
        f"""
import torch
from torch.testing._internal.common_utils import TestCase
case = TestCase()
def judge(pair, check):
    try:
        check()
    except AssertionError:
        print("unequal")
    else:
        print("equal")
{checks}
"""
    )
    return dict(zip(EQUAL + UNEQUAL, lines, strict=True))


@pytest.mark.parametrize("pair", EQUAL)
def test_assert_equal_accepts(verdicts, pair):
    assert verdicts[pair] == "equal"


@pytest.mark.parametrize("pair", UNEQUAL)
def test_assert_equal_refuses(verdicts, pair):
    assert verdicts[pair] == "unequal"


def test_a_missing_name_is_an_attribute_error_when_used():
    lines = run_shim(
        """
        import torch
        from torch.autograd import profiler_util
        try:
            torch.no_such_operation
        except AttributeError as error:
            print(error)
        """
    )
    assert lines == ["undertow has no no_such_operation"]


def test_parametrized_names_and_devices():
    lines = run_shim(
        """
        import torch, unittest
        from torch.testing._internal.common_utils import *
        from torch.testing._internal.common_utils import TestCase
        from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCUDA

        class TestPlain(TestCase):
            @parametrize("a", [True, False])
            @parametrize("b,c", [subtest((1, 2), name="both"), (3, 4)])
            def test_x(self, a, b, c):
                print("x", a, b, c)

        class TestDevice(TestCase):
            @dtypes(torch.float, torch.int64)
            def test_y(self, device, dtype):
                print("y", device, dtype.is_floating_point, torch.ones(1, dtype=dtype).dtype.name)

            @onlyCUDA
            def test_z(self, device):
                print("never")

            def test_plain(self):
                print("plain")

        instantiate_parametrized_tests(TestPlain)
        instantiate_device_type_tests(TestDevice, globals())
        loader = unittest.TestLoader()
        for cls in (TestPlain, TestDeviceCPU):
            names = loader.getTestCaseNames(cls)
            print(cls.__name__, *names)
            for name in names:
                result = cls(name).run()
                print(len(result.skipped), "skipped") if result.skipped else None
                for _, text in result.errors + result.failures:
                    print(text)
        """
    )
    assert lines == [
        "TestPlain test_x_a_False_b_3_c_4 test_x_a_False_both test_x_a_True_b_3_c_4 test_x_a_True_both",
        "x False 3 4",
        "x False 1 2",
        "x True 3 4",
        "x True 1 2",
        "TestDeviceCPU test_plain_cpu test_y_cpu_float32 test_y_cpu_int64 test_z_cpu",
        "plain",
        "y cpu True float32",
        "y cpu False int64",
        "1 skipped",
    ]

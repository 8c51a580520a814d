"""What PyTorch's distributed_test.py needs to run on undertow's processes; see processes.py, which runs it.

Its helpers are in a file of PyTorch's package that imports half of that: those which the tests use are taken from it by
name, so that the tests are skipped for PyTorch's own reasons.
"""

from __future__ import annotations

import ast
import enum
import functools
import io
import operator
import os
import sys
import tempfile
import unittest
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

#: what is taken from PyTorch's helpers
HELPERS = {
    "TestSkip", "TEST_SKIPS", "DistTestCases", "skip_if_no_gpu", "skip_if_small_worldsize", "skip_if_odd_worldsize",
    "require_n_gpus_for_nccl_backend", "_maybe_handle_skip_if_lt_x_gpu", "at_least_x_gpu", "skip_if_lt_x_gpu",
    "nccl_skip_if_lt_x_gpu", "verify_ddp_error_logged", "with_nccl_blocking_wait", "with_dist_debug_levels",
    "requires_nccl_version", "skip_if_rocm_multiprocess", "captured_output", "simple_sparse_reduce_tests",
    "init_multigpu_helper",
}  # fmt: skip


def helpers(package: Path) -> dict[str, Any]:
    """The definitions of PyTorch's that tests between processes use."""
    import torch
    from torch.testing._internal.common_utils import TestCase

    import undertow.distributed

    source = package / "testing/_internal/common_distributed.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if HELPERS & set(defined(node))]
    without = dict.fromkeys(("TEST_CUDA", "TEST_HPU", "TEST_XPU", "TEST_WITH_ROCM"), False)
    found: dict[str, Any] = {
        "torch": torch, "c10d": undertow.distributed, "os": os, "sys": sys, "operator": operator, "unittest": unittest,
        "StringIO": io.StringIO, "wraps": functools.wraps, "partial": functools.partial, "reduce": functools.reduce,
        "NamedTuple": NamedTuple, "contextmanager": contextmanager, "dataclass": dataclass, "TestCase": TestCase,
        **without,
        "skip_but_pass_in_sandcastle_if": sys.modules[TestCase.__module__].skip_but_pass_in_sandcastle_if,
        "__name__": "torch.testing._internal.common_distributed",
    }  # fmt: skip
    exec(compile(tree, str(source), "exec"), found)
    return {
        **{name: found[name] for name in HELPERS},
        "MultiProcessTestCase": TestCase,
        "initialize_temp_directories": lambda *_: None,
        "cleanup_temp_dir": lambda: None,
    }


def defined(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [t.id for t in node.targets if isinstance(t, ast.Name)] if isinstance(node, ast.Assign) else []


def install(package: Path, module: Any, absent: Any, backend: str) -> None:
    """Put the modules that the tests import where they look for them."""
    import torch
    import torch.testing._internal.common_utils as common

    import undertow
    import undertow.distributed as dist
    from undertow.distributed import process_group
    from undertow.distributed.algorithms import ddp_comm_hooks
    from undertow.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from undertow.distributed.data_parallel.logging_data import dump_environment

    os.environ.update(BACKEND=backend, MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", INIT_METHOD="env://")
    for name in ("IS_FBCODE", "IS_SANDCASTLE", "TEST_WITH_ROCM"):
        setattr(common, name, False)
    device_types = enum.Enum("DeviceType", ["CPU", "CUDA", "XPU"])
    torch.autograd.DeviceType = device_types
    for name in ("ExecutionTraceObserver", "ProfilerActivity"):
        vars(torch.profiler).setdefault(name, absent(name))
    common.skip_but_pass_in_sandcastle = lambda why: common.skip_but_pass_in_sandcastle_if(True, why)
    for name in ("algorithms", "algorithms.model_averaging", "algorithms.model_averaging.averagers",
                 "algorithms.model_averaging.hierarchical_model_averager", "algorithms.model_averaging.utils",
                 "optim.post_localSGD_optimizer", "utils"):  # fmt: skip
        module(f"torch.distributed.{name}")
    module("torch.distributed.algorithms.ddp_comm_hooks", ddp_comm_hooks)
    module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks", default_hooks)
    module("torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook", powerSGD_hook)
    sys.modules["torch.distributed"].is_gloo_available = lambda: True  # MPI answers to that name
    module("torch.distributed.distributed_c10d", dist, _get_default_group=process_group.world)
    module("torch._utils_internal", TEST_MASTER_ADDR="127.0.0.1", TEST_MASTER_PORT=29500)
    module("torch.cuda", torch.cuda)
    module("torch.cuda.amp")
    names = {"_DEFAULT_BUCKET_CAP_MB": 25, "_MB_TO_BYTES": 2**20, "_dump_DDP_relevant_env_vars": dump_environment}
    module("torch.nn.parallel.distributed", **names)
    module("torch.utils.data", undertow.data)
    module("torch.utils.data.distributed", undertow.data)
    module("torch.testing._internal.common_distributed", **helpers(package))


def shared_folder(comm: Any) -> None:
    """The folders in which the tests of all processes meet."""
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    if comm.rank == 0:
        for name in ("barrier", "test_dir", "init_dir"):
            os.mkdir(os.path.join(folder, name))
    os.environ["TEMP_DIR"] = folder
    comm.Barrier()

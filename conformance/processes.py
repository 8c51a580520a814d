"""PyTorch's own tests of exchanges, calls and backward passes between processes, run on undertow's.

    python -m undertow.distributed.run -n 2 conformance/processes.py distributed [test ...]
    python -m undertow.distributed.run -n 4 conformance/processes.py distributed_mpi|dist_autograd|rpc|dist_optimizer

The tests come with PyTorch's package (torch/testing/_internal/distributed); their `import torch` finds undertow,
through the shim. Every process runs every test, as PyTorch's own harness does with one set of processes for each; a
test passes if it does in all. Tests of TorchScript, of profiles and of GPUs are left out, by their names.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import types
import unittest
from pathlib import Path
from typing import Any

import exchanges

HERE = Path(__file__).parent
#: seconds for one test, and for the end of the processes after it
LIMIT, MEETING = 20, 6
#: suites: module, and the classes whose tests are taken
SUITES = {
    "dist_autograd": ("dist_autograd_test", ["DistAutogradTest", "TensorPipeAgentDistAutogradTest"]),
    "rpc": ("rpc_test", ["RpcTest", "TensorPipeAgentRpcTest"]),
    "dist_optimizer": ("dist_optimizer_test", ["DistOptimizerTest"]),
}
#: suites of exchanges, and the backend that tests are to believe in; "mpi" adds those that PyTorch runs with it alone
EXCHANGES = {"distributed": "gloo", "distributed_mpi": "mpi"}
#: modules of tests, and what they had before a test took something away
SNAPSHOTS: list[tuple[types.ModuleType, dict[str, Any]]] = []
LEFT_OUT = re.compile(
    r"script|jit|torchscript|profil|cuda|gpu|device_map|stream|sandcastle|tensorpipe|multiplexing|faulty|server_process"
    r"|dynamic_rpc|set_and_get_default|verify_backend_options|infer_backend|world_size_one|record_function",
)


class Absent:
    """Stands for what is not there, in modules that only have to be imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return Absent(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else Absent(f"{self._name}()")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)


def module(name: str, source: Any = None, **names: Any) -> types.ModuleType:
    """A module called so: another one's names, and these; whatever else is asked for is Absent."""
    made = types.ModuleType(name)
    made.__path__ = []  # type: ignore[attr-defined]
    made.__dict__.update(names)

    def find(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        found = getattr(source, attribute, None) if source is not None else None
        return Absent(f"{name}.{attribute}") if found is None else found

    made.__getattr__ = find  # type: ignore[method-assign, assignment]
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, made)
    return made


def install(package: Path) -> None:
    """Let `import torch` find the shim, and put what is about processes beside it."""
    sys.path.insert(0, str(HERE / "shim"))
    import torch  # type: ignore[import-not-found]
    import torch.testing._internal.common_utils as common  # type: ignore[import-not-found]

    import undertow
    from undertow.distributed import autograd, optim, rpc
    from undertow.distributed.autograd import nodes
    from undertow.distributed.rpc import lifetime
    from undertow.distributed.workers import future

    lifetime.MEETING = MEETING
    nodes.RpcNode.name = lambda self: f"torch::distributed::autograd::{type(self).__name__}"  # type: ignore[method-assign]
    unchanged = lambda *args, **kwargs: lambda test: test
    for name, value in {"FILE_SCHEMA": "file://", "TEST_WITH_TSAN": False, "IS_LINUX": True}.items():
        setattr(common, name, value)
    common.skip_but_pass_in_sandcastle_if = lambda condition, why: unittest.skipIf(condition, why)
    for name in ("load_tests", "get_cycles_per_ms", "TemporaryFileName"):
        setattr(common, name, Absent(name))
    common.TemporaryFileName = temporary_name
    module("torch.distributed", undertow.distributed)
    module("torch.distributed.autograd", autograd)
    module("torch.distributed.rpc", rpc, _get_debug_info=lambda: rpc._rref_context_get_debug_info())
    module("torch.distributed.rpc.api", rpc, _thread_local_var=types.SimpleNamespace())
    mode = enum.Enum("RPCExecMode", {"SYNC": "sync", "ASYNC": "async", "ASYNC_JIT": "async_jit", "REMOTE": "remote"})
    module("torch.distributed.rpc.internal", RPCExecMode=mode)
    module("torch.distributed.rpc.constants", DEFAULT_RPC_TIMEOUT_SEC=60.0)
    module("torch.distributed.optim", optim)
    module("torch.futures", future)
    torch._C.Future = future.Future
    module("torch.jit", script=lambda f=None, *a, **k: f, ignore=lambda f=None, *a, **k: f)
    module("torch.autograd.profiler_legacy")
    module("torch.testing._internal.common_distributed", skip_if_lt_x_gpu=unchanged, tp_transports=unchanged)
    torch.testing._internal.__path__.append(str(package / "testing" / "_internal"))
    module("torch.testing._internal.distributed").__path__ = [str(package / "testing/_internal/distributed")]


@contextlib.contextmanager
def temporary_name(*args: Any, **kwargs: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "file")


def cases_of(suite: str) -> dict[str, Any]:
    """Name -> a function that makes the test."""
    from torch.testing._internal.common_utils import TestCase

    from undertow.distributed import rpc

    name, classes = SUITES[suite]
    tests = importlib.import_module(f"torch.testing._internal.distributed.rpc.{name}")

    class Fixture:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        rpc_backend, file_name, init_method = None, "unused", "env://"
        rpc_backend_options = rpc.RpcBackendOptions(allow_pickle=True, rpc_timeout=20)

        def setup_fault_injection(self, *args: Any) -> None: ...
        def get_shutdown_error_regex(self) -> str:
            return "shut down|RPC ran for more than set timeout"

        def get_timeout_error_regex(self) -> str:
            return "RPC ran for more than"

    found: dict[str, Any] = {}
    for kind in classes:
        case: Any = type(kind, (Fixture, getattr(tests, kind), TestCase), {})
        case.__abstractmethods__ = frozenset()
        case.__module__ = tests.__name__
        setattr(tests, kind, case)  # where other processes look for its methods
        SNAPSHOTS.append((tests, dict(vars(tests))))
        found |= {n: case for n in sorted(dir(case)) if n.startswith("test_") and not LEFT_OUT.search(n)}
    return found


def exchange_cases(suite: str) -> dict[str, Any]:
    """The same, for tests of exchanges: each starts with a group of all processes."""
    from torch.testing._internal.common_utils import TestCase

    from undertow import distributed as dist

    tests = importlib.import_module("torch.testing._internal.distributed.distributed_test")

    class Case(tests.DistributedTest._DistTestBase, TestCase):  # type: ignore[misc]
        rank, world_size, file_name = int(os.environ["RANK"]), os.environ["WORLD_SIZE"], "unused"
        init_method = "env://"

        def setUp(self) -> None:
            super().setUp()
            limit = 5 if self._testMethodName in ("test_ddp_model_diff_across_ranks", "test_ddp_has_finalized") else 15
            dist.init_process_group(os.environ["BACKEND"], timeout=limit, allow_pickle=True)
            dist.barrier()

        def tearDown(self) -> None:
            os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)  # elsewhere each test has new processes
            dist.set_debug_level_from_env()
            super().tearDown()

        def assertGreaterAlmostEqual(self, first: float, second: float, msg: str = "", delta: float = 1e-7) -> None:
            self.assertTrue(first >= second - delta, f"{first} < {second}: {msg}")

        def _barrier(self, *args: Any, **kwargs: Any) -> None:
            dist.barrier()

    names = [n for n in sorted(dir(Case)) if n.startswith("test_")]
    return {n: Case for n in names if suite != "distributed_mpi" or re.search("all_to_all|logging_data_cpu", n)}


def skipped_by(text: str) -> str | None:
    """Why a test has ended its process, if that is how it tells PyTorch's harness to skip it."""
    code = re.search(r"^SystemExit: (\d+)$", text, re.M)
    reasons = vars(sys.modules["torch.testing._internal.common_distributed"]).get("TEST_SKIPS", {})
    return next((r.message for r in reasons.values() if code and r.exit_code == int(code[1])), None)


def outcome(case: Any, name: str) -> tuple[str, str]:
    """What became of one test in this process."""
    result = unittest.TestResult()
    signal.alarm(LIMIT)
    try:
        case(name).run(result)
    except BaseException as error:
        return "failed", f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.alarm(0)
    bad = result.errors + result.failures
    if bad and bad[0][1].rstrip().endswith("SystemExit: 0"):
        return "passed", ""  # it ends its process instead of waiting for others that it has stopped
    if bad and (why := skipped_by(bad[0][1])):
        return "skipped", why
    if bad:
        lines = [line for line in bad[0][1].strip().split("\n") if line.strip()]
        return "failed", "\n".join(lines[-14:])
    return ("skipped", result.skipped[0][1]) if result.skipped else ("passed", "")


def clean_up() -> None:
    """What a test has left behind."""
    from undertow import distributed as dist
    from undertow.distributed import rpc
    from undertow.distributed.autograd.context import _contexts, current_id

    with contextlib.suppress(BaseException):
        rpc.shutdown(graceful=False)
    if dist.is_initialized():
        dist.destroy_process_group()
    for tests, names in SNAPSHOTS:
        vars(tests).update(names)
    for name, tests in list(sys.modules.items()):
        if name.startswith("torch.testing._internal.distributed.rpc.") and hasattr(tests, "rpc_done"):
            tests.rpc_done[:], tests.ctx_ids[:] = [False] * 4, [-1] * 4  # each test has new processes elsewhere
            tests.known_context_ids.clear()
    current_id.set(0)
    _contexts.clear()


def main(suite: str, only: list[str]) -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    install(package)
    if suite in EXCHANGES:
        exchanges.install(package, module, Absent, EXCHANGES[suite])
    from mpi4py import MPI

    from undertow.distributed.joining import errors_stop_all, join

    join()
    errors_stop_all.hold()
    comm = MPI.COMM_WORLD.Dup()
    if suite in EXCHANGES:
        exchanges.shared_folder(comm)

    def too_late(*_: Any) -> None:
        raise TimeoutError(f"not finished within {LIMIT} s")

    signal.signal(signal.SIGALRM, too_late)
    results: dict[str, list[str]] = {}
    for name, case in (exchange_cases if suite in EXCHANGES else cases_of)(suite).items():
        if only and name not in only:
            continue
        everywhere = comm.allgather(outcome(case, name))
        worst = next((o for o in everywhere if o[0] == "failed"), everywhere[0])
        results[name] = list(worst)
        if comm.rank == 0:
            print(worst[0], name, worst[1] if worst[0] != "passed" else "", flush=True)
        clean_up()
        comm.Barrier()
    if comm.rank == 0:
        counts = {s: sum([r[0] == s for r in results.values()]) for s in ("passed", "failed", "skipped")}
        print(json.dumps({"suite": suite, **counts}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

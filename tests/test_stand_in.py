"""`python -m undertow run`: programs written for PyTorch, unchanged, in processes of their own."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import undertow as ut
from undertow import compiled
from undertow.stand_in.finder import imported_names, modules_of_torch
from undertow.stand_in.torch_module import IMPORTED_WITH_TORCH, TORCH_VERSION, TorchVersion

SOURCE = str(Path(ut.__file__).parents[1])


def undertow(*arguments: str, folder: Path, expect: int = 0) -> str:
    """What `python -m undertow` prints."""
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, "-m", "undertow", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == expect, done.stderr
    return done.stdout if expect == 0 else done.stderr


PROGRAM = """
    import sys
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def train():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        data = TensorDataset(torch.randn(8, 3), torch.randn(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(data, batch_size=4):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.item()

    if __name__ == "__main__":
        print(f"{train():.5f}", sys.argv[1:], __name__)
"""


def written(folder: Path, name: str, text: str) -> str:
    folder.joinpath(name).write_text(textwrap.dedent(text))
    return name


def test_a_program_a_module_and_a_command_run_as_they_are(tmp_path: Path) -> None:
    written(tmp_path, "program.py", PROGRAM)
    as_file = undertow("run", "program.py", "--lr", "-m", folder=tmp_path)
    as_module = undertow("run", "-m", "program", "--lr", "-m", folder=tmp_path)
    as_command = undertow("run", "-c", "import program; print(f'{program.train():.5f}')", folder=tmp_path)
    assert as_file == as_module and as_file.endswith("['--lr', '-m'] __main__\n")
    assert as_file.split()[0] == as_command.strip()


def test_numpy_is_silent_in_all_threads(tmp_path: Path) -> None:
    program = """
        import threading, warnings
        import torch

        def work():
            print(torch.log(torch.zeros(100)).max().item(), (1 / torch.zeros(3)).sum().item())

        with warnings.catch_warnings(record=True) as seen:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            work()
        print(len(seen))
        """
    name = written(tmp_path, "silent.py", program)
    assert undertow("run", name, folder=tmp_path) == "-inf inf\n-inf inf\n0\n"


@pytest.mark.torch
def test_its_numbers_are_those_of_pytorch(torch, tmp_path: Path) -> None:
    written(tmp_path, "program.py", PROGRAM)
    theirs = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, timeout=300, cwd=tmp_path, check=True
    ).stdout
    assert undertow("run", "program.py", folder=tmp_path) == theirs


def test_an_exit_status_an_error_and_wrong_arguments(tmp_path: Path) -> None:
    written(tmp_path, "ends.py", "import sys, torch; sys.exit(3)")
    undertow("run", "ends.py", folder=tmp_path, expect=3)
    written(tmp_path, "fails.py", "import torch\ntorch.ones(2) + torch.ones(3)")
    assert 'File "fails.py", line 2' in undertow("run", "fails.py", folder=tmp_path, expect=1)
    assert "expected a program, -m MODULE or -c COMMAND" in undertow("run", "-x", folder=tmp_path, expect=2)
    assert "No such file" in undertow("run", "nowhere.py", folder=tmp_path, expect=1)


def test_processes_that_a_program_starts_find_it_too(tmp_path: Path) -> None:
    program = """
        import multiprocessing, subprocess, sys
        import torch

        def work(number):
            assert "undertow" in torch.__version__, torch.__file__
            return torch.full((2,), float(number)).sum().item()

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1, 2]))
            code = "import importlib.metadata as m; v = m.version('torch'); import torch; print(torch.__version__ == v)"
            print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip())
    """
    assert undertow("run", written(tmp_path, "starts.py", program), folder=tmp_path).split("\n")[:2] == [
        "[2.0, 4.0]",
        "True",
    ]


def test_the_version_is_that_of_the_pytorch_we_follow(tmp_path: Path) -> None:
    code = """
        import importlib.metadata, importlib.util
        import torch
        assert torch.__version__ == importlib.metadata.version("torch") == torch.version.__version__
        assert (2, 1) < torch.__version__ < "3" and torch.__version__ >= "2.13.0", torch.__version__
        assert importlib.util.find_spec("torch.nn") and not importlib.util.find_spec("torch.backend")
        assert not hasattr(torch, "engine") and torch.version.cuda is None
        print(torch.__version__)
    """
    assert undertow("run", "-c", textwrap.dedent(code), folder=tmp_path) == f"{TORCH_VERSION}\n"
    assert f"2.13.0+undertow{ut.__version__}" == TORCH_VERSION
    for_children = Path(ut.__file__).parent / "stand_in" / "for_child_processes"
    (found,) = importlib.metadata.distributions(path=[str(for_children)])
    assert found.version == TORCH_VERSION


def test_modules_that_pytorch_imports_with_itself_are_modules_of_pytorch() -> None:
    assert {f"torch.{name}" for name in IMPORTED_WITH_TORCH} <= modules_of_torch()


def test_versions_compare_by_their_numbers() -> None:
    version = TorchVersion("2.13.0+undertow0.1.0")
    assert version > "2.9" and version >= "2.13" and version < "2.14.0.dev1" and version == "2.13.0"
    assert version != "2.13.1" and version > (2, 4) and version.split("+")[0] == "2.13.0"
    assert hash(version) == hash("2.13.0+undertow0.1.0") and version != "2.13.0+cpu"


def test_absent_modules_say_so_when_they_are_used(tmp_path: Path) -> None:
    program = """
        import torch
        from torch.distributed import TCPStore
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
        from torch.onnx import symbolic_helper

        class Own(FullyShardedDataParallel):
            def strategy(self, kind=ShardingStrategy.FULL_SHARD) -> FullyShardedDataParallel | None: ...

        assert not isinstance(torch.nn.Linear(1, 1), FullyShardedDataParallel) and issubclass(Own, Own)
        explained = lambda: torch._dynamo.explain(torch.sin)(torch.ones(1))
        stored = lambda: TCPStore("localhost", 1234)
        for use in (lambda: Own(3), lambda: torch.onnx.export(1, 2), lambda: list(ShardingStrategy), explained, stored):
            try:
                use()
            except NotImplementedError as error:
                print(error)
        try:
            import torch._six
        except ModuleNotFoundError as error:
            print(error)
    """
    lines = undertow("run", written(tmp_path, "absent.py", program), folder=tmp_path).splitlines()
    assert lines[0].startswith("undertow, which stands for PyTorch here, does not have torch.distributed.fsdp.Fully")
    assert "torch.onnx.export: models are not exported: save the state_dict()" in lines[1]
    assert "torch._dynamo.explain: nothing is compiled here" in lines[3]
    assert "does not have torch.distributed.TCPStore: processes find each other through MPI" in lines[4]
    assert "ShardingStrategy" in lines[2] and lines[5] == "No module named 'torch._six'"


def test_a_part_of_a_program(tmp_path: Path) -> None:
    program = """
        import sys
        import undertow as ut
        assert "torch" not in sys.modules
        before = list(sys.meta_path)
        with ut.as_torch() as torch:
            import torch.nn.functional as F
            from torch import nn
            assert nn is ut.nn and F is ut.nn.functional and torch.Tensor is ut.Tensor
            with ut.as_torch():
                import torch.autograd
        assert "torch" not in sys.modules and "torch.nn" not in sys.modules and sys.meta_path == before
        sys.modules["torch"] = real = type(sys)("torch")
        with ut.as_torch():
            import torch
            assert torch is not real
        assert sys.modules["torch"] is real
    """
    written(tmp_path, "part.py", program)
    subprocess.run(
        [sys.executable, "part.py"], cwd=tmp_path, check=True, timeout=300, env={**os.environ, "PYTHONPATH": SOURCE}
    )


def test_doctor_lists_what_is_missing(tmp_path: Path) -> None:
    program = """
        import torch
        import torch.nn.functional as F
        from torch.distributed.fsdp import FullyShardedDataParallel as write

        F.relu(torch.ones(2)); F.no_such_function(1); torch.Tensor.backward
        write(1)
    """
    written(tmp_path, "asks.py", program)
    done = subprocess.run(
        [sys.executable, "-m", "undertow", "doctor", "asks.py"],
        capture_output=True, text=True, cwd=tmp_path, timeout=300, env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert done.returncode == 1 and "torch.nn.functional.no_such_function  (1 x, first at asks.py:6)" in done.stdout
    assert "fsdp.FullyShardedDataParallel" in done.stdout and "functional.relu" not in done.stdout
    assert "5 are here" in done.stdout and "2 are not" in done.stdout, done.stdout
    written(tmp_path, "asks.py", "import torch\ntorch.ones(2)")
    assert "0 are not" in undertow("doctor", "asks.py", folder=tmp_path)
    assert "no Python files" in undertow("doctor", "nowhere", folder=tmp_path, expect=2)


@pytest.mark.torch
def test_the_list_of_modules_is_pytorchs(torch) -> None:
    names = modules_of_torch()
    assert len(names) > 900 and {"torch.nn.functional", "torch.utils.data", "torch._C"} <= names
    folder = Path(torch.__file__).parent
    paths = [file.relative_to(folder.parent).with_suffix("").parts for file in folder.rglob("*.py")]
    aside = {"_vendor", "generated", "codegen", "lib", "bin", "test"}  # templates and copies, nobody's to import
    files = {".".join(parts) for parts in paths if aside.isdisjoint(parts) and all(map(str.isidentifier, parts))}
    assert {name for name in files if not name.endswith("__")} <= names


def test_names_that_libraries_mention_at_import(tmp_path: Path) -> None:
    program = """
        import io
        import numpy as np
        import torch
        from torch.ops import aten
        from torch._tensor_str import printoptions
        from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
        from torch.amp.grad_scaler import OptState
        from torch.distributed._tensor.experimental import implicit_replication
        from torch.distributions.multivariate_normal import _precision_to_scale_tril
        from torch.jit import TracerWarning, _get_trace_graph
        from torch.nn.modules import CrossMapLRN2d
        from torch.nn.parallel.distributed import DistributedDataParallel
        from torch.nn.parameter import UninitializedParameter, is_lazy
        from torch.serialization import DEFAULT_PROTOCOL
        from torch.utils.checkpoint import get_device_states, set_device_states
        from torch.utils.data import IterDataPipe, functional_datapipe
        from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map, np_str_obj_array_pattern
        from torch.utils.data.dataloader import _collate_fn_t

        assert aten is torch.ops.aten
        # modules that PyTorch imports with itself, without an import of their own
        assert not isinstance(1, torch._dynamo.eval_frame.OptimizedModule)
        assert not isinstance(1, torch._subclasses.fake_tensor.FakeTensor) and not hasattr(torch.optim, "_no_such")
        import torch.autograd.gradcheck
        assert torch.autograd.gradcheck(torch.sin, torch.ones(1, dtype=torch.float64, requires_grad=True))  # is it
        assert not hasattr(torch.distributed.rpc, "api") and not hasattr(torch, "classes")  # what is not here
        with torch.backends.cudnn.flags(enabled=False):
            assert not torch.backends.cudnn.enabled
        assert torch.backends.cudnn.enabled and torch.backends.cpu.get_cpu_capability()
        assert torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX == "_extra_state"
        assert not isinstance(torch.nn.Linear(1, 1), torch.distributed.fsdp.FSDPModule)  # without an import of its own
        assert not hasattr(torch.nn, "no_such_module") and not isinstance(torch.nn.Linear(1, 1), torch.nn.NLLLoss2d)
        assert is_lazy(torch.nn.LazyLinear(2).weight) and torch._C._current_graph_task_id() == -1
        seen, leaf = [], torch.ones(1, requires_grad=True)
        y = leaf * 2
        node = y.grad_fn
        y.register_hook(lambda g: seen.append(torch._C._current_autograd_node()))
        y.register_hook(lambda g: seen.append(torch._C._will_engine_execute_node(node)))
        assert isinstance(torch.autograd.Variable._execution_engine, torch._C._ImperativeEngine)
        assert isinstance(leaf.exp().grad_fn._raw_saved_result, torch.autograd.SavedTensor)
        y.backward()
        assert seen == [node, True] and torch._C._is_multithreading_enabled()
        sizes, spec = torch.utils._pytree.tree_flatten(torch.ones(2, 3).shape)
        assert sizes == [2, 3] and isinstance(torch.utils._pytree.tree_unflatten(sizes, spec), torch.Size)
        tensors = [torch.ones(2), torch.zeros(1, 1)]
        parts = _unflatten_dense_tensors(_flatten_dense_tensors(tensors), tensors)
        assert [part.tolist() for part in parts] == [[1, 1], [[0]]]
        memory = io.BytesIO()
        torch.save({"state": np.random.get_state(), "weight": torch.ones(2)}, memory)
        memory.seek(0)
        np.random.set_state(torch.load(memory, weights_only=False)["state"])  # an array, as it was
        table = {torch.ops.aten._to_copy.default: 1}
        print(table[torch.ops.aten._to_copy.default], "USE_MKL=OFF" in torch.__config__.show(), torch.Future().done())
        one = torch.ones(1)
        copied = torch.ops.aten._to_copy(one, dtype=torch.float64)
        assert copied.dtype is torch.float64 and torch.ops.aten._to_copy.default(one) is not one
        try:
            torch.ops.aten._sum_all(one)  # an operation of ours, and none of PyTorch's
        except NotImplementedError as error:
            print("does not have torch.ops.aten._sum_all" in str(error))
        """
    assert undertow("run", written(tmp_path, "names.py", program), folder=tmp_path) == "1 True False\nTrue\n"


def test_operators_that_a_program_defines_are_found_below_ops(tmp_path: Path) -> None:
    program = """
        import torch

        @torch.library.custom_op("mine::scaled", mutates_args=())
        def scaled(x: torch.Tensor, *, times: int = 2) -> torch.Tensor:
            return x * times

        def setup(ctx, inputs, output, keyword_only_inputs=None):
            ctx.times = keyword_only_inputs["times"]

        scaled.register_autograd(lambda ctx, g: g * ctx.times, setup_context=setup)
        x = torch.ones(1, requires_grad=True)
        torch.ops.mine.scaled(x, times=5).backward()
        torch.ops.mine.scaled.default(x).backward()
        torch.library.define("mine::add", "(Tensor x) -> Tensor")
        try:
            torch.ops.mine.add(x)
        except NotImplementedError as error:
            print("not for the CPU" in str(error))
        torch.library.impl("mine::add", "cpu", lambda x: x + 3)
        torch.library.impl("mine::add", "cuda", lambda x: 1 / 0)
        library = torch.library.Library("other", "DEF")
        library.define("square(Tensor x) -> Tensor")
        library.impl("square", lambda x: x * x, "CPU")
        print(x.grad.item(), torch.ops.mine.add(x).item(), torch.ops.other.square(torch.full((1,), 3.0)).item())
        print(hasattr(torch.ops.other, "nothing"))
        """
    assert undertow("run", written(tmp_path, "ops.py", program), folder=tmp_path) == "True\n7.0 4.0 9.0\nFalse\n"


def test_private_names_that_libraries_import(tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text(
        textwrap.dedent("""
        import torch
        from torch.backends import cusparselt, kleidiai, mha, miopen, nnpack, opt_einsum, quantized
        from torch.cuda import _initialized, _is_compiled, _is_in_bad_fork, _lazy_call, _lazy_init
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
        from torch.distributed.tensor.placement_types import _StridedShard
        from torch.nn.init import _no_grad_fill_, _no_grad_normal_, _no_grad_zero_
        from torch.nn.init import _no_grad_trunc_normal_, _no_grad_uniform_
        from torch.nn.utils._named_member_accessor import _MISSING, swap_tensor
        from torch.utils._pytree import is_structseq_instance
        from torch.utils.checkpoint import check_backward_validity, detach_variable

        weight = torch.nn.Parameter(torch.ones(4))
        print(_no_grad_fill_(weight, 2.0).tolist(), _no_grad_zero_(weight).tolist(), weight.requires_grad)
        torch.manual_seed(0)
        drawn = _no_grad_uniform_(weight, 5.0, 6.0)
        print(bool((drawn >= 5).all() and (drawn <= 6).all()))
        print(bool((_no_grad_trunc_normal_(weight, 0, 1, -1, 1).abs() <= 1).all()))
        check_backward_validity((weight,))
        (leaf, number) = detach_variable((weight * 2, 3))
        print(leaf.is_leaf, leaf.requires_grad, number)
        found = torch.ones(2, 2).max(0)
        alias = torch.ops.aten.alias.default(weight)
        print(is_structseq_instance(found), type(found).__match_args__, alias.grad_fn.name())
        layer = torch.nn.Linear(1, 1)
        bias = swap_tensor(layer, "bias", None)
        print(swap_tensor(layer, "bias", bias), layer.bias is bias)
        print(swap_tensor(layer, "more", weight, True) is _MISSING)
        print(swap_tensor(layer, "more", _MISSING) is weight, hasattr(layer, "more"))
        for name, error in (("weight.x", KeyError), ("in_features", TypeError), ("more", AttributeError)):
            try:
                swap_tensor(layer, name, weight)
            except error:
                print(error.__name__)
        words = [Shard(-1), Replicate(), Partial(), _StridedShard(0, split_factor=2)]
        print(words == [Shard(-1), Replicate(), Partial("sum"), _StridedShard(0, split_factor=2)], len(set(words)))
        asked = [(w.is_shard(), w.is_shard(-1), w.is_replicate(), w.is_partial(), w.is_partial("avg")) for w in words]
        print([(str(w), *told) for w, told in zip(words, asked)])
        print(isinstance(weight, DTensor), words[:3])
        opt_einsum.set_flags(True)
        mha.set_fastpath_enabled(False)
        print(opt_einsum.enabled, opt_einsum.is_available(), mha.get_fastpath_enabled())
        print(_initialized, _is_in_bad_fork())
        """)
    )
    printed = undertow("run", "names.py", folder=tmp_path).splitlines()
    assert printed == [
        "[2.0, 2.0, 2.0, 2.0] [0.0, 0.0, 0.0, 0.0] True",
        "True",
        "True",
        "True True 3",
        "True ('values', 'indices') AliasBackward0",
        "None True",
        "True",
        "True False",
        "KeyError",
        "TypeError",
        "AttributeError",
        "True 4",
        "[('S(-1)', True, True, False, False, False), ('R', False, False, True, False, False), "
        "('P(sum)', False, False, False, True, False), ('_S(0, 2)', False, False, False, False, False)]",
        "False [Shard(dim=-1), Replicate(), Partial(sum)]",
        "True False False",
        "False False",
    ]


def test_steps_of_vmap_can_be_replaced(tmp_path: Path) -> None:
    """So that a library's containers are batches as one, which its own functions take apart and put together."""
    (tmp_path / "steps.py").write_text(
        textwrap.dedent("""
        import torch
        import torch._functorch.vmap as steps
        from torch._C._functorch import _add_batch_dim, _remove_batch_dim, get_unwrapped, is_batchedtensor
        from torch._functorch.vmap import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

        class Pair:
            def __init__(self, first, second):
                self.first, self.second = first, second

        def process(in_dims, args, func):
            leaves, spec = tree_flatten(args)
            return len(leaves[0].first), _broadcast_to_and_flatten(in_dims, spec), leaves, spec

        def create(dims, leaves, level, spec):
            return tree_unflatten([Pair(_add_batch_dim(p.first, d, level), p.second)
                                   for p, d in zip(leaves, dims)], spec)

        def unwrap(out, out_dims, level, size, func):
            print(is_batchedtensor(out.first), tuple(out.first.shape), tuple(get_unwrapped(out.first).shape))
            return Pair(*[_remove_batch_dim(part, level, size, out_dims) for part in (out.first, out.second)])

        steps._process_batched_inputs = process
        steps._create_batched_inputs = create
        steps._unwrap_batched = unwrap
        pair = Pair(torch.ones(3, 2), torch.ones(2))
        out = torch.vmap(lambda p: Pair(p.first * p.second, p.second), out_dims=1)(pair)
        print(tuple(out.first.shape), tuple(out.second.shape))
        print(torch._functorch.vmap is steps, torch._guards.active_fake_mode(), is_batchedtensor(torch.ones(1)))
        """)
    )
    printed = undertow("run", "steps.py", folder=tmp_path).splitlines()
    assert printed == ["True (2,) (3, 2)", "(2, 3) (2, 3)", "True None False"]


def test_containers_devices_and_decorators_by_private_names(tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text(
        textwrap.dedent("""
        import collections
        import torch
        from functorch import FunctionalModule, combine_state_for_ensemble, make_functional, vmap
        from torch._tensor_str import _Formatter
        from torch._utils import _get_available_device_type, _get_device_module
        from torch.utils import _pytree
        from torch.utils._contextlib import _DecoratorContextManager

        pair = collections.namedtuple("pair", "a b")
        for kind, tree in [
            ("list", [1, 2]), ("tuple", (1, 2)), ("namedtuple", pair(1, 2)), ("deque", collections.deque([1])),
            ("ordereddict", collections.OrderedDict(a=1)), ("defaultdict", collections.defaultdict(int, a=1)),
        ]:
            parts, context = getattr(_pytree, f"_{kind}_flatten")(tree)
            keys, _ = getattr(_pytree, f"_{kind}_flatten_with_keys")(tree)
            print([str(key) for key, _ in keys], getattr(_pytree, f"_{kind}_unflatten")(parts, context) == tree)

        class Counted(_DecoratorContextManager):
            entered = 0
            def __enter__(self):
                Counted.entered += 1
            def __exit__(self, *exc):
                pass

        @Counted()
        def numbers():
            yield from range(2)

        print(list(numbers()), Counted.entered > 0)
        print(_get_available_device_type(), _get_device_module("cpu") is torch.cpu)
        print(_Formatter(torch.tensor([1.5, 22.25])).format(3.0))
        function, params = make_functional(torch.nn.Linear(3, 2))
        x = torch.ones(4, 3)
        print(isinstance(function, FunctionalModule), function(params, x).shape)
        together, params, buffers = combine_state_for_ensemble([torch.nn.Linear(3, 2) for _ in range(5)])
        print(vmap(together, in_dims=(0, 0, None))(params, buffers, x).shape)
        """)
    )
    assert undertow("run", "names.py", folder=tmp_path).splitlines() == [
        "['[0]', '[1]'] True",
        "['[0]', '[1]'] True",
        "['.a', '.b'] True",
        "['[0]'] True",
        "[\"['a']\"] True",
        "[\"['a']\"] True",
        "[0, 1] True",
        "None True",
        " 3.0000",
        "True torch.Size([4, 2])",
        "torch.Size([5, 4, 2])",
    ]


def test_sizes_are_numbers_and_no_symbols() -> None:
    """Libraries put None in the place of a size that is a symbol."""
    assert not isinstance(ut.ones(2).shape[0], ut.SymInt)
    assert not isinstance(1.5, ut.SymFloat) and not isinstance(True, ut.SymBool)


def test_tensors_in_groups_of_a_size() -> None:
    from undertow._utils import _take_tensors

    tensors = [ut.ones(4), ut.ones(2, dtype=ut.int64), ut.ones(3), ut.ones(1), ut.ones(9)]
    assert [[each.numel() for each in group] for group in _take_tensors(tensors, 28)] == [[4, 3], [1], [9], [2]]


def test_names_are_where_modules_of_pytorch_import_them(tmp_path: Path) -> None:
    """Programs take `_pair` from `torch.nn.modules.conv`, which does not define it."""
    program = """
        import torch
        from torch.nn.modules.conv import F, _pair, _ConvNd, math
        from torch.nn.modules.rnn import PackedSequence
        from torch.optim.lr_scheduler import Optimizer, wraps
        from torch.distributions.normal import Tensor, broadcast_all

        print(F is torch.nn.functional, _pair(3), math.pi, Tensor is torch.Tensor, wraps.__module__)
        print(hasattr(torch.nn.modules.conv, "Linear"), torch.nn.modules.loss.F is F)
    """
    written(tmp_path, "program.py", program)
    printed = undertow("run", "program.py", folder=tmp_path)
    assert printed == "True (3, 3) 3.141592653589793 True functools\nFalse True\n"


@pytest.mark.skipif(compiled.core is None, reason="without the core there is a frame of Python's between them")
def test_a_class_body_is_called_by_the_code_it_stands_in(tmp_path: Path) -> None:
    """Libraries look there for the names of the bases."""
    program = """
        import sys
        import torch
        from abc import ABCMeta

        def caller():
            return sys._getframe(2).f_code.co_name

        class Plain(list, metaclass=ABCMeta):
            called_by = caller()

        def function():
            class Inner(Plain):
                called_by = caller()
            return Inner

        class Wrapped:
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return function.__name__

        print(Plain.called_by, function().called_by, torch.add(Wrapped(), 1))
        try:
            class Wrong(Plain, metaclass=3):
                pass
        except TypeError as error:
            print(error)
    """
    written(tmp_path, "program.py", program)
    printed = undertow("run", "program.py", folder=tmp_path).splitlines()
    assert printed[0] == "<module> function add" and len(printed) == 2


def test_names_are_in_the_modules_that_define_them_in_pytorch(tmp_path: Path) -> None:
    """`torch.optim.adamw` is no module of undertow's; its class is in `torch.optim`."""
    program = """
        import torch
        from torch.cuda.amp.grad_scaler import GradScaler
        from torch.optim.adamw import *
        from torch.optim.adamw import adamw
        from torch.autograd.gradcheck import gradcheck
        from torch.profiler.profiler import profile
        import torch.nn.parallel.scatter_gather as scatter_gather

        print(AdamW is torch.optim.AdamW, isinstance(torch.optim.AdamW([torch.ones(1)]), torch.optim.adamw.AdamW))
        print(GradScaler is torch.cuda.amp.GradScaler, profile is torch.profiler.profile)
        print(torch.cuda.streams.Stream is torch.cuda.Stream, scatter_gather.gather is torch.nn.parallel.gather)
        print(gradcheck is torch.autograd.gradcheck, torch.optim.adamw, hasattr(torch.cuda, "tunable"))
        try:
            adamw([])
        except NotImplementedError as error:
            print(error)
    """
    written(tmp_path, "program.py", program)
    lines = undertow("run", "program.py", folder=tmp_path).splitlines()
    assert lines[:3] == ["True True"] * 3
    assert lines[3] == "True <module 'torch.optim.adamw', whose names undertow has elsewhere> False"
    assert "does not have torch.optim.adamw.adamw" in lines[4]


def test_files_of_undertows_own_are_no_modules_of_torch() -> None:
    function = ut.nn.utils.skip_init
    with ut.as_torch():
        for name in ("torch.nn.utils.skip_init", "torch.optim.together", "torch.nn.layers"):
            with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
                importlib.import_module(name)
        assert importlib.import_module("torch.nn.utils").skip_init is function
    assert ut.nn.utils.skip_init is function  # and no module of that name


def test_imported_names_are_pytorchs_and_are_found() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tqdm")
    wanted = {(module, name) for module, names in imported_names().items() for name in names}
    with ut.as_torch():
        lacking = [(m, name) for m, name in wanted if not hasattr(importlib.import_module(m), name)]
    assert len(wanted) > 1000 and not lacking
    assert not [(m, name) for m, name in wanted if not hasattr(importlib.import_module(m), name)]

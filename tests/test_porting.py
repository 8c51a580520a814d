"""Programs written for PyTorch: with another import they run, or say what to change."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import undertow as ut

pytestmark = pytest.mark.usefixtures("no_gpu")


def test_what_programs_ask_about_devices() -> None:
    assert ut.device("cuda" if ut.cuda.is_available() else "cpu") == ut.device("cpu")
    assert ut.cuda.device_count() == 0 and not ut.cuda.is_initialized() and ut.cuda.memory_allocated() == 0
    assert not ut.backends.mps.is_available() and not ut.backends.cudnn.is_available()
    assert not ut.accelerator.is_available() and ut.accelerator.current_accelerator() is None
    ut.cuda.manual_seed_all(0)
    ut.cuda.set_rng_state_all(ut.cuda.get_rng_state_all())
    assert not ut.cuda.is_bf16_supported() and ut.cuda.max_memory_reserved() == 0
    assert not ut.ones(1).is_mps and not ut.ones(1).is_xpu
    ut.cuda.empty_cache()
    ut.backends.cudnn.benchmark = True
    ut.backends.cudnn.benchmark = False


@pytest.mark.parametrize("ask", [ut.cuda.current_device, ut.cuda.synchronize, ut.cuda.get_device_name])
def test_questions_about_a_gpu_that_is_not_there(ask) -> None:
    with pytest.raises(RuntimeError, match=r"No CUDA GPUs are available.*undertow.cuda.is_available"):
        ask()


def test_moving_to_a_gpu_that_is_not_there() -> None:
    layer = ut.nn.Linear(2, 1)
    for move in (ut.ones(2).cuda, layer.cuda, lambda: ut.ones(2).to("cuda:0"), lambda: ut.ones(2, device="cuda")):
        with pytest.raises(RuntimeError, match=r"device 'cuda.*' is not available.*Use device='cpu'"):
            move()


def test_modules_are_where_pytorch_has_them() -> None:
    from undertow.utils.checkpoint import checkpoint
    from undertow.utils.data import DataLoader, TensorDataset

    assert DataLoader is ut.data.DataLoader and TensorDataset is ut.data.TensorDataset
    assert checkpoint is ut.autograd.checkpoint.checkpoint
    for name in ("nn.functional", "optim.lr_scheduler", "nn.utils.rnn", "autograd.functional", "amp", "func", "cuda"):
        assert importlib.import_module(f"undertow.{name}")


IMPORTS = """
from torch.autograd import Variable
from torch.autograd.grad_mode import no_grad
from torch.backends import cudnn
from torch.cuda.amp import GradScaler, autocast
from torch.distributed import destroy_process_group, init_process_group
from torch.distributions.categorical import Categorical
from torch.distributions.kl import kl_divergence
from torch.distributions.normal import Normal
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import Parameter
from torch.nn.utils.clip_grad import clip_grad_norm_
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from torch.optim.lr_scheduler import LambdaLR, _LRScheduler
from torch.optim.optimizer import Optimizer
from torch.utils._pytree import tree_map
from torch.utils.data._utils.collate import default_collate
from torch.utils.data.dataloader import DataLoader, default_collate
from torch.utils.data.dataset import Dataset, random_split
from torch.utils.data.sampler import RandomSampler, Sampler
from torch.utils.dlpack import from_dlpack, to_dlpack
from torch.utils.hooks import RemovableHandle
import torch.backends.cuda
import torch.backends.cudnn as cudnn
import torch.backends.mps
import torch.backends.openmp
import torch.fft
import torch.linalg
import torch.sparse
import torch.special
import torch.utils.data.sampler
""".strip().splitlines()


@pytest.mark.parametrize("line", IMPORTS)
def test_imports_that_programs_begin_with(line: str) -> None:
    names: dict = {}
    exec(line.replace("torch", "undertow", 1), names)
    assert [name for name in names if name not in ("__builtins__",)]


@pytest.mark.parametrize("name", ["quantization", "utils.cpp_extension"])
def test_modules_that_are_not_here_say_what_to_use(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=rf"No module named 'undertow.{name}': \w"):
        importlib.import_module(f"undertow.{name}")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'undertow.no_such_name'$"):
        importlib.import_module("undertow.no_such_name")


@pytest.mark.torch
def test_variables_are_tensors(torch) -> None:
    for library in (ut, torch):
        x = library.ones(2, requires_grad=True) * 2
        plain, wanted = library.autograd.Variable(x), library.autograd.Variable(x, requires_grad=True)
        assert plain.grad_fn is None and not plain.requires_grad and plain.data_ptr() == x.data_ptr()
        assert wanted.is_leaf and wanted.requires_grad and isinstance(x, library.autograd.Variable)
        with pytest.raises(TypeError, match="Variable data has to be a tensor, but got list"):
            library.autograd.Variable([1.0])


@pytest.mark.torch
def test_mixed_precision_for_a_gpu_that_is_not_there(torch) -> None:
    for library in (ut, torch):
        old = pytest.warns(FutureWarning, match=r"cuda.amp.GradScaler\(args...\)` is deprecated")
        with old, pytest.warns(UserWarning, match=r"is enabled, but CUDA is not available.  Disabling."):
            scaler = library.cuda.amp.GradScaler()
        assert not scaler.is_enabled() and scaler.scale(library.ones(1)).item() == 1
        with pytest.warns(FutureWarning, match="cuda.amp.autocast"), pytest.warns(UserWarning, match="CUDA is not"):
            context = library.cuda.amp.autocast()
        with context:
            assert (library.ones(2, 2) @ library.ones(2, 2)).dtype == library.float32


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64", "complex128"])
def test_limits_of_floats(torch, name: str) -> None:
    mine, theirs = ut.finfo(getattr(ut, name)), torch.finfo(getattr(torch, name))
    for fact in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "dtype"):
        assert getattr(mine, fact) == getattr(theirs, fact), fact
        assert type(getattr(mine, fact)) is type(getattr(theirs, fact))
    assert mine.resolution == pytest.approx(theirs.resolution) and repr(mine) == repr(theirs)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_limits_of_integers(torch, name: str) -> None:
    mine, theirs = ut.iinfo(getattr(ut, name)), torch.iinfo(getattr(torch, name))
    assert (mine.bits, mine.min, mine.max, mine.dtype) == (theirs.bits, theirs.min, theirs.max, theirs.dtype)
    assert repr(mine) == repr(theirs)


def test_limits_of_other_types_are_refused() -> None:
    assert ut.finfo().dtype == "float32"
    with pytest.raises(TypeError, match=r"requires a floating point input type. Use undertow.iinfo"):
        ut.finfo(ut.int64)
    with pytest.raises(TypeError, match=r"requires an integer input type. Use undertow.finfo"):
        ut.iinfo(ut.float32)
    masked = ut.zeros(2).masked_fill(ut.tensor([True, False]), ut.finfo(ut.float32).min)
    assert masked[0].item() == ut.finfo(ut.float32).min


def test_precision_of_products_can_be_asked_for() -> None:
    assert ut.get_float32_matmul_precision() == "highest"
    ut.set_float32_matmul_precision("high")
    assert ut.get_float32_matmul_precision() == "high"
    with pytest.warns(UserWarning, match="low is not one of"):
        ut.set_float32_matmul_precision("low")
    ut.set_float32_matmul_precision("highest")


def test_the_default_device_must_be_there() -> None:
    ut.set_default_device("cpu")
    with ut.device("cpu"):
        assert ut.ones(1).device == ut.get_default_device() == ut.device("cpu")
    with pytest.raises(RuntimeError, match="device 'cuda' is not available"):
        ut.set_default_device("cuda")
    with ut.device("cuda"), pytest.raises(RuntimeError, match="device 'cuda' is not available"):
        ut.ones(1)
    assert ut.ones(1).device == ut.device("cpu")


def test_the_default_dtype_by_an_old_name() -> None:
    try:
        for name in (ut.DoubleTensor, "torch.DoubleTensor"):
            with pytest.warns(UserWarning, match=r"set_default_tensor_type\(\) is deprecated"):
                ut.set_default_tensor_type(name)
            assert ut.ones(1).dtype == ut.float64
            ut.set_default_dtype(ut.float32)
        with pytest.warns(UserWarning), pytest.raises(TypeError, match="only floating-point types are supported"):
            ut.set_default_tensor_type(ut.LongTensor)
    finally:
        ut.set_default_dtype(ut.float32)


def test_threads() -> None:
    assert ut.get_num_threads() >= 1
    for wrong, words in ((0, "expects a positive integer"), (1.5, "expects an int, but got float")):
        with pytest.raises(RuntimeError, match=f"set_num_threads {words}"):
            ut.set_num_threads(wrong)
    ut.set_num_threads(ut.get_num_threads())


def test_threads_cannot_be_set_without_threadpoolctl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)  # as if it were not installed
    with pytest.warns(UserWarning, match=r"without threadpoolctl: .*undertow\[threads\].*, or set OMP_NUM_THREADS=77"):
        ut.set_num_threads(77)
    ut.set_num_threads(ut.get_num_threads())  # kernels of the compiled core do follow


def test_threads_can_be_set_with_threadpoolctl() -> None:
    pytest.importorskip("threadpoolctl")
    before = ut.get_num_threads()
    ut.set_num_threads(1)
    assert ut.get_num_threads() == 1
    ut.set_num_threads(before)


@pytest.mark.torch
def test_programs_that_could_train_in_several_processes_run_in_one(torch) -> None:
    for library in (ut, torch):
        dist = library.distributed
        assert not dist.is_initialized()
        for function in (dist.get_rank, dist.get_world_size, dist.barrier):
            with pytest.raises(ValueError, match="Default process group has not been initialized"):
                function()
    assert ut.distributed.is_available() == (importlib.util.find_spec("mpi4py") is not None)
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        ut.nn.parallel.DistributedDataParallel(ut.nn.Linear(1, 1))


@pytest.mark.torch
def test_assert_close(torch) -> None:
    for library in (ut, torch):
        close = library.testing.assert_close
        one, nan = library.ones(3), float("nan")
        close(one, one + 1e-7)
        close({"a": [one, 1.0], "b": (2, True)}, {"a": [one, 1.0], "b": (2, True)})
        close(one, one * 1.1, rtol=0.2, atol=0)
        close(library.tensor(nan), library.tensor(nan), equal_nan=True)
        close(np.ones(3), np.ones(3))
        close(one, one.double(), check_dtype=False)
        pairs = {
            "Tensor-likes are not close": (one, one + library.tensor([0.0, 1e-3, 0.0])),
            r"Mismatched elements: 1 / 3": (one, library.tensor([1.0, 1.0, 2.0])),
            "Scalars are not (close|equal)": (1.0, 1.1),
            "'shape' do not match": (one, library.ones(2)),
            "'dtype' do not match": (one, one.double()),
            r"\['x'\]": ({"x": 1}, {"x": 2}),
            "nan": (nan, nan),
        }
        for words, (actual, expected) in pairs.items():
            with pytest.raises(AssertionError, match=words):
                close(actual, expected)
        with pytest.raises(AssertionError, match="mine"):
            close(1, 2, msg="mine")
        with pytest.raises(
            ValueError, match="Both 'rtol' and 'atol' must be either specified or omitted, but got no atol"
        ):
            close(1.0, 1.0, rtol=0.1)


@pytest.mark.torch
def test_versions_and_libraries(torch) -> None:
    assert ut.version.__version__ == ut.__version__ and ut.version.cuda is None
    assert ut.backends.cudnn.version() is None and not ut.backends.mkl.is_available()
    for library in (ut, torch):
        with pytest.raises(library.linalg.LinAlgError):
            library.linalg.inv(library.zeros(2, 2))


def test_forked_generators() -> None:
    ut.random.manual_seed(0)
    with ut.random.fork_rng():
        inside = ut.rand(1)
    assert ut.equal(inside, ut.rand(1)) and ut.ones(2)[:, ut.newaxis].shape == (2, 1)


@pytest.mark.parametrize("name", ["ao", "quantization"])
def test_what_is_not_here_says_what_to_use(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"module 'undertow' has no attribute '{name}': \w"):
        getattr(ut, name)
    assert not hasattr(ut, name)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["Double", "Float", "Half", "Long", "Int", "Short", "Char", "Byte", "Bool"])
def test_constructors_of_one_dtype(torch, name: str) -> None:
    mine, theirs = getattr(ut, f"{name}Tensor"), getattr(torch, f"{name}Tensor")
    for arguments in [([1, 0, 3],), (np.arange(3),), (2, 3), ((2, 3),), (), ([[1], [0]],)]:
        made, expected = mine(*arguments), theirs(*arguments)
        assert made.shape == expected.shape and str(made.dtype) == str(expected.dtype).replace("torch", "undertow")
        assert len(arguments) != 1 or made.tolist() == expected.tolist()  # sizes alone leave the values open
        assert isinstance(made, mine) and isinstance(expected, theirs) and mine.__name__ == theirs.__name__
    assert isinstance(ut.ones(1), mine) == isinstance(torch.ones(1), theirs) == (name == "Float")
    assert ut.ones(1).type(mine).dtype == mine.dtype
    assert mine(ut.Size([4, 2])).shape == (4, 2)
    with pytest.raises(TypeError, match=r"new\(\): data must be a sequence \(got float\)"):
        mine(2.0)


def test_constructors_of_one_dtype_take_no_tensor_of_another() -> None:
    with pytest.raises(TypeError, match=r"expected float32 .got undertow.int64.: use tensor.to"):
        ut.FloatTensor(ut.arange(3))
    array = np.zeros(2, np.float32)
    ut.FloatTensor(array)[0] = 7
    assert array[0] == 7  # arrays of the same dtype are shared, as PyTorch does


def test_other_names_are_plain_errors() -> None:
    with pytest.raises(AttributeError, match=r"module 'undertow' has no attribute 'no_such_name'$"):
        ut.no_such_name


PROGRAM = """
    import os
    import {torch} as torch
    from {torch} import nn
    from {torch}.utils.data import DataLoader, Dataset, random_split

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    class Points(Dataset):
        def __init__(self, count):
            self.x = torch.randn(count, 2)
            self.y = (self.x[:, 0] * self.x[:, 1] > 0).long()

        def __len__(self):
            return len(self.y)

        def __getitem__(self, i):
            return self.x[i], self.y[i]

    class Net(nn.Module):
        def __init__(self, hidden):
            super().__init__()
            self.stack = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, 2))

        def forward(self, x):
            return self.stack(x)

    training, testing = random_split(Points(300), [0.8, 0.2], generator=torch.Generator().manual_seed(1))
    loaders = DataLoader(training, batch_size=32, shuffle=True), DataLoader(testing, batch_size=100)
    model = Net(32).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)

    def run(loader, train):
        model.train(train)
        total, correct = 0.0, 0
        with torch.set_grad_enabled(train):
            for x, y in loader:
                x, y = x.to(device, non_blocking=True), y.to(device)
                if train:
                    optimizer.zero_grad(set_to_none=True)
                out = model(x)
                loss = criterion(out, y)
                if train:
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                total += loss.item() * x.size(0)
                correct += (out.argmax(1) == y).type(torch.float).sum().item()
        return total / len(loader.dataset), correct / len(loader.dataset)

    for epoch in range(15):
        run(loaders[0], True)
        loss, accuracy = run(loaders[1], False)
        scheduler.step()
    print(f"loss: {{loss:>7.3f}}, lr: {{scheduler.get_last_lr()[0]:.5f}}")

    path = os.path.join({folder!r}, "checkpoint.pt")
    torch.save({{"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}}, path)
    state = torch.load(path, map_location=device, weights_only=True)
    again = Net(32)
    message = again.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    with torch.no_grad():
        same = torch.equal(again.eval()(testing[0][0].unsqueeze(0)), model.eval()(testing[0][0].unsqueeze(0)))
    numbers = model(testing[0][0]).detach().cpu().numpy()
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    result = accuracy > 0.85, str(message), same, numbers.shape, count, state["epoch"], repr(model)
"""


@pytest.mark.parametrize("name", ["undertow", pytest.param("torch", marks=pytest.mark.torch)])
def test_a_whole_program(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(name)
    names: dict = {}
    exec(textwrap.dedent(PROGRAM.format(torch=name, folder=str(tmp_path))), names)
    assert capsys.readouterr().out.endswith("lr: 0.00125\n")
    *facts, shown = names["result"]
    assert facts == [True, "<All keys matched successfully>", True, (2,), 162, 14]
    assert shown.splitlines()[2] == "    (0): Linear(in_features=2, out_features=32, bias=True)"


def test_switches_of_products_on_a_gpu_can_be_set() -> None:
    assert ut.backends.cuda.matmul.allow_tf32 is False
    ut.backends.cuda.matmul.allow_tf32 = True
    try:
        assert ut.backends.cuda.matmul.allow_tf32 is True
    finally:
        ut.backends.cuda.matmul.allow_tf32 = False

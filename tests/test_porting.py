"""Programs written for PyTorch: with another import they run, or say what to change."""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path

import pytest

import undertow as ut


def test_what_programs_ask_about_devices() -> None:
    assert ut.device("cuda" if ut.cuda.is_available() else "cpu") == ut.device("cpu")
    assert ut.cuda.device_count() == 0 and not ut.cuda.is_initialized() and ut.cuda.memory_allocated() == 0
    assert not ut.backends.mps.is_available() and not ut.backends.cudnn.is_available()
    assert not ut.accelerator.is_available() and ut.accelerator.current_accelerator() is None
    ut.cuda.manual_seed_all(0)
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


def test_forked_generators() -> None:
    ut.random.manual_seed(0)
    with ut.random.fork_rng():
        inside = ut.rand(1)
    assert ut.equal(inside, ut.rand(1)) and ut.ones(2)[:, ut.newaxis].shape == (2, 1)


@pytest.mark.parametrize("name", ["bfloat16", "compile", "jit", "set_num_threads", "FloatTensor", "multiprocessing"])
def test_what_is_not_here_says_what_to_use(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"module 'undertow' has no attribute '{name}': \w"):
        getattr(ut, name)
    assert not hasattr(ut, name)


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

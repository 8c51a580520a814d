"""Saving and loading: trees come back as they were, PyTorch's weights can be read, and hostile files do nothing."""

from __future__ import annotations

import contextlib
import io
import json
import math
import pickle
import struct
import zipfile
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from undertow.interop.files import STRUCTURE, FileFormatError

needs_safetensors = pytest.mark.skipif(not find_spec("safetensors"), reason="safetensors is not installed")
ENDINGS = [".npz", ".pt", pytest.param(".safetensors", marks=needs_safetensors)]

TREE = {
    "weights": {"layer.0": ut.arange(6.0).reshape(2, 3), "empty": ut.zeros(0, 3), "number": ut.tensor(2.5)},
    "steps": [1, True, None, "text with ümlaut", (math.inf, -0.0, 1e-320), 2**31, -(2**31) - 1, 2**70, [], (), {}],
    7: {"bool": ut.tensor([True, False]), "complex": ut.tensor([1 + 2j]), "int": ut.tensor([1], dtype=ut.int8)},
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, ut.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a.numpy(), b.numpy())
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_tree_comes_back_as_it_was(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"tree{ending}"
    ut.save(TREE, path)
    assert same(TREE, ut.load(path))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_leaves_require_grad_again_and_layouts_do_not_matter(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"tree{ending}"
    ut.save({"w": ut.ones(2, requires_grad=True), "t": ut.arange(6.0).reshape(2, 3).t()}, path)
    found = ut.load(path)
    assert found["w"].requires_grad and not found["t"].requires_grad
    assert found["t"].tolist() == [[0, 3], [1, 4], [2, 5]]
    found["t"] += 1  # its memory is its own


@pytest.mark.parametrize("ending", [".npz", pytest.param(".safetensors", marks=needs_safetensors)])
def test_complex_numbers(tmp_path: Path, ending: str) -> None:
    ut.save({"z": (1 + 2j, complex(math.inf, -0.0))}, tmp_path / f"tree{ending}")
    assert same({"z": (1 + 2j, complex(math.inf, -0.0))}, ut.load(tmp_path / f"tree{ending}"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_model_and_optimizer_go_on_where_they_were(tmp_path: Path, ending: str) -> None:
    def step(model: Any, optimizer: Any) -> float:
        optimizer.zero_grad()
        loss = (model(ut.ones(4, 3)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    model = ut.nn.Sequential(ut.nn.Linear(3, 5), ut.nn.Tanh(), ut.nn.Linear(5, 1))
    optimizer = ut.optim.Adam(model.parameters(), lr=0.1)
    step(model, optimizer)
    path = tmp_path / f"state{ending}"
    ut.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    other = ut.nn.Sequential(ut.nn.Linear(3, 5), ut.nn.Tanh(), ut.nn.Linear(5, 1))
    again = ut.optim.Adam(other.parameters())
    state = ut.load(path)
    other.load_state_dict(state["model"])
    again.load_state_dict(state["optimizer"])
    assert [step(model, optimizer) for _ in range(3)] == [step(other, again) for _ in range(3)]


@pytest.mark.parametrize("ending", [".npz", pytest.param(".safetensors", marks=needs_safetensors)])
@pytest.mark.parametrize("value", [object(), {1.5: 1}, {"f": print}, [b"bytes"], {(1, 2): 3}, ut.nn.Linear(1, 1)])
def test_what_is_no_tree_is_refused_and_the_old_file_stays(tmp_path: Path, value: Any, ending: str) -> None:
    path = tmp_path / f"tree{ending}"
    ut.save({"a": 1}, path)
    with pytest.raises(TypeError):
        ut.save(value, path)
    assert ut.load(path) == {"a": 1} and len(list(tmp_path.iterdir())) == 1


def test_a_failing_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tree.npz"
    ut.save({"a": 1}, path)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="no space"):
        ut.save({"a": 2}, path)
    assert ut.load(path) == {"a": 1} and len(list(tmp_path.iterdir())) == 1


@pytest.mark.torch
@pytest.mark.parametrize("name", ["model.pth.tar", "model.ckpt", "model.bin", "epoch_1.0.model", "model"])
def test_other_names_are_files_of_pytorch(torch: Any, tmp_path: Path, name: str) -> None:
    ut.save(obj={"epoch": 3, "weight": ut.ones(2)}, f=str(tmp_path / name))
    assert ut.load(f=tmp_path / name)["epoch"] == torch.load(tmp_path / name)["epoch"] == 3
    torch.save({"epoch": 4}, tmp_path / name)
    assert ut.load(tmp_path / name, weights_only=True, mmap=False) == {"epoch": 4}


@pytest.mark.torch
def test_bytes_are_data_in_files_of_pytorch(torch: Any, tmp_path: Path) -> None:
    tree = {"all": bytes(range(256)), "none": b""}
    ut.save(tree, tmp_path / "mine.pt")
    assert torch.load(tmp_path / "mine.pt", weights_only=True) == ut.load(tmp_path / "mine.pt") == tree
    torch.save(tree, tmp_path / "theirs.pt")
    assert ut.load(tmp_path / "theirs.pt") == tree


@pytest.mark.parametrize("name", ["absent.npz", "absent.pt", "absent"])
def test_files_that_are_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        ut.load(tmp_path / name)


@pytest.mark.parametrize("where", ["cpu", ut.device("cpu"), {"cuda:0": "cpu"}, lambda storage, place: storage])
def test_where_weights_go_can_be_said_as_in_pytorch(tmp_path: Path, where: Any) -> None:
    ut.save({"weight": ut.ones(2)}, tmp_path / "model.pt")
    assert ut.load(tmp_path / "model.pt", map_location=where)["weight"].tolist() == [1, 1]


def test_others_may_read_a_file_if_the_umask_says_so(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    for name in ("model.pt", "model.npz"):
        ut.save({}, tmp_path / name)
        assert (tmp_path / name).stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_arrays_that_numpy_saved(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", a=np.arange(3), b=np.asfortranarray(np.ones((2, 3))))
    found = ut.load(tmp_path / "plain.npz")
    assert found["a"].tolist() == [0, 1, 2] and found["b"].shape == (2, 3)


def test_to_a_device(tmp_path: Path) -> None:
    ut.save({"w": [ut.ones(2, requires_grad=True)]}, tmp_path / "w.npz")
    found = ut.load(tmp_path / "w.npz", device="sim:0")["w"][0]
    assert str(found.device) == "sim:0" and found.requires_grad


# ---- hostile and damaged files


class Bomb:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('the file ran code')",))


def test_pickled_objects_in_an_archive_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "bomb.npz", a=np.array([Bomb()], dtype=object))
    with pytest.raises(FileFormatError, match="Python objects"):
        ut.load(tmp_path / "bomb.npz")


def test_a_header_that_promises_more_than_there_is(tmp_path: Path) -> None:
    header = repr({"descr": "<f8", "fortran_order": False, "shape": (10**12,)}).encode().ljust(117) + b"\n"
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"12345678"
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as archive:
        archive.writestr("a.npy", member)
    with pytest.raises(FileFormatError, match="not as long as its header says"):
        ut.load(tmp_path / "large.npz")


ODD_STRUCTURES = {
    "no JSON": "nonsense",
    "no tree": "[]",
    "absent array": '{"array": "absent"}',
    "odd key": '{"dict": [[1.5, {"value": 1}]]}',
    "odd value": '{"value": 1.5}',
    "deep tree": '{"list": [' * 200 + "]}" * 200,
    "deep JSON": "[" * 100_000,
}


@pytest.mark.parametrize("structure", ODD_STRUCTURES.values(), ids=ODD_STRUCTURES)
def test_a_structure_that_save_never_writes(tmp_path: Path, structure: str) -> None:
    np.savez(tmp_path / "odd.npz", **{STRUCTURE: np.frombuffer(structure.encode(), np.uint8)})
    with pytest.raises(FileFormatError):
        ut.load(tmp_path / "odd.npz")


@pytest.mark.parametrize("ending", ENDINGS)
def test_cut_and_garbled_files(tmp_path: Path, ending: str) -> None:
    """Every file is read as far as it is right, or raises ValueError; it never does anything else."""
    path = tmp_path / f"whole{ending}"
    ut.save({"w": ut.arange(50.0), "n": [1, 2.5, "x"]}, path)
    whole = path.read_bytes()
    broken, rng = tmp_path / f"broken{ending}", np.random.default_rng(0)
    for n in range(200):
        data = bytearray(whole)
        if n % 2:
            del data[int(rng.integers(len(data))) :]
        else:
            for place in rng.integers(len(data), size=3):
                data[place] = int(rng.integers(256))
        broken.write_bytes(data)
        with contextlib.suppress(FileFormatError):
            ut.load(broken)


# ---- PyTorch's files


def torch_like_file(pickled: bytes | None = None, storage: bytes = b"\0" * 24) -> bytes:
    """A file in PyTorch's layout, with a pickle of our choice."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": 1}, protocol=2) if pickled is None else pickled)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", storage)
    return out.getvalue()


@pytest.mark.torch
def test_weights_that_pytorch_saved(torch: ModuleType, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    extra = {"t": torch.arange(6).reshape(2, 3).t(), "half": torch.ones(2, dtype=torch.float16), "n": [1, None, 2.5]}
    extra |= {"complex": torch.ones(2, dtype=torch.complex64), "slice": torch.arange(10.0)[3:7], "none": torch.zeros(0)}
    torch.save({"model": model.state_dict(), "p": torch.nn.Parameter(torch.ones(2)), **extra}, tmp_path / "m.pt")
    found = ut.load(tmp_path / "m.pt")
    assert list(found["model"]) == list(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert np.array_equal(found["model"][name].numpy(), tensor.numpy())
    for name in ("t", "half", "complex", "slice", "none"):
        assert found[name].tolist() == extra[name].tolist() and found[name].shape == tuple(extra[name].shape)
    assert found["p"].requires_grad and found["n"] == [1, None, 2.5]
    mine = ut.nn.Sequential(ut.nn.Linear(3, 4), ut.nn.BatchNorm1d(4))
    mine.load_state_dict(found["model"])


@pytest.mark.torch
def test_weights_for_pytorch(torch: ModuleType, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = ut.nn.Linear(3, 4)
    ut.save(model.state_dict(), tmp_path / "m.safetensors")
    theirs = torch.nn.Linear(3, 4)
    theirs.load_state_dict(safetensors.load_file(tmp_path / "m.safetensors"))
    assert np.array_equal(theirs.weight.detach().numpy(), model.weight.detach().numpy())


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize("weights_only", [True, False])
def test_files_for_pytorch(torch: ModuleType, tmp_path: Path, weights_only: bool) -> None:
    model = ut.nn.Sequential(ut.nn.Linear(3, 4), ut.nn.BatchNorm1d(4))
    optimizer = ut.optim.Adam(model.parameters())
    model(ut.randn(5, 3)).sum().backward()
    optimizer.step()
    tied = ut.randn(3)
    tree = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "tree": TREE, "tied": [tied, tied]}
    tree |= {"t": ut.arange(6.0).reshape(2, 3).t(), "leaf": ut.ones(2, requires_grad=True), "array": np.arange(3)}
    ut.save(tree, tmp_path / "m.pth")
    found = torch.load(tmp_path / "m.pth", weights_only=weights_only)
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    theirs.load_state_dict(found["model"])
    torch.optim.Adam(theirs.parameters()).load_state_dict(found["optimizer"])
    assert np.array_equal(theirs[0].weight.detach().numpy(), model[0].weight.detach().numpy())
    assert found["tree"]["steps"] == TREE["steps"] and found["tree"][7]["complex"].tolist() == [1 + 2j]
    assert found["tree"]["weights"]["empty"].shape == (0, 3) and found["tree"]["weights"]["number"].item() == 2.5
    assert found["t"].tolist() == tree["t"].tolist() and found["array"].tolist() == [0, 1, 2]
    assert found["leaf"].requires_grad and not found["t"].requires_grad
    assert found["tied"][0].data_ptr() == found["tied"][1].data_ptr()


def test_open_files() -> None:
    stream = io.BytesIO()
    ut.save({"w": ut.ones(2)}, stream)
    stream.seek(0)
    assert ut.load(stream, map_location="sim:0", weights_only=True)["w"].device == ut.device("sim:0")
    with pytest.raises(FileFormatError):
        ut.load(io.BytesIO(b"nothing"))


def test_a_dtype_that_pytorchs_files_have_not(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"uint16 at 'w'.*use a \.npz file"):
        ut.save({"w": ut.tensor([1], dtype=ut.uint16)}, tmp_path / "w.pt")


@pytest.mark.torch
def test_a_whole_model_is_refused(torch: ModuleType, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(FileFormatError, match=r"Save the state_dict\(\)"):
        ut.load(tmp_path / "model.pt")


def test_code_in_a_pytorch_file_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "bomb.pt").write_bytes(torch_like_file(pickle.dumps(Bomb(), protocol=2)))
    with pytest.raises(FileFormatError, match="exec"):
        ut.load(tmp_path / "bomb.pt")


def test_what_is_no_pytorch_file(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"nothing")
    with pytest.raises(FileFormatError, match="not a zip file"):
        ut.load(tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as archive:
        archive.writestr("x", json.dumps({}))
    with pytest.raises(FileFormatError, match=r"no data\.pkl"):
        ut.load(tmp_path / "b.pt")


# ---- bfloat16


@pytest.mark.parametrize("ending", ENDINGS)
def test_bfloat16_comes_back(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("ml_dtypes")
    path = tmp_path / f"narrow{ending}"
    x = ut.randn(3, 4).bfloat16()
    ut.save({"x": x, "w": ut.nn.Parameter(x.t()), "number": x[0, 0], "empty": x[:0], "other": [ut.ones(2)]}, path)
    found = ut.load(path)
    assert all([found[k].dtype == ut.bfloat16 for k in ("x", "w", "number", "empty")]) and found["w"].requires_grad
    assert ut.equal(found["x"], x) and ut.equal(found["w"], x.t()) and found["number"].item() == x[0, 0].item()
    assert found["empty"].shape == (0, 4) and found["other"][0].dtype == ut.float32
    found["x"] += 1


@pytest.mark.torch
def test_bfloat16_of_pytorch_both_ways(torch: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes")
    theirs, path = torch.nn.Linear(3, 2).bfloat16(), tmp_path / "weights.pt"
    torch.save({"state": theirs.state_dict(), "t": theirs.weight.detach().t()}, path)
    found = ut.load(path)
    ours = ut.nn.Linear(3, 2).bfloat16()
    ours.load_state_dict(found["state"])
    assert ours.weight.dtype == ut.bfloat16 and ours.weight.tolist() == theirs.weight.tolist()
    assert found["t"].tolist() == theirs.weight.t().tolist()
    ut.save(ours.state_dict(), path)
    back = torch.load(path)
    assert back["weight"].dtype == torch.bfloat16 and torch.equal(back["weight"], theirs.weight)


@pytest.mark.torch
@needs_safetensors
def test_bfloat16_of_pytorch_in_safetensors(torch: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes")
    from safetensors.torch import load_file, save_file

    path, values = tmp_path / "weights.safetensors", torch.randn(2, 3).bfloat16()
    save_file({"x": values}, path)
    found = ut.load(path)["x"]
    assert found.dtype == ut.bfloat16 and found.tolist() == values.tolist()
    ut.save({"x": found.t()}, path)
    assert torch.equal(load_file(path)["x"], values.t())


# ---- whole objects


def test_whole_objects_are_read_only_where_the_program_says_so(tmp_path: Path) -> None:
    model = ut.nn.Sequential(ut.nn.Linear(2, 3), ut.nn.BatchNorm1d(3))
    optimizer = ut.optim.SGD(model.parameters(), lr=0.1)
    path = tmp_path / "model.pt"
    ut.save({"model": model, "optimizer": optimizer, (1, 2): {1.5}}, path)
    for options in ({}, {"weights_only": True}):
        with pytest.raises(ValueError, match=r"asks for .*Sequential.*weights_only=False"):
            ut.load(path, **options)
    found = ut.load(path, map_location="cpu", weights_only=False)
    assert found[1, 2] == {1.5}
    assert type(found["model"][0].weight) is ut.nn.Parameter
    assert ut.equal(found["model"][0].weight, model[0].weight)
    assert found["optimizer"].param_groups[0]["params"][0] is found["model"][0].weight


def test_what_cannot_be_pickled_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "tree.pt"
    ut.save({"a": 1}, path)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        ut.save({"a": lambda: 1}, path)
    assert ut.load(path) == {"a": 1}


@pytest.mark.torch
def test_whole_models_of_pytorch(torch: ModuleType, tmp_path: Path) -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU()).eval()
    torch.save(theirs, tmp_path / "model.pt")
    ours = ut.load(tmp_path / "model.pt", weights_only=False)
    assert isinstance(ours, ut.nn.Sequential)
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_allclose(ours(ut.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5)

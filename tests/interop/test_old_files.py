"""Files that PyTorch wrote before 1.6: pickles in a row, and the raw storages behind them."""

from __future__ import annotations

import io
import pickle
import random
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.interop.test_hostile_files import changed
from undertow.errors import FileFormatError


def saved(torch: ModuleType, obj: Any, protocol: int = 2) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(obj, file, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    file.seek(0)
    return file


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_old_files_hold_what_new_ones_do(torch: ModuleType, protocol: int) -> None:
    x = torch.randn(4, 3)
    tree = {
        "x": x,
        "part": x.t()[1:],
        "half": torch.ones(2, dtype=torch.float16),
        "bytes": torch.ones(2, dtype=torch.uint16),
        "conjugated": torch.full((2,), 1j).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "parameter": torch.nn.Parameter(x[:1]),
        "empty": torch.ones(0, 2),
        "plain": [1, 2.5, "a", True, None, (1,), torch.float64, torch.Size([1, 2])],
    }
    old, new = ut.load(saved(torch, tree, protocol)), io.BytesIO()
    torch.save(tree, new, pickle_protocol=protocol)
    new.seek(0)
    assert str(old) == str(ut.load(new))
    assert np.array_equal(old["x"].numpy(), x.numpy())
    assert old["part"].data_ptr() == old["x"].data_ptr() + 4


def test_the_state_of_training(torch: ModuleType, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    here = ut.nn.Sequential(ut.nn.Linear(3, 2), ut.nn.BatchNorm1d(2))
    loaded = ut.load(tmp_path / "old.pth")
    here.load_state_dict(loaded["model"])
    ut.optim.Adam(here.parameters()).load_state_dict(loaded["optimizer"])
    assert np.array_equal(here[0].weight.detach().numpy(), model[0].weight.detach().numpy())


def test_objects_in_a_row_of_one_file(torch: ModuleType) -> None:
    file = io.BytesIO(saved(torch, torch.ones(2)).getvalue() + saved(torch, torch.zeros(3)).getvalue() + b"end")
    assert ut.load(file).tolist() == [1, 1]
    assert ut.load(file).tolist() == [0, 0, 0]
    assert file.read() == b"end"


def test_storages_that_are_parts_of_others(torch: ModuleType) -> None:
    """As PyTorch before 0.4 wrote tensors: by another function, and with storages that are views."""
    whole = saved(torch, torch.arange(6.0))
    heads = [pickle.load(whole) for _ in range(3)]
    storage = type("FloatStorage", (), {"__module__": "torch"})

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", storage, "7", "cpu", 6, obj[1]) if isinstance(obj, tuple) and obj[:1] == ("s",) else None

        def save_global(self, obj: Any, name: str | None = None) -> None:
            self.write(f"c{obj.__module__}\n{obj.__qualname__}\n".encode())  # type: ignore[attr-defined]

    class OldTensor:
        def __reduce__(self) -> Any:
            rebuild: Any = type("_rebuild_tensor", (), {"__module__": "torch._utils"})
            return rebuild, (("s", ("8", 2, 3)), 1, (2,), (1,))

    file = io.BytesIO()
    for head in heads:
        pickle.dump(head, file, 2)
    Pickler(file, 2).dump([OldTensor()])
    pickle.dump(["7"], file, 2)
    file.write((6).to_bytes(8, "little") + np.arange(6, dtype="f4").tobytes())
    file.seek(0)
    assert ut.load(file)[0].tolist() == [3, 4]


def test_whole_models_only_where_the_program_says_so(torch: ModuleType, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    torch.save(model, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(FileFormatError, match="weights_only=False"):
        ut.load(tmp_path / "model.pt")
    loaded = ut.load(tmp_path / "model.pt", weights_only=False)
    x = torch.randn(5, 3)
    np.testing.assert_allclose(loaded(ut.tensor(x.numpy())).detach().numpy(), model(x).detach().numpy(), rtol=1e-6)


def test_code_in_an_old_file_is_not_run(torch: ModuleType) -> None:
    file = saved(torch, 1)
    heads = b"".join([pickle.dumps(pickle.load(file), 2) for _ in range(3)])
    for protocol in (0, 2, 4):
        attack = pickle.dumps(Attack(), protocol)
        with pytest.raises(FileFormatError, match=r"it asks for|instruction"):
            ut.load(io.BytesIO(heads + attack + pickle.dumps([], 2)))
    assert not Attack.ran


class Attack:
    ran: list[int] = []  # noqa: RUF012

    def __reduce__(self) -> Any:
        return attacked, (1,)


def attacked(number: int) -> None:
    Attack.ran.append(number)


def test_damaged_old_files(torch: ModuleType) -> None:
    raw = saved(torch, {"w": torch.randn(3, 4), "nest": {"a": [torch.ones(2), 3], "b": "x"}}).getvalue()
    refused = 0
    for seed in range(200):
        try:
            ut.load(io.BytesIO(changed(raw, random.Random(seed))))
        except FileFormatError:
            refused += 1
    assert refused > 100


def test_tar_files_say_what_they_are(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "old.pt", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    with pytest.raises(FileFormatError, match=r"a tar file, as PyTorch wrote them before 0\.2: load it with PyTorch"):
        ut.load(tmp_path / "old.pt")

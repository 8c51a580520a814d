"""Files by chance and by malice: every tree comes back as it was, and nothing else than data comes out of a file."""

from __future__ import annotations

import collections
import io
import os
import pickle
import random
import struct
import tracemalloc
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from undertow.interop.files.read_torch import FileFormatError, _rebuild_tensor

KEYS = ["a", "b", "a.b", "1", 1, 0, "0", "file", "allow_pickle", "x/y", "../z", "", ".", "undertow.structure", "ü"]
DTYPES = ["f2", "f4", "f8", "c8", "c16", "i1", "i8", "u1", "bool"]
PLAIN = [None, True, 3, -5, 10**30, "text", "ünï\n\0x", 1.5, float("nan"), float("inf"), -0.0, 2 + 3j, ""]


@pytest.fixture(params=[".npz", ".pt", ".safetensors"])
def ending(request: pytest.FixtureRequest) -> str:
    if request.param == ".safetensors":
        pytest.importorskip("safetensors")
    return str(request.param)


def random_tensor(rng: random.Random) -> Any:
    shape = [rng.randint(0, 3) for _ in range(rng.randint(0, 3))]
    values = np.random.default_rng(rng.randint(0, 99)).normal(size=shape).astype(rng.choice(DTYPES))
    found = ut.tensor(np.asfortranarray(values) if rng.random() < 0.3 else values)
    return found.requires_grad_(found.dtype.kind in "fc" and rng.random() < 0.3)


def random_tree(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.choice(["tensor", "plain", "dict", "list", "tuple"] if depth < 4 else ["tensor", "plain"])
    if kind == "dict":
        return {key: random_tree(rng, depth + 1) for key in rng.sample(KEYS, rng.randint(0, 6))}
    if kind in ("list", "tuple"):
        items = [random_tree(rng, depth + 1) for _ in range(rng.randint(0, 3))]
        return items if kind == "list" else tuple(items)
    return random_tensor(rng) if kind == "tensor" else rng.choice(PLAIN)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, ut.Tensor):
        alike = a.shape == b.shape and a.dtype == b.dtype and a.requires_grad == b.requires_grad
        return bool(alike and np.array_equal(a.detach().numpy(), b.detach().numpy()))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and repr(a) == repr(b)


@rows("seed", range(40))
def test_trees_come_back(tmp_path: Path, ending: str, seed: int) -> None:
    tree = {"top": random_tree(random.Random(seed)), "more": random_tree(random.Random(-seed))}
    ut.save(tree, tmp_path / f"tree{ending}")
    assert same(ut.load(tmp_path / f"tree{ending}"), tree)


def test_names_that_lead_to_the_same(tmp_path: Path, ending: str) -> None:
    tree = {"a.b": ut.ones(1), "a": {"b": ut.zeros(1)}, "1": ut.full((1,), 2.0), 1: ut.full((1,), 3.0)}
    ut.save(tree, tmp_path / f"x{ending}")
    assert same(ut.load(tmp_path / f"x{ending}"), tree)


def test_numbers_of_numpy_come_back_as_pythons(tmp_path: Path, ending: str) -> None:
    ut.save({"loss": np.float64(0.5), "epoch": np.int64(3), "best": np.bool_(True)}, tmp_path / f"x{ending}")
    assert same(ut.load(tmp_path / f"x{ending}"), {"loss": 0.5, "epoch": 3, "best": True})


def test_sparse_tensors_are_refused(tmp_path: Path, ending: str) -> None:
    with pytest.raises(TypeError, match=r"a sparse tensor at 'w' cannot be saved: call to_dense\(\) first"):
        ut.save({"w": ut.eye(2).to_sparse()}, tmp_path / f"x{ending}")
    assert list(tmp_path.iterdir()) == []


def changed(raw: bytes, rng: random.Random) -> bytes:
    """The bytes cut off, or some of them changed, put in, or taken out."""
    data, place = bytearray(raw), rng.randrange(len(raw) - 8)
    match rng.randint(0, 4):
        case 0:
            del data[place:]
        case 1:
            data[place] = rng.randrange(256)
        case 2:
            data[place:place] = rng.randbytes(rng.randint(1, 8))
        case 3:
            del data[place : place + rng.randint(1, 8)]
        case 4:
            data[place : place + 8] = struct.pack("<Q", rng.choice([0, 2**31, 2**40, 2**63, 2**64 - 1]))
    return bytes(data)


def test_damaged_files_are_refused_or_loaded(tmp_path: Path, ending: str) -> None:
    """Some damage is in the numbers and cannot be seen; all other is a FileFormatError, and no other error."""
    path = tmp_path / f"x{ending}"
    ut.save({"w": ut.randn(3, 4), "nest": {"a": [ut.ones(2), 3], "b": "x"}}, path)
    raw, refused = path.read_bytes(), 0
    for seed in range(120):
        path.write_bytes(changed(raw, random.Random(seed)))
        try:
            ut.load(path)
        except FileFormatError:
            refused += 1
    assert refused > 60


# ---- files of PyTorch


def torch_file(path: Path, instructions: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", instructions)
    return path


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_run_nothing(tmp_path: Path, protocol: int) -> None:
    file = torch_file(tmp_path / "x.pt", pickle.dumps({"a": [Evil(tmp_path / "made")]}, protocol))
    with pytest.raises(FileFormatError, match="only weights"):
        ut.load(file)
    assert not (tmp_path / "made").exists()


def build(target: bytes, state: bytes) -> bytes:
    """A pickle that sets attributes of an object."""
    return b"\x80\x02" + target + state + b"b."


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (b"ctorch._utils\n_rebuild_tensor_v2\n", "function"),
        (b"ccollections\nCounter\n", "type"),
        (b"ctorch\nfloat32\n", "Float32DType"),
        (b"ccollections\nOrderedDict\n)R", "OrderedDict"),
    ],
)
def test_pickles_change_no_attributes(tmp_path: Path, target: bytes, name: str) -> None:
    """Of functions, classes and dtypes; of a state_dict none but its `_metadata`."""
    defaults, update = _rebuild_tensor.__defaults__, collections.Counter.update
    state = b"(N}X\x0c\x00\x00\x00__defaults__)X\x06\x00\x00\x00updateN" + b"ut"
    for given in (state.replace(b"}X", b"}(X"), b"}X\x05\x00\x00\x00itemsNs"):
        with pytest.raises(FileFormatError, match=f"it changes attributes of a {name}"):
            ut.load(torch_file(tmp_path / "x.pt", build(target, given)))
    assert _rebuild_tensor.__defaults__ == defaults and collections.Counter.update is update


def test_metadata_of_a_state_dict_is_kept(tmp_path: Path, torch: ModuleType) -> None:
    torch.save(torch.nn.BatchNorm1d(2).state_dict(), tmp_path / "x.pt")
    state = ut.load(tmp_path / "x.pt")
    assert state._metadata[""]["version"] == 2
    ut.nn.BatchNorm1d(2).load_state_dict(state)


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_pytorchs_checkpoints_hold(tmp_path: Path, torch: ModuleType, wrapped: bool) -> None:
    tree = {
        "complex": 1 + 2j,
        "set": {1, 2},
        "bytes": b"a\xff",
        "counts": collections.Counter([1, 1]),
        "default": collections.defaultdict(list, a=[1]),
        "size": torch.Size([2, 3]),
        "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
        "empty": torch.ones(0, 2, requires_grad=True),
        "conj": torch.tensor([1 + 2j]).conj(),
        "neg": torch.tensor([1 + 2j]).conj().imag,
        "sparse": torch.eye(2).to_sparse(),
    }
    torch.save([tree] if wrapped else tree, tmp_path / "x.pt")
    loaded = ut.load(tmp_path / "x.pt")
    found = loaded[0] if wrapped else loaded
    assert {key: found[key] for key in list(tree)[:6]} == {**dict(list(tree.items())[:5]), "size": (2, 3)}
    assert found["uint16"].tolist() == [1, 65535] and found["empty"].requires_grad
    assert found["conj"].tolist() == [1 - 2j] and found["neg"].tolist() == [-2.0]
    assert found["sparse"].to_dense().tolist() == [[1, 0], [0, 1]]


def test_dtypes_and_devices_of_pytorch(tmp_path: Path, torch: ModuleType) -> None:
    torch.save({"dtype": torch.float32, "device": torch.device("cpu")}, tmp_path / "x.pt")
    assert ut.load(tmp_path / "x.pt") == {"dtype": ut.float32, "device": ut.device("cpu")}


def test_pytorch_reads_complex_numbers(tmp_path: Path, torch: ModuleType) -> None:
    ut.save({"z": 1 + 2j, "x": np.float64(0.5)}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", weights_only=True) == {"z": 1 + 2j, "x": 0.5}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("ending", "name"), [(".npz", "a.npy"), (".pt", "archive/data/0")])
def test_two_parts_of_the_same_name(tmp_path: Path, ending: str, name: str) -> None:
    file = tmp_path / f"x{ending}"
    ut.save({"a": ut.ones(1)}, file)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, archive.read(name))
    with pytest.raises(FileFormatError, match="of the same name"):
        ut.load(file)


def test_a_header_that_promises_too_much(tmp_path: Path) -> None:
    text = io.BytesIO()
    np.lib.format.write_array_header_1_0(text, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", text.getvalue())
    with pytest.raises(FileFormatError, match="not as long as its header says"):
        ut.load(tmp_path / "x.npz")


# ---- files that would take more memory than they have bytes


def archive_of(pickled: bytes, storage: bytes = bytes(16), **options: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/data/0", storage, **options)
    return file.getvalue()


def pickled_tensor(size: tuple[int, ...], stride: tuple[int, ...], count: int, more: bytes = b"") -> bytes:
    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join([b"\x8a\x08" + struct.pack("<q", v) for v in values]) + b"t"

    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpu" + numbers((count,))[1:-1] + b"tQ"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0" + numbers(size) + numbers(stride) \
        + b"\x89ccollections\nOrderedDict\n)R" + more + b"tR."  # fmt: skip


def peak_of(function: Any) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_expanded_tensor_takes_the_memory_it_had(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(archive_of(pickled_tensor((1 << 30, 4), (0, 1), 4)))
    found: list[Any] = []
    assert peak_of(lambda: found.append(ut.load(path))) < 1 << 20
    assert found[0].shape == (1 << 30, 4) and found[0].stride() == (0, 1)


def test_an_expanded_tensor_of_pytorch(tmp_path: Path, torch: ModuleType) -> None:
    torch.save({"x": torch.arange(3.0).expand(1 << 30, 3), "y": torch.tensor(1 + 2j).conj().expand(4)}, tmp_path / "x")
    found = ut.load(tmp_path / "x")
    assert found["x"][-1].tolist() == [0, 1, 2] and found["y"].tolist() == [1 - 2j] * 4


def test_a_conjugated_expanded_tensor(tmp_path: Path) -> None:
    conjugated = b"}X\4\0\0\0conj\x88s"
    path = tmp_path / "x.pt"
    path.write_bytes(archive_of(pickled_tensor((1 << 30, 4), (0, 1), 4, conjugated)))
    assert peak_of(lambda: ut.load(path)) < 1 << 20


def test_tensors_of_one_storage_share_it_as_they_did(tmp_path: Path, torch: ModuleType) -> None:
    whole = torch.arange(4.0)
    torch.save([whole, whole[1:3]], tmp_path / "x.pt")
    found, part = ut.load(tmp_path / "x.pt")
    part.fill_(9)
    assert found.tolist() == [0, 9, 9, 3]


HUNGRY = {
    "a bytearray that is not there": archive_of(b"\x80\x05\x96" + struct.pack("<Q", 1 << 31) + b"."),
    "bytes that are not there": archive_of(b"\x80\x05\x8e" + struct.pack("<Q", 1 << 31) + b"."),
    "text that is not there": archive_of(b"\x80\x05\x8d" + struct.pack("<Q", 1 << 31) + b"."),
    "a frame that is not there": archive_of(b"\x80\x05\x95" + struct.pack("<Q", 1 << 31) + b"."),
    "a long storage, deflated": archive_of(
        pickled_tensor((4,), (1,), 4), bytes(1 << 27), compress_type=zipfile.ZIP_DEFLATED
    ),
    "a long storage, in bzip2": archive_of(
        pickled_tensor((4,), (1,), 4), bytes(1 << 27), compress_type=zipfile.ZIP_BZIP2
    ),
    "a storage that is not there": archive_of(pickled_tensor((1 << 29,), (1,), 1 << 29)),
    "letters of a text, many times": archive_of(
        b"\x80\x02X"
        + struct.pack("<I", 50_000)
        + b"x" * 50_000
        + b"q\0("
        + b"c__builtin__\nlist\nh\0\x85R" * 1000
        + b"t."
    ),
}


@pytest.mark.parametrize("data", HUNGRY.values(), ids=HUNGRY)
def test_files_that_would_take_far_more_than_they_have(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(data)

    def load() -> None:
        with pytest.raises(FileFormatError):
            ut.load(path)

    assert peak_of(load) < 1 << 27


@pytest.mark.parametrize("ending", [".npz", ".pt"])
def test_a_part_that_is_said_to_be_longer_than_the_file(tmp_path: Path, ending: str) -> None:
    """In the directory of the archive, where its length stands twice: packed and unpacked."""
    path = tmp_path / f"x{ending}"
    ut.save({"a": ut.ones(1000)}, path)
    data = bytearray(path.read_bytes())
    length = struct.pack("<I", 4000 if ending == ".pt" else 4128)
    start = data.index(b"PK\1\2")
    assert data.count(length, start) >= 2
    data[start:] = data[start:].replace(length, struct.pack("<I", 0x7FFFFFF0))
    path.write_bytes(data)

    def load() -> None:
        with pytest.raises(FileFormatError, match="longer than"):
            ut.load(path)

    assert peak_of(load) < 1 << 22


def test_a_list_in_itself_and_lists_of_the_same_lists(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(archive_of(b"\x80\x02]q\0h\0a."))
    found = ut.load(path, "cpu")
    assert isinstance(found, list) and len(found) == 1
    doubled = b"\x80\x02]q\0" + b"".join(
        [b"](h" + bytes([k]) + b"h" + bytes([k]) + b"eq" + bytes([k + 1]) for k in range(99)]
    )
    path.write_bytes(archive_of(doubled + b"."))
    assert len(ut.load(path, "cpu")) == 2  # 2**99 lists, if each were looked at whenever it is met

"""Hooks for saved tensors: the public pair, the worked examples of PyTorch's notes, and the ready-made ones."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut

graph = ut.autograd.graph


def network(L: ModuleType) -> tuple[Any, Any]:
    """A loss and its parameter."""
    L.manual_seed(0)
    w = L.randn(20, 20, requires_grad=True)
    x = L.randn(50, 20)
    return ((x @ w).tanh() @ w).exp().mean(), w


def gradient(context: Any = None) -> np.ndarray:
    if context is None:
        loss, w = network(ut)
    else:
        with context:
            loss, w = network(ut)
    loss.backward()
    return w.grad.numpy()


# ---- the worked examples


class SelfDeletingTempFile:
    def __init__(self, directory: Path) -> None:
        self.name = os.path.join(directory, str(uuid.uuid4()))

    def __del__(self) -> None:
        os.remove(self.name)


def test_example_temporary_files(tmp_path: Path) -> None:
    def pack(tensor: Any) -> Any:
        file = SelfDeletingTempFile(tmp_path)
        with open(file.name, "wb") as stream:
            np.save(stream, tensor.detach().numpy())
        return file

    def unpack(file: Any) -> Any:
        with open(file.name, "rb") as stream:
            return ut.from_numpy(np.load(stream))

    gc.disable()
    x = ut.randn(5, requires_grad=True)
    with graph.saved_tensors_hooks(pack, unpack):
        y = x * x
    assert len(os.listdir(tmp_path)) == 2
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy())
    assert os.listdir(tmp_path) == []
    z = x.pow(2)
    z.grad_fn._raw_saved_self.register_hooks(pack, unpack)
    assert len(os.listdir(tmp_path)) == 1
    assert z.grad_fn._saved_self.tolist() == x.tolist()
    del z
    assert os.listdir(tmp_path) == []


def test_example_only_tensors_above_a_size(tmp_path: Path) -> None:
    threshold = 1000

    def pack(x: Any) -> Any:
        if x.numel() < threshold:
            return x.detach()
        file = SelfDeletingTempFile(tmp_path)
        with open(file.name, "wb") as stream:
            np.save(stream, x.detach().numpy())
        return file

    def unpack(packed: Any) -> Any:
        if isinstance(packed, ut.Tensor):
            return packed
        with open(packed.name, "rb") as stream:
            return ut.from_numpy(np.load(stream))

    x = ut.randn(10, requires_grad=True)
    with graph.saved_tensors_hooks(pack, unpack):
        small = x.exp()
        large = small.repeat(200).exp()
    assert len(os.listdir(tmp_path)) == 1
    large.sum().backward()
    expected = 200 * np.exp(np.exp(x.detach().numpy())) * np.exp(x.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


# ---- the pair of hooks


def test_the_innermost_pair_counts_and_in_this_thread_only(L: ModuleType) -> None:
    log: list[str] = []

    def named(name: str) -> Any:
        return L.autograd.graph.saved_tensors_hooks(lambda t: log.append(name) or t, lambda t: t)

    x = L.ones(2, requires_grad=True)
    with named("outer"):
        x.exp()
        with named("inner"):
            x.exp()
            thread = threading.Thread(target=lambda: x.exp())
            thread.start()
            thread.join()
        x.exp()
    x.exp()
    assert log == ["outer", "inner", "outer"]


def test_each_slot_is_packed_once_and_unpacked_at_every_use(L: ModuleType) -> None:
    log: list[str] = []
    x = L.ones(2, requires_grad=True)
    hooks = L.autograd.graph.saved_tensors_hooks(lambda t: log.append("pack") or t, lambda t: log.append("unpack") or t)
    with hooks:
        y = x * x
        z = y * 2  # a Python number needs no tensor
        L.mul(z, L.ones(2))  # only the ones are needed
    assert log == ["pack"] * 3
    log.clear()
    z.sum().backward(retain_graph=True)
    z.sum().backward()
    assert log == ["unpack"] * 4


def test_a_hook_that_returns_an_alias_is_as_safe_as_none() -> None:
    """PyTorch would use the changed values."""
    for pack in (lambda t: t, lambda t: t.detach()):
        x = ut.ones(2, requires_grad=True)
        y = x * 1
        with graph.saved_tensors_hooks(pack, lambda t: t):
            z, out = y.sin(), y.exp()
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
        out.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_a_hook_that_returns_a_copy_survives_a_change() -> None:
    x = ut.ones(2, requires_grad=True)
    y = x * 1
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        z = y.sin()
    y.mul_(2)
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.cos(np.ones(2)), rtol=1e-6)


class Failure(Exception):
    pass


@pytest.mark.parametrize("kind", ["pack", "unpack"])
def test_exceptions_of_hooks_keep_their_type(L: ModuleType, kind: str) -> None:
    def fail(value: Any) -> Any:
        raise Failure(kind)

    def same(value: Any) -> Any:
        return value

    x = L.ones(2, requires_grad=True)
    with pytest.raises(Failure, match=kind):
        with L.autograd.graph.saved_tensors_hooks(*((fail, same) if kind == "pack" else (same, fail))):
            y = x.exp()
        y.sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_freed_saved_tensor_takes_no_hooks(L: ModuleType) -> None:
    y = L.ones(2, requires_grad=True).exp()
    held = y.grad_fn._raw_saved_result
    y.sum().backward()
    for saved in (held, y.grad_fn._raw_saved_result):
        with pytest.raises(RuntimeError, match="after it has been freed"):
            saved.register_hooks(lambda t: t, lambda t: t)


# ---- save_on_cpu


def test_save_on_cpu_changes_no_gradient() -> None:
    np.testing.assert_array_equal(gradient(graph.save_on_cpu()), gradient())


def test_save_on_cpu_notices_changes_in_place() -> None:
    x = ut.ones(2, requires_grad=True) * 1
    with graph.save_on_cpu():
        y = x.sin()
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# ---- save_on_disk


def test_save_on_disk_gives_the_same_gradients_and_cleans_up(tmp_path: Path) -> None:
    gc.disable()
    with graph.save_on_disk(tmp_path, min_bytes=0):
        loss, w = network(ut)
    files = os.listdir(tmp_path)
    assert len(files) > 2 and all(name.endswith(".npy") for name in files)
    assert graph.saved_tensors_report(loss).total_bytes == graph.saved_tensors_report(loss).leaf_bytes == w.nbytes
    loss.backward()
    assert os.listdir(tmp_path) == []
    np.testing.assert_array_equal(w.grad.numpy(), gradient())


def test_files_live_as_long_as_the_graph(tmp_path: Path) -> None:
    gc.disable()
    x = ut.randn(100, requires_grad=True)
    with graph.save_on_disk(tmp_path, min_bytes=0):
        y = x.exp()
    for _ in range(2):
        y.sum().backward(retain_graph=True)
        assert len(os.listdir(tmp_path)) == 1
    del y
    assert os.listdir(tmp_path) == []


def test_only_large_tensors_that_are_no_leaves_are_written(tmp_path: Path) -> None:
    x = ut.randn(100, requires_grad=True)
    with graph.save_on_disk(tmp_path, min_bytes=400):
        kept = [x.sin(), x[:99].exp(), (x * 1).sin(), x.exp()]
    assert len(os.listdir(tmp_path)) == 2
    sum(k.sum() for k in kept).backward()
    a = x.detach().numpy()
    expected = 2 * np.cos(a) + np.exp(a) + np.where(np.arange(100) < 99, np.exp(a), 0)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


def test_a_tensor_that_several_nodes_save_is_written_once(tmp_path: Path) -> None:
    x = ut.randn(100, requires_grad=True)
    with graph.save_on_disk(tmp_path, min_bytes=0):
        y = x.exp()
        z = y.sin() * y
    assert len(os.listdir(tmp_path)) == 2  # y and sin's result
    z.sum().backward()
    e = np.exp(x.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), (np.cos(e) * e + np.sin(e)) * e, rtol=1e-4)


def test_after_a_change_in_place_it_is_written_again(tmp_path: Path) -> None:
    x = ut.ones(100, requires_grad=True)
    with graph.save_on_disk(tmp_path, min_bytes=0):
        y = x * 1
        first = y.sin()
        y.mul_(2)
        second = y.sin()
    assert len(os.listdir(tmp_path)) == 2
    (first.sum() + second.sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full(100, np.cos(1) + 2 * np.cos(2)), rtol=1e-6)


def test_a_small_tensor_that_is_changed_is_noticed(tmp_path: Path) -> None:
    x = ut.ones(3, requires_grad=True) * 1
    with graph.save_on_disk(tmp_path):
        y = x.sin()
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_all_layouts_and_dtypes_come_back(tmp_path: Path) -> None:
    for dtype in (ut.float16, ut.float64, ut.complex64):
        x = ut.ones(4, 6, dtype=dtype, requires_grad=True)
        with graph.save_on_disk(tmp_path, min_bytes=0):
            y = (x * 2).T[1:, ::2].square()
        (y.real.sum() if dtype.kind == "c" else y.sum()).backward()
        assert x.grad.dtype == dtype
        assert np.count_nonzero(x.grad.numpy()) == 10
    assert os.listdir(tmp_path) == []


def test_threads_write_files_of_their_own(tmp_path: Path) -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for _ in range(10):
            x = ut.full((50,), float(seed), requires_grad=True)
            with graph.save_on_disk(tmp_path, min_bytes=0):
                y = x * x
                z = y * y
            z.sum().backward()
            if not np.allclose(x.grad.numpy(), 4.0 * seed**3):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and os.listdir(tmp_path) == []


def test_a_missing_directory_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="make it first"):
        graph.save_on_disk(tmp_path / "missing")


PROGRAM = """
import os, sys
import undertow as ut
x = ut.ones(100, requires_grad=True)
with ut.autograd.graph.save_on_disk(sys.argv[1], min_bytes=0):
    y = x.exp()
if sys.argv[2] == "fork" and os.fork() == 0:
    del y
    os._exit(len(os.listdir(sys.argv[1])) - 1)
elif sys.argv[2] == "fork":
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    y.sum().backward()
print("done")
"""


@pytest.mark.parametrize("how", ["exit", "fork"])
def test_files_are_gone_when_python_exits_and_survive_a_fork(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    assert os.listdir(tmp_path) == []


# ---- compress_saved


def test_float16_halves_the_memory_and_rounds() -> None:
    x = ut.rand(1000, requires_grad=True)
    with graph.compress_saved(ut.float16):
        y = x.exp()
    assert graph.saved_tensors_report(y).total_bytes == 2000
    y.sum().backward()
    expected = np.exp(x.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-3)
    assert not np.array_equal(x.grad.numpy(), expected)


def test_values_that_the_smaller_dtype_cannot_hold_are_kept() -> None:
    x = ut.tensor([1e6, 1.0], requires_grad=True)
    small = ut.tensor([1e-30, 1.0], requires_grad=True)
    with graph.compress_saved(ut.float16):
        y, z = (x * 1) ** 2, (small * 1).log()
    (y.sum() + z.sum()).backward()
    np.testing.assert_allclose(x.grad.numpy(), [2e6, 2])
    np.testing.assert_allclose(small.grad.numpy(), [1e30, 1], rtol=1e-6)


def test_other_dtypes_are_left_alone() -> None:
    x = ut.ones(100, dtype=ut.complex64, requires_grad=True)
    with graph.compress_saved(ut.float16):
        y = (x * 1) * (x * 2)
        z = ut.ones(4, requires_grad=True)[ut.tensor([0, 2])]
    y.real.sum().backward()
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.full(100, 4))


def test_zlib_loses_nothing() -> None:
    np.testing.assert_array_equal(gradient(graph.compress_saved("zlib")), gradient())
    x = ut.randn(10_000, requires_grad=True)
    with graph.compress_saved("zlib"):
        y = (x * 1).relu().square()
    assert graph.saved_tensors_report(y).total_bytes < 2 * 40_000 * 0.7
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * np.maximum(x.detach().numpy(), 0))


def test_what_compress_saved_takes() -> None:
    for wrong in (ut.int32, "gzip"):
        with pytest.raises(TypeError):
            graph.compress_saved(wrong)
    x = ut.rand(1000, requires_grad=True)
    with graph.compress_saved(min_bytes=10_000):
        assert graph.saved_tensors_report(x.exp()).total_bytes == 4000


def test_double_backward_through_compressed_tensors() -> None:
    x = ut.tensor([0.5, 2.0], dtype=ut.float64, requires_grad=True)
    with graph.compress_saved("zlib"):
        (g,) = ut.autograd.grad((x**3).sum(), x, create_graph=True)
        (h,) = ut.autograd.grad(g.sum(), x)
    np.testing.assert_allclose(h.numpy(), 6 * x.detach().numpy())

"""Memory shared with other libraries, pinned memory, and several devices."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.cuda.conftest import REAL
from tests.cuda.test_streams import gates, stand_still, two_devices

DTYPES = [ut.float32, ut.float64, ut.float16, ut.bfloat16, ut.int8, ut.int64, ut.uint8, ut.bool, ut.complex64]


@pytest.mark.parametrize("old", [False, True], ids=["version 1", "version 0"])
def test_dlpack_both_ways_shares_memory(old: bool) -> None:
    for dtype in DTYPES:
        x = ut.arange(12, device="cuda").reshape(3, 4).to(dtype)
        y = ut.from_dlpack(x.__dlpack__() if old else x)
        assert y.dtype is x.dtype and y.device == x.device and y.data_ptr() == x.data_ptr()
        assert y.tolist() == x.tolist() and y.stride() == x.stride()
        z = ut.from_dlpack(x.T[1:])
        assert z.tolist() == x.T[1:].tolist() and z.stride() == (1, 4)
    y = ut.from_dlpack(x, copy=True)
    assert y.data_ptr() != x.data_ptr() and ut.from_dlpack(x, device="cpu").device.type == "cpu"
    assert x.__dlpack_device__() == (2, 0)


def test_what_dlpack_refuses() -> None:
    x = ut.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(BufferError, match="require gradient"):
        x.__dlpack__()
    capsule = x.detach().__dlpack__()
    ut.from_dlpack(capsule)
    with pytest.raises((BufferError, ValueError, RuntimeError)):
        ut.from_dlpack(capsule)
    with pytest.raises(BufferError, match="another device"):
        x.detach().__dlpack__(dl_device=(1, 0))
    with pytest.raises(ValueError, match="without a copy"):
        ut.from_dlpack(x.detach(), device="cpu", copy=False)


def test_memory_lives_as_long_as_whoever_took_it() -> None:
    x = ut.arange(5.0, device="cuda")
    alive = weakref.ref(x._array)
    y = ut.from_dlpack(x)
    capsule = x.__dlpack__(max_version=(1, 0))
    del x
    assert alive() is not None and y.tolist() == [0, 1, 2, 3, 4]
    del y
    ut.cuda.synchronize()
    gc.collect()
    assert alive() is not None  # the capsule that nobody took
    del capsule
    assert alive() is None


class Foreign:
    """An array of another library, which tells of its memory by the interface alone."""

    def __init__(self, array: Any, **changes: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changes}


def test_the_interface_of_arrays_both_ways() -> None:
    x = ut.arange(6.0, device="cuda").reshape(2, 3)
    found = x.__cuda_array_interface__
    assert found["shape"] == (2, 3) and found["typestr"] == "<f4" and found["data"] == (x.data_ptr(), False)
    y = ut.as_tensor(Foreign(x.T._array))
    assert y.data_ptr() == x.data_ptr() and y.tolist() == x.T.tolist()
    y += 1
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
    rows = ut.as_tensor(Foreign(x._array, strides=None), dtype=ut.float64)
    assert rows.tolist() == x.tolist() and ut.tensor(Foreign(x._array)).data_ptr() != x.data_ptr()
    with pytest.raises(AttributeError, match="non-CUDA"):
        _ = x.cpu().__cuda_array_interface__
    with pytest.raises(RuntimeError, match="requires grad"):
        _ = x.requires_grad_().__cuda_array_interface__


@pytest.mark.skipif(REAL, reason="gates are the emulated device's")
def test_lent_memory_goes_back_when_streams_are_done_with_it() -> None:
    x = ut.ones(3, device="cuda")
    owner = Foreign(x._array)
    alive = weakref.ref(owner)
    side = ut.cuda.Stream()
    lent = ut.as_tensor(owner)
    side.wait_stream(ut.cuda.current_stream())
    with ut.cuda.stream(side):
        stand_still()
        y = lent * 2
    del lent, owner
    assert alive() is not None
    gates().open_gates()
    assert side.synchronize() is None and y.tolist() == [2, 2, 2]
    ut.cuda.synchronize()
    assert alive() is None


# ---- pinned memory


def test_pinned_memory() -> None:
    x = ut.arange(1000.0)
    assert not x.is_pinned()
    y = x.pin_memory()
    assert y.is_pinned() and y.pin_memory() is y and y.device.type == "cpu" and ut.equal(x, y)
    assert y[10:20].is_pinned() and not y.clone().is_pinned()
    z = y.to("cuda", non_blocking=True)
    assert z.tolist() == x.tolist()
    back = (z * 2).to("cpu", non_blocking=True)
    ut.cuda.synchronize()
    assert back.is_pinned() and ut.equal(back, x * 2)
    assert x.cuda(non_blocking=True).tolist() == x.tolist()  # not pinned: waited for
    assert ut.empty(0).pin_memory().cuda(non_blocking=True).shape == (0,)
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        z.pin_memory()


@pytest.mark.skipif(REAL, reason="gates are the emulated device's")
def test_copies_go_on_beside_the_program() -> None:
    x = ut.arange(100.0).pin_memory()
    x.cuda()
    ut.cuda.Stream()
    stand_still()
    there = x.to("cuda", non_blocking=True)
    back = (there * 2).to("cpu", non_blocking=True)
    del x, there  # held until the copy is done
    gc.collect()
    back.zero_()
    gates().open_gates()
    ut.cuda.synchronize()
    assert back.tolist() == [2.0 * k for k in range(100)]


def test_gradients_through_copies_that_go_on() -> None:
    x = ut.arange(4.0).pin_memory().requires_grad_()
    (x.to("cuda", non_blocking=True) ** 2).sum().backward()
    assert x.grad.tolist() == [0, 2, 4, 6]


def test_loaders_pin_their_batches() -> None:
    data = [(ut.full((2,), float(k)), {"label": k, "name": "x"}) for k in range(4)]
    for workers in (0, 1):
        loader = ut.utils.data.DataLoader(data, batch_size=2, pin_memory=True, num_workers=workers)
        batches = list(loader)
        assert len(batches) == 2
        for x, rest in batches:
            assert x.is_pinned() and rest["label"].is_pinned() and rest["name"] == ["x", "x"]


# ---- several devices


@two_devices
def test_tensors_move_between_devices() -> None:
    x = ut.arange(6.0, device="cuda:1").reshape(2, 3).requires_grad_()
    y = (x * 2).T.to("cuda:0")
    assert y.device == ut.device("cuda:0") and y.tolist() == [[0, 6], [2, 8], [4, 10]]
    (y * y).sum().backward()
    assert x.grad.device == ut.device("cuda:1") and x.grad.tolist() == [[0, 8, 16], [24, 32, 40]]
    with pytest.raises(RuntimeError, match="same device"):
        x + y
    assert x.cuda(0).device.index == 0 and ut.ones(2).cuda(1).device.index == 1
    assert ut.cuda.can_device_access_peer(0, 1) and not ut.cuda.can_device_access_peer(0, 0)


@two_devices
def test_the_current_device() -> None:
    assert ut.cuda.device_count() == 2 and ut.cuda.current_device() == 0
    with ut.cuda.device(1):
        assert ut.cuda.current_device() == 1 and ut.ones(1, device="cuda").device.index == 1
        assert ut.cuda.current_stream().device.index == 1
        with ut.cuda.device_of(ut.ones(1, device="cuda:0")):
            assert ut.cuda.current_device() == 0
    with ut.cuda.stream(ut.cuda.Stream(1)):
        assert ut.cuda.current_device() == 1
    ut.cuda.set_device("cuda:1")
    assert ut.tensor([1.0], device="cuda").device.index == 1
    ut.cuda.set_device(0)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        ut.cuda.set_device(7)
    with ut.device("cuda:1"):
        assert ut.zeros(2).device.index == 1


@two_devices
def test_models_over_two_devices_train_as_on_the_cpu() -> None:
    found = []
    for devices in (("cpu", "cpu"), ("cuda:0", "cuda:1")):
        ut.manual_seed(0)
        first, second = ut.nn.Linear(3, 4).to(devices[0]), ut.nn.Linear(4, 2).to(devices[1])
        optimizer = ut.optim.Adam([*first.parameters(), *second.parameters()], lr=0.1)
        x = ut.randn(5, 3).to(devices[0])
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = second(first(x).tanh().to(devices[1])).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found.append(losses)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@two_devices
def test_each_device_has_memory_of_its_own() -> None:
    ut.cuda.synchronize(1)
    before = [ut.cuda.memory_allocated(k) for k in range(2)]
    x = ut.ones(3000, device="cuda:1")
    after = [ut.cuda.memory_allocated(k) for k in range(2)]
    assert after[0] == before[0] and after[1] >= before[1] + 12000 and x.sum().item() == 3000
    blocks = ut.cuda.memory_snapshot(1)
    assert any([b["address"] == x.data_ptr() and b["state"] == "active_allocated" for b in blocks])
    assert ut.cuda.mem_get_info(1)[1] >= ut.cuda.mem_get_info(1)[0] > 0


@two_devices
def test_each_device_has_a_thread() -> None:
    import threading

    seen: dict[int, str] = {}
    x, y = ut.ones(2, device="cuda:0", requires_grad=True), ut.ones(2, device="cuda:1", requires_grad=True)
    a, b = x * 2, y * 3
    a.register_hook(lambda g: seen.update({0: threading.current_thread().name}))
    b.register_hook(lambda g: seen.update({1: threading.current_thread().name}))
    (a + b.to("cuda:0")).sum().backward()
    assert seen == {0: "undertow-cuda:0", 1: "undertow-cuda:1"} and y.grad.tolist() == [3, 3]

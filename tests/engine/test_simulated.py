"""The simulated backend: its arrays, its streams and events, the order they must keep, and its faults."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.samples import Array, Sample, all_samples
from undertow import sim
from undertow.backend import namespace_of
from undertow.backend.simulated import StreamOrderError
from undertow.backend.simulated.arrays import SimArray
from undertow.compiled import core

xp = namespace_of("sim:0")


@pytest.fixture(autouse=True)
def quiet_devices() -> Iterator[None]:
    sim.configure(seed=0)
    yield
    for index in range(4):
        sim.set_memory_limit(f"sim:{index}", None)
        namespace_of(f"sim:{index}").failures.clear()
    sim.synchronize()


def ones(n: int = 3) -> SimArray:
    return xp.ones(n)


# ---- arrays


def test_a_tensor_knows_its_device() -> None:
    x = ut.ones(2, device="sim:1", requires_grad=True)
    assert (str(x.device), str((x * 2).device), str((x * 2).grad_fn.device)) == ("sim:1",) * 3
    assert str(ut.ones(1, device="sim").device) == "sim:0"


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.sin(a), lambda a: a.sum(axis=0), lambda a: np.add.reduce(a), lambda a: a @ a.T, lambda a: a[a > 2],
        lambda a: np.concatenate([a, a]), lambda a: np.einsum("ij->j", a), lambda a: np.linalg.norm(a), lambda a: -a,
        lambda a: a.astype(np.float32), lambda a: a.reshape(3, 2).copy(), lambda a: np.where(a > 1, a, 0.0),
        lambda a: a.T, lambda a: 2 ** a, lambda a: np.cumsum(a, axis=1), lambda a: a.real, lambda a: np.full_like(a, 7),
    ],
)  # fmt: skip
def test_numpy_functions_run_on_the_device(function) -> None:
    host = np.arange(6.0).reshape(2, 3)
    result = function(xp.asarray(host))
    assert type(result) is xp.ndarray
    assert np.array_equal(result.to_host(), function(host)) and result.dtype == function(host).dtype


def test_functions_with_several_results() -> None:
    host = np.array([[2.0, 1.0], [1.0, 3.0]])
    values, vectors = np.linalg.eigh(xp.asarray(host))
    assert np.allclose((vectors * values @ vectors.T).to_host(), host)


def test_changes_in_place() -> None:
    a = xp.zeros(4)
    a[1:3] = 5
    a += 1
    np.add.at(a, [0, 0], 10.0)
    np.copyto(a[3:], 9.0)
    assert a.tolist() == [21, 6, 6, 9]


def test_memory_of_the_host_is_copied() -> None:
    host = np.ones(3)
    device, back = xp.asarray(host), xp.asarray(host).to_host()
    host[:] = 7
    back[:] = 8
    assert device.tolist() == [1, 1, 1]


def test_views_share_memory_and_copies_do_not() -> None:
    a = xp.zeros((2, 3))
    a.T[1] = 4
    a.reshape(6).copy()[:] = 9
    assert a.tolist() == [[0, 4, 0], [0, 4, 0]]


def test_arrays_of_two_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*sim:0 and sim:1"):
        ones() + namespace_of("sim:1").ones(3)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        ut.ones(2, device="sim:0") + ut.ones(2, device="sim:1")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        ut.ones(2, device="sim:0") + ut.ones(2)


def test_numpy_does_not_get_at_the_elements() -> None:
    for attempt in (np.asarray, lambda t: t.numpy(), lambda t: np.asarray(t._array)):
        with pytest.raises(TypeError, match="can't convert sim:0 device type tensor to numpy"):
            attempt(ut.ones(2, device="sim:0"))
    assert ut.ones(2, device="sim:0").cpu().numpy().tolist() == [1, 1]
    assert ut.ones(2, device="sim:0").numpy(force=True).tolist() == [1, 1]


def test_single_numbers_go_anywhere() -> None:
    x = ut.ones(2, device="sim:0") * ut.tensor(3.0) + 1
    assert str(x.device) == "sim:0" and x.tolist() == [4, 4]


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        ut.ones(2, device=f"sim:{sim.device_count()}")
    with sim.configure(devices=sim.device_count() + 1):
        assert ut.ones(2, device=f"sim:{sim.device_count() - 1}").sum().item() == 2


def test_pickling_brings_a_tensor_back_to_its_device() -> None:
    again = pickle.loads(pickle.dumps(ut.arange(3.0, device="sim:1")))
    assert str(again.device) == "sim:1" and again.tolist() == [0, 1, 2]


def test_creation_and_conversion_on_a_device() -> None:
    x = ut.tensor([1.0, 2.0], device="sim:0")
    made = [ut.zeros_like(x), x.new_zeros(2), ut.randn(2, device="sim:0"), ut.full((2,), 3.0, device="sim:0"),
            x.clone(), x.double(), x.to("sim:1").to("sim:0"), ut.arange(2, device="sim:0")]  # fmt: skip
    assert {str(t.device) for t in made} == {"sim:0"}
    assert x.to("sim:0") is x and x.to("sim:1", ut.float64).dtype == ut.float64


def test_copies_between_devices_are_differentiable() -> None:
    x = ut.tensor([1.0, 2.0], requires_grad=True)
    y = x.to("sim:0")
    assert type(y.grad_fn).__name__ == "ToCopyBackward0"
    z = y.to("sim:1", ut.float64).cpu()
    (first,) = ut.autograd.grad((z * z * z).sum(), x, create_graph=True)
    (second,) = ut.autograd.grad(first.sum(), x)
    assert (first.tolist(), second.tolist()) == ([3, 12], [6, 12])
    assert first.dtype == ut.float32 and str(first.device) == "cpu"


# ---- streams


def test_an_unordered_read_is_refused() -> None:
    side, a = sim.Stream("sim:0"), ones()
    told = r"sin on stream \d+ of sim:0 reads memory that ones wrote on default stream of sim:0"
    with sim.stream(side), pytest.raises(StreamOrderError, match=told) as caught:
        np.sin(a)
    assert caught.value.hazard == "read of unfinished write" and caught.value.stream is side


def test_an_unordered_write_is_refused() -> None:
    side, a, b = sim.Stream("sim:0"), ones(), ones()
    side.wait_stream(sim.default_stream("sim:0"))
    np.sin(a)
    b += 1
    with sim.stream(side):
        with pytest.raises(StreamOrderError, match="write over unfinished read"):
            a += 1
        with pytest.raises(StreamOrderError, match="write over unfinished write"):
            b[:] = 0


def wait_stream(side, main):
    side.wait_stream(main)


def wait_event(side, main):
    side.wait_event(main.record_event())


def event_waits(side, main):
    event = sim.Event()
    event.record(main)
    event.wait(side)


def through_a_third(side, main):
    third = sim.Stream("sim:1")
    third.wait_stream(main)
    side.wait_stream(third)


def host_waits(side, main):
    main.synchronize()


def host_waits_for_the_device(side, main):
    sim.synchronize("sim:0")


def host_asks_until_it_is_done(side, main):
    while not main.query():
        pass


def host_reads(side, main):
    ones().tolist()  # on the same stream, behind what was written


ORDERINGS = [wait_stream, wait_event, event_waits, through_a_third, host_waits, host_waits_for_the_device,
             host_asks_until_it_is_done, host_reads]  # fmt: skip


@pytest.mark.parametrize("order", ORDERINGS, ids=lambda f: f.__name__)
def test_an_ordered_read_is_allowed(order) -> None:
    side, a = sim.Stream("sim:0"), ones()
    order(side, sim.default_stream("sim:0"))
    with sim.stream(side):
        assert np.sin(a).shape == (3,)


def test_a_wait_covers_nothing_that_comes_later() -> None:
    side, a = sim.Stream("sim:0"), ones()
    side.wait_stream(sim.default_stream("sim:0"))
    b = ones()
    with sim.stream(side):
        np.sin(a)
        with pytest.raises(StreamOrderError):
            np.sin(b)


def test_a_view_is_no_read_but_its_elements_are() -> None:
    side, a = sim.Stream("sim:0"), xp.ones((2, 3))
    with sim.stream(side):
        turned = a.T[1:]
        with pytest.raises(StreamOrderError):
            np.sin(turned)


def test_a_copy_orders_the_receiving_stream() -> None:
    there, a = namespace_of("sim:1"), ones()
    side = sim.Stream("sim:1")
    with sim.stream(side):
        copy = there.take_over(a)
        np.sin(copy)
    with pytest.raises(StreamOrderError):
        np.sin(copy)


def test_the_current_stream_is_the_threads_own() -> None:
    import threading

    side, seen = sim.Stream("sim:0"), []
    with sim.stream(side):
        thread = threading.Thread(target=lambda: seen.append(sim.current_stream("sim:0")))
        thread.start()
        thread.join()
        assert sim.current_stream("sim:0") is side
    assert seen == [sim.default_stream("sim:0")]


def test_the_check_can_be_switched_off() -> None:
    side, a = sim.Stream("sim:0"), ones()
    with sim.configure(check=False), sim.stream(side):
        assert np.sin(a).shape == (3,)


def run_and_time(seed: int) -> float:
    sim.configure(seed=seed)
    start, end = sim.Event(enable_timing=True), sim.Event(enable_timing=True)
    stream = sim.default_stream("sim:0")
    start.record(stream)
    for _ in range(5):
        ones()
    end.record(stream)
    return start.elapsed_time(end)


def test_latencies_come_from_the_seed() -> None:
    with sim.configure(latency=(1e-3, 2e-3)):
        sim.synchronize()
        first, again, other = run_and_time(3), run_and_time(3), run_and_time(4)
    assert first == pytest.approx(again) and first != pytest.approx(other) and 5 <= first <= 10


# ---- faults


def test_memory_is_counted_and_runs_out() -> None:
    before = sim.memory_allocated("sim:2")
    space = namespace_of("sim:2")
    a = space.zeros(1000)
    view = a[10:]
    assert sim.memory_allocated("sim:2") - before == 8000
    sim.set_memory_limit("sim:2", before + 10_000)
    with pytest.raises(sim.OutOfMemoryError, match=r"sim:2 out of memory\. Tried to allocate 8000 bytes"):
        a + 1
    del a
    assert sim.memory_allocated("sim:2") - before == 8000  # the view keeps it
    del view
    assert sim.memory_allocated("sim:2") == before
    assert space.zeros(1000).shape == (1000,)


def test_a_device_fails_at_the_chosen_operation() -> None:
    with sim.configure(launch_blocking=True), sim.inject_failure("sim:0", after=2, op="sin"):
        a = ones()
        np.sin(a), np.cos(a), np.sin(a)
        with pytest.raises(sim.DeviceFailure, match="sim:0 failed at sin"):
            np.sin(a)
        assert np.sin(a).shape == (3,)


def test_a_sticky_failure_lasts_until_it_is_removed() -> None:
    failure = sim.inject_failure("sim:0", sticky=True, error=OSError("unplugged"))
    for _ in range(2):
        with sim.configure(launch_blocking=True), pytest.raises(OSError, match="unplugged"):
            ones()
    failure.remove()
    assert ones().shape == (3,)


LATER = {
    "the next operation": lambda a: np.cos(a),
    "an operation on another stream": lambda a: np.cos(xp.ones(2)),
    "a copy to the host": lambda a: a.to_host(),
    "a copy to another device": lambda a: namespace_of("sim:1").take_over(a),
    "synchronize": lambda a: sim.synchronize("sim:0"),
    "a stream's synchronize": lambda a: sim.Stream("sim:0").synchronize(),
    "an event's synchronize": lambda a: sim.default_stream("sim:0").record_event().synchronize(),
}


@pytest.mark.parametrize("ask", LATER.values(), ids=LATER)
def test_without_blocking_launches_a_failure_is_noticed_later(ask: Any) -> None:
    other = namespace_of("sim:1").ones(3)
    with sim.inject_failure("sim:0", op="sin"):
        a = np.sin(ones())
        np.sin(other)  # a device does not know of another's failures
        with pytest.raises(sim.DeviceFailure, match="sim:0 failed at sin"):
            ask(a)
        assert ones().tolist() == [1, 1, 1]  # told once


@pytest.mark.parametrize(("blocking", "told_by"), [(True, "SinBackward0"), (False, "AccumulateGrad")])
def test_a_failure_in_a_pass_comes_home_from_where_it_is_noticed(blocking: bool, told_by: str) -> None:
    x = ut.ones(2, device="sim:0", requires_grad=True)
    y = x.sin().sum()
    told = pytest.raises(sim.DeviceFailure, match="failed at multiply")
    with sim.configure(launch_blocking=blocking), sim.inject_failure("sim:0", op="multiply"), told as caught:
        y.backward()
    (told_where,) = [note for note in caught.value.__notes__ if "while running" in note]
    assert told_by in told_where and x.grad is None


# ---- the operations


def on(device: str, value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, Array):
        data = value.make(rng)
        return ut.tensor(data, device=device, requires_grad=value.differentiable and data.dtype.kind == "f")
    if isinstance(value, (list, tuple)) and any(isinstance(v, Array) for v in value):
        return type(value)(on(device, v, rng) for v in value)
    return value


def tensors_in(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_in(v)]
    return [value] if isinstance(value, ut.Tensor) else []


def results_on(device: str, sample: Sample) -> list[Any]:
    """The outputs of a sample row and the gradients of their sum, as NumPy arrays."""
    rng = np.random.default_rng(0)
    ut.manual_seed(0)
    args = [on(device, a, rng) for a in sample.args]
    kwargs = {name: on(device, a, rng) for name, a in sample.kwargs.items()}
    called = sample.call(ut, *args, **kwargs) if sample.call else getattr(ut.ops, sample.op)(*args, **kwargs)
    outputs, leaves = tensors_in(called), [t for t in tensors_in(args) if t.requires_grad]
    found = [t.detach() for t in outputs]
    roots = [t.abs().sum() for t in outputs if t.requires_grad]
    if roots and leaves:
        found += ut.autograd.grad(roots, leaves, allow_unused=True)
    return [None if t is None else t.cpu().numpy() for t in found]


@contextlib.contextmanager
def numpy_alone() -> Iterator[None]:
    """As a simulated device computes: twins of the compiled core round single precision otherwise here and there."""
    if core is not None:
        core.use_twins(False)
    try:
        yield
    finally:
        if core is not None:
            core.use_twins(True)


def outcome(sample: Sample) -> bool | None:
    """Whether a row gives on a simulated device what it gives on the CPU; None if an error is raised there."""
    try:
        with numpy_alone():
            expected = results_on("cpu", sample)
    except Exception:
        return True  # not a row to be called in this simple way
    try:
        found = results_on("sim:0", sample)
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
        return None
    return all(
        (a is None) == (b is None) and (a is None or np.allclose(a, b, rtol=1e-12, equal_nan=True))
        for a, b in zip(expected, found, strict=True)
    )


#: rows that bring CPU tensors of their own: the identity that makes a matrix positive, a copy between two CPU tensors
MIXED = {
    "linalg_cholesky", "linalg_cholesky-stack, upper", "linalg_cholesky_ex", "cholesky", "_cholesky_lower",
    "_to_device",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("third", [0, *[pytest.param(k, marks=pytest.mark.slow) for k in (1, 2)]])
def test_every_operation_gives_on_a_device_what_it_gives_on_the_cpu(third: int) -> None:
    rows = [sample for sample in all_samples() if not sample.complex_only][third::3]
    outcomes = {sample.id: outcome(sample) for sample in rows}
    assert [name for name, result in outcomes.items() if result is False] == []
    assert {name for name, result in outcomes.items() if result is None} <= MIXED


def positive(x: Any) -> Any:
    return x @ x.mT + 20 * ut.eye(3, device=x.device)


def assign(x: Any, index: Any, value: Any) -> Any:
    x = x.clone()
    x[index] = value
    return x


FORMS = {
    "list": lambda x: x[[0, 2]],
    "two lists": lambda x: x[[0, 1], [2, 3]],
    "slice and list": lambda x: x[1:, [0, 1]],
    "index on the CPU": lambda x: x[ut.tensor([0, 2])],
    "mask on the CPU": lambda x: x[ut.tensor([True, False, True])],
    "mask": lambda x: x[x > 3],
    "array": lambda x: x[np.array([0, 2])],
    "True": lambda x: x[True],
    "assign to a list": lambda x: assign(x, [0, 2], 5.0),
    "assign to a mask": lambda x: assign(x, x > 3, 0.5),
    "assign an array": lambda x: assign(x, 0, np.ones(4)),
    "assign to an index on the CPU": lambda x: assign(x, ut.tensor([1]), x[0]),
    "as_strided": lambda x: ut.as_strided(x, (2, 2), (4, 1), 1),
    "empty_strided": lambda x: x.new_empty_strided((2, 3), (1, 2)).fill_(2.0),
    "cholesky": lambda x: ut.linalg.cholesky(positive(x)),
    "cholesky_ex": lambda x: ut.linalg.cholesky_ex(positive(x)).L,
    "cholesky_inverse": lambda x: ut.cholesky_inverse(ut.linalg.cholesky(positive(x))),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.5),
    "normal_": lambda x: x.clone().normal_(),
    "multinomial": lambda x: ut.multinomial(x + 1, 2),
    "nonzero": lambda x: ut.nonzero(x > 3, as_tuple=True)[1],
    "hann_window": lambda x: ut.hann_window(5, device=x.device),
    "tril_indices": lambda x: ut.tril_indices(3, 3, device=x.device),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms_that_make_arrays_of_their_own(form: Any) -> None:
    results = []
    for device in ("cpu", "sim:1"):
        ut.manual_seed(0)
        results.append(form(ut.arange(12.0, device=device).reshape(3, 4)))
        assert str(results[-1].device) == device
    assert np.allclose(results[0].numpy(), results[1].cpu().numpy())

"""Calls between processes, values that stay where they are, and backward passes through several processes."""

from __future__ import annotations

import gc
import os
import threading
import time

import undertow as ut
from undertow import nn
from undertow.distributed import autograd, rpc
from undertow.distributed.optim import DistributedOptimizer
from undertow.distributed.rpc import RRef, WorkerInfo

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LAST = size - 1
OTHER = f"worker{LAST}"
ut.manual_seed(0)
WEIGHTS = [ut.randn(6, 6, dtype=ut.float64).requires_grad_() for _ in range(4)]


def expect(kind, text, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return
    raise AssertionError(f"{text}: nothing was raised")


def until(condition):
    """Wait for something that comes by itself."""
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


# ---- what the others call


def fail(number):
    raise ValueError(f"there is no {number}")


def wait_for(seconds):
    time.sleep(seconds)


def relay(ranks, function, args):
    """A call that goes through several processes."""
    if not ranks:
        return function(*args)
    return rpc.rpc_sync(ranks[0], relay, args=(ranks[1:], function, args))


@rpc.functions.async_execution
def later(x):
    return rpc.rpc_async("worker0", ut.add, args=(x, 1)).then(lambda future: future.wait() * 10)


@rpc.functions.async_execution
def no_future():
    return 1


def where():
    return rpc.get_worker_info()


class Counter:
    def __init__(self, start):
        self.value = start

    def add(self, number):
        self.value += number
        return self.value


def plain(value):
    return value


def local(rref):
    assert rref.is_owner()
    return rref.local_value().value


def taken_and_passed_on(rref, to):
    return rpc.rpc_sync(to, ut.add, args=(rref.to_here(), 1))


def owned():
    gc.collect()
    return int(rpc._rref_context_get_debug_info()["num_owner_rrefs"])


def layer(x, k):
    return ut.tanh(x @ WEIGHTS[k])


def two(x, y, k):
    return x * y + WEIGHTS[k].sum(), [(x + y) @ WEIGHTS[k]]


def there_and_back(x, k):
    return rpc.rpc_sync("worker0", layer, args=(ut.sin(x @ WEIGHTS[k]), 2))


def gradients(context_id):
    found = autograd.get_gradients(context_id)
    return [found.get(w) for w in WEIGHTS]


def contexts():
    return int(autograd._get_debug_info()["num_autograd_contexts"])


class BadBackward(ut.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("this fails")


def bad(x):
    return BadBackward.apply(x)


def hooked(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y


def sparse_rows(indices, weight):
    return nn.functional.embedding(indices, weight, sparse=True)


def parameters():
    return [RRef(w) for w in WEIGHTS[:2]]


def value_of_weight(k):
    return WEIGHTS[k]


# ---- calls


def test_calls():
    assert ut.equal(rpc.rpc_sync(OTHER, ut.add, args=(ut.ones(2), 1)), ut.full((2,), 2.0))
    assert rpc.rpc_sync(LAST, where) == WorkerInfo(OTHER, LAST) == rpc.get_worker_info(OTHER)
    assert rpc.rpc_sync(rpc.get_worker_info(), where).id == 0
    sent = {"a": [1, 2.5, "x", None, True, (b"y", 3j)], 2: {3, 4}, "t": ut.arange(5), "d": ut.float16, "f": layer}
    got = rpc.rpc_sync(OTHER, plain, args=(sent,))
    assert ut.equal(got.pop("t"), sent.pop("t")) and got == sent
    for tensor in (
        ut.zeros(0, 3),
        ut.tensor(True),
        ut.randn(3, 4).t(),
        ut.ones(2, dtype=ut.complex64),
        ut.randn(300, 300),
    ):
        got = rpc.rpc_sync(OTHER, plain, kwargs={"value": tensor})
        assert got.dtype == tensor.dtype and ut.equal(got, tensor)
        got.zero_()  # its memory is its own
    sparse = ut.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,))
    assert ut.equal(rpc.rpc_sync(OTHER, plain, args=(sparse,)).to_dense(), sparse.to_dense())
    calls = [rpc.rpc_async(k % size, ut.mul, args=(ut.ones(3), k)) for k in range(50)]
    assert [float(c[0]) for c in rpc.wait_all(calls)] == list(range(50))
    assert rpc.rpc_sync(OTHER, later, args=(ut.ones(()),)).item() == 20
    assert (
        rpc.rpc_async(OTHER, plain, args=(4,)).then(lambda f: f.value() + rpc.rpc_sync(OTHER, plain, (1,))).wait() == 5
    )
    ranks = [LAST, 0] * 20  # more calls wait for each other than there are threads
    assert rpc.rpc_sync(OTHER, relay, args=(ranks[1:12], ut.add, (1, ut.ones(())))).item() == 2


def test_errors():
    expect(ValueError, f"On WorkerInfo(id={LAST}, name={OTHER}):", rpc.rpc_sync, OTHER, fail, args=(7,))
    expect(ValueError, "in fail", rpc.rpc_sync, OTHER, fail, args=(7,))
    expect(
        RuntimeError,
        "Unknown destination worker nobody: could not find destination. There are: worker0",
        rpc.rpc_sync,
        "nobody",
        plain,
    )
    expect(RuntimeError, "RPC ran for more than set timeout (200 ms)", rpc.rpc_sync, OTHER, wait_for, (1,), timeout=0.2)
    expect(RuntimeError, f"Cannot get WorkerInfo for rank {size}", rpc.rpc_sync, size, plain)
    late = rpc.remote(OTHER, wait_for, (0.5,), timeout=0.1)
    expect(RuntimeError, "RRef creation via rpc.remote() timed out", late.to_here)
    expect(TypeError, "a __main__.Counter cannot travel", rpc.rpc_sync, OTHER, plain, args=(Counter(1),))
    expect(TypeError, "functions and classes travel by name", rpc.rpc_sync, OTHER, lambda: 1)
    expect(TypeError, "function should be callable", rpc.rpc_sync, OTHER, 3)
    expect(RuntimeError, "RPC is already initialized", rpc.init_rpc, "again")
    expect(RuntimeError, "must return a Future", rpc.rpc_sync, OTHER, no_future)


def test_values_that_stay():
    counter = rpc.remote(OTHER, Counter, args=(5,))
    assert counter.owner_name() == OTHER and counter.is_owner() == (size == 1)
    assert counter.rpc_sync().add(2) == 7 and counter.rpc_async().add(1).wait() == 8
    assert counter.remote().add(1).to_here() == 9 and rpc.rpc_sync(OTHER, local, args=(counter,)) == 9
    mine = RRef(ut.ones(2))
    assert mine.is_owner() and ut.equal(mine.local_value(), ut.ones(2))
    assert ut.equal(rpc.rpc_sync(OTHER, taken_and_passed_on, args=(mine, "worker0")), ut.full((2,), 2.0))
    there = rpc.remote(OTHER, ut.add, args=(ut.ones(2), 1))
    assert ut.equal(rpc.rpc_sync(1 % size, taken_and_passed_on, args=(there, 0)), ut.full((2,), 3.0))
    expect(ValueError, "there is no 3", rpc.remote(OTHER, fail, args=(3,)).to_here)
    if size > 1:
        expect(RuntimeError, "can't call localValue() on user", counter.local_value)
    del counter, mine, there
    for k in range(size):
        until(lambda k=k: rpc.rpc_sync(k, owned) == 0)


# ---- backward passes


def program(x, call):
    h = ut.sin(x @ WEIGHTS[0])
    a = call(LAST, layer, h, 1)
    b, (c,) = call(LAST, two, h, a, 1)
    e = call(1 % size, there_and_back, b + h, 3)
    return (a * b).sum() + (c * e).sum() + (h**2).sum() + call(LAST, layer, e, 2).sum()


def here(to, function, *args):
    return layer(ut.sin(args[0] @ WEIGHTS[args[1]]), 2) if function is there_and_back else function(*args)


def far(to, function, *args):
    return rpc.rpc_sync(to, function, args=args)


def compare(context_id, x, expected, times=1):
    """The sum over processes of what each has for its own copy of the weights is what one process has for all."""
    found = autograd.get_gradients(context_id)
    assert ut.allclose(found[x], expected[0] * times)
    everywhere = [rpc.rpc_sync(k, gradients, args=(context_id,)) for k in range(size)]
    for k, want in enumerate(expected[1:]):
        assert ut.allclose(sum([g[k] for g in everywhere if g[k] is not None]), want * times), k


def test_gradients():
    x = ut.randn(3, 6, dtype=ut.float64).requires_grad_()
    expected = ut.autograd.grad(program(x, here), [x, *WEIGHTS])
    with autograd.context() as context_id:
        loss = program(x, far)
        for times in (1, 2):
            autograd.backward(context_id, [loss], retain_graph=True)
            compare(context_id, x, expected, times)
        assert x.grad is None and WEIGHTS[0].grad is None
        expect(RuntimeError, "is not a scalar", autograd.backward, context_id, [ut.sin(x)])
        expect(RuntimeError, "requires_grad not set on root", autograd.backward, context_id, [ut.ones(())])
        expect(RuntimeError, "No tensors provided", autograd.backward, context_id, [])
        expect(RuntimeError, "Already have an autograd context", autograd.context().__enter__)
    expect(RuntimeError, "Could not find autograd context", autograd.backward, context_id, [loss])
    with autograd.context() as context_id:
        losses = [program(x, far), program(x, far)]
        autograd.backward(context_id, losses)
        compare(context_id, x, expected, 2)
        expect(RuntimeError, "backward through the graph a second time", autograd.backward, context_id, losses)
    with autograd.context() as context_id:
        loss = rpc.remote(OTHER, layer, args=(x, 1)).to_here().sum()
        autograd.backward(context_id, [loss])
        assert ut.allclose(autograd.get_gradients(context_id)[x], ut.autograd.grad(layer(x, 1).sum(), x)[0])
    for k in range(size):
        until(lambda k=k: rpc.rpc_sync(k, contexts) == 0)


def test_messages_that_nobody_used():
    """Results that do not contribute, at several depths: the nodes that wait for their gradients go on."""
    x = ut.randn(3, 6, dtype=ut.float64).requires_grad_()
    with autograd.context() as context_id:
        h = ut.sin(x)
        used = far(LAST, layer, h, 1)
        unused = far(LAST, layer, h, 2)
        deep = far(1 % size, layer, far(0, layer, far(LAST, layer, used, 2), 1), 0)
        far(1 % size, two, deep, unused, 1)
        rows = far(LAST, two, used, h, 0)
        autograd.backward(context_id, [rows[0].sum() + (h * used).sum()])
        mine = layer(ut.sin(x), 1)
        (expected,) = ut.autograd.grad(two(mine, ut.sin(x), 0)[0].sum() + (ut.sin(x) * mine).sum(), x)
        assert ut.allclose(autograd.get_gradients(context_id)[x], expected)


def test_errors_of_backward():
    x = ut.randn(3, dtype=ut.float64).requires_grad_()
    with autograd.context() as context_id:
        loss = far(0, plain, far(LAST, bad, ut.sin(x))).sum()
        expect(RuntimeError, f"Error on Node {LAST}: this fails", autograd.backward, context_id, [loss])
        expect(RuntimeError, "rpc.py", autograd.backward, context_id, [far(LAST, bad, ut.sin(x)).sum()])
        loss = far(LAST, plain, ut.sin(x)).sum()  # the context is as good as it was
        autograd.backward(context_id, [loss])
        assert ut.allclose(autograd.get_gradients(context_id)[x], ut.cos(x))


def test_hooks_and_sparse_gradients():
    x = ut.randn(3, dtype=ut.float64).requires_grad_()
    seen = []
    x.register_hook(lambda g: seen.append(g.clone()))
    with autograd.context() as context_id:
        autograd.backward(context_id, [far(LAST, hooked, x).sum()])
        assert ut.equal(autograd.get_gradients(context_id)[x], ut.full((3,), 20.0, dtype=ut.float64))
        assert ut.equal(seen[0], ut.full((3,), 20.0, dtype=ut.float64))
    weight = ut.randn(5, 2).requires_grad_()
    with autograd.context() as context_id:
        autograd.backward(context_id, [far(LAST, sparse_rows, ut.tensor([1, 3, 1]), weight).sum()])
        found = autograd.get_gradients(context_id)[weight]
        assert found.is_sparse and ut.equal(found.to_dense()[:, 0], ut.tensor([0.0, 2, 0, 1, 0]))


def test_several_threads():
    """Contexts of several threads do not meet."""
    failed = []

    def train(k):
        try:
            x = ut.full((3, 6), 0.1 * k, dtype=ut.float64).requires_grad_()
            with autograd.context() as context_id:
                autograd.backward(context_id, [far(LAST, layer, ut.sin(x), 1).sum()])
                (expected,) = ut.autograd.grad(layer(ut.sin(x), 1).sum(), x)
                assert ut.allclose(autograd.get_gradients(context_id)[x], expected)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=train, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed, failed


def test_optimizer():
    rrefs = [*parameters(), *(rpc.rpc_sync(OTHER, parameters) if size > 1 else [])]
    optimizer = DistributedOptimizer(ut.optim.SGD, rrefs, lr=0.5)
    x = ut.randn(3, 6, dtype=ut.float64)
    before = [WEIGHTS[0].detach().clone(), rpc.rpc_sync(OTHER, value_of_weight, args=(1,)).detach()]
    with autograd.context() as context_id:
        autograd.backward(context_id, [far(LAST, layer, layer(x, 0), 1).sum()])
        optimizer.step(context_id)
    leaves = [w.clone().requires_grad_() for w in before]
    expected = ut.autograd.grad(ut.tanh(ut.tanh(x @ leaves[0]) @ leaves[1]).sum(), leaves)
    after = [WEIGHTS[0], rpc.rpc_sync(OTHER, value_of_weight, args=(1,))]
    for old, new, grad in zip(before, after, expected, strict=True):
        assert ut.allclose(new, old - 0.5 * grad)
    assert WEIGHTS[0].grad is None
    expect(ValueError, "Invalid learning rate", DistributedOptimizer, ut.optim.SGD, rrefs, lr=-1.0)


expect(RuntimeError, "RPC has not been initialized", rpc.rpc_sync, 0, plain)
expect(TypeError, "backend must be a member of BackendType", rpc.init_rpc, "me", "TENSORPIPE")
expect(
    TypeError, "must be an instance of RpcBackendOptions", rpc.init_rpc, "me", rpc_backend_options={"rpc_timeout": 3}
)
rpc.init_rpc(f"worker{rank}", rpc.BackendType.TENSORPIPE, rank=rank, world_size=size)
if rank == 0:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name, flush=True)
rpc.shutdown()
rpc.init_rpc(f"again{rank}", rpc_backend_options=rpc.RpcBackendOptions(allow_pickle=True, num_worker_threads=2))
assert rpc.rpc_sync((rank + 1) % size, plain, args=(Counter(rank),)).value == rank
rpc.shutdown()
print(f"rank {rank} is done", flush=True)

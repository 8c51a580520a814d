"""Parameters that are divided among processes, and checkpoints that any number of processes reads."""

from __future__ import annotations

import gc
import sys

import undertow as ut
import undertow.distributed as dist
from undertow import nn
from undertow.distributed import checkpoint
from undertow.distributed.sharding import Piece, fully_shard

dist.init_process_group("mpi", timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()
(folder,) = sys.argv[1:]


def model_of(seed):
    ut.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, 7), nn.Tanh(), nn.Sequential(nn.Linear(7, 7), nn.LayerNorm(7)), nn.Linear(7, 3)
    ).double()


def sharded(seed, **options):
    model = model_of(seed)
    for part in (model[0], model[2]):
        fully_shard(part, **options)
    return fully_shard(model, **options)


def whole(model, group=None):
    """All parameters, put together."""
    found = {}
    for name, p in checkpoint.get_state_dict(model)[0].items():
        if not isinstance(p, Piece):
            found[name] = p
            continue
        parts = []
        dist.all_gather_object(parts, p.tensor, group)
        found[name] = ut.cat(parts).reshape(p.stretch.shape)
    return found


def train(model, optimizer, inputs, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (model(inputs) ** 2).mean().backward()
        optimizer.step()


ut.manual_seed(1)
batch = ut.randn(4 * size, 5, dtype=ut.float64)
mine = batch[4 * rank : 4 * rank + 4]


def compare(model, alone, group=None):
    for name, tensor in whole(model, group).items():
        assert ut.allclose(tensor, alone.state_dict()[name]), name


def check_training():
    for options in ({}, {"reshard_after_forward": False}):
        model, alone = sharded(2 if rank == 0 else 77, **options), model_of(2)
        assert [n for n, _ in model.named_parameters()] == [n for n, _ in alone.named_parameters()]
        kept, total = [sum([p.numel() for p in m.parameters()]) for m in (model, alone)]
        assert kept <= total / size + len(list(alone.parameters()))
        train(model, ut.optim.AdamW(model.parameters(), lr=0.05), mine, 4)
        train(alone, ut.optim.AdamW(alone.parameters(), lr=0.05), batch, 4)
        compare(model, alone)
    # twice in one pass; with checkpointing; changed between forward and backward
    model, alone = sharded(3), model_of(3)
    two = lambda m, x: (m[2](ut.utils.checkpoint.checkpoint(m[2], m[0](x), use_reentrant=False)) ** 2).mean()
    two(model, mine).backward()
    two(alone, batch).backward()
    for p, q in zip(model[2].parameters(), alone[2].parameters(), strict=True):
        parts = [None] * size
        dist.all_gather_object(parts, p.grad)
        assert ut.allclose(ut.cat(parts), q.grad.reshape(-1))
    loss = (model(mine) ** 2).mean()
    with ut.no_grad():
        model[3].weight.mul_(2)
    try:
        loss.backward()
    except RuntimeError as error:
        assert "a sharded parameter was changed" in str(error)
    else:
        raise AssertionError("nothing was raised")
    try:
        fully_shard(model)
    except ValueError as error:
        assert "is sharded already" in str(error)


def check_memory():
    """Between the passes no whole parameter is alive, unless they are to be kept."""
    for resharded, width in ((True, 64), (False, 65)):
        layers = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
        big = fully_shard(layers, reshard_after_forward=resharded)
        out = big(ut.randn(2, width))
        gc.collect()
        alive = (width, width) in [tuple(o.shape) for o in gc.get_objects() if isinstance(o, ut.Tensor)]
        assert alive is not resharded
        out.sum().backward()
        assert big[0].weight.grad.shape == big[0].weight.shape


def check_arguments():
    from undertow.distributed.fsdp import fully_shard as pytorchs_name

    assert pytorchs_name is fully_shard
    layers = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 6))
    layers[0].weight.data.fill_(rank)
    fully_shard(layers, ignored_params={layers[0].weight}, reshard_after_forward=None)
    assert layers[0].weight.shape == (6, 4) and (layers[0].weight == rank).all() and layers[1].weight.ndim == 1
    layers(ut.ones(2, 4)).sum().backward()
    assert layers[0].weight.grad.shape == (6, 4) and layers[1].weight.grad.shape == layers[1].weight.shape
    outer = nn.Sequential(fully_shard(nn.Linear(2, 2)))
    fully_shard(outer)
    for module, options, text in (
        (outer, {}, "is sharded already"),
        (nn.Linear(2, 2), {"mesh": object()}, "pass process_group"),
        (nn.Linear(2, 2), {"mp_policy": object()}, "use autocast"),
        (nn.Linear(2, 2), {"offload_policy": object()}, "on the CPU"),
        (nn.Linear(2, 2), {"shard_placement_fn": print}, "a flat piece"),
    ):
        try:
            fully_shard(module, **options)
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)


check_training()
check_memory()
check_arguments()


def models(group):
    """A model in pieces and one as a whole, with their optimizers, and this process's part of 12 examples."""
    members, place = dist.get_world_size(group), dist.get_rank(group)
    model, alone = sharded(2, process_group=group), model_of(2)
    examples = ut.arange(60, dtype=ut.float64).reshape(12, 5) / 60
    part = examples[12 // members * place : 12 // members * (place + 1)]
    first, second = [ut.optim.AdamW(m.parameters(), lr=0.05) for m in (model, alone)]
    return model, first, part, alone, second, examples


model, optimizer, part, alone, reference, examples = models(None)
train(alone, reference, examples, 3)
train(model, optimizer, part, 3)
compare(model, alone)
state = dict(zip(("model", "optimizer"), checkpoint.get_state_dict(model, optimizer), strict=True))
checkpoint.save({"epoch": 1, "model": {}}, folder)  # the next one replaces it
checkpoint.save({**state, "epoch": 3, "notes": ["a", 2.5, None], "random": ut.arange(5)}, folder)

checkpoint.save(model.state_dict(), folder + "-of-model")  # parameters are known to be pieces without being told

for name, differing in (("s", {"b": ut.ones(2)} if rank else {}), ("a", {"a": ut.ones(2 + rank)})):
    try:
        checkpoint.save({"start": 0, **differing, "s": ut.ones(2)}, folder + "-of-nothing")
    except checkpoint.CheckpointException as error:
        assert f"rank 0 has float32[2] as {name!r} where rank 1 has float32[" in str(error), error
    else:
        raise AssertionError("a checkpoint of what is not alike was written")

fewer = dist.new_group(range(max(size - 1, 1)))
if rank < max(size - 1, 1):
    model, optimizer, part, alone, reference, examples = models(fewer)
    train(alone, reference, examples, 3)
    train(model, optimizer, part, 1)  # makes the optimizer's state, which is then replaced
    state = dict(zip(("model", "optimizer"), checkpoint.get_state_dict(model, optimizer), strict=True))
    more = {**state, "epoch": 0, "notes": [0, 0, 0], "random": ut.zeros(5, dtype=ut.int64)}
    checkpoint.load(more, folder)
    assert more["epoch"] == 3 and more["notes"] == ["a", 2.5, None] and ut.equal(more["random"], ut.arange(5))
    checkpoint.set_state_dict(model, optimizer, model_state_dict=more["model"], optim_state_dict=more["optimizer"])
    compare(model, alone, fewer)
    with ut.no_grad():
        for p in model.parameters():
            p.zero_()
    checkpoint.load(model.state_dict(), folder + "-of-model")
    compare(model, alone, fewer)
    train(alone, reference, examples, 2)
    train(model, optimizer, part, 2)
    compare(model, alone, fewer)
    for text, wrong in (("Missing key", {"absent": ut.zeros(2)}), ("is int64[5]", {"random": ut.zeros(5)})):
        try:
            checkpoint.load(wrong, folder)
        except checkpoint.CheckpointException as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
print(f"rank {rank} is done", flush=True)

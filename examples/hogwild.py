"""Hogwild: several workers train the same parameters at once, and nobody waits for anybody.

First by threads, then by processes with the parameters in shared memory. Each worker has a model of its own, with its
own gradients and optimizer; only the memory of the parameters is everybody's. Updates are written in place while others
read, and now and then one is lost, which does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from common import options, plot

import undertow as ut
from undertow import multiprocessing, nn

SIZES = (2, 32, 32, 1)


def network() -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(SIZES):
        layers += [nn.Linear(fan_in, fan_out), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def examples(count: int, chance: ut.Generator) -> tuple[ut.Tensor, ut.Tensor]:
    x = 4 * ut.rand(count, 2, generator=chance) - 2
    return x, ut.sin(x[:, :1]) * ut.cos(2 * x[:, 1:])


def train(model: nn.Module, seed: int, steps: int) -> None:
    """What each worker does, with examples of its own."""
    chance = ut.Generator().manual_seed(seed)
    optimizer = ut.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x, y = examples(64, chance)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def loss_of(model: nn.Module) -> float:
    with ut.no_grad():
        x, y = examples(1000, ut.Generator().manual_seed(99))
        return nn.functional.mse_loss(model(x), y).item()


def twin(model: nn.Module) -> nn.Module:
    """Another model with the same memory. `.data` has its own version counter: changes by others go unnoticed."""
    found = network()
    for mine, theirs in zip(found.parameters(), model.parameters(), strict=True):
        mine.data = theirs.data
    return found


def by_threads(model: nn.Module, workers: int, steps: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(train, twin(model), seed, steps) for seed in range(workers)]:
            done.result()


def by_processes(model: nn.Module, workers: int, steps: int) -> None:
    model.share_memory()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=train, args=(model, seed, steps)) for seed in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("a worker process has failed")


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    chosen = options(__doc__, "hogwild", argv)
    rounds, steps = (2, 100) if chosen.quick else (6, 600)
    curves = {}
    for name, run in (("threads", by_threads), ("processes", by_processes)):
        ut.manual_seed(chosen.seed)
        model = network()
        curves[name] = [loss_of(model)]
        for turn in range(rounds):
            run(model, workers=2, steps=steps)
            curves[name].append(loss_of(model))
            print(f"2 {name}, round {turn + 1} of {rounds}: loss {curves[name][-1]:.4f}")

    def draw(axes: object) -> None:
        for name, losses in curves.items():
            axes.semilogy(losses, "o-", label=f"2 {name}")
        label = f"round ({steps} steps of each worker)"
        axes.set(title="Training without locks", xlabel=label, xticks=range(rounds + 1), ylabel="mean squared error")
        axes.legend()

    plot(chosen.plot, draw)
    return max(losses[0] for losses in curves.values()), max(losses[-1] for losses in curves.values())


if __name__ == "__main__":
    main()

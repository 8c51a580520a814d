"""Programs as people write them, on both devices: the same losses and the same parameters after a few steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.cuda.conftest import REAL

Numbers = Callable[..., Any]


def drawn(lib: Any, device: str) -> Numbers:
    """Random numbers that are the same for every library and device."""
    rng = np.random.default_rng(0)
    return lambda *shape: lib.tensor(rng.normal(size=shape).astype("float32"), device=device)


def layers(lib: Any, device: str, *modules: Any) -> Any:
    model, numbers = lib.nn.Sequential(*modules).to(device), drawn(lib, device)
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(numbers(*p.shape) * 0.3)
    return model


def diffusion(lib: Any, device: str) -> Iterator[Any]:
    nn, numbers = lib.nn, drawn(lib, device)
    net = layers(
        lib, device, nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 2, 3, padding=1)
    )
    steps = lib.optim.AdamW(net.parameters(), lr=1e-3)
    kept = lib.cumprod(1 - lib.linspace(1e-4, 0.02, 50, device=device), 0)
    for _ in range(3):
        clean, noise, t = numbers(4, 2, 8, 8), numbers(4, 2, 8, 8), lib.tensor([3, 10, 20, 40], device=device)
        share = kept[t].view(-1, 1, 1, 1)
        noisy = share.sqrt() * clean + (1 - share).sqrt() * noise
        when = (t.float() / 50).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
        loss = lib.nn.functional.mse_loss(net(lib.cat([noisy, when], 1)), noise)
        steps.zero_grad()
        loss.backward()
        lib.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        steps.step()
        yield loss


def adversaries(lib: Any, device: str) -> Iterator[Any]:
    nn, numbers, f = lib.nn, drawn(lib, device), lib.nn.functional
    maker = layers(lib, device, nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 6), nn.Tanh())
    judge = layers(lib, device, nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    of_maker, of_judge = (lib.optim.Adam(m.parameters(), lr=1e-3, betas=(0.5, 0.9)) for m in (maker, judge))
    for _ in range(3):
        real, made = numbers(8, 6), maker(numbers(8, 4))
        ones, zeros = lib.ones(8, 1, device=device), lib.zeros(8, 1, device=device)
        lost = f.binary_cross_entropy_with_logits(judge(real), ones)
        lost = lost + f.binary_cross_entropy_with_logits(judge(made.detach()), zeros)
        of_judge.zero_grad()
        lost.backward()
        of_judge.step()
        fooled = f.binary_cross_entropy_with_logits(judge(made), ones)
        of_maker.zero_grad()
        fooled.backward()
        of_maker.step()
        yield from (lost, fooled)


def graph_network(lib: Any, device: str) -> Iterator[Any]:
    numbers = drawn(lib, device)
    x, weight = numbers(10, 4), numbers(4, 3).requires_grad_()
    source = lib.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 3], device=device)
    target = lib.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 5, 9], device=device)
    degree = lib.zeros(10, device=device).scatter_add(0, target, lib.ones(12, device=device))
    for _ in range(2):
        messages = (x @ weight)[source] / degree[target].unsqueeze(1)
        gathered = lib.zeros(10, 3, device=device).index_add(0, target, messages)
        largest = lib.full((10, 3), -9.0, device=device).scatter_reduce(
            0, target.unsqueeze(1).expand(-1, 3), messages, "amax"
        )
        (gradient,) = lib.autograd.grad((gathered.relu() * largest).sum(), weight)
        with lib.no_grad():
            weight -= 0.01 * gradient
        yield gradient


def packed_sequences(lib: Any, device: str) -> Iterator[Any]:
    nn, numbers = lib.nn, drawn(lib, device)
    rnn, head = nn.GRU(3, 5, batch_first=True).to(device), layers(lib, device, nn.Linear(5, 2))
    with lib.no_grad():
        for p in rnn.parameters():
            p.copy_(numbers(*p.shape) * 0.3)
    x, lengths = numbers(3, 6, 3), lib.tensor([6, 4, 2])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    out, last = rnn(packed)
    padded, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    loss = nn.functional.cross_entropy(head(last[0]), lib.tensor([0, 1, 1], device=device)) + padded.square().mean()
    loss.backward()
    yield from (loss, padded, *[p.grad for p in rnn.parameters()])


def variational(lib: Any, device: str) -> Iterator[Any]:
    nn, numbers, f = lib.nn, drawn(lib, device), lib.nn.functional
    encoder, decoder = layers(lib, device, nn.Linear(6, 8)), layers(lib, device, nn.Linear(4, 6))
    steps = lib.optim.RMSprop([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for _ in range(3):
        x, noise = numbers(5, 6).sigmoid(), numbers(5, 4)
        mean, log_variance = encoder(x).chunk(2, 1)
        z = mean + noise * (0.5 * log_variance).exp()
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
        loss = f.binary_cross_entropy_with_logits(decoder(z), x, reduction="sum") / 5 + divergence
        steps.zero_grad()
        loss.backward()
        steps.step()
        yield loss


def policy(lib: Any, device: str) -> Iterator[Any]:
    nn, numbers = lib.nn, drawn(lib, device)
    actor = layers(lib, device, nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    choices = lib.distributions.Categorical(logits=actor(numbers(6, 4)))
    actions, rewards = lib.tensor([0, 1, 2, 0, 1, 2], device=device), numbers(6)
    drawn_actions = choices.sample()
    assert drawn_actions.device.type == device and int(drawn_actions.max()) < 3
    returns = rewards.flip(0).cumsum(0).flip(0)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = -(choices.log_prob(actions) * returns).mean() - 0.01 * choices.entropy().mean()
    loss.backward()
    yield from (loss, *[p.grad for p in actor.parameters()])


def curvature(lib: Any, device: str) -> Iterator[Any]:
    numbers = drawn(lib, device)
    x, w, v = numbers(7, 3), numbers(3).requires_grad_(), numbers(3)
    loss = lib.nn.functional.softplus(x @ w).sum() + (w.tanh() ** 2).sum()
    (gradient,) = lib.autograd.grad(loss, w, create_graph=True)
    (product,) = lib.autograd.grad(gradient @ v, w, retain_graph=True)
    yield from (product, lib.stack([lib.autograd.grad(g, w, retain_graph=True)[0] for g in gradient]))
    yield lib.autograd.functional.hessian(lambda w: (x @ w).sigmoid().sum(), w.detach())


def per_sample(lib: Any, device: str) -> Iterator[Any]:
    numbers = drawn(lib, device)
    weight, x, y = numbers(3, 4), numbers(5, 4), lib.tensor([0, 2, 1, 1, 0], device=device)
    loss = lambda w, x, y: lib.nn.functional.cross_entropy((w @ x).unsqueeze(0), y.unsqueeze(0))
    gradients = lib.func.vmap(lib.func.grad(loss), in_dims=(None, 0, 0))(weight, x, y)
    norms = gradients.flatten(1).norm(dim=1)
    yield from (gradients, norms, (gradients * (1 / norms.clamp(min=1)).view(-1, 1, 1)).mean(0))


def mixed_precision(lib: Any, device: str) -> Iterator[Any]:
    nn, numbers = lib.nn, drawn(lib, device)
    model = layers(lib, device, nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    steps, scaler = lib.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), lib.amp.GradScaler(device, 1024.0)
    for _ in range(3):
        with lib.autocast(device, dtype=lib.bfloat16):
            loss = nn.functional.cross_entropy(model(numbers(6, 8)), lib.tensor([0, 1, 2, 3, 0, 1], device=device))
        steps.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(steps)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(steps)
        scaler.update()
        yield loss


def embeddings(lib: Any, device: str) -> Iterator[Any]:
    numbers, nn = drawn(lib, device), lib.nn
    table, bag = nn.Embedding(12, 4, padding_idx=0).to(device), nn.EmbeddingBag(12, 4, mode="mean").to(device)
    with lib.no_grad():
        for module in (table, bag):
            module.weight.copy_(numbers(12, 4))
    steps = lib.optim.Adagrad([*table.parameters(), *bag.parameters()], lr=0.1)
    for _ in range(2):
        words = lib.tensor([[1, 3, 1], [7, 0, 11]], device=device)
        loss = (table(words).mean(1) * bag(words)).sum()
        steps.zero_grad()
        loss.backward()
        steps.step()
        yield from (loss, table.weight)


PROGRAMS = [adversaries, packed_sequences, variational, curvature, per_sample, embeddings]
#: those with many kernels, which take a compiler of the host too long
FOR_A_GPU = [diffusion, graph_network, policy, mixed_precision]


def results(program: Callable[[Any, str], Iterator[Any]], lib: Any, device: str) -> list[Any]:
    lib.manual_seed(0)
    return [t.detach().float().cpu().numpy().copy() for t in program(lib, device)]


@pytest.mark.parametrize("program", PROGRAMS + FOR_A_GPU * REAL, ids=lambda program: program.__name__)
def test_programs_give_the_same_on_both_devices(program: Callable[[Any, str], Iterator[Any]]) -> None:
    tolerance = 0.05 if program is mixed_precision else 1e-4
    for here, there in zip(results(program, ut, "cpu"), results(program, ut, "cuda"), strict=True):
        assert here.shape == there.shape
        np.testing.assert_allclose(there, here, rtol=tolerance, atol=tolerance)

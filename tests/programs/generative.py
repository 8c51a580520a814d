"""Two networks against each other with a penalty on the gradient, and a denoising one that starts from noise."""

import torch
import torch.nn.functional as F
from torch import autograd, nn, optim

torch.manual_seed(5)
maker = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(True), nn.Linear(16, 2))
judge = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1))
makers = optim.Adam(maker.parameters(), lr=1e-2, betas=(0.5, 0.9))
judges = optim.RMSprop(judge.parameters(), lr=1e-2)
for step in range(6):
    real, noise = torch.randn(8, 2) * 0.3 + 1, torch.randn(8, 3)
    fake = maker(noise).detach()
    share = torch.rand(8, 1)
    between = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = autograd.grad(judge(between).sum(), between, create_graph=True)
    penalty = (slope.norm(2, dim=1) - 1).square().mean()
    loss = judge(fake).mean() - judge(real).mean() + 10 * penalty
    judges.zero_grad()
    loss.backward()
    judges.step()
    judge.requires_grad_(False)
    makers.zero_grad()
    gain = -judge(maker(noise)).mean()
    gain.backward()
    makers.step()
    judge.requires_grad_(True)
    print(f"{step} judge {loss.item():.5f} maker {gain.item():.5f} penalty {penalty.item():.5f}")

steps = 10
kept = torch.cumprod(1 - torch.linspace(1e-3, 0.2, steps), dim=0)
cleaner = nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv1d(8, 1, 3, padding=1))
optimizer = optim.Adam(cleaner.parameters(), 1e-2)
clean = torch.sin(torch.linspace(0, 6, 12)).repeat(4, 1, 1)
for _ in range(4):
    time = torch.randint(steps, (4,))
    noise, part = torch.randn_like(clean), kept.gather(0, time)[:, None, None]
    noisy = part.sqrt() * clean + (1 - part).sqrt() * noise
    loss = F.smooth_l1_loss(cleaner(torch.cat([noisy, part.expand_as(noisy)], 1)), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")

"""An agent that learns by sampling its actions: Categorical and Normal policies, a critic, a soft copy of it."""

import copy
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical, Normal

torch.manual_seed(4)
np.random.seed(4)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.choice, self.value = nn.Linear(3, 12), nn.Linear(12, 4), nn.Linear(12, 1)
        self.force, self.log_spread = nn.Linear(12, 1), nn.Parameter(torch.zeros(1))
        for layer in (self.body, self.choice):
            nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"))

    def forward(self, state):
        x = F.relu(self.body(state))
        return Categorical(logits=self.choice(x)), Normal(self.force(x), self.log_spread.exp()), self.value(x)


agent = Agent()
slow = copy.deepcopy(agent).requires_grad_(False)
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2, eps=1e-5)
for episode in range(4):
    logs, values, rewards, bonuses = [], [], [], []
    state = torch.from_numpy(np.random.randn(1, 3)).float()
    for _ in range(10):
        choice, force, value = agent(state)
        action, push = choice.sample(), force.sample()
        logs.append(choice.log_prob(action) + force.log_prob(push).sum(-1))
        bonuses.append(choice.entropy() + force.entropy().sum(-1))
        values.append(value.squeeze(-1))
        rewards.append(float(action.item() == 2) - push.abs().item())
        state = torch.FloatTensor(np.random.randn(1, 3)) + 0.1 * push
    returns, total = deque(), 0.0
    for reward in rewards[::-1]:
        total = reward + 0.9 * total
        returns.appendleft(total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    gain = returns - torch.cat(values).detach()
    loss = -(torch.cat(logs) * gain).mean() + F.smooth_l1_loss(torch.cat(values), returns)
    loss = loss - 0.01 * torch.cat(bonuses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for p, q in zip(agent.parameters(), slow.parameters(), strict=True):
        q.data.mul_(0.9).add_(p.data, alpha=0.1)
    print(episode, f"{loss.item():.5f}", np.round(rewards, 3).tolist())
print(slow(torch.ones(1, 3))[2])

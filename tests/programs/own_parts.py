"""Subclasses of what PyTorch lets a program define: an optimizer, a schedule, a sampler, a function, a layer."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, IterableDataset, Sampler


class Signs(Optimizer):
    def __init__(self, params, lr=1e-2, keep=0.9):
        super().__init__(params, dict(lr=lr, keep=keep))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    memory = self.state[p].setdefault("memory", torch.zeros_like(p))
                    memory.mul_(group["keep"]).add_(p.grad, alpha=1 - group["keep"])
                    p.add_(memory.sign(), alpha=-group["lr"])
        return loss


class Roots(LRScheduler):
    def get_lr(self):
        return [lr / (1 + self.last_epoch) ** 0.5 for lr in self.base_lrs]


class Neighbours(Sampler):
    def __init__(self, count, size):
        self.batches = torch.arange(count).split(size)

    def __iter__(self):
        yield from (self.batches[i].tolist() for i in torch.randperm(len(self.batches)))

    def __len__(self):
        return len(self.batches)


class Stream(IterableDataset):
    def __iter__(self):
        return ({"number": n, "text": f"n{n}"} for n in range(5))


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return torch.round(x * scale) / scale

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 - 1 / ctx.scale), None


class Scaled(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.factors = nn.ParameterList([torch.ones(size), torch.zeros(size)])
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        self.calls += 1
        return Round.apply(x, 8) * self.factors[0] + self.factors[1]

    def extra_repr(self):
        return f"size={len(self.factors[0])}"


torch.manual_seed(7)
model = nn.Sequential(nn.Linear(2, 4), Scaled(4), nn.Softplus(), nn.Linear(4, 1))
first = [{"params": model[0].parameters(), "lr": 5e-2}, {"params": model[3].parameters()}]
optimizer = Signs(first, lr=1e-2)
optimizer.add_param_group({"params": model[1].parameters(), "keep": 0.5})
scheduler = Roots(optimizer)
x = torch.randn(12, 2)
y = x.prod(1, keepdim=True)
loader = DataLoader(list(zip(x, y, strict=True)), batch_sampler=Neighbours(12, 4))
for epoch in range(3):
    for inputs, wanted in loader:

        def closure(inputs=inputs, wanted=wanted):
            optimizer.zero_grad()
            loss = F.l1_loss(model(inputs), wanted)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
    scheduler.step()
    print(epoch, f"{loss.item():.5f}", [round(lr, 6) for lr in scheduler.get_last_lr()], model[1].calls)
print(model, optimizer)
print(optimizer.state_dict()["param_groups"], list(model.state_dict()))
print(list(DataLoader(Stream(), batch_size=2)))
handle = model[1].register_forward_hook(lambda module, args, out: out.clamp(min=0))
print(torch.equal(model[1](x[:1].repeat(1, 2)), F.relu(model[1](x[:1].repeat(1, 2)))))
handle.remove()

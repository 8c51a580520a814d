"""A small transformer with tied weights: parameter groups, warm-up and cosine, accumulated and clipped gradients."""

import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
SYMBOLS, CONTEXT, WIDTH = 11, 8, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        parts = self.heads(self.before(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.mixed(seen.transpose(1, 2).flatten(2))
        return x + self.wide(self.between(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbols, self.places = nn.Embedding(SYMBOLS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers, self.norm = nn.ModuleList(Layer() for _ in range(2)), nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, SYMBOLS, bias=False)
        self.out.weight = self.symbols.weight
        self.apply(self.start)

    @staticmethod
    def start(module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.05)

    def forward(self, index):
        x = self.symbols(index) + self.places(torch.arange(index.size(1)))
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))


data = torch.arange(400).pow(2).remainder(SYMBOLS)
model = Model()
matrices, others = [], []
for _, p in model.named_parameters():
    (matrices if p.dim() > 1 else others).append(p)
groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=2e-2, betas=(0.9, 0.95))
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: (step + 1) / 4 if step < 4 else 0.5 * (1 + math.cos(math.pi * (step - 4) / 16))
)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(model.state_dict())} names")
for step in range(12):
    for _ in range(2):
        starts = torch.randint(len(data) - CONTEXT, (6,))
        batch = torch.stack([data[i : i + CONTEXT + 1] for i in starts])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()) / 2
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"{step:2d} loss {2 * loss.item():.4f} norm {norm.item():.4f} lr {schedule.get_last_lr()[0]:.6f}")

model.eval()
text = torch.zeros(1, 1, dtype=torch.long)
with torch.no_grad():
    for _ in range(12):
        scores = model(text[:, -CONTEXT:])[:, -1]
        scores[scores < scores.topk(5).values[:, [-1]]] = -float("inf")
        text = torch.cat([text, torch.multinomial(scores.softmax(-1), 1)], dim=1)
print(text)

"""Embeddings with sparse gradients, negative samples, averaged weights, and messages along the edges of a graph."""

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.swa_utils import AveragedModel

torch.manual_seed(9)
words, context = nn.Embedding(15, 5, sparse=True), nn.EmbeddingBag(15, 5, mode="sum", sparse=True)
weights = [words.weight, context.weight]
optimizer = optim.SparseAdam(weights, lr=0.05)
frequency = torch.arange(1, 16).float() ** 0.75
for step in range(4):
    center, near = torch.randint(15, (6,)), torch.randint(15, (6, 2))
    other = torch.multinomial(frequency, 12, replacement=True).view(6, 2)
    score = lambda bag, center=center: (words(center) * context(bag)).sum(1)
    loss = -(F.logsigmoid(score(near)) + F.logsigmoid(-score(other))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.5f}", words.weight.grad.is_sparse, words.weight.grad.coalesce().indices().tolist())
print(F.cosine_similarity(words.weight[:1], words.weight).topk(3).indices)

nodes, edges = torch.randn(8, 3), torch.randint(8, (2, 20))
kinds, known = torch.arange(8) % 2, torch.tensor([True] * 6 + [False] * 2)


class Messages(nn.Module):
    def __init__(self, size, out):
        super().__init__()
        self.linear = nn.Linear(size, out)

    def forward(self, x):
        source, target = edges
        count = torch.zeros(8).scatter_add_(0, target, torch.ones(20)).clamp(min=1)
        return (
            torch.zeros(8, self.linear.out_features).index_add(0, target, self.linear(x)[source]) / count[:, None]
            + x.mean()
        )


graph = nn.ModuleList([Messages(3, 6), Messages(6, 2)])
average = AveragedModel(graph)
optimizer = optim.RAdam(graph.parameters(), lr=1e-2, weight_decay=1e-3)
for _ in range(4):
    hidden = F.dropout(F.elu(graph[0](nodes)), 0.4)
    loss = F.nll_loss(graph[1](hidden).log_softmax(1)[known], kinds[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(graph)
    print(f"{loss.item():.5f}")
print(average.n_averaged, average.module[0].linear.bias)

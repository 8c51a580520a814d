import os
import time

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29633", RANK="0", WORLD_SIZE="1")
import torch
from torch import nn

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
N = 300


class Many(nn.Module):
    def __init__(s):
        super().__init__()
        s.p = nn.ParameterList([nn.Parameter(torch.randn(8, 8) * 0.35) for _ in range(N)])

    def forward(s, x):
        for p in s.p:
            x = x @ p
        return x


plain, hooked, joined = Many(), Many(), nn.parallel.DistributedDataParallel(Many())
for p in hooked.parameters():
    p.register_post_accumulate_grad_hook(lambda t: None)
x = torch.randn(4, 8) * 0.01


def step(m):
    for p in m.parameters():
        p.grad = None
    y = m(x).sum()
    t = time.perf_counter()
    y.backward()
    return time.perf_counter() - t


a, b, c = [], [], []
for _ in range(150):
    a.append(step(plain))
    c.append(step(hooked))
    b.append(step(joined))
print(
    "torch plain", min(a) * 1e6 / N, "trivial hook +", (min(c) - min(a)) / N * 1e6, "ddp +", (min(b) - min(a)) / N * 1e6
)

"""`call_for_per_sample_grads`: gradients of parameters for each example, where a batch goes through a model at once.

What is compared with PyTorch is written once; undertow runs it in a process of its own, because functions ask classes
from the first one with `__torch_function__` on, and for good.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from types import ModuleType

BOTH = """
from torch import nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads as call

class Model(nn.Module):  # one layer of each kind that has gradients for each example, one used twice, and one frozen
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, groups=2)
        self.group = nn.GroupNorm(2, 4)
        self.instance = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        self.linear, self.layer, self.twice = nn.Linear(64, 5), nn.LayerNorm(5), nn.Linear(5, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.last = nn.Conv1d(1, 2, 2, bias=False)
    def forward(self, x):
        x = self.instance(self.group(self.conv(x)).relu()).flatten(1)
        x = self.frozen(self.twice(self.twice(self.layer(self.linear(x))).tanh()))
        return self.last(x.unsqueeze(1)).flatten(1).square().sum(1)

torch.manual_seed(0)
model, batch = Model().double(), torch.randn(3, 2, 4, 4).double()
for reduction in ("sum", "mean"):
    alone = []
    for example in batch:
        model.zero_grad()
        model(example.unsqueeze(0)).sum().backward()
        alone.append({name: p.grad for name, p in model.named_parameters()})
    model.zero_grad()
    getattr(call(model, loss_reduction=reduction)(batch), reduction)().backward()
    for name, p in model.named_parameters():
        if p.requires_grad:
            same = torch.allclose(p.grad_sample, torch.stack([grads[name] for grads in alone]), rtol=1e-9, atol=1e-12)
            print(name, tuple(p.grad_sample.shape), p.grad, same)
            p.grad_sample = None
        else:
            print(name, hasattr(p, "grad_sample"))

words = nn.Embedding(4, 2)
call(words)(torch.tensor([[0, 0, 1], [2, 3, 3]])).sum().backward()
print(words.weight.grad_sample[..., 0].tolist())

class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)
    def forward(self, x):
        return self.linear(x[0])

first = First()
call(first, batch_first=False)(torch.tensor([[[2.0], [3.0]]])).sum().backward()
print(first.linear.weight.grad_sample.flatten().tolist())

batch, linear = torch.ones(4, 3), nn.Linear(3, 2)
used = nn.Linear(3, 2)
call(used)(batch).sum().backward()
for model, options, arguments, words in [
    (nn.BatchNorm1d(3), {}, [batch], "cannot handle function batch_norm"),
    (linear, {"batch_size": 5}, [batch], "batch size matching input"),
    (linear, {"batch_size": 0}, [batch], "Batch size must be positive"),
    (linear, {"batch_size": "4"}, [batch], "must be None or an integer"),
    (linear, {"loss_reduction": "max"}, [batch], "to be sum or mean"),
    (torch.ones, {}, [batch], "must be nn.Module"),
    (linear, {}, [], "Unable to find a tensor"),
    (linear, {}, [batch, torch.ones(2, 3)], "found at least one input with batch size"),
    (used, {}, [batch], "without clearing gradients"),
]:
    try:
        call(model, **options)(*arguments)
        print("not refused")
    except RuntimeError as error:
        print(words, words in str(error))
"""


def test_programs_print_what_they_print_with_pytorch(torch: ModuleType) -> None:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        exec(BOTH, {"torch": torch, "__name__": "__main__"})
    assert "False" not in text.getvalue().replace("frozen.weight False", "").replace("frozen.bias False", "")
    command = [sys.executable, "-m", "undertow", "run", "-c", "import torch\n" + BOTH]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == text.getvalue(), done.stderr

"""Training that is interrupted, saved, and goes on with the same numbers as training that is not."""

import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

folder = tempfile.mkdtemp()


def built():
    torch.manual_seed(6)
    x = torch.randn(24, 4)
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.PReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, T_mult=2)
    return model, optimizer, scheduler, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8, shuffle=True)


def trained(model, optimizer, scheduler, loader, epochs):
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
    return losses


whole = trained(*built(), 4)
model, optimizer, scheduler, loader = built()
first = trained(model, optimizer, scheduler, loader, 2)
path = os.path.join(folder, "checkpoint.pth.tar")
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
torch.save({"epoch": 2, "rng": torch.get_rng_state(), **{k: v.state_dict() for k, v in parts.items()}}, path)

model, optimizer, scheduler, loader = built()
torch.manual_seed(77)
state = torch.load(path, map_location=lambda storage, place: storage, weights_only=True)
print(model.load_state_dict(state["model"]), state["epoch"])
optimizer.load_state_dict(state["optimizer"])
scheduler.load_state_dict(state["scheduler"])
torch.set_rng_state(state["rng"])
print(first + trained(model, optimizer, scheduler, loader, 2) == whole, scheduler.get_last_lr())
print([round(loss, 4) for loss in whole])
partial = {k: v for k, v in state["model"].items() if not k.startswith("4")}
print(model.load_state_dict(partial, strict=False))

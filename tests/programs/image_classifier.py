"""A residual network: loaders that shuffle, batch normalization, momentum, label smoothing, a plateau, evaluation."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset, random_split


class Pictures(Dataset):
    def __init__(self, count):
        self.kinds = torch.arange(count) % 3
        self.pictures = torch.rand(count, 1, 8, 8)
        self.pictures[self.kinds == 0, :, :4] += 0.5
        self.pictures[self.kinds == 1, :, :, :4] += 0.5

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        return self.pictures[index], int(self.kinds[index])


class Residual(nn.Module):
    def __init__(self, width, wider, stride):
        super().__init__()
        self.first = nn.Conv2d(width, wider, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(wider), nn.BatchNorm2d(wider)])
        self.short = nn.Conv2d(width, wider, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)), inplace=True)
        y = self.norms[1](self.second(y))
        y += self.short(x)
        return F.relu(y)


torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
training, testing = random_split(Pictures(60), [48, 12], generator=torch.Generator().manual_seed(2))
loader = DataLoader(training, batch_size=16, shuffle=True, num_workers=0)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1), Residual(4, 4, 1), Residual(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Dropout(0.1), nn.Linear(8, 3),
).to(device)  # fmt: skip
for module in model.modules():
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
for epoch in range(4):
    model.train()
    total, right = 0.0, 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        total += loss.item() * x.size(0)
        right += out.argmax(1).eq(y).sum().item()
    model.eval()
    with torch.no_grad():
        x, y = next(iter(DataLoader(testing, batch_size=12)))
        after = criterion(model(x), y)
    scheduler.step(after)
    print(f"epoch {epoch}: {total / len(training):.4f}, {right}/{len(training)} right, then {after:.4f}")
    print(optimizer.param_groups[0]["lr"], model[1].norms[0].running_mean[:2], model[1].norms[0].num_batches_tracked)
print(model)

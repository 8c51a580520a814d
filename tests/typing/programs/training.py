"""A classifier, trained from a DataLoader; saved, and loaded again."""

import tempfile
from pathlib import Path

from undertow.utils.data import DataLoader, Dataset, TensorDataset

import undertow as ut
import undertow.nn.functional as F
from undertow import nn, optim
from undertow.optim.lr_scheduler import CosineAnnealingLR, StepLR


class Classifier(nn.Module):
    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.drop = nn.Dropout(0.1)
        self.last = nn.Linear(hidden, classes)
        self.scale = nn.Parameter(ut.ones(1))
        self.register_buffer("steps", ut.zeros(1, dtype=ut.int64))

    def forward(self, x: ut.Tensor) -> ut.Tensor:
        x = F.relu(self.norm(self.first(x.flatten(1))))
        return self.last(self.drop(x)) * self.scale


class Squares(Dataset):
    def __init__(self, n: int) -> None:
        self.points = ut.linspace(0, 1, n)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[ut.Tensor, ut.Tensor]:
        point = self.points[index]
        return point, point**2


def accuracy(logits: ut.Tensor, target: ut.Tensor) -> float:
    return (logits.argmax(dim=1) == target).float().mean().item()


def train(epochs: int = 2) -> float:
    ut.manual_seed(0)
    x, y = ut.randn(64, 8), ut.randint(0, 3, (64,))
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, drop_last=True)
    model = Classifier(8, 16, 3)
    optimizer = optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4)
    scheduler = CosineAnnealingLR(optimizer, T_max=epochs)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    total = 0.0
    for _epoch in range(epochs):
        model.train()
        for batch, target in loader:
            optimizer.zero_grad(set_to_none=True)
            logits = model(batch)
            loss = criterion(logits, target) + 0.5 * F.cross_entropy(logits, target, reduction="sum") / len(target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            total += loss.item()
        scheduler.step()
    model.eval()
    with ut.no_grad():
        total += accuracy(model(x), y)
    return total


def regress() -> ut.Tensor:
    model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = ut.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = StepLR(optimizer, step_size=5)
    loss = ut.zeros(())
    for point, square in DataLoader(Squares(8), batch_size=4):
        loss = F.mse_loss(model(point.unsqueeze(1)).squeeze(1), square)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            print(name, tuple(parameter.shape), float(parameter.grad.abs().max()))
    return loss


def save_and_load(folder: Path) -> bool:
    model = Classifier(8, 16, 3)
    ut.save(model.state_dict(), folder / "model.pt")
    other = Classifier(8, 16, 3)
    other.load_state_dict(ut.load(folder / "model.pt"))
    return ut.equal(model.first.weight, other.first.weight)


if __name__ == "__main__":
    print(f"{train():.3f} {regress().item():.3f}")
    with tempfile.TemporaryDirectory() as name:
        assert save_and_load(Path(name))

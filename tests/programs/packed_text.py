"""Sentences of different lengths: a collate function, packed sequences, a bidirectional GRU, attention, OneCycleLR."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(3)
sentences = [torch.randint(1, 9, (int(n),)) for n in torch.randint(2, 8, (30,))]
data = [(sentence, float(sentence.sum() % 2)) for sentence in sentences]


def collate(batch):
    texts, labels = zip(*batch, strict=True)
    return pad_sequence(texts, batch_first=True), torch.tensor([len(t) for t in texts]), torch.tensor(labels)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 6, padding_idx=0)
        self.gru = nn.GRU(6, 5, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.weigh, self.out = nn.Linear(10, 1), nn.Linear(10, 1)

    def forward(self, texts, lengths):
        packed = pack_padded_sequence(self.words(texts), lengths, batch_first=True, enforce_sorted=False)
        states, lengths = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        there = torch.arange(states.size(1)) < lengths[:, None]
        weights = self.weigh(states).squeeze(-1).masked_fill(~there, float("-inf")).softmax(-1)
        return self.out((weights[..., None] * states).sum(1)).squeeze(-1)


model = Reader()
loader = DataLoader(data, batch_size=7, shuffle=True, collate_fn=collate)
optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, epochs=3, steps_per_epoch=len(loader))
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(1.5))
for epoch in range(3):
    for texts, lengths, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(texts, lengths), labels)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
    print(epoch, f"{loss.item():.5f}", scheduler.get_last_lr(), model.words.weight[0].abs().sum().item())

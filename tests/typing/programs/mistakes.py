"""Programs with mistakes: each line that says so must be reported, and no other."""

import undertow as ut
import undertow.nn.functional as F
from undertow import nn, optim
from undertow.utils.data import DataLoader

x = ut.randn(3, 4, requires_grad=True)
x.sumn()  # mistake
ut.sinn(x)  # mistake
x.sum(dims=0)  # mistake
F.cross_entropi(x, x)  # mistake
F.cross_entropy(x)  # mistake
F.cross_entropy(x, x, reduktion="sum")  # mistake
ut.linalg.choleski(x)  # mistake
ut.linalg.svd(x, full_matrix=True)  # mistake
n: int = x.sum()  # mistake
text: str = ut.zeros(2)  # mistake
ut.zeros("two")  # mistake
x + "one"  # mistake
x["one"]  # mistake
x.grad.sum()  # mistake
x.reshape(2.5)  # mistake
x.transpose(0)  # mistake
x.max(dim=0).value  # mistake
ut.cat(x, x, x)  # mistake
ut.fft.rft(x)  # mistake
nn.Lineer(2, 2)  # mistake
nn.Linear(2)  # mistake
optim.Adam(nn.Linear(2, 2).parameters(), learning_rate=0.1)  # mistake
DataLoader([1, 2], batchsize=2)  # mistake
x.requires_gradd_()  # mistake
x.shape.numell()  # mistake
x.device = "cpu"  # mistake
for _ in x.ndim:  # mistake
    pass

"""What a checker knows of an expression: the type that the comment behind it names."""

from typing import reveal_type

import undertow as ut
import undertow.nn.functional as F
from undertow import nn
from undertow.autograd import grad

x = ut.randn(3, 4)
reveal_type(x)  # Tensor
reveal_type(x.sin())  # Tensor
reveal_type(x + 1)  # Tensor
reveal_type(2.0 * x)  # Tensor
reveal_type(x @ x.T)  # Tensor
reveal_type(x > 0)  # Tensor
reveal_type(x == 0)  # Tensor
reveal_type(x[0])  # Tensor
reveal_type(x.grad)  # Tensor | None
reveal_type(x.shape)  # Size
reveal_type(x.shape[0])  # int
reveal_type(x.size(0))  # int
reveal_type(x.requires_grad)  # bool
reveal_type(x.max())  # Tensor
reveal_type(x.max(dim=0).indices)  # Tensor
reveal_type(x.split(2))  # tuple[Tensor, ...]
reveal_type(x.nonzero(as_tuple=True))  # tuple[Tensor, ...]
reveal_type(x.add_(1))  # Tensor
reveal_type(x.tolist())  # Any
reveal_type(x.item())  # int | float | bool
reveal_type(ut.cat([x, x]))  # Tensor
reveal_type(ut.std_mean(x))  # tuple[Tensor, Tensor]
reveal_type(ut.linalg.det(x))  # Tensor
reveal_type(ut.linalg.svd(x).S)  # Tensor
reveal_type(ut.fft.fft(x))  # Tensor
reveal_type(ut.equal(x, x))  # bool
reveal_type(F.softmax(x, dim=1))  # Tensor
reveal_type(F.max_pool1d(x, 2, return_indices=True))  # tuple[Tensor, Tensor]
reveal_type(F.max_pool1d(x, 2))  # Tensor
reveal_type(nn.Linear(2, 2))  # Linear
reveal_type(nn.Linear(2, 2).weight)  # Parameter
reveal_type(nn.Linear(2, 2)(x))  # Any
reveal_type(grad(x.sum(), x))  # tuple[Tensor, ...]

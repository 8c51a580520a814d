"""Names of PyTorch's for what undertow has elsewhere, or by another name."""

import undertow.backends.cudnn as cudnn
from undertow.distributions.normal import Normal
from undertow.nn.modules.batchnorm import _BatchNorm
from undertow.nn.modules.conv import _ConvNd
from undertow.nn.modules.utils import _pair
from undertow.utils.checkpoint import checkpoint
from undertow.utils.data import Dataset
from undertow.utils.data.sampler import Sampler

import undertow as ut
from undertow import nn
from undertow.autograd.functional import jacobian
from undertow.masked import masked_tensor
from undertow.nn.utils import clip_grad_norm_

place: ut.device = ut.device("cuda" if ut.cuda.is_available() else "cpu")
cudnn.benchmark = True
ut.backends.cudnn.deterministic = True
accelerator = ut.accelerator.current_accelerator() if ut.accelerator.is_available() else place


class Order(Sampler):
    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset


def normalizations(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def convolutions(model: nn.Module) -> int:
    return sum(isinstance(module, _ConvNd) for module in model.modules())


model = nn.Sequential(nn.Conv2d(1, 2, _pair(3)), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 1)).to(place)
x = ut.randn(3, 1, 4, 4, device=place)
loss = checkpoint(model, x, use_reentrant=False).sum()
loss.backward()
clip_grad_norm_(model.parameters(), 1.0)
assert (len(normalizations(model)), convolutions(model)) == (1, 1)

with ut.random.fork_rng():
    ut.random.manual_seed(1)
    draws = Normal(0.0, 1.0).sample((2,))
shape = ut.broadcast_shapes((2, 1), (3,))
assert ut.is_nonzero(draws.sum()) and tuple(shape) == (2, 3)
rows = jacobian(lambda t: t.sin(), draws)
some = masked_tensor(draws, draws > 0)
assert ut.sim.device_count() >= 0

"""Optimizers: what changes parameters, given their gradients, so that a loss falls.

>>> import undertow as ut
>>> w = ut.zeros(2, requires_grad=True)
>>> optimizer = ut.optim.Adam([w], lr=0.1)
>>> for _ in range(200):
...     loss = ((w - ut.tensor([1.0, -2.0])) ** 2).sum()
...     optimizer.zero_grad()
...     loss.backward()
...     optimizer.step()
>>> bool(loss < 1e-4)
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.optim import lr_scheduler as lr_scheduler
from undertow.optim import swa_utils as swa_utils
from undertow.optim.adafactor_muon import Adafactor as Adafactor
from undertow.optim.adafactor_muon import Muon as Muon
from undertow.optim.adam import Adam as Adam
from undertow.optim.adam import Adamax as Adamax
from undertow.optim.adam import AdamW as AdamW
from undertow.optim.adam import NAdam as NAdam
from undertow.optim.adam import RAdam as RAdam
from undertow.optim.adam import SparseAdam as SparseAdam
from undertow.optim.adaptive import Adadelta as Adadelta
from undertow.optim.adaptive import Adagrad as Adagrad
from undertow.optim.adaptive import RMSprop as RMSprop
from undertow.optim.adaptive import Rprop as Rprop
from undertow.optim.lbfgs import LBFGS as LBFGS
from undertow.optim.optimizer import Optimizer as Optimizer
from undertow.optim.sgd import ASGD as ASGD
from undertow.optim.sgd import SGD as SGD
from undertow.torch_names import missing as _absent

if not TYPE_CHECKING:
    __getattr__ = _absent.getter("optim")

"""Masked tensors, reductions of what a mask leaves, and backward passes in which what was not chosen has no part.

>>> import undertow as ut
>>> x = ut.tensor([0.0, 4.0], requires_grad=True)
>>> loss = ut.masked.as_masked_tensor(x.sqrt(), x > 0).sum()
>>> loss.backward()
>>> x.grad
tensor([0.0000, 0.2500])
"""

from undertow.masked.nan_safe import nan_safe as nan_safe
from undertow.masked.reductions import amax as amax
from undertow.masked.reductions import amin as amin
from undertow.masked.reductions import argmax as argmax
from undertow.masked.reductions import argmin as argmin
from undertow.masked.reductions import cumprod as cumprod
from undertow.masked.reductions import cumsum as cumsum
from undertow.masked.reductions import log_softmax as log_softmax
from undertow.masked.reductions import logaddexp as logaddexp
from undertow.masked.reductions import logsumexp as logsumexp
from undertow.masked.reductions import mean as mean
from undertow.masked.reductions import median as median
from undertow.masked.reductions import norm as norm
from undertow.masked.reductions import normalize as normalize
from undertow.masked.reductions import prod as prod
from undertow.masked.reductions import softmax as softmax
from undertow.masked.reductions import softmin as softmin
from undertow.masked.reductions import std as std
from undertow.masked.reductions import sum as sum
from undertow.masked.reductions import var as var
from undertow.masked.tensor import MaskedTensor as MaskedTensor
from undertow.masked.tensor import as_masked_tensor as as_masked_tensor
from undertow.masked.tensor import is_masked_tensor as is_masked_tensor
from undertow.masked.tensor import masked_tensor as masked_tensor

"""`torch.nn.parallel`: undertow's."""

from ..._undertow import forward, late

__getattr__ = forward("nn.parallel.")

DataParallel = late("nn.DataParallel")

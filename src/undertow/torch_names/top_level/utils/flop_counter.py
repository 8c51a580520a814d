"""PyTorch's `torch.utils.flop_counter`."""

from undertow.instrument.flop_counter import FlopCounterMode as FlopCounterMode

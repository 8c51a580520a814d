"""PyTorch's `torch.utils.flop_counter`."""

from undertow.instrument.flop_counter import FlopCounterMode as FlopCounterMode
from undertow.instrument.flop_counter import register_flop_formula as register_flop_formula

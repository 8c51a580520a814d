"""PyTorch's `torch.autograd.profiler`."""

from undertow.instrument.profiler import autograd_profile as profile
from undertow.instrument.profiler import emit_itt as emit_itt
from undertow.instrument.profiler import emit_nvtx as emit_nvtx
from undertow.instrument.profiler import is_enabled as is_enabled
from undertow.instrument.profiler import record_function as record_function
from undertow.torch_names.autograd.profiler_util import EventList as EventList
from undertow.torch_names.autograd.profiler_util import FunctionEvent as FunctionEvent

__all__ = ["EventList", "FunctionEvent", "emit_itt", "emit_nvtx", "is_enabled", "profile", "record_function"]

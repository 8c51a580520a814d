"""PyTorch's `torch.autograd.profiler_util`."""

from undertow.instrument.profiler import EventList as EventList
from undertow.instrument.profiler import FunctionEvent as FunctionEvent
from undertow.instrument.profiler import FunctionEventAvg as FunctionEventAvg
from undertow.instrument.profiler import Interval as Interval
from undertow.instrument.profiler import format_time as _format_time

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "_format_time"]

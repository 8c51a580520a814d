"""PyTorch's `torch.profiler`."""

from undertow.instrument.profiler import ProfilerAction as ProfilerAction
from undertow.instrument.profiler import ProfilerActivity as ProfilerActivity
from undertow.instrument.profiler import is_enabled as is_enabled
from undertow.instrument.profiler import merge_traces as merge_traces
from undertow.instrument.profiler import profile as profile
from undertow.instrument.profiler import record_function as record_function
from undertow.instrument.profiler import schedule as schedule
from undertow.instrument.profiler import supported_activities as supported_activities
from undertow.instrument.profiler import tensorboard_trace_handler as tensorboard_trace_handler


def kineto_available() -> bool:
    """Whether PyTorch's library for traces is there: undertow writes its own.

    >>> import undertow as ut
    >>> ut.profiler.kineto_available()
    False
    """
    return False

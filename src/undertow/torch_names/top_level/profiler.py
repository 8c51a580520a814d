"""PyTorch's profiler, as far as programs need it to run (torch_names/profiling.py)."""

from undertow.torch_names.profiling import DeviceType as DeviceType
from undertow.torch_names.profiling import ProfilerAction as ProfilerAction
from undertow.torch_names.profiling import ProfilerActivity as ProfilerActivity
from undertow.torch_names.profiling import kineto_available as kineto_available
from undertow.torch_names.profiling import profile as profile
from undertow.torch_names.profiling import record_function as record_function
from undertow.torch_names.profiling import schedule as schedule
from undertow.torch_names.profiling import supported_activities as supported_activities
from undertow.torch_names.profiling import tensorboard_trace_handler as tensorboard_trace_handler

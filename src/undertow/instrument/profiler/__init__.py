"""Profiles: what a program does, how long each part takes, and how much memory; torch.profiler's names."""

from undertow.instrument.profiler.chrome_trace import merge_traces as merge_traces
from undertow.instrument.profiler.emitters import emit_itt as emit_itt
from undertow.instrument.profiler.emitters import emit_nvtx as emit_nvtx
from undertow.instrument.profiler.events import EventList as EventList
from undertow.instrument.profiler.events import FunctionEvent as FunctionEvent
from undertow.instrument.profiler.events import FunctionEventAvg as FunctionEventAvg
from undertow.instrument.profiler.events import Interval as Interval
from undertow.instrument.profiler.profile import autograd_profile as autograd_profile
from undertow.instrument.profiler.profile import is_enabled as is_enabled
from undertow.instrument.profiler.profile import profile as profile
from undertow.instrument.profiler.record_function import record_function as record_function
from undertow.instrument.profiler.schedules import ProfilerAction as ProfilerAction
from undertow.instrument.profiler.schedules import ProfilerActivity as ProfilerActivity
from undertow.instrument.profiler.schedules import schedule as schedule
from undertow.instrument.profiler.schedules import supported_activities as supported_activities
from undertow.instrument.profiler.schedules import tensorboard_trace_handler as tensorboard_trace_handler
from undertow.instrument.profiler.table import format_time as format_time

from .._undertow import forward, late

__getattr__ = forward("autograd.profiler_util.")

_format_time = late("autograd.profiler_util._format_time")
EventList = late("autograd.profiler_util.EventList")
FunctionEvent = late("autograd.profiler_util.FunctionEvent")
FunctionEventAvg = late("autograd.profiler_util.FunctionEventAvg")

from .._undertow import forward, late

__getattr__ = forward("profiler.")

_format_time = late("profiler.format_time", "profiler.table.format_time")
EventList = late("profiler.EventList")
FunctionEvent = late("profiler.FunctionEvent")
FunctionEventAvg = late("profiler.FunctionEventAvg")

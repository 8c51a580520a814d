from .._undertow import late

FlopCounterMode = late("profiler.FlopCounterMode")

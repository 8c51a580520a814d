from .._undertow import forward, late

__getattr__ = forward("profiler.")

emit_itt = late("profiler.emit_itt")
emit_nvtx = late("profiler.emit_nvtx")
profile = late("profiler.profile")
record_function = late("profiler.record_function")

from .._undertow import forward, late

__getattr__ = forward("autograd.profiler.")

emit_itt = late("autograd.profiler.emit_itt")
emit_nvtx = late("autograd.profiler.emit_nvtx")
profile = late("autograd.profiler.profile")
record_function = late("autograd.profiler.record_function")

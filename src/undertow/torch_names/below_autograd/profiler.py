"""`undertow.profiler`, under PyTorch's older name."""

from undertow.torch_names.profiling import Events as EventList
from undertow.torch_names.profiling import profile, record_function

emit_nvtx = emit_itt = profile

__all__ = ["EventList", "emit_itt", "emit_nvtx", "profile", "record_function"]

"""Names of PyTorch that undertow does not have: what to use instead."""

from __future__ import annotations

#: of what is called by the same name in PyTorch and is not here
INSTEAD = {
    "bfloat16": "NumPy, whose arrays tensors are made of, has no such type. Use undertow.float16, or float32.",
    "compile": "operations run as they are called, and there is nothing to compile: leave the call out.",
    "from_file": "map the file with numpy.memmap, and share it by undertow.from_numpy.",
    "get_num_threads": "the threads are those of NumPy's BLAS: ask threadpoolctl.threadpool_info().",
    "jit": "models are Python: save their state_dict() with undertow.save, and keep their code.",
    "multiprocessing": "use Python's own multiprocessing; examples/hogwild.py shows how processes share parameters.",
    "quantization": "undertow computes with floats, and models cannot be quantized.",
    "set_default_device": "pass device= where tensors are made; the default is the CPU.",
    "set_float32_matmul_precision": "float32 products are always full float32: leave the call out.",
    "set_num_threads": (
        "the threads are those of NumPy's BLAS: set OMP_NUM_THREADS before Python starts, or use "
        "threadpoolctl.threadpool_limits(n)."
    ),
}
INSTEAD |= {
    f"{kind}Tensor": f"use undertow.tensor(data, dtype=undertow.{dtype}), or zeros and empty for a shape."
    for kind, dtype in {
        "Float": "float32", "Double": "float64", "Half": "float16", "Int": "int32", "Long": "int64", "Bool": "bool",
        "Byte": "uint8",
    }.items()
}  # fmt: skip


def explanation(name: str) -> str:
    reason = INSTEAD.get(name)
    return f"module 'undertow' has no attribute {name!r}" + (f": {reason}" if reason else "")

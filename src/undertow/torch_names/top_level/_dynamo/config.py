"""Switches of PyTorch's compiler, which can be set."""

cache_size_limit = recompile_limit = 8
suppress_errors = verbose = capture_scalar_outputs = False

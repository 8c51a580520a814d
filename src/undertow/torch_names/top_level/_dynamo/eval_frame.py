"""Where PyTorch has the class of compiled modules."""

from . import OptimizedModule, disable, is_dynamo_supported, optimize, reset

__all__ = ["OptimizedModule", "disable", "is_dynamo_supported", "optimize", "reset"]

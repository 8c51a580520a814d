"""The version, and those of the libraries for GPUs that it was built with: none."""

from __future__ import annotations

__version__ = "0.1.0"
cuda: str | None = None
hip: str | None = None

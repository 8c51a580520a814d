"""`torch.version`: of the PyTorch that undertow follows, which has been built for CPUs."""

from __future__ import annotations

from undertow.version import __version__ as undertow_version

__version__ = f"2.13.0+undertow{undertow_version}"
debug = False
cuda: str | None = None
git_version = "undertow"
hip: str | None = None
rocm: str | None = None
xpu: str | None = None

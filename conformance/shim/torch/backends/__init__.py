"""`torch.backends`: libraries PyTorch is built with. Tests of them run and fail here; none is skipped."""

from types import SimpleNamespace

mkldnn = SimpleNamespace(is_available=lambda: True)
mps = SimpleNamespace(is_available=lambda: False)

"""Windows and short-time transforms."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, normal, positive

WINDOWS = [(name, n, p) for name in ("bartlett", "hann", "hamming", "blackman", "kaiser")
           for n in (0, 1, 5, 8) for p in (True, False)]  # fmt: skip


def window_of(name: str) -> Any:
    return lambda torch, n, p, dtype: getattr(torch, f"{name}_window")(n, p, dtype=torch.float64)


SAMPLES = [
    *[Sample(f"{name}_window", n, p, kwargs={"dtype": "float64"}, note=f"{n}-{p}", reference=window_of(name))
      for name, n, p in WINDOWS],
    Sample("stft", normal(20), 8, 3, 6, positive(6), kwargs={"return_complex": True}),
    Sample("stft", normal(2, 20), 8, note="batch",
           kwargs={"return_complex": True, "normalized": True, "onesided": False}),
    Sample("stft", normal(2, 20), 8, kwargs={"return_complex": False, "center": False}, note="real"),
    Sample("stft", normal(20), 8, complex_only=True, note="complex"),
    Sample("istft", normal(5, 6), 8, 3, 6, positive(6).without_gradient(), complex_only=True),
    Sample("istft", normal(2, 5, 6), 8, complex_only=True, kwargs={"length": 9, "normalized": True}, note="length"),
    Sample("istft", normal(2, 8, 6), 8, complex_only=True, note="both-sides",
           kwargs={"center": False, "onesided": False}),
]  # fmt: skip

"""Wrong calls of Fourier transforms fail as in PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.ops.wrong_calls import WrongCall, check, every

CALLS: list[WrongCall] = [
    ("Invalid number of data points (0) specified", lambda lib, F: lib.fft.fft(lib.ones(3), n=0)),
    ("Invalid number of data points (0) specified", lambda lib, F: lib.fft.irfft(lib.ones(1))),
    ("Invalid number of data points (-2) specified", lambda lib, F: lib.fft.fftn(lib.ones(3), s=(-2,))),
    ("Dimension out of range", lambda lib, F: lib.fft.fft(lib.ones(3), dim=2)),
    ("but tensor has no dimensions", lambda lib, F: lib.fft.fft(lib.tensor(1.0))),
    ('Invalid normalization mode: "x"', lambda lib, F: lib.fft.fft(lib.ones(3), norm="x")),
    ("Unsupported dtype Half", lambda lib, F: lib.fft.fft(lib.ones(3, dtype=lib.float16))),
    ("rfft expects a real input tensor, but got ComplexFloat", lambda lib, F: lib.fft.rfft(lib.ones(3) * 1j)),
    ("rfftn expects a real-valued input tensor", lambda lib, F: lib.fft.rfftn(lib.ones(3) * 1j)),
    ("ihfft expects a real input tensor", lambda lib, F: lib.fft.ihfft(lib.ones(3) * 1j)),
    ("Only supports floating-point dtypes", lambda lib, F: lib.fft.ihfftn(lib.ones(3) * 1j)),
    ("FFT dims must be unique", lambda lib, F: lib.fft.fftn(lib.ones(2, 3), dim=(0, 0))),
    ("dim and shape arguments must have the same length", lambda lib, F: lib.fft.fft2(lib.ones(2, 3), s=(2,))),
    ("Got shape with 3 values but input tensor", lambda lib, F: lib.fft.fftn(lib.ones(2, 3), s=(1, 2, 3))),
    ("rfftn must transform at least one axis", lambda lib, F: lib.fft.rfftn(lib.tensor(1.0))),
    ("irfftn must transform at least one axis", lambda lib, F: lib.fft.irfftn(lib.ones(2), dim=())),
    ("fftfreq requires a floating point or complex dtype", lambda lib, F: lib.fft.fftfreq(3, dtype=lib.int64)),
]  # fmt: skip


@every(CALLS)
def test_errors(torch: ModuleType, words: str, call: Any) -> None:
    check(torch, words, call)

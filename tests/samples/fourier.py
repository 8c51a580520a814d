"""Rows for undertow.ops.fourier.transforms."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, integers, normal

NORMS = ("backward", "ortho", "forward")


def row(name: str, *args: Any, **options: Any) -> Sample:
    """A row of torch.fft.<name>."""
    return Sample(f"fft_{name}", *args, reference=lambda torch, *a, **k: getattr(torch.fft, name)(*a, **k), **options)


def kernel(name: str, *args: Any, **options: Any) -> Sample:
    return Sample(name, *args, reference=lambda torch, *a: getattr(torch, name)(*a), **options)


def complex_kernel(
    shape: tuple[int, ...], dim: tuple[int, ...], normalization: int, inverse: bool, note: str
) -> Sample:
    return Sample(
        "_fft_c2c",
        normal(*shape),
        dim,
        normalization,
        inverse,
        complex_only=True,
        reference=lambda torch, x, *args: torch._fft_c2c(x, dim, normalization, not inverse),
        note=note,
    )


def one_dimension(name: str, complex: bool) -> list[Sample]:
    return [
        row(name, normal(5), complex=complex),
        row(name, normal(2, 6, 3), None, 1, complex=complex, note="dim"),
        row(name, normal(3, 5), kwargs={"n": 3, "norm": "ortho"}, complex=complex, note="cut"),
        row(name, normal(3, 4), kwargs={"n": 7, "dim": 0, "norm": "forward"}, complex=complex, note="padded"),
        row(name, normal(4, 1), kwargs={"n": 1}, complex=complex, note="one element"),
        row(name, integers(6), note="integers"),
    ]


def two_dimensions(name: str, complex: bool) -> list[Sample]:
    return [
        row(name, normal(2, 3, 4), complex=complex),
        row(name, normal(3, 4), kwargs={"s": (4, -1), "norm": "ortho"}, complex=complex, note="sizes"),
        row(name, normal(3, 2, 4), kwargs={"dim": (-1, 0)}, complex=complex, note="dims"),
    ]


def several_dimensions(name: str, complex: bool) -> list[Sample]:
    return [
        row(name, normal(2, 3, 4), complex=complex),
        row(name, normal(2, 3, 5), kwargs={"s": (4, 3), "norm": "forward"}, complex=complex, note="sizes"),
        row(name, normal(2, 4, 3), kwargs={"dim": (2, 0, 1), "norm": "ortho"}, complex=complex, note="dims"),
        row(name, normal(2, 5), kwargs={"dim": 1}, complex=complex, note="one dim"),
        row(name, integers(2, 4), note="integers"),
    ]


KINDS = {"fft": True, "ifft": True, "rfft": False, "irfft": True, "hfft": True, "ihfft": False}

KERNELS = [
    *[complex_kernel((3, 4), (1, 0), k, k == 1, NORMS[k]) for k in range(3)],
    complex_kernel((), (), 0, False, "0-d"),
    *[kernel("_fft_r2c", normal(3, 4), (0, 1), k, True, note=f"onesided, {NORMS[k]}") for k in range(3)],
    kernel("_fft_r2c", normal(3, 5), (0, 1), 1, True, note="onesided, odd"),
    kernel("_fft_r2c", normal(3, 4), (0, 1), 2, False, note="whole"),
    *[kernel("_fft_c2r", normal(3, 3), (0, 1), k, 4, complex_only=True, note=NORMS[k]) for k in range(3)],
    kernel("_fft_c2r", normal(3, 3), (0, 1), 1, 5, complex_only=True, note="odd"),
    Sample("_scale_spectrum_pairs", normal(2, 4), 1, 6, 2.0, reference=False, complex=True),
    Sample("_scale_spectrum_pairs", normal(4, 2), 0, 7, 0.5, reference=False, note="odd"),
]

SAMPLES = [
    *[sample for name, complex in KINDS.items() for sample in one_dimension(name, complex)],
    *[sample for name, complex in KINDS.items() for sample in two_dimensions(f"{name}2", complex)],
    *[sample for name, complex in KINDS.items() for sample in several_dimensions(f"{name}n", complex)],
    row("fftn", normal(), complex=True, note="0-d"),
    row("fftn", normal(2, 3), kwargs={"dim": ()}, complex=True, note="no dims"),
    Sample("fft_fft", normal(0, 3), complex=True, reference=False, note="empty"),
    *KERNELS,
    *[row("fftfreq", n, 0.5, note=str(n)) for n in (0, 1, 4, 5)],
    *[row("rfftfreq", n, 0.5, note=str(n)) for n in (1, 4, 5)],
    *[row(name, normal(3, 4), complex=True) for name in ("fftshift", "ifftshift")],
    *[row(name, normal(3, 5), kwargs={"dim": -1}, note="dim") for name in ("fftshift", "ifftshift")],
    *[row(name, normal(3, 2, 5), kwargs={"dim": (0, 2)}, note="dims") for name in ("fftshift", "ifftshift")],
]

"""Short-time Fourier transforms, and the windows they use."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.backend import cpu, dtypes, namespace_of
from undertow.backend.interface import Array, DType
from undertow.ops.arguments.half_precision import in_float32
from undertow.ops.arguments.operands import as_operand
from undertow.ops.arguments.value_dependent import example_by_example
from undertow.ops.declare import composite
from undertow.ops.fourier.transforms import fft_fft, fft_ifft, fft_irfft, fft_rfft
from undertow.ops.network.im2col import col2im_kernel
from undertow.ops.pointwise.complex import view_as_real
from undertow.ops.shape.padding import pad
from undertow.ops.views.dimensions import expand, squeeze, transpose, unsqueeze
from undertow.ops.views.reshape import reshape
from undertow.ops.views.slices import slice_, unfold
from undertow.tensor import LEAF, Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Device

# ---- windows


def window(
    name: str, length: int, periodic: bool, options: tuple[Any, Any, bool], shape: Callable[[Any], Any]
) -> Array:
    """A window of `length` numbers: `shape` of positions from 0 to 1; a periodic one leaves the last position out."""
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    dtype, device, requires_grad = options
    dtype, xp = dtypes.default_dtype() if dtype is None else dtypes.numpy_dtype(dtype), namespace_of(device)
    if not dtypes.is_floating(dtype):
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    count = length + 1 if periodic else length
    values = cpu.ones(length) if length < 2 else shape(cpu.arange(length) / (count - 1))
    return Tensor(xp.asarray(values.astype(dtype)), xp, LEAF if requires_grad else None)


@composite
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle.

    >>> import undertow as ut
    >>> ut.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    triangle = lambda t: 1 - cpu.abs(2 * t - 1)
    return window("bartlett_window", window_length, periodic, (dtype, device, requires_grad), triangle)


@composite
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta * cos(2 pi t)

    >>> import undertow as ut
    >>> ut.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    wave = lambda t: alpha - beta * cpu.cos(2 * math.pi * t)
    return window("hamming_window", window_length, periodic, (dtype, device, requires_grad), wave)


@composite
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """(1 - cos(2 pi t)) / 2

    >>> import undertow as ut
    >>> ut.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    wave = lambda t: cpu.sin(math.pi * t) ** 2
    return window("hann_window", window_length, periodic, (dtype, device, requires_grad), wave)


@composite
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DType | None = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - cos(2 pi t) / 2 + 0.08 cos(4 pi t)

    >>> import undertow as ut
    >>> ut.blackman_window(4)
    tensor([-1.3878e-17,  3.4000e-01,  1.0000e+00,  3.4000e-01])
    """
    waves = lambda t: 0.42 - 0.5 * cpu.cos(2 * math.pi * t) + 0.08 * cpu.cos(4 * math.pi * t)
    return window("blackman_window", window_length, periodic, (dtype, device, requires_grad), waves)


@composite
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: Device | str | int | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """i0(beta * sqrt(1 - (2 t - 1) ** 2)) / i0(beta)

    >>> import undertow as ut
    >>> ut.kaiser_window(4)
    tensor([5.2773e-05, 2.1567e-01, 1.0000e+00, 2.1567e-01])
    """
    bell = lambda t: cpu.i0(beta * cpu.sqrt(cpu.maximum(1 - (2 * t - 1) ** 2, 0))) / cpu.i0(beta)
    return window("kaiser_window", window_length, periodic, (dtype, device, requires_grad), bell)


# ---- transforms


def _full_window(name: str, n_fft: int, win_length: int | None, window: Array | None, like: Tensor) -> Array:
    """The window, of ones if there is none, with zeros on both sides up to n_fft."""
    length = n_fft if win_length is None else win_length
    if not 0 < length <= n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={length}")
    if window is None:
        window = Tensor(like._xp.ones(length, dtypes.real_of(like.dtype)), like._xp)
    if window.ndim != 1 or window.shape[0] != length:
        raise RuntimeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={length}, but got window with size "
            f"{list(window.shape)}"
        )
    left = (n_fft - length) // 2
    return pad(window, (left, n_fft - length - left))


@composite(variants="function method")
@in_float32
def stft(
    input: Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Array:
    """Fourier transforms of overlapping stretches of a signal, (time) or (batch, time): frequencies by stretches.

    hop_length      how far apart they are (n_fft // 4); center: they are centred, on a signal that is padded
    n_fft           how long a stretch is
    win_length      how long the window is, which is centred in a stretch; n_fft by default
    window          (win_length), or None: ones
    pad_mode        how a centred signal is padded, as `pad` says
    normalized      divide by the root of n_fft
    onesided        leave out the negative frequencies; by default of real signals
    return_complex  False: a last dimension of 2, instead of complex numbers; to be given for real signals

    >>> import undertow as ut
    >>> ut.stft(ut.ones(8), 4, window=ut.ones(4), return_complex=True).shape
    undertow.Size([3, 9])
    """
    input = as_operand("stft", "input", input)
    hop = n_fft // 4 if hop_length is None else hop_length
    if input.ndim not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, but got {input.ndim}D tensor")
    if hop <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop}")
    if return_complex is None and input.dtype.kind != "c" and (window is None or window.dtype.kind != "c"):
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs")
    one_sided = input.dtype.kind != "c" if onesided is None else onesided
    signal = reshape(input, (1, 1, -1)) if input.ndim == 1 else unsqueeze(input, 1)
    if center:
        signal = pad(signal, (n_fft // 2, n_fft // 2), pad_mode)
    if not 0 < n_fft <= signal.shape[-1]:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {signal.shape[-1]}, but got n_fft={n_fft}")
    frames = unfold(squeeze(signal, 1), -1, n_fft, hop)
    frames = frames * _full_window("stft", n_fft, win_length, window, input)
    transform = fft_rfft if one_sided else fft_fft
    out = transpose(transform(frames, norm="ortho" if normalized else None), 1, 2)
    out = out if input.ndim == 2 else squeeze(out, 0)
    return view_as_real(out) if return_complex is False else out


def _overlapped(frames: Array, hop: int) -> Array:
    """(batch, n_fft, stretches), laid out in time and added up."""
    n_fft, count = frames.shape[1:]
    length = n_fft + hop * (count - 1)
    image = col2im_kernel(frames, (1, length), (1, n_fft), (1, 1), (0, 0), (1, hop))
    return reshape(image, (frames.shape[0], length))


def _check_rows(input: Array, n_fft: int, one_sided: bool) -> None:
    expected = n_fft // 2 + 1 if one_sided else n_fft
    if input.ndim not in (2, 3) or input.shape[-2] != expected:
        raise RuntimeError(
            f"istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft={n_fft}: "
            f"{expected} of them with onesided={one_sided}, but got a tensor of shape {list(input.shape)}"
        )


@composite(variants="function method")
@example_by_example
def istft(
    input: Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Array:
    """The signal with these short-time Fourier transforms, by least squares.

    input           complex, (frequencies, stretches) or (batch, frequencies, stretches), as `stft` returns it
    length          how long the signal is; by default, what the stretches cover
    return_complex  the signal is complex; then both sides must be there

    `n_fft`, `hop_length`, `win_length`, `window`, `center`, `normalized` and `onesided` are as `stft` was given them.

    >>> import undertow as ut
    >>> x = ut.arange(12.0)
    >>> spectrum = ut.stft(x, 4, window=ut.hann_window(4), return_complex=True)
    >>> ut.allclose(ut.istft(spectrum, 4, window=ut.hann_window(4)), x, atol=1e-5)
    True
    """
    input = as_operand("istft", "input", input)
    if input.dtype.kind != "c":
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft(...)")
    hop = n_fft // 4 if hop_length is None else hop_length
    one_sided = input.shape[-2] != n_fft if onesided is None else onesided
    _check_rows(input, n_fft, one_sided)
    spectrum = input if input.ndim == 3 else unsqueeze(input, 0)
    weights = _full_window("istft", n_fft, win_length, window, input)
    norm = "ortho" if normalized else None
    frames = transpose(spectrum, 1, 2)
    if not return_complex:  # of both sides, only one is looked at
        half = slice_(frames, 2, 0, n_fft // 2 + 1)
        frames = fft_irfft(half, n_fft, norm=norm)
    elif one_sided:
        raise RuntimeError("cannot have onesided=True if return_complex is True: a complex signal has two sides")
    else:
        frames = fft_ifft(frames, norm=norm)
    total = _overlapped(transpose(frames * weights, 1, 2), hop)
    squares = unsqueeze(expand(weights * weights, (frames.shape[1], n_fft)), 0)
    envelope = _overlapped(transpose(squares, 1, 2), hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total.shape[-1] - start
    total, envelope = [slice_(t, 1, start, end) for t in (total, envelope)]
    if not (cpu.abs(envelope._array) > 1e-11).all():
        raise RuntimeError("istft: window overlap add min: 1. The window is zero where no other stretch helps out.")
    out = total / envelope
    if length is not None and out.shape[-1] < length:
        out = pad(out, (0, length - out.shape[-1]))
    return out if input.ndim == 3 else squeeze(out, 0)

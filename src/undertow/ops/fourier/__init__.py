"""Spectra: Fourier transforms, frequencies, short-time transforms."""

"""Channels and pixels that change places."""

from tests.samples import Sample, normal

SAMPLES = [
    Sample("pixel_shuffle", normal(2, 8, 2, 3), 2, complex=True),
    Sample("pixel_shuffle", normal(9, 1, 2), 3, note="unbatched"),
    Sample("pixel_unshuffle", normal(2, 2, 4, 6), 2, complex=True),
    Sample("channel_shuffle", normal(2, 6, 2, 3), 3, complex=True),
]

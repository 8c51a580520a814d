"""The out-of-place operations behind copy_, fill_ and zero_."""

from tests.samples import Sample, integers, normal

SAMPLES = [
    Sample("copy", normal(2, 3), normal(2, 3), complex=True, reference=lambda t, x, y: x.clone().copy_(y)),
    Sample("copy", normal(2, 3), normal(3), reference=lambda t, x, y: x.clone().copy_(y), note="broadcast"),
    Sample("copy", normal(3), integers(3), reference=lambda t, x, y: x.clone().copy_(y), note="integers"),
    Sample("fill", normal(2, 3), normal(), complex=True),
    Sample("fill", normal(2, 3), 1.5, note="number"),
    Sample("zero", normal(2, 3), complex=True, reference=lambda t, x: x.clone().zero_()),
    Sample("zero", normal(), reference=lambda t, x: x.clone().zero_(), note="0-d"),
]

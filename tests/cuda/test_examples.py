"""The examples that the reference has of `undertow.cuda`."""

from __future__ import annotations

import undertow as ut
from tools.site.reference import examples


def test_they_run() -> None:
    found = examples("undertow.cuda")
    assert len(found) > 25
    streams = ut.cuda.current_stream()
    for example in found.values():
        eval(example, {"ut": ut})
    assert ut.cuda.current_stream() == streams

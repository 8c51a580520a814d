"""Which frames are undertow's own: those of its files. Errors and warnings name the nearest line that is not."""

from __future__ import annotations

import os
import sys
from types import FrameType

FOLDER = os.path.join(os.path.dirname(__file__), "")

#: programs, written as a user would write them: their lines are lines of a user's program
PROGRAMS = os.path.join(FOLDER, "demo", "")


class OwnFiles(dict[str, bool]):
    """`OWN_FILES[code.co_filename]`: whether the code is undertow's own. A file is judged once, when first met."""

    def __missing__(self, file: str) -> bool:
        own = file.startswith(FOLDER) and not file.startswith(PROGRAMS)
        self[file] = own
        return own


OWN_FILES = OwnFiles()


def user_frame(past: int = 0) -> FrameType:
    """The nearest frame, from the caller's outwards, that is not undertow's own; the outermost if there is none.

    past  so many frames, from the caller's on, are undertow's for certain: looking at them would only take time
    """
    frame = sys._getframe(past + 1)
    while OWN_FILES[frame.f_code.co_filename] and (outer := frame.f_back) is not None:
        frame = outer
    return frame

"""Which frames are undertow's own: those of its files. Errors and warnings name the nearest line that is not."""

from __future__ import annotations

import os

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

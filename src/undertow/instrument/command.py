"""`python -m undertow watch program.py`: run a program, and write the page and the trace of what it did."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from undertow.instrument.profiler.profile import profile
from undertow.instrument.replay.watching import Watching

#: operations and nodes that a trace holds; a browser opens files of this size
MOST_EVENTS = 300_000


def run_watched(program: str, arguments: Sequence[str], page: str, trace: str, passes: int) -> int:
    """Run `program` as Python would, with `arguments`; its exit status.

    passes  how many backward passes the page shows, the first ones
    """
    watching = Watching(None, title=f"backward passes of {os.path.basename(program)}", most_passes=passes)
    prof = profile(with_modules=True, profile_memory=True, most_events=MOST_EVENTS)
    before = sys.argv, list(sys.path)
    sys.argv, sys.path[0] = [program, *arguments], os.path.dirname(os.path.abspath(program))
    status = 0
    try:
        with prof, watching:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    finally:
        sys.argv, sys.path[:] = before
        # also after an error: what came before it is what one wants to see
        watching.write(page)
        prof.export_chrome_trace(trace)
        print(summary(watching, page, trace), file=sys.stderr)
    return status


def summary(watching: Watching, page: str, trace: str) -> str:
    shown = len(watching.passes)
    nodes = sum(len(each.columns.get("title", ())) for each in watching.passes)
    imported = getattr(sys.modules.get("torch"), "__version__", "undertow")  # where undertow is torch, it says so
    if not watching.passes and "undertow" not in imported:
        return (
            "undertow watch: no backward passes, for the program imports PyTorch. --as-torch gives it undertow instead"
        )
    left = f" (and {watching.left_out} more that are not shown)" if watching.left_out else ""
    passes = f"{shown} backward pass{'es' if shown != 1 else ''}{left}"
    return f"undertow watch: {passes}, {nodes} nodes: open {page} in a browser, {trace} in Perfetto"

"""Looking at a run: profiles, pictures of graphs, a backward pass to watch, summaries of models."""

from typing import TYPE_CHECKING

from undertow.lazy_names import loaded_when_used

if TYPE_CHECKING:
    from undertow.instrument.debug_lines import debug as debug
    from undertow.instrument.model_summary import ModelSummary as ModelSummary
    from undertow.instrument.model_summary import summary as summary
    from undertow.instrument.pictures.dot import to_dot as to_dot
    from undertow.instrument.pictures.svg import to_svg as to_svg
    from undertow.instrument.pictures.text import to_text as to_text
    from undertow.instrument.progress_bars import progress as progress
    from undertow.instrument.replay.watching import Watching as Watching
    from undertow.instrument.replay.watching import watch as watch
else:
    __getattr__, __dir__ = loaded_when_used(
        __name__,
        modules="profiler",
        names={
            "undertow.instrument.debug_lines": "debug",
            "undertow.instrument.model_summary": "ModelSummary summary",
            "undertow.instrument.pictures.dot": "to_dot",
            "undertow.instrument.pictures.svg": "to_svg",
            "undertow.instrument.pictures.text": "to_text",
            "undertow.instrument.progress_bars": "progress",
            "undertow.instrument.replay.watching": "Watching watch",
        },
    )

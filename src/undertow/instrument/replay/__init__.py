"""A backward pass to watch: recorded once, replayed in a browser."""

from undertow.instrument.replay.watching import Watching as Watching
from undertow.instrument.replay.watching import watch as watch

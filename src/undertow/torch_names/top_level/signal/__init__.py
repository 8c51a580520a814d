"""Signal processing: `undertow.signal.windows`."""

from . import windows as windows

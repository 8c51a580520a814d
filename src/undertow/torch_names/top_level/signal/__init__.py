"""Signal processing: `undertow.signal.windows`."""

from undertow.torch_names.top_level.signal import windows as windows

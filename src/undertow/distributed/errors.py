"""What goes wrong among processes."""

from __future__ import annotations


class DistError(RuntimeError):
    """Something that concerns several processes failed."""


class DistTimeoutError(DistError):
    """An exchange was not finished in time: some process has not come, or has died. The text says which."""


class DistMismatchError(DistError):
    """Processes of a group are in different exchanges, or bring tensors that do not fit."""


class DistBackendError(DistError):
    """What the exchanges go by failed."""


class DistNetworkError(DistError):
    """The connection between processes failed."""


class DistStoreError(DistError):
    """The meeting place of the processes failed."""

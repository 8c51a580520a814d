"""What goes wrong among processes."""

from __future__ import annotations


class DistError(RuntimeError):
    """Something that concerns several processes failed.

    >>> from undertow import distributed as dist
    >>> issubclass(dist.DistError, RuntimeError)
    True
    """


class DistTimeoutError(DistError):
    """An exchange was not finished in time: some process has not come, or has died. The text says which.

    >>> from undertow import distributed as dist
    >>> issubclass(dist.DistTimeoutError, dist.DistError)
    True
    """


class DistMismatchError(DistError):
    """Processes of a group are in different exchanges, or bring tensors that do not fit.

    >>> from undertow import distributed as dist
    >>> issubclass(dist.DistMismatchError, dist.DistError)
    True
    """


class DistBackendError(DistError):
    """What the exchanges go by failed.

    >>> from undertow import distributed as dist
    >>> issubclass(dist.DistBackendError, dist.DistError)
    True
    """


class DistNetworkError(DistError):
    """The connection between processes failed.

    >>> from undertow import distributed as dist
    >>> issubclass(dist.DistNetworkError, dist.DistError)
    True
    """


class DistStoreError(DistError):
    """The meeting place of the processes failed.

    >>> from undertow import distributed as dist
    >>> issubclass(dist.DistStoreError, dist.DistError)
    True
    """

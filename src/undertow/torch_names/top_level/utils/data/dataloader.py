"""The loader, and what it makes batches with."""

from undertow.data.collate import *  # noqa: F403
from undertow.data.loader import *  # noqa: F403

"""The value that flows."""

from undertow.tensor.extra import Extra as Extra
from undertow.tensor.extra import View as View
from undertow.tensor.size import Size as Size
from undertow.tensor.tensor import LEAF as LEAF
from undertow.tensor.tensor import Tensor as Tensor
from undertow.tensor.tensor import counter_of as counter_of
from undertow.tensor.tensor import current_edge as current_edge
from undertow.tensor.tensor import extra_of as extra_of
from undertow.tensor.tensor import note_all as note_all
from undertow.tensor.tensor import share_memory as share_memory
from undertow.tensor.tensor import version_of as version_of
from undertow.tensor.tensor import without_history as without_history
from undertow.tensor.version_counter import VersionCounter as VersionCounter

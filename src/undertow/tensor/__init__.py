"""The value that flows."""

from undertow.tensor.metadata import Extra as Extra
from undertow.tensor.metadata import Size as Size
from undertow.tensor.metadata import VersionCounter as VersionCounter
from undertow.tensor.metadata import View as View
from undertow.tensor.tensor import LEAF as LEAF
from undertow.tensor.tensor import Tensor as Tensor
from undertow.tensor.tensor import counter_of as counter_of
from undertow.tensor.tensor import current_edge as current_edge
from undertow.tensor.tensor import extra_of as extra_of
from undertow.tensor.tensor import install_constructor as install_constructor
from undertow.tensor.tensor import share_memory as share_memory
from undertow.tensor.tensor import version_of as version_of

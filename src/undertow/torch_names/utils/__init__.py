"""Where PyTorch's users look for them: `undertow.data` as `utils.data`, and checkpointing as `utils.checkpoint`."""

from undertow.torch_names.utils import checkpoint as checkpoint
from undertow.torch_names.utils import data as data

"""Where PyTorch's users look for them: `undertow.data` as `utils.data`, and checkpointing as `utils.checkpoint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow.lazy_names import loaded_when_used
from undertow.torch_names import module_aliases

if not TYPE_CHECKING:
    __getattr__, __dir__ = loaded_when_used(__name__, modules="_pytree checkpoint data flop_counter tensorboard")

module_aliases.register(__name__)

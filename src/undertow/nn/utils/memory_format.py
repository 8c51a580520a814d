"""The order of channels in the memory of weights."""

from __future__ import annotations

from typing import Any

from undertow.modes import no_grad
from undertow.nn.layers.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from undertow.nn.module import Module


def _convert(module: Module, kinds: tuple[type[Module], ...], memory_format: Any) -> Module:
    for part in module.modules():
        if isinstance(part, kinds):
            with no_grad():
                part.weight.data = part.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Lay out the weights of all 2-d convolutions in a module in another order, such as `channels_last`.

    >>> import undertow as ut
    >>> layer = ut.nn.Conv2d(2, 3, 5)
    >>> ut.nn.utils.convert_conv2d_weight_memory_format(layer, ut.channels_last).weight.stride()
    (50, 1, 10, 2)
    """
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Lay out the weights of all 3-d convolutions in a module in another order, such as `channels_last_3d`.

    >>> import undertow as ut
    >>> layer = ut.nn.Conv3d(2, 3, 1)
    >>> ut.nn.utils.convert_conv3d_weight_memory_format(layer, ut.channels_last_3d).weight.stride()
    (2, 1, 2, 2, 2)
    """
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)

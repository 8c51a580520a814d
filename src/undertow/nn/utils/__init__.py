"""Tools for modules and their parameters."""

from typing import TYPE_CHECKING

from undertow.lazy_names import loaded_when_used as _loaded_when_used
from undertow.nn.utils import parametrizations as parametrizations
from undertow.nn.utils import parametrize as parametrize
from undertow.nn.utils import prune as prune
from undertow.nn.utils import rnn as rnn
from undertow.nn.utils import stateless as stateless
from undertow.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from undertow.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from undertow.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from undertow.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from undertow.nn.utils.clip_grad import get_total_norm as get_total_norm
from undertow.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from undertow.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
from undertow.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from undertow.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from undertow.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from undertow.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from undertow.nn.utils.old_weight_norm import remove_spectral_norm as remove_spectral_norm
from undertow.nn.utils.old_weight_norm import remove_weight_norm as remove_weight_norm
from undertow.nn.utils.old_weight_norm import spectral_norm as spectral_norm
from undertow.nn.utils.old_weight_norm import weight_norm as weight_norm
from undertow.nn.utils.skip_init import skip_init as skip_init

if TYPE_CHECKING:
    from undertow.nn.utils.memory_format import (
        convert_conv2d_weight_memory_format as convert_conv2d_weight_memory_format,
    )
    from undertow.nn.utils.memory_format import (
        convert_conv3d_weight_memory_format as convert_conv3d_weight_memory_format,
    )
else:
    __getattr__, __dir__ = _loaded_when_used(
        __name__,
        names={
            "undertow.nn.utils.memory_format": "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format"
        },
    )

"""Tools for modules and their parameters."""

from typing import TYPE_CHECKING

from undertow import absent as _absent
from undertow.nn.utils import parametrizations as parametrizations
from undertow.nn.utils import parametrize as parametrize
from undertow.nn.utils import prune as prune
from undertow.nn.utils import rnn as rnn
from undertow.nn.utils import stateless as stateless
from undertow.nn.utils.computed_weights import remove_spectral_norm as remove_spectral_norm
from undertow.nn.utils.computed_weights import remove_weight_norm as remove_weight_norm
from undertow.nn.utils.computed_weights import spectral_norm as spectral_norm
from undertow.nn.utils.computed_weights import weight_norm as weight_norm
from undertow.nn.utils.creation import skip_init as skip_init
from undertow.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from undertow.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from undertow.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from undertow.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from undertow.nn.utils.gradients import clip_grad_norm_ as clip_grad_norm_
from undertow.nn.utils.gradients import clip_grad_value_ as clip_grad_value_
from undertow.nn.utils.gradients import clip_grads_with_norm_ as clip_grads_with_norm_
from undertow.nn.utils.gradients import get_total_norm as get_total_norm
from undertow.nn.utils.vectors import parameters_to_vector as parameters_to_vector
from undertow.nn.utils.vectors import vector_to_parameters as vector_to_parameters

if not TYPE_CHECKING:
    __getattr__ = _absent.getter("nn.utils")

"""Tools for modules and their parameters."""

from undertow.nn.utils import parametrizations as parametrizations
from undertow.nn.utils import parametrize as parametrize
from undertow.nn.utils import rnn as rnn
from undertow.nn.utils import stateless as stateless
from undertow.nn.utils.gradients import clip_grad_norm_ as clip_grad_norm_
from undertow.nn.utils.gradients import clip_grad_value_ as clip_grad_value_
from undertow.nn.utils.gradients import clip_grads_with_norm_ as clip_grads_with_norm_
from undertow.nn.utils.gradients import get_total_norm as get_total_norm
from undertow.nn.utils.vectors import parameters_to_vector as parameters_to_vector
from undertow.nn.utils.vectors import vector_to_parameters as vector_to_parameters

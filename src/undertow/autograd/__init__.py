"""What a user calls."""

from typing import TYPE_CHECKING

from undertow.autograd import forward_ad as forward_ad
from undertow.autograd import graph as graph
from undertow.autograd.anomaly import detect_anomaly as detect_anomaly
from undertow.autograd.anomaly import is_anomaly_check_inf_enabled as is_anomaly_check_inf_enabled
from undertow.autograd.anomaly import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
from undertow.autograd.anomaly import is_anomaly_enabled as is_anomaly_enabled
from undertow.autograd.anomaly import set_detect_anomaly as set_detect_anomaly
from undertow.autograd.backward import backward as backward
from undertow.autograd.backward import grad as grad
from undertow.autograd.gradcheck import GradcheckError as GradcheckError
from undertow.autograd.gradcheck import gradcheck as gradcheck
from undertow.autograd.gradcheck import gradgradcheck as gradgradcheck
from undertow.graph.saved import SavedTensor as SavedTensor
from undertow.lazy_names import loaded_when_used as _loaded_when_used
from undertow.modes import _force_original_view_tracking as _force_original_view_tracking
from undertow.modes import enable_grad as enable_grad
from undertow.modes import enforce_grad_layout_policy as enforce_grad_layout_policy
from undertow.modes import force_original_view_tracking as force_original_view_tracking
from undertow.modes import inference_mode as inference_mode
from undertow.modes import is_multithreading_enabled as is_multithreading_enabled
from undertow.modes import is_view_replay_enabled as is_view_replay_enabled
from undertow.modes import no_grad as no_grad
from undertow.modes import set_grad_enabled as set_grad_enabled
from undertow.modes import set_multithreading_enabled as set_multithreading_enabled
from undertow.torch_names import module_aliases as _module_aliases

if TYPE_CHECKING:
    from undertow.autograd import checkpoint as checkpoint
    from undertow.autograd import function as function
    from undertow.autograd import functional as functional
    from undertow.autograd.function import Function as Function
    from undertow.autograd.variable import Variable as Variable
else:
    __path__.append(f"{__path__[0]}/../torch_names/autograd")  # modules that Python's own import finds here, too
    __getattr__, __dir__ = _loaded_when_used(
        __name__,
        modules="checkpoint function functional profiler profiler_util vmap",
        names={
            "undertow.autograd.function": "Function",
            "undertow.autograd.variable": "Variable",
            "undertow.autograd.imperative_engine": "_is_checkpoint_valid",
            "undertow.autograd.version_counters": "_unsafe_preserve_version_counter",
        },
    )

_module_aliases.register(__name__)

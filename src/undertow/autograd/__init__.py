"""What a user calls."""

from undertow.autograd import graph as graph
from undertow.autograd.backward import backward as backward
from undertow.autograd.backward import grad as grad
from undertow.autograd.function import Function as Function
from undertow.autograd.gradcheck import GradcheckError as GradcheckError
from undertow.autograd.gradcheck import gradcheck as gradcheck
from undertow.autograd.gradcheck import gradgradcheck as gradgradcheck
from undertow.modes import enable_grad as enable_grad
from undertow.modes import is_multithreading_enabled as is_multithreading_enabled
from undertow.modes import no_grad as no_grad
from undertow.modes import set_grad_enabled as set_grad_enabled
from undertow.modes import set_multithreading_enabled as set_multithreading_enabled

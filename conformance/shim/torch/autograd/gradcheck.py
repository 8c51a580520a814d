import importlib
from typing import Any

from .._undertow import late

# undertow.autograd.gradcheck is the function; the module of that name has the rest
_module = importlib.import_module("undertow.autograd.gradcheck")

GradcheckError = late("autograd.GradcheckError")
get_numerical_jacobian = _module.get_numerical_jacobian
get_analytical_jacobian = _module.get_analytical_jacobian


def gradcheck(*args: Any, **kwargs: Any) -> bool:
    return _module.gradcheck(*args, **kwargs)


def gradgradcheck(*args: Any, **kwargs: Any) -> bool:
    return _module.gradgradcheck(*args, **kwargs)

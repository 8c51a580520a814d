from typing import Any

from .._undertow import late, lookup

GradcheckError = late("autograd.GradcheckError", "autograd.gradcheck.GradcheckError")
get_numerical_jacobian = late("autograd.get_numerical_jacobian", "autograd.gradcheck.get_numerical_jacobian")
get_analytical_jacobian = late(
    "autograd.get_analytical_jacobian", "autograd.gradcheck.get_analytical_jacobian"
)


def gradcheck(*args: Any, **kwargs: Any) -> bool:
    return lookup("autograd.gradcheck.gradcheck", "autograd.gradcheck")(*args, **kwargs)


def gradgradcheck(*args: Any, **kwargs: Any) -> bool:
    return lookup("autograd.gradcheck.gradgradcheck", "autograd.gradgradcheck")(*args, **kwargs)

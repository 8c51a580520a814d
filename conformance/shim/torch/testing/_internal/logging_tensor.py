"""A tensor subclass that logs operations needs `__torch_dispatch__`, which undertow does not have."""

from typing import Any


def LoggingTensor(*args: Any, **kwargs: Any) -> Any:
    raise AttributeError("undertow has no __torch_dispatch__ for LoggingTensor")

"""Functions that change tensors in place, under transformations that cannot see that: here there are none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The function itself: all transformations here follow changes in place, and give the same results.

    >>> import undertow as ut
    >>> from undertow.func import functionalize, grad
    >>> grad(functionalize(lambda x: (x * 1).mul_(x).sum()))(ut.tensor([3.0]))
    tensor([6.])

    remove  "mutations" or "mutations_and_views", which PyTorch would leave out of a trace
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): Valid options for inputs to the 'remove' kwarg are: 'mutations' "
            f"(default) or 'mutations_and_views'. Got: remove={remove!r}"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped

"""Functions that change tensors in place, under transformations that cannot see that: here there are none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from undertow.scopes import call_with

#: whether a function is running that is not to be seen changing tensors
_left_out: ContextVar[bool] = ContextVar("undertow.mutations_left_out", default=False)


def are_left_out() -> bool:
    """Whether a trace (`make_fx`) is to write changes in place as operations that give new tensors."""
    return _left_out.get()


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The function itself: all transformations here follow changes in place, and give the same results.

    What `make_fx` traces of it has new tensors in the place of changes, but where a view of the memory is around.

    func  a function of tensors

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
        return call_with(_left_out, True, func, *args, **kwargs)

    return wrapped

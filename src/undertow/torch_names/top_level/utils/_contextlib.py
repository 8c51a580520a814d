"""Context managers that are decorators, too, by the names of PyTorch's `torch.utils._contextlib`."""

from __future__ import annotations

from typing import Any

from undertow.modes import Decorator


class _DecoratorContextManager(Decorator):
    """A context manager that is also a decorator. Subclasses have `__enter__` and `__exit__`.

    >>> from undertow.utils._contextlib import _DecoratorContextManager
    >>> class Announced(_DecoratorContextManager):
    ...     def __enter__(self):
    ...         print("begins")
    ...
    ...     def __exit__(self, *exc):
    ...         print("ends")
    >>> @Announced()
    ... def work():
    ...     print("works")
    >>> work()
    begins
    works
    ends
    """

    def __enter__(self) -> Any:
        raise NotImplementedError("a context manager says what it does at the beginning of a block")

    def __exit__(self, *exc: object) -> Any:
        raise NotImplementedError("a context manager says what it does at the end of a block")


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One whose class can be the decorator itself: `@no_grad` and `@no_grad()`."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)

"""`parametrize`: one test per combination of values, named after them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from torch._dtypes import DType, dtype_name


class subtest:
    """A value (or tuple of values) with a name and decorators of its own."""

    def __init__(self, arg_values: Any, name: str | None = None, decorators: Iterable[Any] = ()):
        self.arg_values = arg_values
        self.name = name
        self.decorators = list(decorators)


class Case:
    """One combination of parameters: the suffix of its test's name, the arguments, the decorators."""

    def __init__(self, suffix: str, arguments: dict[str, Any], decorators: list[Any]):
        self.suffix = suffix
        self.arguments = arguments
        self.decorators = decorators

    def joined(self, inner: Case) -> Case:
        suffix = "_".join(part for part in (self.suffix, inner.suffix) if part)
        return Case(suffix, {**self.arguments, **inner.arguments}, self.decorators + inner.decorators)


def parametrize(names: str, values: Iterable[Any], name_fn: Any = None) -> Any:
    keys = [name.strip() for name in names.split(",")]

    def decorate(test: Any) -> Any:
        inner = getattr(test, "cases", [Case("", {}, [])])
        outer = [_case(keys, index, value, name_fn) for index, value in enumerate(values)]
        test.cases = [first.joined(second) for first in outer for second in inner]
        return test

    return decorate


def _case(keys: list[str], index: int, value: Any, name_fn: Any) -> Case:
    name, decorators = None, []
    if isinstance(value, subtest):
        value, name, decorators = value.arg_values, value.name, value.decorators
    values = tuple(value) if len(keys) > 1 else (value,)
    if name is None and name_fn is not None:
        name = name_fn(*values)
    if name is None:
        name = "_".join(_describe(key, index, item) for key, item in zip(keys, values, strict=True))
    return Case(name, dict(zip(keys, values, strict=True)), decorators)


def _describe(key: str, index: int, value: Any) -> str:
    if isinstance(value, (np.dtype, DType)):
        return dtype_name(value)
    if isinstance(value, (int, float, str)):
        return f"{key}_{str(value).replace('.', '_')}"
    return f"{key}{index}"


def expand(name: str, test: Any) -> Iterator[tuple[str, Any]]:
    """The named tests that one decorated test stands for."""
    for case in test.cases:
        bound = bind(test, case.arguments)
        for decorator in case.decorators:
            bound = decorator(bound)
        yield f"{name}_{case.suffix}", bound


def bind(test: Any, arguments: dict[str, Any]) -> Any:
    """The test with these arguments filled in, still taking `self`."""

    @functools.wraps(test)
    def run(self: Any) -> None:
        test(self, **arguments)

    del run.__wrapped__
    run.__dict__.pop("cases", None)
    return run


def instantiate_parametrized_tests(cls: Any) -> Any:
    """Put the tests that `parametrize` describes in the place of the decorated ones."""
    for name, test in list(vars(cls).items()):
        if hasattr(test, "cases"):
            delattr(cls, name)
            for full_name, bound in expand(name, test):
                if hasattr(cls, full_name):
                    raise AssertionError(f"two tests are named {full_name}")
                setattr(cls, full_name, bound)
    return cls

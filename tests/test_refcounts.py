"""The reference counts that mean: nobody else holds it. One more holder must always be seen."""

from __future__ import annotations

from sys import getrefcount
from types import SimpleNamespace
from typing import Any

from undertow import refcounts


def ask(self: Any, xp: Any, value: Any, edges: Any, keep: Any) -> int:
    return getrefcount(value)


def test_in_variable() -> None:
    held = object()
    assert getrefcount(held) <= refcounts.IN_VARIABLE
    others = [held]
    assert getrefcount(held) > refcounts.IN_VARIABLE
    del others


def test_in_variable_of_caller() -> None:
    held = object()
    assert ask(None, None, held, (), False) <= refcounts.IN_VARIABLE_OF_CALLER
    others = [held]
    assert ask(None, None, held, (), False) > refcounts.IN_VARIABLE_OF_CALLER
    del others


def test_in_list() -> None:
    values = [object(), object()]
    others = [values[1]]
    alone, shared = [getrefcount(value) for value in values]
    assert alone <= refcounts.IN_LIST < shared
    del others


def test_in_attribute_of_argument() -> None:
    holder = SimpleNamespace(value=object())

    def look(value: Any) -> int:
        return getrefcount(value)

    alone = look(holder.value)  # not in the assertion, which pytest rewrites: it would hold the value, too
    others = [holder.value]
    shared = look(holder.value)
    del others
    assert alone <= refcounts.IN_ATTRIBUTE_OF_ARGUMENT < shared


def test_in_list_and_variable() -> None:
    def accumulate(values: list[Any]) -> bool:
        return second(values[0], getrefcount(values[0]) <= refcounts.IN_LIST_AND_VARIABLE)

    def second(value: Any, answer: bool) -> bool:
        return answer

    values = [object()]
    held = values[0]
    assert accumulate(values)
    others = [held]
    assert not accumulate(values)
    del others

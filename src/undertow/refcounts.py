"""What `sys.getrefcount` says of an object that may be changed or kept, because nobody else holds it.

Memory of a gradient is used again instead of being copied where a count is not above one of these. What a call counts
beside the holders differs between versions of Python, so each number is counted in the situation that it is for.
"""

from __future__ import annotations

from sys import getrefcount
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undertow.graph.edges import Edge


def _in_variable() -> int:
    held = object()
    return getrefcount(held)


def _in_variable_of_caller() -> int:
    class Node:
        def pull(self, xp: Any, grad: Any, edges: tuple[Edge | None, ...], keep: bool) -> int:
            return getrefcount(grad)

    node, held = Node(), object()
    count = node.pull(None, held, (), False)
    del held
    return count


def _in_attribute_of_argument() -> int:
    def look(value: Any, once: int) -> int:
        return getrefcount(value)

    holder = SimpleNamespace(value=object())
    return look(holder.value, 0)


def _in_list() -> int:
    (count,) = [getrefcount(value) for value in [object()]]
    return count


def _in_list_and_variable() -> int:
    def second(value: Any, count: int) -> int:
        return count

    values = [object()]
    held = values[0]
    count = second(values[0], getrefcount(values[0]))
    del held
    return count


#: of a local variable's only value, asked by that function
IN_VARIABLE = _in_variable()
#: of an argument, asked by a method; its caller has it in a variable
IN_VARIABLE_OF_CALLER = _in_variable_of_caller()
#: of an argument that was given as `holder.attribute`
IN_ATTRIBUTE_OF_ARGUMENT = _in_attribute_of_argument()
#: of a list's item, asked by a comprehension that goes through the list
IN_LIST = _in_list()
#: of a list's item, asked among the arguments of a call, after another; a variable further out holds it, too
IN_LIST_AND_VARIABLE = _in_list_and_variable()

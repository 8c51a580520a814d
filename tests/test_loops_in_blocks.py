"""No interrupt leaves a block without ending it.

Note [Loops in blocks]: Python 3.12 to 3.14 forget some jumps when they write down which instructions a block covers:
that at the end of a `while` loop, and that of a `for` loop that ends in an `if` which does not hold. An interrupt comes
at just such jumps, and would leave a `with` or `try` block around the loop without its end: grad mode stays off, a lock
is held for ever. So a loop of this kind goes into a function, which the block calls. 3.14 makes such a loop of `any`
and `all` of a generator, too.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

import undertow


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 forgets none")
def test_loops_with_such_jumps_are_not_in_blocks() -> None:
    found = [
        f"{path}:{line} in {code.co_qualname}"
        for path in Path(undertow.__file__).parent.rglob("*.py")
        for code in codes_in(compile(path.read_text(), str(path), "exec", dont_inherit=True))
        for line in uncovered_jumps(code)
    ]
    assert found == []


def codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def uncovered_jumps(code: CodeType) -> Iterator[int]:
    """The lines of jumps back into a block that does not cover them."""
    blocks = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    instructions = list(dis.get_instructions(code)) if blocks else []
    places = {instruction.offset: k for k, instruction in enumerate(instructions)}

    def handler_at(offset: int) -> int | None:
        return next((places[block.target] for block in blocks if block.start <= offset < block.end), None)

    for instruction in instructions:
        if instruction.opname == "JUMP_BACKWARD" and handler_at(instruction.offset) is None:
            handler = handler_at(instruction.argval)
            if handler is not None and ends_a_block([i.opname for i in instructions[handler : handler + 3]]):
                yield instruction.positions.lineno or code.co_firstlineno


def ends_a_block(handler: list[str]) -> bool:
    """Whether a handler begins like that of a `with`, or of a `try` with `finally` alone."""
    return handler[0] == "PUSH_EXC_INFO" and "CHECK_EXC_MATCH" not in handler

"""Functions whose code is generated, compiled when they are first called.

Compiling all operations at import would take a third of a second. So each starts as a stub, a function object whose
first call has the source written and compiled and gives *the same object* the new code: whoever holds the function
holds the real one from then on, and later calls look nothing up.

When bfloat16 is first used, all of them become stubs again: the code that is written from then on deals with it, and
programs without it do not ask whether there is any.
"""

from __future__ import annotations

import linecache
import os
import threading
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from undertow.backend import dtypes

# Guards the writing of sources: a writer notes down what it has written so far, and two threads that call an operation
# for the first time at once would mix theirs.
_lock = threading.RLock()


def _renew_lock() -> None:
    """In the child of a fork nobody holds the lock, whatever it says."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def lazy_function(name: str, filename: str, scope: dict[str, Any], write: Callable[[], str]) -> Any:
    """A function `name` with the globals `scope`, whose source `write()` gives when it is first called."""

    def complete() -> None:
        with _lock:
            if function.__code__ is stub:  # otherwise another thread was faster
                fill_in()

    def start_again() -> None:
        with _lock:
            if function.__code__ is not stub:
                function.__code__ = stub

    def fill_in() -> None:
        source = write()
        linecache.cache[filename] = len(source), None, source.splitlines(True), filename
        written: dict[str, Any] = {}
        exec(compile(source, filename, "exec"), scope, written)
        real = written[name]
        # the code last: until then another thread still runs the stub, which has no use for defaults
        function.__defaults__, function.__kwdefaults__ = real.__defaults__, real.__kwdefaults__
        function.__code__ = real.__code__
        function.__dict__["source"] = source

    dtypes.at_first_use(start_again)
    scope[f"complete_{name}"] = complete
    stub = _stub_code(name)
    function: Any = FunctionType(stub, scope, name)
    function.__module__ = "undertow"
    function.complete = complete
    scope[f"self_{name}"] = function
    return function


_STUB = compile(
    "def stub(*args, **kwargs):\n    COMPLETE()\n    return SELF(*args, **kwargs)\n", "<undertow stub>", "exec"
)

_STUB_CODE = next(c for c in _STUB.co_consts if isinstance(c, CodeType))


def _stub_code(name: str) -> Any:
    """The stub's code, with its two globals renamed for this function."""
    renamed = {"COMPLETE": f"complete_{name}", "SELF": f"self_{name}"}
    return _STUB_CODE.replace(co_names=tuple(renamed[n] for n in _STUB_CODE.co_names))

"""When a recomputation is not what the forward run was: the error, and the operations of both runs to explain it."""

from __future__ import annotations

from typing import Any

from undertow.autograd.interceptors.autocast import lifted
from undertow.errors import AutogradError
from undertow.modes import State, current, in_state, state_variable
from undertow.scopes import Scope
from undertow.tensor import Tensor


class CheckpointError(AutogradError):
    """The recomputation did not save what the forward pass saved.

    >>> import undertow as ut
    >>> issubclass(ut.utils.checkpoint.CheckpointError, RuntimeError)
    True
    """


class Log:
    """The operations of a run, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def recording(self) -> Recording:
        return Recording(self.lines)


class Recording(Scope):
    """Operations inside are noted in `lines`."""

    variable = state_variable

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def inside(self, outer: State) -> State:
        def intercept(function: Any, args: tuple[Any, ...]) -> Any:
            self.lines.append(f"{function.__name__}({', '.join(_shown(a) for a in args)})")
            return in_state(current().replace(intercept=rest), function.op.by_position, *args)

        casts, rest = lifted(outer.intercept, intercept)
        return outer.replace(intercept=casts)

    def after(self, inner: State, outer: State) -> State:
        return inner.replace(intercept=outer.intercept)


def _shown(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def explained(error: CheckpointError, logs: tuple[Log, Log] | None) -> CheckpointError:
    """The error, with the operations of both runs where they were logged."""
    if logs is None:
        return error
    forward_log, again_log = ("\n".join(f"  {line}" for line in log.lines) for log in logs)
    return CheckpointError(
        "checkpoint: the recomputation did not do what the forward run did. You are seeing this error because you "
        "passed `debug=True` to checkpoint and tensors to be saved during the original forward and differ between "
        f"those saved during recomputation.\nOperations of the forward run:\n{forward_log}\n"
        f"Operations of the recomputation:\n{again_log}\n{error}"
    )

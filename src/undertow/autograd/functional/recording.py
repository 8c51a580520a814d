"""recording: grad mode for functions that differentiate on their own, whatever the caller has switched off."""

from __future__ import annotations

from undertow.modes import State, current, set_state


class recording:
    """Record a graph inside, also within `no_grad` and `inference_mode`, where `enable_grad` alone records none."""

    def __enter__(self) -> None:
        self._outer: State = current()
        inside = self._outer.with_grad(True)
        set_state(inside.replace(inference=False) if inside.inference else inside)

    def __exit__(self, *exc: object) -> None:
        outer, state = self._outer, current().with_grad(self._outer.grad_mode)
        set_state(state.replace(inference=True) if outer.inference else state)

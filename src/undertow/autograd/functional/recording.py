"""recording: grad mode for functions that differentiate on their own, whatever the caller has switched off."""

from __future__ import annotations

from undertow.modes import State, state_variable
from undertow.scopes import Scope


class recording(Scope):
    """Record a graph inside, also within `no_grad` and `inference_mode`, where `enable_grad` alone records none."""

    variable = state_variable

    def inside(self, outer: State) -> State:
        found = outer.with_grad(True)
        return found.replace(inference=False) if found.inference else found

    def after(self, inner: State, outer: State) -> State:
        found = inner.with_grad(outer.grad_mode)
        return found.replace(inference=True) if outer.inference else found

"""Makes undertow's classes and functions known to the compiled core, which reads their slots and calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undertow.backend import cpu
from undertow.backend.public_dtypes import dtype
from undertow.backend.silence import QUIET, errors_variable
from undertow.compiled import core
from undertow.graph import user_lines
from undertow.graph.accumulate import AccumulateGrad, leaf_edge, resolve_leaves
from undertow.graph.history import rebase_history, recorded_edge
from undertow.graph.node import LAST, Node, OutputEdge, StreamExtra, extra_on, sequence
from undertow.graph.saved import Freed, unpack_input, unpack_output
from undertow.modes import State, state_variable
from undertow.ops.declare.recorded_namespace import recorded
from undertow.own_files import OWN_FILES
from undertow.tensor import LEAF, Extra, Tensor, counter_of, current_edge, extra_of, version_of
from undertow.tensor.extra import DEFAULT, INFERENCE, MULTIPLE_OUTPUTS, NO_GRAD
from undertow.tensor.version_counter import NO_COUNTER, VersionCounter
from undertow.tensor.views import Replay, View, attach_view, current_replay, share_inference

if TYPE_CHECKING:
    from undertow.backend.interface import Namespace


def first_extra_on(xp: Namespace) -> Any:
    """`extra_on` of the first node on a GPU; for those that follow, the core is told of a quicker one."""
    core.bind(extra_on=xp.extra_finder(extra_on))
    return extra_on(xp)


if core is not None:
    core.bind(
        Tensor=Tensor, Extra=Extra, View=View, Replay=Replay, State=State, Node=Node,
        AccumulateGrad=AccumulateGrad, OutputEdge=OutputEdge, Freed=Freed, LEAF=LEAF, LAST=LAST, NO_COUNTER=NO_COUNTER,
        extra_of=extra_of, version_of=version_of, current_replay=current_replay, DEFAULT=DEFAULT, NO_GRAD=NO_GRAD,
        INFERENCE=INFERENCE, share_inference=share_inference, attach_view=attach_view, state_variable=state_variable,
        sequence=sequence, recorded_edge=recorded_edge, leaf_edge=leaf_edge,
        resolve_leaves=resolve_leaves, unpack_input=unpack_input, unpack_output=unpack_output,
        own_files=OWN_FILES, cpu=cpu, recorded=recorded, VersionCounter=VersionCounter, counter_of=counter_of,
        StreamExtra=StreamExtra, extra_on=first_extra_on, errors_variable=errors_variable, QUIET=QUIET, ufunc=cpu.ufunc,
        current_edge=current_edge, PublicDtype=dtype, rebase_history=rebase_history, MULTIPLE_OUTPUTS=MULTIPLE_OUTPUTS,
    )  # fmt: skip
    user_lines.tell(core.take_sites)

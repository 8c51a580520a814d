"""Building the same module here and in PyTorch, and comparing what they do."""

from __future__ import annotations

from typing import Any

import numpy as np

import undertow as ut
from tests.nn.modules import Row


def twins(row: Row, torch: Any) -> tuple[Any, Any]:
    """The module of a row in both libraries, in float64, with PyTorch's weights."""
    theirs = getattr(torch.nn, row.name)(*row.args, **row.options).double()
    ours = getattr(ut.nn, row.name)(*row.args, **row.options).double()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def inputs_of(row: Row) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=i) if isinstance(i, tuple) else i.copy() for i in row.inputs]


def tensors(library: Any, arrays: list[np.ndarray]) -> list[Any]:
    """Floating-point arrays as leaves that require grad."""
    return [library.tensor(a).requires_grad_(a.dtype.kind == "f") for a in arrays]


def flat(output: Any) -> list[Any]:
    if isinstance(output, tuple | list):
        return [tensor for part in output for tensor in flat(part)]
    return [] if output is None else [output]


def array(tensor: Any) -> np.ndarray:
    return tensor.detach().numpy()


def weigh(library: Any, outputs: list[Any]) -> Any:
    """A scalar in which every element of every output counts differently."""
    total = 0.0
    for k, out in enumerate(outputs):
        if out.dtype in (library.float64, library.float32):
            weights = np.cos(np.arange(out.numel()) + k).reshape(tuple(out.shape))
            total = total + (out * library.tensor(weights)).sum()
    return total


def run(library: Any, module: Any, inputs: list[Any]) -> list[Any]:
    """Forward and backward; the outputs."""
    outputs = flat(module(*inputs))
    loss = weigh(library, outputs)
    if getattr(loss, "requires_grad", False):
        loss.backward()
    return outputs


def assert_same(ours: Any, theirs: Any, what: str, rtol: float = 1e-7, atol: float = 1e-11) -> None:
    if ours is None or theirs is None:
        assert ours is None and theirs is None, what
        return
    assert tuple(ours.shape) == tuple(theirs.shape), what
    np.testing.assert_allclose(array(ours), array(theirs), rtol=rtol, atol=atol, err_msg=what)


def assert_twins(ours: Any, theirs: Any, our_inputs: list[Any], their_inputs: list[Any]) -> None:
    """The same gradients everywhere, and the same state afterwards."""
    for k, (a, b) in enumerate(zip(our_inputs, their_inputs, strict=True)):
        assert_same(a.grad, b.grad, f"gradient of input {k}")
    for (name, a), (other, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other
        assert_same(a.grad, b.grad, f"gradient of {name}")
    our_state, their_state = ours.state_dict(), theirs.state_dict()
    assert list(our_state) == list(their_state)
    for name in our_state:
        assert_same(our_state[name], their_state[name], f"state {name}")

"""Recurrent layers as functions, with their weights in one list: `undertow.lstm`, `gru`, `rnn_tanh` and `rnn_relu`.

They take either a batch of sequences of one length, or sequences of several, packed:

    lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.nn.rnn.run import Weights, run_layers
from undertow.nn.rnn.steps import gru_step, lstm_step, rnn_step
from undertow.tensor import Tensor

if TYPE_CHECKING:
    from undertow.backend.interface import Array


def whole_layer(name: str, mode: str) -> Callable[..., Any]:
    """The function of a kind of layer."""

    def function(input: Tensor, *arguments: Any, **named: Any) -> tuple[Any, ...]:
        packed = "batch_sizes" in named or is_packed(mode, arguments)
        given = (packed_arguments if packed else batch_arguments)(*arguments, **named)
        state = list(given["hx"]) if mode == "LSTM" else [given["hx"]]
        directions = 2 if given["bidirectional"] else 1
        weights = grouped(given["params"], given["has_biases"], given["num_layers"] * directions)
        turned = given.get("batch_first", False)
        x = ops.transpose(input, 0, 1) if turned else input
        dropout = given["dropout"] if given["train"] else 0
        sizes = given["batch_sizes"].tolist() if packed else None
        out, last = run_layers(mode, x, state, weights, directions, dropout, sizes)
        return (ops.transpose(out, 0, 1) if turned else out, *last)

    function.__name__ = function.__qualname__ = name
    zeros = "(ut.zeros(1, 4, 2), ut.zeros(1, 4, 2))" if mode == "LSTM" else "ut.zeros(1, 4, 2)"
    layer = f"ut.nn.{mode.partition('_')[0]}(3, 2)"
    function.__doc__ = (
        f"A whole recurrent layer of kind {mode}: outputs, and the last states.\n\n"
        "input                (steps, N, features)\n"
        "*arguments, **named  `hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first`; of\n"
        "                     packed sequences, `batch_sizes` before these, without the last\n\n"
        f"Example: `ut.{name}(ut.ones(5, 4, 3), {zeros}, [*{layer}.parameters()], True, 1, 0, False, False)[0].shape`"
    )
    return function


def is_packed(mode: str, arguments: tuple[Any, ...]) -> bool:
    """Whether the first of these is the sizes of steps: then the states, or a list of weights, are not the second."""
    first_state = 1 if mode == "LSTM" else 2
    if len(arguments) <= first_state:
        return False
    return isinstance(arguments[0], Tensor) and isinstance(arguments[first_state], tuple | list)


def batch_arguments(
    hx: Any,
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> dict[str, Any]:
    return dict(locals())


def packed_arguments(
    batch_sizes: Tensor,
    hx: Any,
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> dict[str, Any]:
    return dict(locals())


def grouped(params: Any, has_biases: bool, count: int) -> list[Weights]:
    """A flat list of weights, layer by layer and direction by direction: w_ih, w_hh, b_ih, b_hh, and w_hr if any."""
    size, rest = divmod(len(params), count)
    expected = 4 if has_biases else 2
    if rest or size not in (expected, expected + 1):
        raise RuntimeError(
            f"expected {expected} weights, or {expected + 1} with a projection, for each of {count} layers and "
            f"directions, but got {len(params)}: check has_biases, num_layers and bidirectional"
        )
    found = []
    for first in range(0, len(params), size):
        own = list(params[first : first + size])
        biases = own[2:4] if has_biases else [None, None]
        found.append(Weights._make([*own[:2], *biases, own[expected] if size > expected else None]))
    return found


lstm = whole_layer("lstm", "LSTM")
gru = whole_layer("gru", "GRU")
rnn_tanh = whole_layer("rnn_tanh", "RNN_TANH")
rnn_relu = whole_layer("rnn_relu", "RNN_RELU")


# ---- single steps


def lstm_cell(
    input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Array | None = None, b_hh: Array | None = None
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: the new h and c.

    input       (N, features)
    hx          h and c before, (N, hidden) each
    w_ih, w_hh  the weights of the input and of the state, (4 * hidden, features) and (4 * hidden, hidden)
    b_ih, b_hh  what is added to their products, or None

    >>> import undertow as ut
    >>> layer = ut.nn.LSTMCell(3, 2)
    >>> state = ut.zeros(1, 2), ut.zeros(1, 2)
    >>> [part.shape for part in ut.lstm_cell(ut.ones(1, 3), state, *layer.parameters())]
    [undertow.Size([1, 2]), undertow.Size([1, 2])]
    """
    h, c = lstm_step(ops.linear(input, w_ih, b_ih), tuple(hx), (w_hh, b_hh, None))
    return h, c


def gru_cell(
    input: Tensor, hx: Array, w_ih: Tensor, w_hh: Tensor, b_ih: Array | None = None, b_hh: Array | None = None
) -> Tensor:
    """One step of a GRU: the new h.

    input       (N, features)
    hx          (N, hidden): the state before
    w_ih, w_hh  the weights of the input and of the state
    b_ih, b_hh  what is added to their products, or None

    >>> import undertow as ut
    >>> layer = ut.nn.GRUCell(3, 2)
    >>> ut.gru_cell(ut.ones(1, 3), ut.zeros(1, 2), *layer.parameters()).shape
    undertow.Size([1, 2])
    """
    (h,) = gru_step(ops.linear(input, w_ih, b_ih), (hx,), (w_hh, b_hh, None))
    return h


def rnn_tanh_cell(
    input: Tensor, hx: Array, w_ih: Tensor, w_hh: Tensor, b_ih: Array | None = None, b_hh: Array | None = None
) -> Tensor:
    """One step of a simple recurrent layer: the new h.

    input       (N, features)
    hx          (N, hidden): the state before
    w_ih, w_hh  the weights of the input and of the state
    b_ih, b_hh  what is added to their products, or None

    >>> import undertow as ut
    >>> layer = ut.nn.RNNCell(3, 2)
    >>> ut.rnn_tanh_cell(ut.ones(1, 3), ut.zeros(1, 2), *layer.parameters()).shape
    undertow.Size([1, 2])
    """
    (h,) = rnn_step("tanh")(ops.linear(input, w_ih, b_ih), (hx,), (w_hh, b_hh, None))
    return h


def rnn_relu_cell(
    input: Tensor, hx: Array, w_ih: Tensor, w_hh: Tensor, b_ih: Array | None = None, b_hh: Array | None = None
) -> Tensor:
    """The same with relu in the place of tanh.

    input       (N, features)
    hx          (N, hidden): the state before
    w_ih, w_hh  the weights of the input and of the state
    b_ih, b_hh  what is added to their products, or None

    >>> import undertow as ut
    >>> layer = ut.nn.RNNCell(3, 2)
    >>> ut.rnn_relu_cell(ut.ones(1, 3), ut.zeros(1, 2), *layer.parameters()).shape
    undertow.Size([1, 2])
    """
    (h,) = rnn_step("relu")(ops.linear(input, w_ih, b_ih), (hx,), (w_hh, b_hh, None))
    return h

"""Single steps of recurrent layers as modules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.nn import init
from undertow.nn.layers.linear import fresh
from undertow.nn.module import Module
from undertow.nn.rnn.steps import Step, gru_step, lstm_step, rnn_step

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor


class RNNCellBase(Module):
    """What all cells have in common: weights, and a state for each example.

    input_size   features of the input, its last dimension
    hidden_size  features of the state
    bias         whether something learned is added
    num_chunks   how many times hidden_size rows the weights have: 1, 3 (GRU) or 4 (LSTM)

    >>> import undertow as ut
    >>> isinstance(ut.nn.LSTMCell(3, 2), ut.nn.RNNCellBase)
    True
    """

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any
    bias_hh: Any
    step: Step

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih = fresh(rows, input_size, device=device, dtype=dtype)
        self.weight_hh = fresh(rows, hidden_size, device=device, dtype=dtype)
        self.register_parameter("bias_ih", fresh(rows, device=device, dtype=dtype) if bias else None)
        self.register_parameter("bias_hh", fresh(rows, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform within 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _next(self, step: Step, input: Tensor, states: tuple[Any, ...]) -> tuple[Any, ...]:
        self._check(input, states)
        gates = ops.linear(input, self.weight_ih, self.bias_ih)
        return step(gates, states, (self.weight_hh, self.bias_hh, None))

    def _check(self, input: Tensor, states: tuple[Any, ...]) -> None:
        if input.dim() not in (1, 2):
            raise ValueError(f"{self._get_name()}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}")
        for state in states:
            if state.dim() != input.dim() or state.shape[-1] != self.hidden_size:
                raise RuntimeError(
                    f"{self._get_name()}: Expected hidden of {input.dim()} dimensions and size {self.hidden_size}, got "
                    f"{list(state.shape)}"
                )
            if state.shape[0] != input.shape[0] and input.dim() == 2:
                raise RuntimeError(
                    f"Input batch size {input.shape[0]} doesn't match hidden batch size {state.shape[0]}: a state is "
                    "not spread over the examples"
                )

    def _zeros(self, input: Tensor) -> Tensor:
        return ops.new_zeros(input, (*input.shape[:-1], self.hidden_size))

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        text += "" if self.bias else f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"


class RNNCell(RNNCellBase):
    """One step of an RNN.

    input_size    features of the input, its last dimension
    hidden_size   features of the state
    bias          whether something learned is added
    nonlinearity  'tanh' or 'relu'

    Shapes: input (N, input_size) or (input_size), the state (N, hidden_size) or (hidden_size), as the result.

    >>> import undertow as ut
    >>> ut.nn.RNNCell(4, 6)(ut.ones(2, 4)).shape
    undertow.Size([2, 6])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        (h,) = self._next(rnn_step(self.nonlinearity), input, (self._zeros(input) if hx is None else hx,))
        return h


class LSTMCell(RNNCellBase):
    """One step of an LSTM.

    input_size   features of the input, its last dimension
    hidden_size  features of the state
    bias         whether something learned is added

    Shapes: input (N, input_size) or (input_size), h and c (N, hidden_size) or (hidden_size), as the results.

    >>> import undertow as ut
    >>> ut.nn.LSTMCell(4, 6)(ut.ones(2, 4))[0].shape
    undertow.Size([2, 6])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        states = (self._zeros(input), self._zeros(input)) if hx is None else tuple(hx)
        return self._next(lstm_step, input, states)


class GRUCell(RNNCellBase):
    """One step of a GRU.

    input_size   features of the input, its last dimension
    hidden_size  features of the state
    bias         whether something learned is added

    Shapes: input (N, input_size) or (input_size), the state (N, hidden_size) or (hidden_size), as the result.

    >>> import undertow as ut
    >>> ut.nn.GRUCell(4, 6)(ut.ones(2, 4)).shape
    undertow.Size([2, 6])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        (h,) = self._next(gru_step, input, (self._zeros(input) if hx is None else hx,))
        return h

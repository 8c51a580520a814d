"""Recurrent layers: RNN, LSTM and GRU over sequences, and their cells for single steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from undertow import ops
from undertow.backend.interface import DType
from undertow.graph.user_lines import warn_user
from undertow.nn import init
from undertow.nn.layers.linear import fresh
from undertow.nn.layers.shared_arguments import SharedArguments
from undertow.nn.module import Module
from undertow.nn.rnn.run import Weights, run_layers
from undertow.nn.utils.rnn import PackedSequence

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor

#: how many gates each kind has
GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class RNNBase(SharedArguments, Module):
    """What RNN, LSTM and GRU have in common; `mode` is 'RNN_TANH', 'RNN_RELU', 'LSTM' or 'GRU'.

    input_size     features of the input, its last dimension
    hidden_size    features of the state
    num_layers     so many, one above the other
    bias           whether something learned is added
    batch_first    whether batches come before time
    dropout        of the results of every layer but the last
    bidirectional  whether the sequence is read backwards, too
    proj_size      of an LSTM: h is projected to so many features; 0: it is not

    Shapes: input (T, N, input_size), (N, T, input_size) with batch_first, or (T, input_size); the state
    (num_layers, N, hidden_size). The results: outputs (T, N, hidden_size), and the last state. With bidirectional,
    there are twice as many layers and features.

    >>> import undertow as ut
    >>> layer = ut.nn.RNNBase("GRU", 3, 2)
    >>> [name for name, _ in layer.named_parameters()]
    ['weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0']
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = float(dropout), bidirectional, proj_size
        self._check()
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(1 + bidirectional):
                self._add_layer(layer, direction, device, dtype)
        self.reset_parameters()

    def _check(self) -> None:
        if isinstance(self.dropout, bool) or not 0 <= self.dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if self.dropout > 0 and self.num_layers == 1:
            warn_user(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={self.dropout} and num_layers={self.num_layers}"
            )
        for name in ("bias", "batch_first"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} should be of type bool, got: {type(getattr(self, name)).__name__}")
        for name in ("input_size", "hidden_size", "num_layers"):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")

    @property
    def _out_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _add_layer(self, layer: int, direction: int, device: Device | str | int | None, dtype: DType | None) -> None:
        rows = GATES[self.mode] * self.hidden_size
        columns = self.input_size if layer == 0 else self._out_size * (1 + self.bidirectional)
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, columns), "weight_hh": (rows, self._out_size)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        suffix = f"_l{layer}{'_reverse' if direction else ''}"
        for name, shape in shapes.items():
            setattr(self, name + suffix, fresh(*shape, device=device, dtype=dtype))
        self._all_weights.append([name + suffix for name in shapes])

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform within 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do: there is no other layout of the weights. It exists so that programs can call it."""

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def _weights(self, number: int) -> Weights:
        found = [getattr(self, name) for name in self._all_weights[number]]
        if self.bias:
            return Weights(*found)
        return Weights(found[0], found[1], weight_hr=found[2] if self.proj_size else None)

    # ---- running

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, ...]:
        packed = input if isinstance(input, PackedSequence) else None
        sizes = None if packed is None else packed.batch_sizes.tolist()
        x = input if packed is None else packed.data
        single = packed is None and x.dim() == 2
        self._check_input(x, packed is not None)
        if single:
            x = ops.unsqueeze(x, 1)
        elif packed is None and self.batch_first:
            x = ops.transpose(x, 0, 1)
        examples = x.shape[1] if sizes is None else sizes[0]
        state = self._first_state(x, examples, hx, single, packed)
        out, last = self._run(x, state, sizes)
        if packed is not None:
            out = PackedSequence(out, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
            last = [in_order(s, packed.unsorted_indices) for s in last]
        elif single:
            out, last = ops.squeeze(out, 1), [ops.squeeze(s, 1) for s in last]
        elif self.batch_first:
            out = ops.transpose(out, 0, 1)
        return out, (tuple(last) if self.mode == "LSTM" else last[0])

    def _check_input(self, x: Tensor, packed: bool) -> None:
        if x.dim() not in ((2,) if packed else (2, 3)):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {x.dim()}D instead")
        weight = getattr(self, self._all_weights[0][0])
        if x.dtype != weight.dtype:
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). Convert input: "
                f"input.to({weight.dtype}), or convert model: model.to({x.dtype})"
            )
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )

    def _first_state(self, x: Tensor, examples: int, hx: Any, single: bool, packed: PackedSequence | None) -> list[Any]:
        """The states that were given, with a dimension of examples, or zeros."""
        count = self.num_layers * (1 + self.bidirectional)
        sizes = [self._out_size, self.hidden_size] if self.mode == "LSTM" else [self.hidden_size]
        if hx is None:
            return [ops.new_zeros(x, (count, examples, size)) for size in sizes]
        given = list(hx) if self.mode == "LSTM" else [hx]
        for name, state, size in zip(("hidden[0]", "hidden[1]"), given, sizes, strict=False):
            expected = (count, size) if single else (count, examples, size)
            if tuple(state.shape) != expected:
                name = f"{name} size" if self.mode == "LSTM" else "hidden size"
                raise RuntimeError(f"Expected {name} {expected}, got {list(state.shape)}")
        given = [ops.unsqueeze(state, 1) for state in given] if single else given
        return given if packed is None else [in_order(state, packed.sorted_indices) for state in given]

    def _run(self, x: Tensor, state: list[Any], sizes: Any) -> tuple[Any, list[Any]]:
        directions = 1 + self.bidirectional
        weights = [self._weights(number) for number in range(self.num_layers * directions)]
        return run_layers(self.mode, x, state, weights, directions, self.dropout if self.training else 0, sizes)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0,
                 "bidirectional": False}  # fmt: skip
        for name, value in usual.items():
            if getattr(self, name) != value:
                text += f", {name}={getattr(self, name)}"
        return text


def in_order(state: Tensor, indices: Tensor | None) -> Tensor:
    return state if indices is None else ops.index_select(state, 1, indices)


class RNN(RNNBase):
    """h = tanh(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh), or relu.

    nonlinearity   'tanh' or 'relu'

    >>> import undertow as ut
    >>> ut.nn.RNN(4, 6)(ut.ones(5, 2, 4))[0].shape
    undertow.Size([5, 2, 6])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(
            mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory: gates decide what the cell forgets, takes in and shows. The state is a pair (h, c).

    proj_size      h and the outputs are projected to this size

    >>> import undertow as ut
    >>> lstm = ut.nn.LSTM(3, 5, num_layers=2, batch_first=True)
    >>> out, (h, c) = lstm(ut.ones(4, 7, 3))
    >>> out.shape, h.shape
    (undertow.Size([4, 7, 5]), undertow.Size([2, 4, 5]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )


class GRU(RNNBase):
    """Gated recurrent unit: gates decide what the state forgets and takes in.

    >>> import undertow as ut
    >>> ut.nn.GRU(4, 6)(ut.ones(5, 2, 4))[0].shape
    undertow.Size([5, 2, 6])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device | str | int | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )

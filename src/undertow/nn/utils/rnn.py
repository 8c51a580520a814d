"""Sequences of different lengths for recurrent layers: packed (nothing in between) or padded (equal lengths)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow import ops
from undertow.backend import dtypes

if TYPE_CHECKING:
    from undertow.backend.interface import Device
    from undertow.tensor import Tensor


class PackedFields(NamedTuple):
    """The fields of a PackedSequence, which says what they are.

    data         the elements, step by step
    batch_sizes  how many sequences go on at each step
    sorted_indices, unsorted_indices  the order by length, and the one back; None: they were in order

    >>> import undertow as ut
    >>> ut.nn.utils.rnn.pack_sequence([ut.ones(3), ut.ones(2)])._fields
    ('data', 'batch_sizes', 'sorted_indices', 'unsorted_indices')
    """

    data: Any
    batch_sizes: Any
    sorted_indices: Any = None
    unsorted_indices: Any = None


class PackedSequence(PackedFields):
    """The steps of several sequences: all first steps, then all second ones, ...

    data              the steps; each has the sequences in order of falling length
    batch_sizes       how many sequences have a first step, a second one, ...
    sorted_indices    the numbers of the sequences in that order; None: they were in it
    unsorted_indices  the way back

    >>> import undertow as ut
    >>> packed = ut.nn.utils.rnn.pack_sequence([ut.ones(3), ut.ones(2)])
    >>> packed.batch_sizes
    tensor([2, 2, 1])
    """

    __slots__ = ()

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with other data: another dtype, another device. Itself, if it has them already.

        *args, **kwargs  what `Tensor.to` takes
        """
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._replace(data=data)

    def cpu(self) -> PackedSequence:
        return self.to("cpu")

    def cuda(self, device: Device | str | int | None = None) -> PackedSequence:
        return self.to("cuda" if device is None else device)

    def double(self) -> PackedSequence:
        return self.to(dtypes.float64)

    def float(self) -> PackedSequence:
        return self.to(dtypes.float32)

    def half(self) -> PackedSequence:
        return self.to(dtypes.float16)

    def long(self) -> PackedSequence:
        return self.to(dtypes.int64)

    def int(self) -> PackedSequence:
        return self.to(dtypes.int32)

    def short(self) -> PackedSequence:
        return self.to(dtypes.int16)

    def char(self) -> PackedSequence:
        return self.to(dtypes.int8)

    def byte(self) -> PackedSequence:
        return self.to(dtypes.uint8)

    @property
    def is_cuda(self) -> bool:
        return bool(self.data.device.type == "cuda")


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The order that undoes an order; None for None.

    permutation  a vector of integers

    >>> import undertow as ut
    >>> ut.nn.utils.rnn.invert_permutation(ut.tensor([1, 2, 0]))
    tensor([2, 0, 1])
    """
    return None if permutation is None else ops.argsort(permutation)


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences, (steps, examples, ...), of these lengths.

    enforce_sorted  they must come in order of falling length; otherwise they are sorted, and the layers sort back
    input           (steps, examples, ...)
    batch_first     (examples, steps, ...) instead

    >>> import undertow as ut
    >>> ut.nn.utils.rnn.pack_padded_sequence(ut.ones(2, 2), ut.tensor([2, 1])).data
    tensor([1., 1., 1.])
    """
    if input.numel() == 0:
        raise RuntimeError(f"Cannot pack empty tensors: the input has shape {list(input.shape)}")
    lengths = [int(n) for n in lengths]
    input = ops.transpose(input, 0, 1) if batch_first else input
    if len(lengths) != input.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={input.shape[1]})"
        )
    if min(lengths) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    order = None
    if enforce_sorted:
        if any(a < b for a, b in pairwise(lengths)):
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement."
            )
    else:
        order = ops.tensor(sorted(range(len(lengths)), key=lambda k: -lengths[k]), dtype=dtypes.int64)
        lengths = sorted(lengths, reverse=True)
        input = ops.index_select(input, 1, order)
    sizes = [sum(n > t for n in lengths) for t in range(lengths[0])]
    data = ops.cat([input[t, :size] for t, size in enumerate(sizes)], 0)
    return PackedSequence(data, ops.tensor(sizes, dtype=dtypes.int64), order, invert_permutation(order))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Any, Any]:
    """Padded sequences, (steps, examples, ...), and their lengths: the inverse of pack_padded_sequence.

    sequence       a PackedSequence
    batch_first    (examples, steps, ...) instead
    padding_value  what is put behind shorter ones
    total_length   how many steps the result has; None: those of the longest

    >>> import undertow as ut
    >>> packed = ut.nn.utils.rnn.pack_sequence([ut.tensor([1.0, 2.0]), ut.tensor([3.0])])
    >>> ut.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[1]
    tensor([2, 1])
    """
    sizes = sequence.batch_sizes.tolist()
    if not sizes:
        raise RuntimeError("Expected batch_sizes to have at least one element: the packed sequence is empty")
    lengths = ops.tensor([sum(size > k for size in sizes) for k in range(sizes[0])], dtype=dtypes.int64)
    steps = [_padded(part, sizes[0], padding_value) for part in ops.split(sequence.data, sizes)]
    if total_length is not None:
        if total_length < len(steps):
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {len(steps)}"
            )
        rest = ops.full_like(steps[0].detach(), padding_value)
        steps += [rest] * (total_length - len(steps))
    out = ops.stack(steps, 1 if batch_first else 0)
    if sequence.unsorted_indices is None:
        return out, lengths
    back = sequence.unsorted_indices
    return ops.index_select(out, 0 if batch_first else 1, back), ops.index_select(lengths, 0, back)


def _padded(part: Tensor, count: int, value: float) -> Tensor:
    missing = count - part.shape[0]
    return ops.pad(part, [0, 0] * (part.dim() - 1) + [0, missing], "constant", value) if missing else part


def pad_sequence(
    sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences of different lengths as one tensor, (steps, examples, ...).

    sequences      a list of tensors, (length, ...)
    batch_first    (examples, steps, ...) instead
    padding_value  what is put behind shorter ones
    padding_side   "right" or "left"

    >>> import undertow as ut
    >>> ut.nn.utils.rnn.pad_sequence([ut.tensor([1.0, 2.0]), ut.tensor([3.0])], batch_first=True)
    tensor([[1., 2.],
            [3., 0.]])
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"padding_side should be one of 'right' or 'left', but got '{padding_side}'")
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    longest = max(sequence.shape[0] for sequence in sequences)
    rows = []
    for sequence in sequences:
        missing = longest - sequence.shape[0]
        sides = [0, missing] if padding_side == "right" else [missing, 0]
        rows.append(ops.pad(sequence, [0, 0] * (sequence.dim() - 1) + sides, "constant", padding_value))
    return ops.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Any]:
    """The sequences without padding: the inverse of pad_sequence.

    padded_sequences  (steps, examples, ...)
    lengths           a tensor of integers
    batch_first       (examples, steps, ...) instead

    >>> import undertow as ut
    >>> ut.nn.utils.rnn.unpad_sequence(ut.ones(2, 2), ut.tensor([2, 1]), batch_first=True)
    [tensor([1., 1.]), tensor([1.])]
    """
    rows = padded_sequences if batch_first else ops.transpose(padded_sequences, 0, 1)
    return [row[: int(n)] for row, n in zip(ops.unbind(rows, 0), lengths, strict=True)]


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths.

    enforce_sorted  they must come in order of falling length

    >>> import undertow as ut
    >>> ut.nn.utils.rnn.pack_sequence([ut.tensor([1.0, 2.0]), ut.tensor([3.0])]).batch_sizes
    tensor([2, 1])
    """
    lengths = [sequence.shape[0] for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """The sequences: the inverse of pack_sequence.

    packed_sequences  a PackedSequence

    >>> import undertow as ut
    >>> ut.nn.utils.rnn.unpack_sequence(ut.nn.utils.rnn.pack_sequence([ut.tensor([1.0, 2.0]), ut.tensor([3.0])]))
    [tensor([1., 2.]), tensor([3.])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths.tolist(), batch_first=True)

"""What arguments mean that many functions share, where the words about a function do not speak of them.

The site adds it to entries of the reference, and `help` to declared operations.
"""

from __future__ import annotations

import re

#: of what is shown: the beginning of its full name -> argument -> meaning; of several that fit, the longest counts
MEANINGS = {
    "undertow": {
        "input": "what it is computed from: a tensor of any shape, if nothing else is said",
        "self": "the tensor",
        "other": "a second tensor, or a number, which is broadcast with the first",
        "tensors": "a list of tensors",
        "offset": "which diagonal: above the main one if positive, below it if negative",
        "dim1": "the first of the two dimensions that are a matrix",
        "dim2": "the second of them",
        "dim0": "the first of the two dimensions",
        "size": "the sizes, one number for each dimension",
        "stride": "how far apart in memory neighbours are, one number for each dimension",
        "storage_offset": "which element of the memory is the first; None: that of `input`",
        "out": "a tensor that the result is written into",
        "dtype": "the dtype of the result; None: as the inputs, or the default",
        "device": "where the result is made; None: where the inputs are, or the default",
        "requires_grad": "whether operations on the result are recorded",
        "layout": "`undertow.strided`, or a sparse layout",
        "memory_format": "the order of the elements in memory; see docs/memory-order.md",
        "pin_memory": "whether the result is in memory from which GPUs copy by themselves",
        "dim": "the dimension, or dimensions; negative ones count from the end",
        "axis": "NumPy's name of `dim`",
        "keepdim": "whether a dimension that is reduced stays, with size 1",
        "keepdims": "NumPy's name of `keepdim`",
        "generator": "where random numbers come from; None: the default one, which `manual_seed` seeds",
        "equal_nan": "whether NaN equals NaN",
        "reduction": '`"mean"`, `"sum"` or `"none"`: of the losses of all elements or examples',
        "return_indices": "whether places are returned as well as values",
        "ceil_mode": "whether a window at the end that is not full counts",
        "kernel_size": "the size of the window, one number or one for each dimension",
        "padding": "how much is put around the input, one number or one for each dimension",
        "dilation": "the distance of neighbouring elements of the window",
        "groups": "into how many groups channels are divided, each computed by itself",
        "output_size": "the size of the result",
        "output_padding": "what is added at one end of the result",
        "train": "whether this is training, or use",
        "create_graph": "whether the derivatives are recorded, for derivatives of them",
        "chunk_size": "how many passes are made at a time; None: all",
        "has_aux": "whether the function returns a pair, whose second is handed on as it is",
        "argnums": "which arguments to differentiate with respect to, a number or several",
        "check_errors": "whether a failure is an error, instead of a number that is returned",
        "hermitian": "whether the matrices are taken to be symmetric, or Hermitian",
        "window_length": "how many numbers the window has",
        "periodic": "whether the window is one for Fourier transforms, as if one number longer and cut",
        "enabled": "whether to switch it on",
        "fill_value": "what the tensor is filled with",
    },
    "undertow.linalg": {
        "A": "a matrix, or a batch of them: (..., m, n), square ones where an inverse or eigenvalues are asked for",
        "input": "a matrix, or a batch of them: (..., m, n)",
    },
    "undertow.masked": {
        "input": "a tensor of any shape",
        "mask": "bools that can be broadcast to `input`: true where elements count; None: all count",
    },
    "undertow.distributions": {
        "x": "a value",
        "validate_args": "whether parameters and values are checked; None: the default",
        "cache_size": "1: the last value and what it was made of are remembered",
        "loc": "the place",
        "scale": "the width",
        "probs": "the probabilities",
        "logits": "the logarithms of the odds, or of the probabilities up to a constant",
        "lower_bound": "the least value",
        "upper_bound": "the greatest value",
    },
    "undertow.distributed": {
        "group": "the processes that take part; None: all",
        "async_op": "whether to return at once, with a handle to wait for",
        "timeout": "how long to wait, a `timedelta`",
        "tag": "a number that tells messages between the same two processes apart",
        "group_src": "the sender, by its rank in the group",
        "group_dst": "the receiver, by its rank in the group",
    },
    "undertow.fft": {
        "input": "the numbers that are transformed, real or complex",
        "norm": '`"backward"` (divide by n on the way back), `"forward"` (on the way there) or `"ortho"` (by its root)',
        "s": "the sizes of the transformed dimensions; inputs are cut, or filled with zeros",
        "n": "the size of the transformed dimension; inputs are cut, or filled with zeros",
    },
    "undertow.optim": {
        "params": "parameters, or groups of them with options of their own",
        "foreach": "accepted, without effect",
        "fused": "accepted, without effect",
        "maximize": "whether to climb",
        "capturable": "True is an error",
        "differentiable": "whether gradients flow through the steps",
        "optimizer": "whose learning rates change",
        "last_epoch": "the number of steps before this one; -1: it begins",
    },
    "undertow.signal.windows": {
        "M": "how many numbers the window has",
        "sym": "whether the window is symmetric; False: one for Fourier transforms",
    },
    "undertow.nn.init": {
        "tensor": "what is filled, and returned",
        "nonlinearity": "the name of the function that follows the layer",
    },
    "undertow.nn.Module": {
        "prefix": "what all names begin with",
        "remove_duplicate": "whether what is there under two names comes once",
    },
}  # fmt: skip


#: what `input` is like -> the functions of which that is so
INPUTS = {
    "(N, C, L), or (C, L)": "adaptive_avg_pool1d adaptive_max_pool1d avg_pool1d lp_pool1d max_pool1d",
    "(N, C, H, W), or (C, H, W)": "adaptive_avg_pool2d adaptive_max_pool2d avg_pool2d lp_pool2d",
    "(N, C, D, H, W), or (C, D, H, W)": "adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d lp_pool3d max_pool3d",
    "(N, C, ...)": "channel_shuffle feature_alpha_dropout_ feature_dropout feature_dropout_ group_norm",
    "(N, C), (C), or (N, C, ...): logarithms of probabilities": "nll_loss",
    "a tensor whose last sizes are `normalized_shape`": "layer_norm rms_norm",
    "a tensor whose size along `dim` is even": "glu",
    "square matrices: (..., n, n)": "det inverse logdet matrix_exp matrix_power slogdet",
    "matrices that equal their conjugate transpose, with positive eigenvalues: (..., n, n)": "cholesky",
    "a matrix, or a batch of them: (..., m, n)": "adjoint fliplr frobenius_norm geqrf nuclear_norm orgqr ormqr "
    "pinverse qr tril triu",
    "a matrix: (m, n)": "mm mv trace",
    "matrices: (batch, m, n)": "bmm",
    "a vector": "combinations dot vdot",
    "a vector, or a matrix": "diag t",
    "n points, its rows: (n, d)": "pdist nn.functional.pdist",
    "the signal": "stft",
    "complex numbers": "view_as_real",
}
MEANINGS |= {f"undertow.{name}": {"input": like} for like, names in INPUTS.items() for name in names.split()}


def meanings(full: str) -> dict[str, str]:
    """What is known of the arguments of something, by its full name."""
    found: dict[str, str] = {}
    for place in sorted(MEANINGS, key=len):
        if f"{full}.".startswith(f"{place}."):
            found |= MEANINGS[place]
    return found


def unexplained(full: str, call: str, words: str) -> dict[str, str]:
    """The arguments of a call that the words about it leave out, and what they mean."""
    known = meanings(full)
    names = [name for name in re.findall(r"(?<=[(,] )\w+|(?<=\()\w+", call) if name in known]
    return {name: known[name] for name in names if not re.search(rf"\b{name}\b", words)}

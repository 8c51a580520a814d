"""`_saved_*` names under which PyTorch shows what a node saved, where they are not those of the declaration.

A node shows the tensors and values that its rules name. Here are the names beyond: other names of the same values, and
values that follow from what is kept (sizes, mostly). They cost nothing until somebody reads one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from undertow.graph.node import freed_error
from undertow.graph.saved import Freed

if TYPE_CHECKING:
    from undertow.graph.node import Node

Reader = Callable[[Any], Any]
#: PyTorch's name -> how it is read, or another name of the same value
Names = dict[str, Reader | str]

# ---- sizes of inputs

_SIZE = re.compile(r"(?P<argument>\w+)_sym_(?P<what>sizes|numel|argsize_(?P<minus>minus_)?(?P<dim>\d+))$")


def size_reader(name: str) -> Reader:
    """Reads `self_sym_sizes`, `self_sym_numel`, `self_sym_argsize_0` or `self_sym_argsize_minus_1` off a node."""
    match = _SIZE.match(name)
    assert match is not None, name
    argument, what = match["argument"], match["what"]
    if what == "sizes":
        return lambda node: sizes_of(node, argument)
    if what == "numel":
        return lambda node: number_of_elements(sizes_of(node, argument))
    dim = -int(match["dim"]) if match["minus"] else int(match["dim"])
    return lambda node: sizes_of(node, argument)[dim]


def number_of_elements(sizes: tuple[int, ...]) -> int:
    count = 1
    for n in sizes:
        count *= n
    return count


def sizes_of(node: Node, argument: str) -> tuple[int, ...]:
    """The sizes of an input or saved output: kept as such, known to the node the gradient goes to, or the tensor's."""
    kept = node.saved_names.get(f"{argument}_sym_sizes")
    if kept is not None:
        return tuple(node.params[kept[1]])
    edge = edge_of(node, argument)
    if edge is not None:
        return tuple(edge[0]._input_metadata[edge[1]].shape)
    if type(node.saved) is Freed:
        raise freed_error(node, node.saved)
    return tuple(getattr(node, f"_saved_{argument}").shape)


def edge_of(node: Node, argument: str) -> Node | None:
    """Where the gradient of an input goes; None if nowhere."""
    edges = node.op.edges
    name = "input" if argument == "self" and "self" not in edges else argument
    return node.next_edges[edges.index(name)] if name in edges else None


# ---- other readers


def kept_value(node: Node, name: str) -> Any:
    return node.params[node.saved_names[name][1]]


def always(constant: Any) -> Reader:
    return lambda node: constant


def as_tuple(name: str) -> Reader:
    """Dimensions, as a tuple also if there is one."""

    def read(node: Node) -> tuple[Any, ...] | None:
        given = kept_value(node, name)
        return (given,) if isinstance(given, int) else given

    return read


def sizes_or_zero(name: str) -> Reader:
    """Sizes of an optional tensor: (0,) if it was not given."""
    return lambda node: (0,) if kept_value(node, name) is None else tuple(kept_value(node, name))


def part(name: str, index: int) -> Reader:
    return lambda node: kept_value(node, name)[index]


def scales(dims: int) -> Names:
    """A factor for each dimension, under a name of its own."""
    return {f"scales_{axis}" if dims > 1 else "scales": part("scales", k) for k, axis in enumerate("dhw"[-dims:])}


def output_padding(node: Node) -> tuple[int, ...]:
    """By how much the output of a transposed convolution is larger than its windows need."""
    numbers = [kept_value(node, n) for n in ("self_sym_sizes", "weight_sym_sizes", "stride", "padding", "dilation")]
    input, kernel = numbers[0][2:], numbers[1][2:]
    needed = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in zip(input, kernel, *numbers[2:], strict=True)]
    return tuple([n - m for n, m in zip(node.shape[2:], needed, strict=True)])


# ---- the table, by operation


def sizes(names: str) -> Names:
    return {name: size_reader(name) for name in names.split()}


UPSAMPLINGS = {
    f"_upsample_{mode}{dims}d{aa}": scales(dims)
    for mode, dims, aa in [
        *[(mode, dims, "") for mode in ("nearest", "nearestexact") for dims in (1, 2, 3)],
        *[("linear", 1, ""), ("bilinear", 2, ""), ("trilinear", 3, ""), ("bicubic", 2, "")],
        *[("bilinear", 2, "aa"), ("bicubic", 2, "aa")],
    ]
}

REDUCTIONS = ("amax", "amin", "sum", "mean", "nansum", "logsumexp", "var", "std", "var_mean", "std_mean")

FURTHER: dict[str, Names] = {
    **UPSAMPLINGS,
    **{f"_{name}_dims": {"dim": as_tuple("dim")} for name in REDUCTIONS},
    "_vector_norm": {"dim": as_tuple("dim")},
    "true_divide": {"rounding_mode": always(None)},
    "addbmm": sizes("batch1_sym_argsize_0 batch1_sym_argsize_1 batch2_sym_argsize_2"),
    "addmm": sizes("mat1_sym_sizes mat2_sym_sizes"),
    "mm": sizes("self_sym_sizes mat2_sym_sizes"),
    "_mean_all": sizes("self_sym_numel"),
    "embedding": {**sizes("weight_sym_argsize_0"), "sparse": always(False)},
    "gather": {"sparse_grad": always(False)},
    "_im2col": sizes("self_sym_argsize_minus_2 self_sym_argsize_minus_1"),
    "_svd": sizes("S_sym_argsize_minus_1"),
    "_clamp_above": {"min": always(None)},
    "_clamp_below": {"max": always(None)},
    "_fft_c2c": {"forward": lambda node: not node._saved_inverse},
    "_cholesky_lower": {"L": "result", "upper": always(False)},
    "linalg_inv": {"inverse": "result"},
    "linalg_matrix_exp": {"self": "A"},
    "_solve_triangular": {"self": "A"},
    **{f"_{kind}max_pool{n}d": {"result1": "indices"} for kind in ("", "adaptive_") for n in (2, 3)},
    **{
        name: {"input": "self", "result1": "mean", "result2": "rstd"}
        for name in ("native_layer_norm", "_batch_norm", "_group_norm")
    },
    "native_dropout": {"result1": "mask"},
    "_grid_sampler_2d": {"input": "self", "interpolation_mode": always(0)},
    "_squeeze_dims": {"dim": as_tuple("dim")},
    "_convolve": {
        "input": "self",
        "bias_sym_sizes_opt": sizes_or_zero("bias_sym_sizes"),
        "transposed": always(False),
        "output_padding": lambda node: (0,) * len(node._saved_stride),
    },
    "_convolve_transposed": {
        "input": "self",
        "bias_sym_sizes_opt": sizes_or_zero("bias_sym_sizes"),
        "transposed": always(True),
        "output_padding": output_padding,
    },
}
FURTHER["_batch_norm"]["training"] = always(True)
FURTHER["_mean_dims"].update(sizes("self_sym_numel"))

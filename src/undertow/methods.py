"""The one file that attaches operators and methods to Tensor (and calling and hooks to Node).

The declaration of an operation says whether it is a method, with the tensor as its first argument, and whether it has
an in-place form, with an underscore behind its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undertow.autograd import forward_ad, graph, tensor_attributes
from undertow.autograd.backward import backward_method
from undertow.backend.public_dtypes import PUBLIC
from undertow.compiled import core
from undertow.graph.node import Node
from undertow.interop import dlpack, pickling, tensor_methods
from undertow.ops.arguments.operands import NUMBERS
from undertow.ops.create import like, to_dtype_and_device
from undertow.ops.declare import REGISTRY, names_with
from undertow.ops.index import setitem
from undertow.ops.inplace import forms, resize_and_set
from undertow.ops.inplace import methods as in_place_methods
from undertow.ops.inplace import views as in_place_views
from undertow.ops.pointwise.powers import reciprocal
from undertow.ops.pointwise.special.gamma import polygamma
from undertow.ops.pointwise.where_clamp import where
from undertow.ops.random import tensors as random_ops
from undertow.ops.shape import flip_roll
from undertow.ops.sparse import compressed, coo
from undertow.ops.sparse import layouts as sparse_conversions
from undertow.ops.views import by_memory
from undertow.tensor import Tensor, conversions, display, facts, layouts, torch_function
from undertow.tensor import subclasses as subclasses
from undertow.tensor.size import Size
from undertow.tensor.views import is_view

#: Python's operators: special method -> operation
OPERATORS = {
    "__abs__": "abs", "__add__": "add", "__and__": "bitwise_and", "__floordiv__": "floor_divide", "__ge__": "ge",
    "__getitem__": "getitem", "__gt__": "gt", "__invert__": "bitwise_not", "__le__": "le",
    "__lshift__": "bitwise_left_shift", "__lt__": "lt", "__matmul__": "matmul", "__mod__": "remainder",
    "__mul__": "mul", "__neg__": "neg", "__or__": "bitwise_or", "__pos__": "positive", "__pow__": "pow",
    "__radd__": "add", "__rand__": "bitwise_and", "__rmul__": "mul", "__ror__": "bitwise_or", "__rpow__": "_rpow",
    "__rshift__": "bitwise_right_shift", "__rsub__": "rsub", "__rxor__": "bitwise_xor", "__sub__": "sub",
    "__truediv__": "true_divide", "__xor__": "bitwise_xor",
}  # fmt: skip

#: operators with the tensor on the right-hand side
REFLECTED = {
    "__rfloordiv__": "floor_divide", "__rlshift__": "bitwise_left_shift", "__rmatmul__": "matmul",
    "__rmod__": "remainder", "__rrshift__": "bitwise_right_shift",
}  # fmt: skip

AUGMENTED = {
    "__iadd__": "add", "__iand__": "bitwise_and", "__ifloordiv__": "floor_divide", "__ilshift__": "bitwise_left_shift",
    "__imod__": "remainder", "__imul__": "mul", "__ior__": "bitwise_or", "__ipow__": "pow",
    "__irshift__": "bitwise_right_shift", "__isub__": "sub", "__itruediv__": "true_divide", "__ixor__": "bitwise_xor",
}  # fmt: skip

AUTOGRAD: dict[str, Any] = {
    "_backward_hooks": property(
        tensor_attributes.get_backward_hooks, tensor_attributes.set_backward_hooks, tensor_attributes.refuse_deletion
    ),
    "_base": property(tensor_attributes.get_base),
    "_grad_fn": property(tensor_attributes.get_grad_fn, None, tensor_attributes.refuse_deletion),
    "_cdata": property(id),
    "_is_view": is_view,
    "_post_accumulate_grad_hooks": property(tensor_attributes.get_post_accumulate_hooks),
    "backward": backward_method,
    "data": property(tensor_attributes.get_data, tensor_attributes.set_data, tensor_attributes.refuse_deletion),
    "detach": tensor_attributes.detach,
    "detach_": tensor_attributes.detach_,
    "grad": property(tensor_attributes.get_grad, tensor_attributes.set_grad, tensor_attributes.delete_grad),
    "grad_dtype": property(tensor_attributes.get_grad_dtype, tensor_attributes.set_grad_dtype),
    "grad_fn": property(tensor_attributes.get_grad_fn),
    "is_inference": tensor_attributes.is_inference,
    "register_hook": tensor_attributes.register_hook,
    "register_post_accumulate_grad_hook": tensor_attributes.register_post_accumulate_grad_hook,
    "requires_grad": property(
        tensor_attributes.get_requires_grad, tensor_attributes.set_requires_grad, tensor_attributes.refuse_deletion
    ),
    "requires_grad_": tensor_attributes.requires_grad_,
    "retain_grad": tensor_attributes.retain_grad,
    "retains_grad": property(tensor_attributes.get_retains_grad),
    "volatile": property(tensor_attributes.get_volatile, tensor_attributes.set_volatile),
}


def reflected(name: str) -> Callable[..., Any]:
    function = REGISTRY[name].function

    def operator(self: Tensor, other: Any) -> Any:
        return function(other, self)

    return operator


def equality(name: str) -> Callable[..., Any]:
    """`==` and `!=`: elementwise, but a tensor is just unequal to None and to what is no number or array."""
    function = REGISTRY[name].function

    def operator(self: Tensor, other: Any) -> Any:
        if other is None:
            return NotImplemented
        try:
            return function(self, other)
        except TypeError:
            if hasattr(other, "dtype") or isinstance(other, NUMBERS):
                raise
            return NotImplemented

    operator.__name__ = f"__{name}__"
    return operator


def right_division(self: Tensor, other: Any) -> Tensor:
    return reciprocal(self) * other


def part(name: str, setter: bool) -> property:
    """`.real`, `.imag`: views of the parts, to which something can be assigned."""
    function = REGISTRY[name].function

    def assign(self: Tensor, value: Any) -> None:
        in_place_methods.copy_(function(self), value)

    return property(function, assign if setter else None)


def in_place_function(name: str) -> Callable[..., Any]:
    """`relu_(tensor)`: the method as a function, or the in-place form of an operation that has none."""
    method = getattr(Tensor, name, None)
    return forms.in_place(name[:-1], REGISTRY[name[:-1]].function) if method is None else method


def polygamma_of(self: Tensor, n: int) -> Any:
    """As `undertow.polygamma(n, self)`.

    >>> import undertow as ut
    >>> ut.tensor([1.0]).polygamma(1)
    tensor([1.6449])
    """
    return polygamma(n, self)


def where_of(self: Tensor, condition: Tensor, other: Any) -> Any:
    """As `undertow.where(condition, self, other)`: its own elements where the condition holds.

    >>> import undertow as ut
    >>> ut.arange(3).where(ut.tensor([True, False, True]), -ut.ones(3, dtype=ut.int64))
    tensor([ 0, -1,  2])
    """
    return where(condition, self, other)


def attach(names: dict[str, Any]) -> None:
    for name, value in names.items():
        setattr(Tensor, name, value)


attach({name: REGISTRY[name].function for name in names_with("method")})
attach({name + "_": forms.in_place(name, REGISTRY[name].function) for name in names_with("in_place")})
attach({name: forms.division(name[:-1]) for name in ("div_", "divide_")})
attach({name: forms.absolute(name[:-1]) for name in ("abs_", "absolute_")})
attach({"float_power_": forms.in_double("float_power")})
attach({name: forms.clamping(name[:-1]) for name in ("clamp_", "clip_")})
attach({"masked_fill_": forms.masked_filling("masked_fill")})
attach(in_place_methods.METHODS)
attach({"__delitem__": setitem.delitem, "__reversed__": flip_roll.backwards, "__setitem__": setitem.setitem})
attach({special: REGISTRY[name].function for special, name in OPERATORS.items()})
attach({special: reflected(name) for special, name in REFLECTED.items()})
attach({special: getattr(Tensor, name + "_") for special, name in AUGMENTED.items()})
attach({"__eq__": equality("eq"), "__ne__": equality("ne"), "__rtruediv__": right_division})
attach({"real": part("real", True), "imag": part("imag", True)})
attach({n: property(REGISTRY[f].function) for n, f in
        (("T", "numpy_T"), ("mT", "matrix_transpose"), ("H", "matrix_H"), ("mH", "adjoint"))})  # fmt: skip
# whose tensor comes second
attach({"polygamma": polygamma_of, "where": where_of})
attach(in_place_views.METHODS)
attach(resize_and_set.METHODS)
attach(by_memory.METHODS)
attach(facts.METHODS)
attach(conversions.METHODS)
attach({"as_subclass": subclasses.as_subclass, "_make_subclass": staticmethod(subclasses.make_subclass)})
attach(to_dtype_and_device.METHODS)
attach(like.METHODS)
attach(random_ops.METHODS)
attach(layouts.METHODS)
attach(coo.METHODS)
attach(sparse_conversions.METHODS)
attach(compressed.METHODS)
attach({"__repr__": forward_ad.tensor_repr, "__format__": display.tensor_format})
attach(pickling.METHODS)
attach(tensor_methods.METHODS)
attach(dlpack.METHODS)
attach(AUTOGRAD)
#: the attributes that the compiled core reads itself (csrc/call/attributes.c), as they are in Python
PROPERTIES: dict[str, property] = {} if core is None else core.quicken_attributes(Size, PUBLIC)
attach(
    torch_function.gates(
        vars(Tensor),
        but="__init__ __hash__ __setattr__ __delattr__ __getstate__ __setstate__ as_subclass _make_subclass",
    )
)

Node.__call__ = graph.call_node  # type: ignore[method-assign]
Node._register_hook_dict = tensor_attributes.register_node_hook_dict  # type: ignore[attr-defined]
Node.register_hook = tensor_attributes.register_node_hook  # type: ignore[attr-defined]
Node.register_prehook = tensor_attributes.register_node_prehook  # type: ignore[attr-defined]

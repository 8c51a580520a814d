"""What a user sees of a dtype: `undertow.float32`, which is PyTorch's to ask and NumPy's to use.

>>> import undertow as ut, numpy as np
>>> ut.float32.is_floating_point, ut.float32.to_complex(), ut.ones(1).dtype is ut.float32
(True, undertow.complex64, True)
>>> np.zeros(2, ut.int16).dtype == ut.int16 == np.int16
True

NumPy's dtypes cannot be given attributes. So this is an object of its own that has NumPy's as its attribute `dtype`,
where NumPy looks for it, and compares and hashes as that does. Inside undertow there are NumPy's alone: whatever a user
passes goes through `as_dtype` or `plain` first, and `Tensor.dtype` gives back the public one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    from undertow.backend.interface import DType

#: the name of the package in front of a dtype's: "torch" where undertow stands for PyTorch
PREFIX = ["undertow"]

#: NumPy's dtype -> the public one
PUBLIC: dict[Any, dtype] = {}

#: what NumPy's have and is read often
_COPIED = ("kind", "type", "name", "char", "str", "num", "itemsize", "byteorder", "alignment", "hasobject")

_COMPLEX = {"bfloat16": "complex64", "float16": "complex32", "float32": "complex64", "float64": "complex128"}
_REAL = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


class dtype:
    """A dtype. There is one object for each, so `x.dtype is undertow.float32` can be asked.

    float32 (also float), float64 (double), float16 (half), bfloat16 and the five of eight bits (float8_e4m3fn, ...);
    complex64 (cfloat) and complex128 (cdouble); int64 (long), int32 (int), int16 (short), int8, uint8 to uint64; bool.
    Floating and complex dtypes have gradients. `undertow.dtype("float32")`, and with whatever else NumPy takes for a
    dtype, is that object. `x.to(undertow.float64)` gives a tensor another dtype.

    >>> import undertow as ut
    >>> isinstance(ut.float32, ut.dtype)
    True
    """

    __slots__ = ("__weakref__", "_hash", "dtype", "is_complex", "is_floating_point", "is_signed", *_COPIED)

    dtype: Any
    name: str
    kind: str
    type: Any
    itemsize: int
    is_floating_point: bool
    is_complex: bool
    is_signed: bool
    _hash: int

    def __new__(cls, of: Any) -> dtype:
        return public(np.dtype(of))

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> DType:
            """NumPy's: libraries ask `isinstance(x.dtype, np.dtype)`, and Python answers by this as well as by type."""
            return type(self.dtype)

    def to_complex(self) -> dtype:
        """The complex dtype whose parts have this precision."""
        return self if self.is_complex else _called(_COMPLEX.get(self.name, "complex64"), self)

    def to_real(self) -> dtype:
        """The dtype of the real part."""
        return _called(_REAL[self.name], self) if self.is_complex else self

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if type(other) is dtype or other is None:
            return False
        return bool(self.dtype == other)

    def __hash__(self) -> int:
        return self._hash

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dtype, name)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{self!r} cannot be changed: it has no attribute {name!r} of yours")

    def __repr__(self) -> str:
        return f"{PREFIX[0]}.{self.name}"

    def __reduce__(self) -> Any:
        return dtype, (self.name if self.kind != "V" else self.dtype,)


def _called(name: str, of: dtype) -> dtype:
    try:
        return public(np.dtype(name))
    except TypeError:
        raise RuntimeError(f"NumPy has no {name}, which belongs to {of!r}") from None


def public(numpy_dtype: np.dtype[Any]) -> dtype:
    """The public dtype of one of NumPy's."""
    found = PUBLIC.get(numpy_dtype)
    if found is None:
        made = object.__new__(dtype)
        kind = numpy_dtype.kind
        # the kind of what NumPy does not know is "V": bfloat16 and its like, which are floats
        facts = {"dtype": numpy_dtype, "_hash": hash(numpy_dtype), "is_floating_point": kind in "fV",
                 "is_complex": kind == "c", "is_signed": kind in "ifcV"}  # fmt: skip
        for name in _COPIED:
            facts[name] = getattr(numpy_dtype, name)
        facts["name"] = str(facts["name"])
        for name, value in facts.items():
            object.__setattr__(made, name, value)
        found = PUBLIC.setdefault(numpy_dtype, made)
    return found


def unavailable(name: str, itemsize: int) -> dtype:
    """A dtype of PyTorch that nobody computes with here: it can be mentioned and compared, and no tensor has it."""
    made = object.__new__(dtype)
    numpy_dtype = np.dtype((np.void, itemsize), metadata={"name": name})
    facts = {"dtype": numpy_dtype, "_hash": hash(name), "name": name, "itemsize": itemsize, "kind": "V",
             "type": np.void, "is_floating_point": name.startswith("float"), "is_complex": name.startswith("complex"),
             "is_signed": not name.startswith(("quint", "uint", "bit"))}  # fmt: skip
    for fact, value in facts.items():
        object.__setattr__(made, fact, value)
    return made


def plain(given: Any) -> Any:
    """NumPy's dtype of a public one; anything else as it is."""
    return given.dtype if type(given) is dtype else given

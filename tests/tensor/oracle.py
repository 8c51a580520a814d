"""Expressions that must mean the same in undertow and in PyTorch."""

from __future__ import annotations

import copy
import operator
import pickle
import re
import warnings
from types import ModuleType
from typing import Any

import numpy as np

import undertow as ut

# where a note goes to the next line depends on the length of the library's name
NOTE = re.compile(r",\s+(dtype|size|requires_grad|grad_fn)=")


def evaluate(expression: str, library: ModuleType) -> Any:
    """The value of an expression that calls the library `L`, with some tensors at hand."""
    r = library.ones(2, requires_grad=True)
    names = {
        "L": library,
        "np": np,
        "copy": copy,
        "operator": operator,
        "pickle": pickle,
        "x": library.arange(6.0).reshape(2, 3),
        "i": library.tensor(3),
        "r": r,
        "y": r * 2,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(expression, names)


def shown(value: Any) -> str:
    """What a value prints as, with PyTorch's spellings turned into undertow's."""
    text = repr(value).replace("torch.", "undertow.")
    text = re.sub(r"dtype\('(\w+)'\)", r"undertow.\1", text)
    return NOTE.sub(r", \1=", text) if "dtype=" in text else text


def assert_same_as_torch(expression: str, torch: ModuleType) -> None:
    assert shown(evaluate(expression, ut)) == shown(evaluate(expression, torch))


def raised(expression: str, library: ModuleType) -> Exception:
    """The exception that the expression raises."""
    try:
        value = evaluate(expression, library)
    except Exception as error:
        return error
    raise AssertionError(f"{expression} gave {value!r} and raised nothing")


def assert_same_error_as_torch(expression: str, words: str, torch: ModuleType) -> None:
    """Both raise an exception of the same type whose message contains the words."""
    for library in (torch, ut):
        error = raised(expression, library)
        assert words in str(error), f"{library.__name__}: {error}"
        assert type(raised(expression, torch)) in type(error).__mro__, f"{type(error)}: {error}"

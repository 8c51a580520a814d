"""Operations take the arguments, and return the types, that the stubs say: seen on every sample."""

from __future__ import annotations

import ast
import functools
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow as ut
from tests.rows import rows
from tests.samples import Array, Sample, all_samples
from tools.stubs.__main__ import FOLDER

FILES = {"linalg_": "ops/namespaces/linalg.pyi", "fft_": "ops/namespaces/fft.pyi",
         "special_": "ops/namespaces/special.pyi", "": "__init__.pyi"}  # fmt: skip


@functools.cache
def functions(file: str) -> dict[str, list[ast.FunctionDef]]:
    """Name -> its definitions in a stub."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.parse((Path(FOLDER) / file).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


def definitions(op: str) -> list[ast.FunctionDef]:
    prefix = next(prefix for prefix in FILES if op.startswith(prefix))
    return functions(FILES[prefix]).get(op.removeprefix(prefix), [])


SAMPLES = [sample for sample in all_samples() if sample.call is None and definitions(sample.op)]


def made(value: Any, rng: np.random.Generator, complex_: bool) -> Any:
    if isinstance(value, Array):
        return ut.from_numpy(np.array(value.make(rng, complex_)))
    return type(value)(made(v, rng, complex_) for v in value) if isinstance(value, list | tuple) else value


def signature(node: ast.FunctionDef) -> inspect.Signature:
    """The signature of a definition, by Python's own reading of it."""
    scope: dict[str, Any] = {}
    bare = ast.FunctionDef(node.name, node.args, node.body, [], None, None, lineno=1, col_offset=0)
    bare.args = ast.parse(ast.unparse(node)).body[0].args  # type: ignore[attr-defined]
    for argument in ast.walk(bare.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    exec(ast.unparse(ast.Module([bare], [])), scope)
    return inspect.signature(scope[node.name])


def is_of(value: Any, annotation: str) -> bool:
    if annotation.startswith("return_types."):
        return type(value).__name__ == annotation.removeprefix("return_types.")
    if annotation.startswith("tuple["):
        parts = annotation[6:-1].split(", ")
        return isinstance(value, tuple) and (parts[-1] == "..." or len(parts) == len(value))
    expected = {"Tensor": ut.Tensor, "_bool": bool, "list[Tensor]": list, "Any": object}[annotation]
    return isinstance(value, expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, at kinks and poles
@rows("operation", {sample.op: None for sample in SAMPLES})
def test_samples_fit_their_stubs(operation: str) -> None:
    for sample in [s for s in SAMPLES if s.op == operation]:
        check_stub(sample)


def check_stub(sample: Sample) -> None:
    rng = np.random.default_rng(0)
    complex_ = sample.complex_only
    args, kwargs = made(sample.args, rng, complex_), {k: made(v, rng, complex_) for k, v in sample.kwargs.items()}
    result = getattr(ut.ops, sample.op)(*args, **kwargs)
    fitting = [node for node in definitions(sample.op) if binds(signature(node), args, kwargs)]
    assert fitting, f"no definition takes the arguments of {sample.id}"
    results = [ast.unparse(node.returns) for node in fitting if node.returns is not None]
    assert any(is_of(result, annotation) for annotation in results), (sample.id, type(result), results)


def binds(signature: inspect.Signature, args: Any, kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True

"""PyTorch's compiler of models: operations run as they are called here, so what it is told changes nothing.

>>> import undertow as ut
>>> ut.compiler.is_compiling()
False
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

from undertow.torch_names.functions import compile as compile

T = TypeVar("T")

config = SimpleNamespace(job_id=None, force_disable_caches=False)


def is_compiling() -> bool:
    return False


is_dynamo_compiling = is_exporting = is_compiling


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, **kwargs: Any) -> Any:
    """The function itself; without one, a decorator."""
    return fn if fn is not None else lambda function: function


run = disable


def allow_in_graph(fn: T) -> T:
    return fn


assume_constant_result = nested_compile_region = wrap_numpy = allow_in_graph


def substitute_in_graph(original_fn: Any, **kwargs: Any) -> Any:
    return lambda function: function


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    return []


def get_default_backend() -> str:
    return "eager"


def set_default_backend(backend: Any) -> None:
    """There is nothing to choose."""


def reset() -> None:
    """There is nothing to forget."""


def cudagraph_mark_step_begin() -> None:
    """There are no graphs of a GPU's kernels."""


@contextlib.contextmanager
def _stance() -> Iterator[None]:
    yield


def set_stance(stance: str = "default", **kwargs: Any) -> Any:
    """A context, or a decorator, that changes nothing."""
    return _stance()


def skip_guard_on_inbuilt_nn_modules_unsafe(entries: Any) -> list[bool]:
    return [True for _ in entries]


skip_guard_on_all_nn_modules_unsafe = keep_tensor_guards_unsafe = skip_guard_on_inbuilt_nn_modules_unsafe
skip_guard_on_globals_unsafe = skip_all_guards_unsafe = keep_portable_guards_unsafe = (
    skip_guard_on_inbuilt_nn_modules_unsafe
)


def set_enable_guard_collectives(enabled: bool) -> bool:
    return False


def save_cache_artifacts() -> None:
    """Nothing was compiled, so there is nothing to keep."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """Nothing is compiled, so there is nothing to use."""

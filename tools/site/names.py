"""What the search of the site knows of PyTorch's names that have no entry of their own: docs/_static/torch_names.js."""

from __future__ import annotations

import inspect
import json
import re
import sys
from typing import Any

import undertow
from tools.missing_names import MODULES
from tools.site import pages
from tools.site.reference import documentation_of, resolve
from undertow.torch_names.absent_reasons import REASONS
from undertow.torch_names.missing import BELOW, INSTEAD

#: modules of PyTorch that tools/missing_names.py does not compare, because undertow has a part of each
FURTHER = """
torch.cuda.nvtx torch.distributed.checkpoint torch.distributed.nn torch.distributed.optim torch.distributed.pipelining
torch.nn.attention.flex_attention torch.nn.grad torch.nn.utils.fusion torch.onnx torch.utils.data.distributed
""".split()

#: values that are no functions, of which the search says something
CONSTANTS = (undertow.dtype, undertow.layout, undertow.memory_format, float)

#: where a module finds names that `dir` of it does not tell, because they load what drives GPUs
LATER = {"cuda": "undertow.torch_names.cuda_names"}

#: modules of PyTorch that have another name here
MOVED = {"utils.data": "data", "nn.modules": "nn"}


def names(described: set[str]) -> dict[str, Any]:
    """What stands elsewhere, what is there without an entry, and why the rest is not; names as behind `torch.`.

    aliases  name -> that of its entry
    plain    name -> the first sentence of its docstring, or whose it is
    reasons  patterns of full names, in their order, and what to do instead
    """
    entries: dict[int, str] = {}
    for full in sorted(described, key=lambda name: (name.count("."), name)):
        entries.setdefault(id(value_of(full)), full.removeprefix("undertow."))
    aliases, plain, absent = {}, {}, reasons()
    for below in [module.removeprefix("torch").lstrip(".") for module in [*MODULES, *FURTHER]]:
        if below in MOVED:
            continue
        try:
            place = resolve(f"undertow.{below}".rstrip("."))
        except ImportError:
            continue
        for name in {*dir(place), *(dir(resolve(LATER[below])) if below in LATER else ())}:
            value, path = value_of(f"undertow.{below}.{name}".replace("..", ".")), f"{below}.{name}".lstrip(".")
            if name.startswith("_") or f"undertow.{path}" in described or not is_something(value):
                continue
            if callable(value) and id(value) in entries:
                aliases[path] = entries[id(value)]
            elif not is_absent(value, path, absent):
                plain[path] = said_of(value)
    return {"aliases": aliases, "plain": plain, "moved": MOVED, "reasons": absent}


def is_something(value: Any) -> bool:
    return isinstance(value, CONSTANTS) or (callable(value) and not inspect.ismodule(value))


def is_absent(value: Any, path: str, absent: list[tuple[str, str]]) -> bool:
    """Whether a name is there only to say why the function is not."""
    is_described = isinstance(value, CONSTANTS) or documentation_of(value)
    return not is_described and any([re.match(pattern, f"torch.{path}") is not None for pattern, _ in absent])


def value_of(full: str) -> Any:
    try:
        return inspect.unwrap(resolve(full))
    except (AttributeError, ImportError, TypeError, ValueError):
        return None


def said_of(value: Any) -> str:
    """The first sentence of a docstring, or whose the value is; of constants, what they are."""
    if isinstance(value, CONSTANTS):
        return f"{type(value).__name__} {value!r}."
    home = str(getattr(value, "__module__", None) or "undertow")
    if not home.startswith("undertow"):
        return f"Python's own, of {home}."
    paragraph = " ".join(documentation_of(value).split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0] or "It is there, without a description."


def reasons() -> list[tuple[str, str]]:
    """Patterns that JavaScript understands, too."""
    exact = [(f"torch.{name}", why) for name, why in INSTEAD.items()]
    exact += [(f"torch.{module}.{name}", why) for module, below in BELOW.items() for name, why in below.items()]
    return [(re.escape(name) + r"($|\.)", why) for name, why in exact] + REASONS


def script(described: set[str]) -> str:
    ranks = pages.ranks((pages.DOCS / "index.md").read_text(encoding="utf-8"))
    return f"const TORCH_NAMES = {json.dumps({**names(described), 'ranks': ranks}, separators=(',', ':'))};\n"


if __name__ == "__main__":
    from tools.site import reference

    sys.stdout.write(script(reference.described(reference.pages())))

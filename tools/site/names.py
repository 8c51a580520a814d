"""What the search of the site knows of PyTorch's names that have no entry of their own: docs/_static/torch_names.js."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

from undertow.nn.modules import PLACES

import undertow
from tools.missing_names import MODULES
from tools.site import pages, reference
from tools.site.reference import documentation_of, resolve
from undertow.stand_in.finder import imported_names, modules_of_torch
from undertow.torch_names.absent_reasons import REASONS
from undertow.torch_names.missing import BELOW, INSTEAD

#: modules of PyTorch that tools/missing_names.py does not compare, because undertow has a part of each
FURTHER = """
torch.accelerator torch.backends torch.backends.cuda torch.backends.cudnn torch.backends.mkldnn torch.backends.mps
torch.backends.openmp torch.cuda.nvtx torch.distributed.checkpoint torch.distributed.nn torch.distributed.optim
torch.distributed.pipelining torch.nn.attention.flex_attention torch.nn.grad torch.nn.utils.fusion torch.onnx
torch.utils.data.distributed
""".split()

#: values that are no functions, of which the search says something
CONSTANTS = (undertow.dtype, undertow.layout, undertow.memory_format, float, bool)

#: modules without a page of the reference -> the page under docs/ that speaks of them
SPOKEN_OF = {
    "fx": "libraries", "hub": "libraries", "jit": "libraries", "library": "libraries", "multiprocessing": "libraries",
    "overrides": "libraries", "backends": "cuda", "utils.dlpack": "from-pytorch", "distributed.fsdp": "distributed",
    "distributed.optim": "distributed-backward", "nn.attention": "libraries",
}  # fmt: skip

#: of those, what belongs to a class with an entry
KINDS = (undertow.dtype, undertow.layout, undertow.memory_format)

#: of those who have an argument of some name, so many are listed
TAKERS = 6

#: where a module finds names that `dir` of it does not tell, because they load what drives GPUs
LATER = {"cuda": "undertow.torch_names.cuda_names"}

#: modules of PyTorch that have another name here
MOVED = {
    "utils.data": "data", "cuda.amp": "amp", **{f"nn.modules.{place}": "nn" for place in PLACES}, "nn.modules": "nn"
}  # fmt: skip


def names(described: set[str], members: set[str]) -> dict[str, Any]:
    """What stands elsewhere, what is there without an entry, and why the rest is not; names as behind `torch.`.

    aliases  name -> that of its entry; of a dtype, that of `dtype`
    plain    name -> the first sentence of its docstring, or whose it is
    classes  class -> those that it derives from and that have entries, the nearest first
    members  class -> what is described of it, with a name between each two blanks
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
        own = {*dir(place), *dir(type(place))}  # a module may have a class of its own
        for name in own | {*(dir(resolve(LATER[below])) if below in LATER else ())}:
            value, path = value_of(f"undertow.{below}.{name}".replace("..", ".")), f"{below}.{name}".lstrip(".")
            if (
                name.startswith("_")
                or name == "TYPE_CHECKING"
                or f"undertow.{path}" in described
                or not is_something(value)
            ):
                continue
            if callable(value) and id(value) in entries:
                aliases[path] = entries[id(value)]
            elif not is_absent(value, path, absent):
                plain[path] = said_of(value)
                if isinstance(value, KINDS):
                    aliases[path] = type(value).__name__
    plain |= modules_without_a_page()
    for module, page in SPOKEN_OF.items():
        of_it = [name for name in plain if f"{name}.".startswith(f"{module}.")]
        plain |= {name: f"{plain[name]} See docs/{page}.md." for name in of_it}
    return {
        "aliases": aliases | by_their_files(described), "plain": plain, "moved": MOVED, "reasons": absent,
        **classes(described, members),
    }  # fmt: skip


def modules_without_a_page() -> dict[str, str]:
    """Module of PyTorch -> what undertow's own of this name is, where the reference has no page of it."""
    shown = {path for _, path in reference.MODULES.values()} | {"undertow"}
    found = {}
    for full in sorted(modules_of_torch()):
        below = full.removeprefix("torch.")
        if below in MOVED or f"undertow.{below}" in shown or re.search(r"(^|\.)_", below):
            continue
        with suppress(ImportError, AttributeError):
            place = resolve(f"undertow.{below}")
            if inspect.ismodule(place) and place.__name__ not in shown:
                found[below] = said_of(place)
    return found


def by_their_files(described: set[str]) -> dict[str, str]:
    """`optim.adamw.AdamW` -> `optim.AdamW`, of modules of PyTorch whose names undertow has in the package."""
    found = {}
    for module, homes in imported_names().items():
        for name, home in homes.items():
            below = home.removeprefix("torch.")
            if module.startswith(f"{home.rpartition('.')[0]}.") and f"undertow.{below}" in described:
                found[f"{module}.{name}".removeprefix("torch.")] = below
    return found


def classes(described: set[str], members: set[str]) -> dict[str, Any]:
    """What the search has to know to find a method that a class inherits."""
    found = {full: value for full in sorted(described) if inspect.isclass(value := value_of(full))}
    short = {value: full.removeprefix("undertow.") for full, value in reversed(found.items())}
    own: dict[str, list[str]] = {}
    for full in sorted(described | members):
        owner, _, name = full.rpartition(".")
        if owner in found:
            own.setdefault(owner.removeprefix("undertow."), []).append(name)
    return {
        "classes": {
            full.removeprefix("undertow."): [short[base] for base in value.__mro__[1:] if base in short]
            for full, value in found.items()
        },
        "members": {owner: f" {' '.join(names)} " for owner, names in own.items()},
    }


def parameters(made: dict[str, str]) -> dict[str, list[str]]:
    """Name of an argument -> the functions, methods and classes that have it; those first that pages call with it."""
    text = "\n".join([path.read_text(encoding="utf-8") for path in pages.DOCS.rglob("*.md")] + list(made.values()))
    spoken = Counter(re.findall(r"\w+", text))
    shown = Counter(
        [
            (called, name)
            for called, given in re.findall(r"(\w+)\(([^()]*)", text)
            for name in re.findall(r"(\w+)=", given)
        ]
    )
    found: dict[str, list[str]] = {}
    for full, call in reference.calls(made).items():
        for name in re.findall(r"(?<=[(,] )\w+|(?<=\()\w+", call):
            found.setdefault(name, []).append(full.removeprefix("undertow."))

    def best(name: str, owners: list[str]) -> list[str]:
        def known(owner: str) -> int:
            parts = owner.split(".")
            return (1 + shown[parts[-1], name]) * min([spoken[part] for part in parts])

        return sorted(owners, key=known, reverse=True)[:TAKERS]

    return {name: best(name, owners) for name, owners in found.items()}


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


def script(made: dict[str, str]) -> str:
    ranks = pages.ranks((pages.DOCS / "index.md").read_text(encoding="utf-8"))
    known = names(reference.described(made), reference.members(made)) | {"parameters": parameters(made)}
    return f"const TORCH_NAMES = {json.dumps({**known, 'ranks': ranks}, separators=(',', ':'))};\n"


if __name__ == "__main__":
    sys.stdout.write(script(reference.pages()))

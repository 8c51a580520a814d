"""What PyTorch has and undertow lacks: `python -m tools.missing_names [MODULE ...]`, where PyTorch is installed.

Every public name of every public module is compared, and the methods of the classes that users derive from. Each name
that is missing has its reason, from `undertow/torch_names/missing.py`; those without one are printed last, and counted.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from typing import Any

MODULES = """
torch torch.Tensor torch.amp torch.autograd torch.autograd.forward_ad torch.autograd.function torch.autograd.functional
torch.autograd.graph torch.autograd.profiler torch.backends torch.compiler torch.cpu torch.cuda torch.cuda.amp
torch.distributed torch.distributions torch.distributions.constraints torch.distributions.transforms
torch.distributions.constraint_registry torch.distributions.kl torch.distributions.utils torch.fft torch.func
torch.futures torch.fx torch.hub torch.jit torch.library torch.linalg torch.masked torch.multiprocessing torch.nested
torch.nn torch.nn.Module torch.nn.attention torch.nn.functional torch.nn.init torch.nn.modules torch.nn.parallel
torch.nn.parameter torch.nn.utils torch.nn.utils.parametrizations torch.nn.utils.parametrize torch.nn.utils.prune
torch.nn.utils.rnn torch.nn.utils.stateless torch.optim torch.optim.Optimizer torch.optim.lr_scheduler
torch.optim.swa_utils torch.overrides torch.profiler torch.random torch.serialization torch.signal.windows torch.sparse
torch.special torch.storage torch.testing torch.types torch.utils torch.utils._pytree torch.utils.checkpoint
torch.utils.data torch.utils.dlpack torch.utils.hooks
""".split()


def names_of(place: Any) -> set[str]:
    """The public names of a module or a class, without what it merely imported."""
    listed = getattr(place, "__all__", None)
    if listed is not None and place.__name__ != "torch":
        return set(listed)
    found = {name for name in dir(place) if not name.startswith("_")}
    if inspect.isclass(place):
        return found
    return {name for name in found if is_own(vars(place).get(name), place.__name__)}


def is_own(value: Any, module: str) -> bool:
    """Whether a value is of PyTorch (and not a module of Python's, or something from `typing`)."""
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith("torch")
    home = getattr(value, "__module__", None)
    return home is None or str(home).partition(".")[0] in ("torch", "builtins")


def resolve(path: str) -> Any:
    """The module or class of a dotted path."""
    parts = path.split(".")
    value = importlib.import_module(parts[0])
    for k, part in enumerate(parts[1:], 1):
        try:
            value = getattr(value, part)
        except AttributeError:
            value = importlib.import_module(".".join(parts[: k + 1]))
    return value


def missing() -> dict[str, list[str]]:
    """Module -> its public names in PyTorch that are not there in undertow."""
    wanted = {path: names_of(resolve(path)) for path in MODULES}
    from undertow.stand_in.finder import as_torch
    from undertow.torch_names.absent import AbsentClass, AbsentModule

    lacking: dict[str, list[str]] = {}
    with as_torch():
        for path, names in wanted.items():
            place = resolve(path)
            for name in sorted(names):
                try:
                    found = getattr(place, name)
                except AttributeError:
                    found = AbsentModule
                if found is AbsentModule or isinstance(found, (AbsentClass, AbsentModule)):
                    lacking.setdefault(path, []).append(name)
    return lacking


def main(chosen: list[str]) -> None:
    from undertow.torch_names.missing import reason

    unexplained = 0
    for path, names in missing().items():
        if chosen and path not in chosen:
            continue
        print(f"{path}: {len(names)}")
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(reason(f"{path}.{name}") or "", []).append(name)
        for why, found in groups.items():
            print(f"    {why or 'NO REASON GIVEN'}\n        {' '.join(found)}")
        unexplained += len(groups.get("", []))
    print(f"{unexplained} names are missing without a reason")


if __name__ == "__main__":
    main(sys.argv[1:])

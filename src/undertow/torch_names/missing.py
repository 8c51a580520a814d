"""Names of PyTorch that undertow does not have: what to use instead."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

#: while undertow stands for PyTorch, what makes stand-ins for names that it does not have (absent.py)
STAND_INS: list[Callable[[str], Any]] = []

#: of what is called by the same name in PyTorch and is not here
INSTEAD = {
    "ao": "undertow computes with floats, and models cannot be quantized.",
    "onnx": "models are not exported: save the state_dict() with undertow.save, which PyTorch loads (docs/files.md).",
    "quantization": "undertow computes with floats, and models cannot be quantized.",
    "utils.cpp_extension": "operations are Python: write an undertow.autograd.Function (docs/custom-functions.md).",
    "utils.model_zoo": "nothing is downloaded: undertow.load reads the files that torch.save wrote (docs/files.md).",
}

#: methods of modules
METHODS = {
    "ao": "undertow computes with floats, and models cannot be quantized.",
    "ipu": "undertow runs on CPUs: leave it out.",
    "mtia": "undertow runs on CPUs: leave it out.",
    "xpu": "undertow runs on CPUs: leave it out.",
}

QUANTIZED = "undertow computes with floats, and models cannot be quantized."
PIPES = "PyTorch has given up its data pipes, too: use Dataset or IterableDataset, and generators."

#: modules of which undertow has so little that programs are given a stand-in for every other name
IN_PART = {"_guards", "distributed.fsdp", "distributed.tensor"}

#: of packages below undertow
BELOW = {
    "nn": {
        "CrossMapLRN2d": "use LocalResponseNorm: PyTorch's has gradients that are not those of its values.",
        **dict.fromkeys(["intrinsic", "qat", "quantizable", "quantized"], QUANTIZED),
    },
    "nn.functional": {
        name: "it is for numbers of 8 bits, which NumPy has not: use matmul." for name in
        ("scaled_grouped_mm", "scaled_mm", "ScalingType", "SwizzleType")
    },
    "distributed": dict.fromkeys(
        ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"],
        "processes find each other through MPI: init_process_group() needs no store (docs/distributed.md).",
    ),
    "nn.parallel": dict.fromkeys(
        ["DistributedDataParallelCPU"],
        "use DistributedDataParallel, whose processes exchange over MPI (docs/distributed.md).",
    ),
    "optim": {"swap_in_optimizer_params_and_state": "load a state_dict() instead."},
    "data": {
        **dict.fromkeys(
            ["DFIterDataPipe", "DataChunk", "datapipes", "graph",
             "graph_settings", "guaranteed_datapipes_determinism", "non_deterministic"],
            PIPES,
        ),
    },
}  # fmt: skip


def explanation(name: str, module: str = "") -> str:
    """What to say of a name that is not there, in undertow or in a module below it."""
    path = f"undertow.{module}" if module else "undertow"
    told = (BELOW.get(module, {}) if module else INSTEAD).get(name)
    told = told or what_to_do(f"{module}.{name}".lstrip(".")) or did_you_mean(name, path)
    return f"module {path!r} has no attribute {name!r}" + (f": {told}" if told else "")


def what_to_do(below: str) -> str | None:
    """The reason that names like this one have, unless it is that nobody needs them."""
    from undertow.torch_names.absent_reasons import INTERNAL

    why = None if below.rpartition(".")[2].startswith("_") else reason(f"torch.{below}")
    return None if why in (None, INTERNAL) else str(why).replace("torch.", "undertow.").removesuffix(".") + "."


def reason(path: str) -> str | None:
    """The reason why `torch.a.b` is not here, or None."""
    from undertow.torch_names.absent_reasons import REASONS

    module, _, name = path.removeprefix("torch.").replace("nn.modules.", "nn.").rpartition(".")
    told = BELOW.get(module, {}).get(name) or INSTEAD.get(f"{module}.{name}".lstrip("."))
    return told or next((why for pattern, why in REASONS if re.match(pattern, path)), None)


def did_you_mean(name: str, path: str) -> str | None:
    """The names of a module that are spelled most alike, as a question."""
    if name.startswith("_"):  # what tools ask every module for
        return None
    from difflib import get_close_matches

    public = [other for other in dir(sys.modules[path]) if not other.startswith("_")]
    found = get_close_matches(name, public, cutoff=0.75)
    return f"did you mean {' or '.join(repr(other) for other in found)}?" if found else None


def getter(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module below undertow."""

    def __getattr__(name: str) -> Any:
        has_stand_in = name in BELOW.get(module, {}) or (module in IN_PART and not name.startswith(("__", "pytest")))
        if STAND_INS and has_stand_in:
            return STAND_INS[0](f"torch.{module}.{name}")
        if not name.startswith("_"):
            with suppress(ModuleNotFoundError):  # a module that PyTorch imports with the package
                return import_module(f"{'torch' if STAND_INS else 'undertow'}.{module}.{name}")
        raise NoSuchName(name, module)

    return __getattr__


class NoSuchName(AttributeError):
    """Says so when it is printed: Python asks a package for the name of each module before it imports that module."""

    def __str__(self) -> str:
        return explanation(*self.args)


def refuse(module: str) -> NoReturn:
    """Say what to use instead of a module of PyTorch."""
    # without `name=`, or `from undertow import jit` would drop this message for "cannot import name 'jit'"
    raise ModuleNotFoundError(f"No module named {module!r}: {INSTEAD[module.removeprefix('undertow.')]}")


def refusal(what: str, advice: str) -> NoReturn:
    """Raise for something of PyTorch that undertow has the name of, so that programs can be imported, and no more."""
    raise NotImplementedError(f"undertow does not have {what}: {advice}")


def of_modules(name: str) -> str:
    """What to say behind the message that a Module has no such attribute."""
    return f": {METHODS[name]}" if name in METHODS else ""

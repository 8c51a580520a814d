"""The reference: a page for each family of operations and each module, made of signatures and docstrings.

The text is what `help` shows. Added are what an example returns, computed while the site is built, and what
docs/kinks.md says of a function.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import undertow
from tools.site import texts
from tools.site.kinks import kinks
from undertow.ops import FAMILIES
from undertow.ops.declare.op import REGISTRY, Op
from undertow.ops.reference.arguments import unexplained
from undertow.ops.reference.documentation import example_in_place, text_of
from undertow.scopes import Scope

#: page -> its title and what it has, as "module" or "module.Class"
MODULES = {
    "tensor": ("Tensor", "undertow.Tensor"),
    "autograd": ("undertow.autograd", "undertow.autograd"),
    "autograd-function": ("undertow.autograd.function", "undertow.autograd.function"),
    "autograd-graph": ("undertow.autograd.graph", "undertow.autograd.graph"),
    "autograd-functional": ("undertow.autograd.functional", "undertow.autograd.functional"),
    "forward-ad": ("undertow.autograd.forward_ad", "undertow.autograd.forward_ad"),
    "func": ("undertow.func", "undertow.func"),
    "checkpoint": ("undertow.utils.checkpoint", "undertow.utils.checkpoint"),
    "linalg": ("undertow.linalg", "undertow.linalg"),
    "fft": ("undertow.fft", "undertow.fft"),
    "special": ("undertow.special", "undertow.special"),
    "sparse": ("undertow.sparse", "undertow.sparse"),
    "windows": ("undertow.signal.windows", "undertow.signal.windows"),
    "nn": ("undertow.nn", "undertow.nn"),
    "nn-module": ("nn.Module", "undertow.nn.Module"),
    "nn-functional": ("undertow.nn.functional", "undertow.nn.functional"),
    "nn-init": ("undertow.nn.init", "undertow.nn.init"),
    "nn-utils": ("undertow.nn.utils", "undertow.nn.utils"),
    "nn-utils-rnn": ("undertow.nn.utils.rnn", "undertow.nn.utils.rnn"),
    "parametrize": ("undertow.nn.utils.parametrize", "undertow.nn.utils.parametrize"),
    "prune": ("undertow.nn.utils.prune", "undertow.nn.utils.prune"),
    "parametrizations": ("undertow.nn.utils.parametrizations", "undertow.nn.utils.parametrizations"),
    "parallel": ("undertow.nn.parallel", "undertow.nn.parallel"),
    "optim": ("undertow.optim", "undertow.optim"),
    "optim-optimizer": ("optim.Optimizer", "undertow.optim.Optimizer"),
    "lr-scheduler": ("undertow.optim.lr_scheduler", "undertow.optim.lr_scheduler"),
    "swa-utils": ("undertow.optim.swa_utils", "undertow.optim.swa_utils"),
    "data": ("undertow.data", "undertow.data"),
    "distributions": ("undertow.distributions", "undertow.distributions"),
    "transforms": ("undertow.distributions.transforms", "undertow.distributions.transforms"),
    "constraints": ("undertow.distributions.constraints", "undertow.distributions.constraints"),
    "masked": ("undertow.masked", "undertow.masked"),
    "amp": ("undertow.amp", "undertow.amp"),
    "distributed": ("undertow.distributed", "undertow.distributed"),
    "rpc": ("undertow.distributed.rpc", "undertow.distributed.rpc"),
    "distributed-autograd": ("undertow.distributed.autograd", "undertow.distributed.autograd"),
    "cuda": ("undertow.cuda", "undertow.cuda"),
    "sim": ("undertow.sim", "undertow.sim"),
    "instrument": ("undertow.instrument", "undertow.instrument"),
    "tensorboard": ("undertow.utils.tensorboard", "undertow.utils.tensorboard"),
    "flop-counter": ("undertow.utils.flop_counter", "undertow.utils.flop_counter"),
    "interop": ("undertow.interop", "undertow.interop"),
    "profiler": ("undertow.profiler", "undertow.profiler"),
    "autograd-profiler": ("undertow.autograd.profiler", "undertow.autograd.profiler"),
    "random": ("undertow.random", "undertow.random"),
    "testing": ("undertow.testing", "undertow.testing"),
    "errors": ("undertow.errors", "undertow.errors"),
}

TITLES = {
    "pointwise": "Pointwise functions", "views": "Views", "create": "Creating tensors", "inplace": "In place",
    "index": "Indexing", "shape": "Joining, repeating, padding", "reduce": "Reductions", "random": "Random numbers",
    "linalg": "Products and matrices", "network": "Functions of layers", "fourier": "Fourier transforms",
    "sparse": "Sparse tensors", "other": "Modes, files, settings",
}  # fmt: skip


class Entry(NamedTuple):
    """Something public, with all the names it has on its page."""

    names: list[str]
    value: Any


def pages() -> dict[str, str]:
    """The pages of the reference, by file name."""
    notes = kinks()
    found: dict[str, str] = {}
    lines = []
    for family, entries in functions().items():
        found[f"functions-{family}.md"] = page(f"undertow: {TITLES[family].lower()}", "undertow", entries, notes)
        lines.append((f"functions-{family}.md", f"{TITLES[family]}", "undertow"))
    for name, (title, path) in MODULES.items():
        place = resolve(path)
        found[f"{name}.md"] = page(title, path, list(entries_of(place)), notes, place)
        lines.append((f"{name}.md", title, path))
    found["index.md"] = index(lines)
    return found


def described(made: dict[str, str]) -> set[str]:
    """The full names of everything that has an entry on one of the pages."""
    return set(re.findall(r"^:{5}\{py:\w+\} (undertow\.[\w.]+)", "\n".join(made.values()), re.M))


def members(made: dict[str, str]) -> set[str]:
    """The full names of the methods and attributes that are described below their classes."""
    return set(calls(made)) - described(made)


def calls(made: dict[str, str]) -> dict[str, str]:
    """The full name of everything that is described -> how it is called, or nothing."""
    found, inside = {}, ""
    for line in "\n".join(made.values()).splitlines():
        entry = re.match(r"(:{4,5})\{py:\w+\} ([\w.]+)(.*)", line)
        if entry is not None:
            colons, name, call = entry.groups()
            inside = name if colons == ":::::" else inside
            found[name if colons == ":::::" else f"{inside}.{name}"] = call
    return found


def index(lines: list[tuple[str, str, str]]) -> str:
    rows = "\n".join([f"| [{title}]({file}) | `{path}` |" for file, title, path in lines])
    files = "\n".join([file for file, _, _ in lines])
    return (
        "# Reference\n\nEvery public function, class and method, with the text that `help` shows. The search finds "
        "them by name; read `ut` for `torch`. In formulas, `g` is the gradient of the result.\n\n"
        f"| page | where |\n| --- | --- |\n{rows}\n\n```{{toctree}}\n:hidden:\n\n{files}\n```\n"
    )


def resolve(path: str) -> Any:
    parts = path.split(".")
    value: Any = importlib.import_module(parts[0])
    for n, part in enumerate(parts[1:], 1):
        try:
            value = getattr(value, part)
        except AttributeError:
            value = importlib.import_module(".".join(parts[: n + 1]))
    return value


# ---- what there is


def functions() -> dict[str, list[Entry]]:
    """What the package itself has that can be called, by family."""
    by_family: dict[str, list[Entry]] = {family: [] for family in TITLES}
    for entry in entries_of(undertow):
        by_family[family_of(entry.value)].append(entry)
    return {family: entries for family, entries in by_family.items() if entries}


def family_of(value: Any) -> str:
    op = getattr(value, "op", None)
    forward = inspect.unwrap(op.forward if isinstance(op, Op) else value)
    parts = getattr(forward, "__module__", "").split(".")
    known = {family.split(".")[0] for family in FAMILIES}
    return parts[2] if parts[:2] == ["undertow", "ops"] and len(parts) > 2 and parts[2] in known else "other"


def entries_of(place: Any) -> Iterator[Entry]:
    """The public things of a module or class that can be called or read, aliases together."""
    found: dict[int, Entry] = {}
    for name in public_names(place):
        value = inspect.getattr_static(place, name) if inspect.isclass(place) else getattr(place, name)
        if isinstance(value, types.ModuleType) or not (callable(value) or isinstance(value, DESCRIPTORS)):
            continue
        if not documentation_of(value):
            continue
        found.setdefault(id(value), Entry([], value)).names.append(name)
    yield from found.values()


ATTRIBUTES = (property, types.GetSetDescriptorType, types.MemberDescriptorType)
DESCRIPTORS = (*ATTRIBUTES, classmethod, staticmethod)


#: public lists of modules that have none, because they import much
LISTED = {
    "undertow.errors": "AnomalyError AutogradError EmptyInputsError FileFormatError GradcheckError GraphFreedError "
    "IncompatibleViewError InvalidGradientError LinAlgError ModifiedInplaceError NoValuesError NotDifferentiableError "
    "OutOfMemoryError UndertowError UnreachableInputError".split(),
    "undertow.autograd.forward_ad": "UnpackedDualTensor dual_level enter_dual_level exit_dual_level make_dual "
    "unpack_dual".split(),
    "undertow.autograd.function": ["FunctionCtx", "InplaceFunction", "once_differentiable"],
    "undertow.backend.simulated": "DeviceFailure Event OutOfMemoryError Stream StreamOrderError configure "
    "current_stream default_stream device_count inject_failure memory_allocated set_memory_limit stream "
    "synchronize".split(),
    "undertow.nn.parallel": "DistributedDataParallel data_parallel gather parallel_apply replicate scatter".split(),
    "undertow.nn.utils.parametrizations": ["orthogonal", "spectral_norm", "weight_norm"],
    "undertow.nn.utils.parametrize": "ParametrizationList cached is_parametrized register_parametrization "
    "remove_parametrizations transfer_parametrizations_and_params type_before_parametrizations".split(),
    "undertow.nn.utils.prune": "BasePruningMethod CustomFromMask Identity L1Unstructured LnStructured "
    "PruningContainer RandomStructured RandomUnstructured custom_from_mask global_unstructured identity is_pruned "
    "l1_unstructured ln_structured random_structured random_unstructured remove".split(),
    "undertow.optim.swa_utils": "AveragedModel SWALR get_ema_avg_fn get_ema_multi_avg_fn get_swa_avg_fn "
    "get_swa_multi_avg_fn update_bn".split(),
}

#: what other modules without a list import, or use themselves
HELPERS = set(
    "Any activation fans in_place loaded_when_used max_unpool public_function takes_old_arguments told warn_user "
    "with_indices".split()
)


#: what a module loads when it is first asked for, and `dir` therefore does not tell
LATER = {"undertow.cuda": ["Event", "Stream", "stream"]}


def public_names(place: Any) -> list[str]:
    listed = LISTED.get(getattr(place, "__name__", ""), getattr(place, "__all__", None))
    names = sorted(listed if listed is not None else [*dir(place), *LATER.get(getattr(place, "__name__", ""), [])])
    own = [name for name in names if not name.startswith("_")]
    if listed is not None or inspect.isclass(place):
        return [name for name in own if name not in HELPERS]
    elsewhere = set() if place is undertow else {"Tensor", "no_grad"}
    return [name for name in own if name not in HELPERS | elsewhere and is_own(getattr(place, name))]


def is_own(value: Any) -> bool:
    return str(getattr(value, "__module__", "undertow")).startswith("undertow")


# ---- how it is shown

#: all that the forms in place say of themselves
WRITTEN = re.compile(r"`\w+`, written into the tensor itself\.")


def page(title: str, path: str, entries: list[Entry], notes: dict[str, list[str]], place: Any = None) -> str:
    parts = [f"# {title}"]
    if getattr(place, "__doc__", None):
        parts.append(texts.markdown(place.__doc__))
    is_class = inspect.isclass(place)
    names = [(name, is_in_place(name, entry.value)) for entry in entries for name in entry.names]
    for words, in_place in (("", False), ("In place: ", True)):
        links = [f"{{py:obj}}`{name} <{path}.{name}>`" for name, written in names if written is in_place]
        parts += [words + " · ".join(links)] if links else []
    described = [described_entry(entry, path, is_class, notes) for entry in entries]
    return "\n\n".join([*parts, *described]) + "\n"


def described_entry(entry: Entry, path: str, of_class: bool, notes: dict[str, list[str]]) -> str:
    """A directive of Sphinx for each name; all but the first refer to that."""
    value, names = entry.value, sorted(entry.names, key=len)
    if inspect.isclass(value) and value.__module__ == "builtins":
        kind, body = "class", f"The same as Python's `{value.__name__}`."
    elif inspect.isclass(value):
        methods = own_methods(value) if place_of(value) is None else [f"[Its methods]({place_of(value)}.md)"]
        kind, body = "class", "\n\n".join([shown(documentation_of(value), path), *methods])
    elif isinstance(value, ATTRIBUTES):
        kind, body = "attribute", texts.markdown(documentation_of(value))
    else:
        kind, body = "method" if of_class else "function", function_text(value, names[0], notes, path, of_class)
    call = "" if kind == "attribute" else called(value, of_class)
    role = {"class": "class", "attribute": "attr", "method": "meth", "function": "func"}[kind]
    same = f"The same as {{py:{role}}}`{path}.{names[0]}`."
    texts_by_name = {name: same for name in names} | {names[0]: explained(f"{path}.{names[0]}", call, body)}
    return "\n\n".join(
        [f":::::{{py:{kind}}} {path}.{name}{call}\n\n{text}\n:::::" for name, text in texts_by_name.items()]
    )


#: entries that refer to one with more words
REFERS = re.compile(r"^The same as|See \{py:|As a layer, with its arguments")


def explained(full: str, call: str, body: str) -> str:
    """The text of an entry with the arguments that it leaves out, before its first example."""
    words, fence, rest = re.split(r"(^```py.*|^:::.*|\Z)", body, maxsplit=1, flags=re.M)
    plain = re.sub(r"(?s)^```.*?^```", "", words, flags=re.M).replace("\\_", "_")
    listed = {} if REFERS.search(body) else unexplained(full, call, plain)
    rows = "\n".join([f"- `{name}`: {meaning}" for name, meaning in listed.items()])
    if not rows:
        return body
    words = words.rstrip()
    gap = "\n" if words.rpartition("\n\n")[2].startswith("- `") else "\n\n"  # a list goes on
    return f"{words}{gap}{rows}\n\n{fence}{rest}".rstrip()


#: what classes without arguments inherit, which lets them be told of some to refuse them
TAKING_NOTHING = (undertow.nn.Module.__init__, Scope.__init__)


def called(value: Any, of_class: bool) -> str:
    """The signature, of methods as they are called on an object."""
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return ""
    takes_nothing = inspect.isclass(value) and value.__init__ in TAKING_NOTHING and value is not undertow.nn.Module
    if takes_nothing and not getattr(value, "at_once", False):  # else `prepare` takes them
        return "()"
    is_bound = of_class and not isinstance(value, staticmethod) and not inspect.isclass(value)
    return texts.signature(getattr(value, "__func__", value), is_bound)


def documentation_of(value: Any) -> str:
    return inspect.getdoc(getattr(value, "__func__", value)) or ""


def place_of(value: type) -> str | None:
    """The page that a class has for itself."""
    return next((name for name, (_, path) in MODULES.items() if resolve(path) is value), None)


def own_methods(value: type) -> Iterator[str]:
    """What a class adds to those it derives from."""
    for name, member in vars(value).items():
        text = getattr(getattr(member, "__func__", member), "__doc__", None)
        if name.startswith("_") or not text or name in ("forward", "function", "extra_repr", "reset_parameters"):
            continue
        if inspect.isclass(member):  # what something becomes, or is made of: it has an entry of its own
            continue
        if callable(member) or isinstance(member, classmethod | staticmethod):
            head = f"{name}{called(member, of_class=True)}"
            yield f"::::{{py:method}} {head}\n\n{texts.markdown(text)}\n::::"
        elif isinstance(member, property) or inspect.isgetsetdescriptor(member):
            yield f"::::{{py:attribute}} {name}\n\n{texts.markdown(text)}\n::::"


def function_text(value: Any, name: str, notes: dict[str, list[str]], path: str, of_class: bool) -> str:
    op = getattr(value, "op", None)
    if of_class and isinstance(op, Op) and callable(getattr(undertow, name, None)):
        return f"{texts.first_paragraph(documentation_of(value))} See {{py:func}}`undertow.{name}`."
    is_declared = isinstance(op, Op) and op.kind != "composite" and REGISTRY.get(op.name) is op
    parts = [shown(text_of(op) if is_declared else documentation_of(value), path)]
    if not of_class:
        parts += notes.get(name, [])
    if WRITTEN.fullmatch(parts[0]) and callable(getattr(undertow, name[:-1], None)):
        parts.append(f"See {{py:func}}`undertow.{name[:-1]}`.")
    if path == "undertow.nn.functional" and name in layers():
        parts.append(f"As a layer, with its arguments and shapes: {{py:class}}`undertow.nn.{layers()[name]}`.")
    if is_in_place(name, value):
        module = None if of_class else "ut" + path.removeprefix("undertow")
        example = example_in_place(REGISTRY.get(name[:-1]), name, module)
        parts += [] if example is None else [example_text(example)]
    return "\n\n".join([part for part in parts if part.strip()])


@cache
def layers() -> dict[str, str]:
    """Functions of layers -> the class that says what their arguments are: `mse_loss` -> `MSELoss`."""
    classes = {name.lower(): name for name in public_names(undertow.nn) if inspect.isclass(getattr(undertow.nn, name))}
    classes |= {name.removesuffix("loss"): classes[name] for name in classes if name.endswith("loss")}
    classes |= {"binarycrossentropy": "BCELoss", "binarycrossentropywithlogits": "BCEWithLogitsLoss"}
    classes |= {"batchnorm": "BatchNorm1d", "instancenorm": "InstanceNorm1d", "interpolate": "Upsample"}
    classes |= {"multiheadattentionforward": "MultiheadAttention"}
    names = {name: name.replace("_", "").removesuffix("loss") for name in public_names(undertow.nn.functional)}
    return {name: classes[plain] for name, plain in names.items() if plain in classes}


#: their examples need a GPU, or processes that have found each other: tests run them, and the site shows no results
NOT_RUN_HERE = {
    "undertow.distributed.rpc": "import os\n\nimport undertow as ut\nfrom undertow.distributed import rpc\n\n",
    "undertow.distributed.autograd": "from undertow.distributed import autograd\n\n",
    "undertow.distributed": "import undertow.distributed as dist\n\n",
    "undertow.cuda": "",
}


def shown(doc: str, path: str) -> str:
    """A docstring, with what its example returns if that is a single call."""
    words, _, example = texts.markdown(doc).partition("\n\nExample: ")
    if not example:
        return words
    code = example.strip("`")
    needed = next((imports for place, imports in NOT_RUN_HERE.items() if path.startswith(place)), None)
    return f"{words}\n\n" + (example_text(code) if needed is None else f"```python\n{needed}{code}\n```")


def examples(path: str) -> dict[str, str]:
    """The examples of a module that are single calls, by the names of what they show."""
    found = {}
    for entry in entries_of(resolve(path)):
        _, _, example = documentation_of(entry.value).partition("\n\nExample: ")
        if example:
            found[entry.names[0]] = example.strip("`")
    return found


def is_in_place(name: str, value: Any) -> bool:
    """Whether something is a form in place without an example of its own."""
    return name.endswith("_") and callable(value) and ">>>" not in documentation_of(value)


def example_text(example: str) -> str:
    """The example, with what it returns."""
    undertow.manual_seed(0)
    return f"```pycon\n>>> {example}\n{eval(example, {'ut': undertow})!r}\n```"

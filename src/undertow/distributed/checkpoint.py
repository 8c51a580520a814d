"""Checkpoints of several processes: each writes its part, and any number of processes reads them.

A checkpoint is a folder. Each process writes one file with the tensors, or pieces of tensors, that fall to it: a piece
of a sharded tensor to the process that has it, a tensor that all have to one of them. `metadata.json` says which file
has which elements of what. It is written last and under another name first, so a checkpoint is there as a whole or not
at all, and an older one of the same name until then.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from undertow.autograd.saved_tensors.ledger import storage_of
from undertow.backend.dtypes import public
from undertow.distributed.collectives import barrier
from undertow.distributed.objects import everybodys
from undertow.distributed.process_group import ProcessGroup, is_initialized, resolve
from undertow.distributed.sharding.fully_shard import PIECES, stretch
from undertow.distributed.sharding.pieces import Piece, Stretch
from undertow.interop.files import load as load_file
from undertow.interop.files import save as save_file
from undertow.interop.files.replaced import write_replacement
from undertow.modes import no_grad
from undertow.nn.module import Module
from undertow.tensor import Tensor

METADATA, FORMAT = "metadata.json", 1
#: the way to a value through dicts and lists
Path_ = tuple[str | int, ...]


class CheckpointException(RuntimeError):
    """A checkpoint is not there as a whole, or does not have what is asked of it."""


# ---- trees


def leaves(tree: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """The values of nested dicts and lists, with their ways."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if not isinstance(key, str | int):
                raise TypeError(f"a checkpoint's keys are texts and whole numbers, not {key!r}")
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for k, value in enumerate(tree):
            yield from leaves(value, (*path, k))
    else:
        yield path, tree


def values_of(tree: Any) -> dict[Path_, Any]:
    """The values of a tree, by their ways. Memory of a sharded parameter, as `state_dict` shows it, is a Piece."""
    stretches = {id(storage_of(p._array)): stretch(p) for p in PIECES}

    def whole_or_piece(value: Any) -> Any:
        found = stretches.get(id(storage_of(value._array))) if isinstance(value, Tensor) else None
        return Piece(value, found) if found is not None and value.numel() == found.stop - found.start else value

    return {path: whole_or_piece(value) for path, value in leaves(tree)}


def name_of(path: Path_) -> str:
    return json.dumps(list(path))


def put(tree: Any, path: Path_, value: Any) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


def flat(value: Tensor | Piece) -> tuple[Tensor, Stretch]:
    """The elements that this process has, and which they are."""
    if isinstance(value, Piece):
        return value.tensor.detach().reshape(-1), value.stretch
    shape = tuple(value.shape)
    return value.detach().reshape(-1), Stretch(shape, 0, math.prod(shape))


# ---- writing


def save(state_dict: Mapping[str, Any], checkpoint_id: str | os.PathLike[str], process_group: Any = None) -> None:
    """Write a checkpoint; all processes call it, with dicts of the same keys.

    state_dict     nested dicts and lists of tensors, Pieces (see `get_state_dict`), numbers and texts; what is neither
                   a Piece nor a sharded parameter must be the same in all processes
    checkpoint_id  the folder
    """
    folder, group = Path(checkpoint_id), members(process_group)
    rank, size = (0, 1) if group is None else (group.rank(), group.size())
    found = values_of(state_dict)
    mine = {
        name_of(p): v for k, (p, v) in enumerate(found.items()) if isinstance(v, Piece) or falls_to(v, k, rank, size)
    }
    tag = agreed(group, secrets.token_hex(6))
    folder.mkdir(parents=True, exist_ok=True)
    part = f"part-{tag}-{rank}.pt"
    pieces = {name: flat(value) for name, value in mine.items()}
    save_file({name: tensor.contiguous() for name, (tensor, _) in pieces.items()}, str(folder / part))
    facts = {n: [list(s.shape), str(t.dtype).rpartition(".")[2], s.start, s.stop] for n, (t, s) in pieces.items()}
    everywhere = [facts]
    if group is not None:
        told = everybodys("checkpoint", [facts, [[name_of(p), kind_of(v)] for p, v in found.items()]], group)
        everywhere = [theirs for theirs, _ in told]
        check_alike([kinds for _, kinds in told], group)
    if rank == 0:
        values = {name_of(p): v for p, v in found.items() if not isinstance(v, Tensor | Piece)}
        save_file(values, str(folder / f"values-{tag}.pt"))
        write_metadata(folder, tag, everywhere)
    if group is not None:
        barrier(group)


def kind_of(value: Any) -> str:
    """What must be the same in all processes of a value."""
    if not isinstance(value, Tensor | Piece):
        return type(value).__name__
    tensor, whole = flat(value)
    return f"{tensor._array.dtype}{list(whole.shape)}"


def check_alike(everybodys_kinds: list[list[list[str]]], group: ProcessGroup) -> None:
    """Refuse to write what the processes do not have alike: a tensor would be left to one that does not know of it."""
    for rank, kinds in zip(group.ranks, everybodys_kinds, strict=True):
        if kinds == everybodys_kinds[0]:
            continue
        pairs = zip_longest(everybodys_kinds[0], kinds, fillvalue=["null", "nothing"])
        ours, theirs = next((a, b) for a, b in pairs if a != b)
        raise CheckpointException(
            f"the processes save different things: rank {group.ranks[0]} has {ours[1]} as {shown(ours[0])!r} where "
            f"rank {rank} has {theirs[1]} as {shown(theirs[0])!r}. All must save the same keys in the same order"
        )


def falls_to(value: Any, number: int, rank: int, size: int) -> bool:
    """Whether this process writes a value: its Pieces, and its turn of the tensors that all have."""
    return isinstance(value, Piece) or (isinstance(value, Tensor) and number % size == rank)


def write_metadata(folder: Path, tag: str, everywhere: list[dict[str, Any]]) -> None:
    entries: dict[str, Any] = {}
    for rank, facts in enumerate(everywhere):
        for name, (shape, dtype, start, stop) in facts.items():
            entry = entries.setdefault(name, {"shape": shape, "dtype": dtype, "pieces": []})
            if start < stop or not math.prod(shape):
                entry["pieces"].append([rank, start, stop])
    text = json.dumps({"format": FORMAT, "tag": tag, "entries": entries})

    def write(path: str) -> None:
        Path(path).write_text(text, encoding="utf-8")

    write_replacement(folder / METADATA, write)
    for old in folder.glob("*.pt"):
        if f"-{tag}" not in old.name and old.name.startswith(("part-", "values-")):
            old.unlink(missing_ok=True)


def members(process_group: Any) -> ProcessGroup | None:
    """The processes that write or read together; None if this one is alone."""
    return resolve(process_group, "checkpoint") if process_group is not None or is_initialized() else None


def agreed(group: ProcessGroup | None, value: str) -> str:
    return value if group is None else str(group.gathered(value, "checkpoint")[0])


# ---- reading


def load(state_dict: dict[str, Any], checkpoint_id: str | os.PathLike[str], process_group: Any = None) -> None:
    """Read a checkpoint into the tensors and Pieces of a dict, and put its numbers and texts in their places.

    Every process reads the files that have something of its own; there may be more or fewer of them than there were.
    """
    folder = Path(checkpoint_id)
    metadata = read_metadata(folder)
    found = values_of(state_dict)
    wanted = {name_of(p): flat(v) for p, v in found.items() if isinstance(v, Tensor | Piece)}
    check_fit(metadata["entries"], wanted, folder)
    for rank, names in needed_files(metadata["entries"], wanted).items():
        part = load_file(str(folder / f"part-{metadata['tag']}-{rank}.pt"))
        for name, start, stop in names:
            fill(wanted[name], part[name], start, stop)
    values = load_file(str(folder / f"values-{metadata['tag']}.pt"))
    for path, value in found.items():
        if not isinstance(value, Tensor | Piece):
            if name_of(path) not in values:
                raise CheckpointException(
                    f"Missing key in checkpoint state_dict: {'.'.join(map(str, path))} of {folder}"
                )
            put(state_dict, path, values[name_of(path)])


def read_metadata(folder: Path) -> Any:
    try:
        metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointException(f"{folder} has no {METADATA}: it is no checkpoint, or was not finished") from None
    if metadata.get("format") != FORMAT:
        raise CheckpointException(f"{folder} has the format {metadata.get('format')}, and {FORMAT} is read here")
    return metadata


def shown(name: str) -> str:
    return ".".join(map(str, json.loads(name) or ()))


def missing(name: str) -> CheckpointException:
    return CheckpointException(f"Missing key in checkpoint state_dict: {shown(name)}")


def check_fit(entries: Any, wanted: dict[str, tuple[Tensor, Stretch]], folder: Path) -> None:
    for name, (tensor, part) in wanted.items():
        if name not in entries:
            raise missing(name)
        entry = entries[name]
        dtype = str(public(tensor._array.dtype)).rpartition(".")[2]
        if tuple(entry["shape"]) != part.shape or dtype != entry["dtype"]:
            raise CheckpointException(
                f"{shown(name)} is {entry['dtype']}{entry['shape']} in {folder}, and {dtype}{list(part.shape)} here"
            )
        known = part.start
        for _, start, stop in sorted(entry["pieces"], key=lambda piece: piece[1]):
            known = max(known, stop) if start <= known else known
        if known < part.stop:
            raise CheckpointException(f"{shown(name)} is not there as a whole in {folder}: element {known} is missing")


def needed_files(entries: Any, wanted: dict[str, tuple[Tensor, Stretch]]) -> dict[int, list[tuple[str, int, int]]]:
    """Which files have something of what is wanted: rank -> name and stretch of a piece in its file."""
    found: dict[int, list[tuple[str, int, int]]] = {}
    for name, (_, part) in wanted.items():
        for rank, start, stop in entries[name]["pieces"]:
            if start < part.stop and part.start < stop:
                found.setdefault(rank, []).append((name, start, stop))
    return found


def fill(into: tuple[Tensor, Stretch], source: Tensor, start: int, stop: int) -> None:
    """Copy the elements that both have."""
    tensor, part = into
    first, last = max(start, part.start), min(stop, part.stop)
    with no_grad():
        tensor[first - part.start : last - part.start].copy_(source.reshape(-1)[first - start : last - start])


# ---- models and optimizers


def get_state_dict(model: Module, optimizer: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of a model and of its optimizer, by the names of parameters; sharded parameters are Pieces.

    All of it shares its memory with the model and the optimizer, so `load` into it loads them.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    state = {name: piece(tensor, p) for name, tensor, p in with_parameters(model)}
    if optimizer is None:
        return state, {}
    saved: dict[str, Any] = {}
    for p in [p for group in optimizer.param_groups for p in group["params"]]:
        saved[names[id(p)]] = {
            key: piece(value, p) if isinstance(value, Tensor) and value.shape == p.shape else value
            for key, value in optimizer.state.get(p, {}).items()
        }
    groups = [
        {k: v for k, v in group.items() if k != "params"} | {"params": [names[id(p)] for p in group["params"]]}
        for group in optimizer.param_groups
    ]
    return state, {"state": saved, "param_groups": groups}


def with_parameters(model: Module) -> Iterator[tuple[str, Any, Any]]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, tensor in model.state_dict().items():
        yield name, tensor, parameters.get(name)


def piece(tensor: Tensor, parameter: Any) -> Tensor | Piece:
    part = None if parameter is None else stretch(parameter)
    return tensor if part is None else Piece(tensor, part)


def set_state_dict(model: Module, optimizer: Any, *, model_state_dict: Any, optim_state_dict: Any) -> None:
    """Let an optimizer go on with what `get_state_dict` gave and `load` has read.

    The tensors are the model's and the optimizer's own already; options of groups and numbers are put into place.
    """
    names = dict(model.named_parameters())
    for name, values in optim_state_dict.get("state", {}).items():
        own = optimizer.state[names[name]]
        for key, value in values.items():
            own[key] = value.tensor if isinstance(value, Piece) else value
    for group, saved in zip(optimizer.param_groups, optim_state_dict.get("param_groups", []), strict=True):
        group.update({k: v for k, v in saved.items() if k != "params"})

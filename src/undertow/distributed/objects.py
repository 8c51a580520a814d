"""Exchanges of objects: trees of dicts, lists, tensors, numbers, strings and bytes, written as files are.

What is received is read by the reader of files, so nothing in it is executed (see docs/files.md). Objects of other
classes are refused where they are sent, unless the program has passed `allow_pickle=True` to `init_process_group`.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from undertow.backend import cpu, dtypes
from undertow.backend.interface import Array
from undertow.distributed.collectives import all_gather_into_tensor, broadcast, root_of, scatter
from undertow.distributed.point_to_point import recv, send
from undertow.distributed.process_group import ProcessGroup, resolve
from undertow.interop.files import load
from undertow.interop.files.write_torch import write_torch_file
from undertow.tensor import Tensor


def written(value: Any, group: ProcessGroup) -> Array:
    file = io.BytesIO()
    if group.allow_pickle:
        pickle.dump(value, file)
    else:
        write_torch_file(file, value)  # which refuses what is more than data
    return cpu.frombuffer(bytearray(file.getvalue()), dtype=dtypes.uint8)


def read(raw: Array, group: ProcessGroup) -> Any:
    return pickle.loads(raw.tobytes()) if group.allow_pickle else load(io.BytesIO(raw.tobytes()))


def numbers(*values: int) -> Tensor:
    return Tensor(cpu.asarray(values, dtype=dtypes.int64), cpu)


def everybodys(what: str, value: Any, group: ProcessGroup) -> list[Any]:
    """The objects of all processes of a group."""
    raw = written(value, group)
    sizes = numbers(*[0] * group.size())
    all_gather_into_tensor(sizes, numbers(raw.size), group)
    most = int(sizes._array.max())
    mine = cpu.zeros(most, dtype=dtypes.uint8)
    mine[: raw.size] = raw
    whole = Tensor(cpu.empty((group.size(), most), dtype=dtypes.uint8), cpu)
    all_gather_into_tensor(whole, Tensor(mine, cpu), group)
    return [read(row[:size], group) for row, size in zip(whole._array, sizes._array.tolist(), strict=True)]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Put the objects of all processes into the list, which has a place for each.

    object_list  the list
    obj          this process's object

    Example: `dist.all_gather_object([None] * dist.get_world_size(), {'rank': dist.get_rank()})`
    """
    members = resolve(group, "all_gather_object")
    if members is not None:
        object_list[:] = everybodys("all_gather_object", obj, members)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Put the objects of all processes into the list of the process `dst`.

    obj                 this process's object
    object_gather_list  at `dst` a list with a place for each process, elsewhere None

    Example: `dist.gather_object('mine', [None] * dist.get_world_size() if dist.get_rank() == 0 else None)`
    """
    members = resolve(group, "gather_object")
    if members is None:
        return
    receives = members.rank() == root_of("gather_object", members, dst, group_dst)
    if receives and object_gather_list is None:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    found = everybodys("gather_object", obj, members)
    if receives:
        object_gather_list[:] = found  # type: ignore[index]


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """Put the objects of the process `src` into everybody's list, which has as many places.

    object_list  the list

    Example: `dist.broadcast_object_list([{'lr': 0.1}], src=0)`
    """
    members = resolve(group, "broadcast_object_list")
    if members is None:
        return
    root = root_of("broadcast_object_list", members, src, group_src)
    raw = written(list(object_list), members) if members.rank() == root else None
    size = numbers(0 if raw is None else raw.size)
    broadcast(size, group=members, group_src=root)
    sent = Tensor(cpu.empty(int(size._array[0]), dtype=dtypes.uint8) if raw is None else raw, cpu)
    broadcast(sent, group=members, group_src=root)
    if raw is None:
        object_list[:] = read(sent._array, members)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Put one object of the list of the process `src` into the first place of everybody's list.

    scatter_object_output_list  a list with a place for the object
    scatter_object_input_list   at `src` a list with an object for each process, elsewhere None

    Example: `dist.scatter_object_list([None], ['yours'] * dist.get_world_size() if dist.get_rank() == 0 else None)`
    """
    members = resolve(group, "scatter_object_list")
    if members is None:
        return
    if not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = root_of("scatter_object_list", members, src, group_src)
    raws: list[Array] = []
    if members.rank() == root:
        if scatter_object_input_list is None or len(scatter_object_input_list) != members.size():
            raise ValueError(
                f"scatter_object_list: the list must have one object for each of the {members.size()} processes"
            )
        raws = [written(value, members) for value in scatter_object_input_list]
    facts = numbers(*([max([r.size for r in raws])] if raws else [0]))
    broadcast(facts, group=members, group_src=root)
    most = int(facts._array[0])
    mine = Tensor(cpu.empty(most + 8, dtype=dtypes.uint8), cpu)
    scatter(mine, [Tensor(padded(r, most), cpu) for r in raws] or None, group=members, group_src=root)
    size = int.from_bytes(mine._array[:8].tobytes(), "little")
    scatter_object_output_list[0] = read(mine._array[8 : 8 + size], members)


def padded(raw: Array, size: int) -> Array:
    """The bytes, with their number in front and zeros behind."""
    found = cpu.zeros(8 + size, dtype=dtypes.uint8)
    found[:8] = cpu.frombuffer(bytearray(raw.size.to_bytes(8, "little")), dtype=dtypes.uint8)
    found[8 : 8 + raw.size] = raw
    return found


def send_object_list(
    object_list: Sequence[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send a list of objects to another process.

    object_list  the list
    dst          the receiver, by its rank among all processes
    use_batch    accepted, without effect

    Example: `dist.send_object_list([{'step': 3}], dst=1)`
    """
    members = resolve(group, "send_object_list")
    if members is None:
        return
    raw = Tensor(written(list(object_list), members), cpu)
    send(numbers(raw._array.size), dst, group, group_dst=group_dst)
    send(raw, dst, group, group_dst=group_dst)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive a list of objects into one that has as many places; the rank that sent it.

    object_list  the list
    src          the sender, by its rank among all processes; None: any
    use_batch    accepted, without effect

    Example: `dist.recv_object_list([None], src=0)`
    """
    members = resolve(group, "recv_object_list")
    if members is None:
        return -1
    size = numbers(0)
    sender = recv(size, src, group, group_src=group_src)
    raw = Tensor(cpu.empty(int(size._array[0]), dtype=dtypes.uint8), cpu)
    recv(raw, sender, group)
    object_list[:] = read(raw._array, members)
    return sender

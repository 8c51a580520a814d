"""The examples of the reference, on two ranks: the first sends what the second receives."""

from __future__ import annotations

import os

import undertow as ut
from tools.site.reference import examples

SENT_BY = {"send": 0, "isend": 0, "send_object_list": 0, "recv": 1, "irecv": 1, "recv_object_list": 1}

found = examples("undertow.distributed")
first, last = found.pop("init_process_group"), found.pop("destroy_process_group")
assert len(found) > 40 and set(SENT_BY) <= set(found)
names = {"ut": ut, "dist": ut.distributed}
eval(first, names)
rank = ut.distributed.get_rank()
pairs = [name for name in found if name not in SENT_BY]
for name in [*pairs, *SENT_BY]:
    if SENT_BY.get(name, rank) == rank:
        eval(found[name], names)
eval(last, names)

names |= {"os": os, "rpc": ut.distributed.rpc, "autograd": ut.distributed.autograd}
found = examples("undertow.distributed.rpc")
first, last = found.pop("init_rpc"), found.pop("shutdown")
assert len(found) > 8
eval(first, names)
for example in found.values():
    eval(example, names)
found = examples("undertow.distributed.autograd")
assert {"DistAutogradContext", "backward", "get_gradients"} <= set(found)
with ut.distributed.autograd.context() as context_id:
    x = ut.ones(2, requires_grad=True)
    names |= {"context_id": context_id, "x": x, "loss": (x * 3).sum()}
    for name in ("backward", "get_gradients", "DistAutogradContext"):
        result = eval(found[name], names)
        assert name != "get_gradients" or result.tolist() == [3, 3]
eval(last, names)
print("all examples ran")

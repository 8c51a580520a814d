"""The examples of the reference, on two ranks: the first sends what the second receives."""

from __future__ import annotations

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
print("all examples ran")

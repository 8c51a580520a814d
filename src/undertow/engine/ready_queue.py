"""ReadyQueue: the nodes of a task that can run, the one to run next on top.

The order is by sequence number, highest first: nodes recorded last run first, and AccumulateGrad, whose number is above
all others, runs as soon as it is ready. Equal numbers run in the order they came.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import Any

from undertow.graph.node import Node


#: A node that is ready to run, with the gradients it waits for: (-sequence number, arrival, node, gradients).
#: A plain tuple, because making a named one takes as long as the rest of a push.
NodeTask = tuple[int, int, Node, Any]


class ReadyQueue:
    __slots__ = ("arrival", "heap")

    def __init__(self) -> None:
        self.heap: list[NodeTask] = []
        self.arrival = count().__next__

    def push(self, node: Node, grads: Any) -> None:
        heappush(self.heap, (-node.sequence_nr, self.arrival(), node, grads))

    def pop(self) -> NodeTask:
        return heappop(self.heap)

    def __len__(self) -> int:
        return len(self.heap)

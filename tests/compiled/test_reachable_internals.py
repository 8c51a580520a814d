"""What Python code can reach and change, C looks at before it reads it: a mistake is an error, never a crash.

The cases run in a process of their own, which says how far it came.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from undertow.compiled import core

if core is None:
    pytest.skip("undertow runs as pure Python here", allow_module_level=True)

IMPORTS = """
import numpy as np
import undertow as ut
from undertow.backend import cpu
from undertow.compiled import core
from undertow.graph.node import OutputEdge
nested = ("constant", 1)
for _ in range(50_000):
    nested = ("not", nested)
"""

START = """
t = ut.ones(4)
x = ut.ones(3, requires_grad=True)
y = x.pow(3)
node = y.grad_fn
view = ut.ones(4).view(2, 2)
"""

CASES = {
    "a node without params": ("node.params = (); y.sum().backward()", ValueError),
    "a node whose params are deleted": ("del node.params; y.sum().backward()", ValueError),
    "a node without extra": ("del node.extra; y.sum().backward()", AttributeError),
    "a tensor without array": ("del t._array; t * t", AttributeError),
    "... changed in place": ("del t._array; t.add_(1)", AttributeError),
    "... viewed": ("del t._array; t.view(2, 2)", AttributeError),
    "... indexed": ("del t._array; t[0]", AttributeError),
    "... joined": ("del t._array; ut.cat([t, t])", AttributeError),
    "... as out": ("del t._array; ut.add(ut.ones(4), 1, out=t)", AttributeError),
    "... as a leaf": ("del x._array; y.sum().backward()", AttributeError),
    "an edge to a number": ("t._edge = 7; (t * 2).sum().backward()", TypeError),
    "the root is a number": ("t._edge = 7; t.backward(ut.ones(4))", TypeError),
    "a tensor without edge": ("del t._edge; t * 2", AttributeError),
    "a tensor without extra": ("del t._extra; t.mul_(2)", AttributeError),
    "a strange extra": ("t._extra = 7; t * 2", AttributeError),
    "a strange view": ("view._extra.view = 5; view.mul_(2)", AttributeError),
    "a view without base": ("del view._extra.view.base; view.view(4)", AttributeError),
    "strange edges": ("node.recorded_edges = 5; y.sum().backward()", TypeError),
    "edges to numbers": ("node.recorded_edges = (5,); y.sum().backward()", TypeError),
    "an empty OutputEdge": ("node.recorded_edges = (OutputEdge(()),); y.sum().backward()", TypeError),
    "a leaf's node without leaf": ("del node.next_functions[0][0].variable; y.sum().backward()", AttributeError),
    "an argument beyond all": ("core.evaluate(('argument', 99), ())", ValueError),
    "an argument before all": ("core.evaluate(('argument', -1), ())", ValueError),
    "keywords that are a number": ("core.evaluate(('call', 7, ('constant', print)), ())", ValueError),
    "more keywords than arguments": ("core.evaluate(('call', ('a', 'b'), ('constant', print)), ())", ValueError),
    "a formula without end": ("core.evaluate(nested, ())", RecursionError),
    "dependencies of a number": ("core.compute_dependencies({}, 3, 0)", TypeError),
    "ends that are numbers": ("core.are_all_ends({3: 1}, {})", TypeError),
    "pull of a number": ("type(node).pull(3, cpu, np.ones(3), (None,), True)", TypeError),
    "a watched call of nothing": ("core.run_watched()", TypeError),
    "a watched call with a list of rows": ("core.run_watched([], 'a', len, ((),), {})", TypeError),
    "a class that is a number": ("core.bind(Tensor=3)", TypeError),
}


def in_turn() -> str:
    """A program that runs one case after the other, each with objects of its own, and says which and how it ended."""
    lines = [IMPORTS]
    for name, (code, error) in CASES.items():
        lines += [START, f"print({name!r}, end=': ', flush=True)", f"try:\n    {code}", "except Exception as found:"]
        lines += [
            f"    print('well' if type(found) is {error.__name__} else repr(found))",
            "else:\n    print('no error')",
        ]
    return "\n".join(lines)


def test_all_are_errors() -> None:
    done = subprocess.run([sys.executable, "-c", in_turn()], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{name}: well" for name in CASES], done.stderr
    assert done.returncode == 0


#: another thread moves an index out of bounds and back while kernels use it; what they read outside would be a crash
MOVING_INDEX = """
import sys, threading, time
import numpy as np
from undertow.compiled import core
sys.setswitchinterval(1e-5)
index = np.zeros((1, 400_000), np.int64)
rows = np.zeros(400_000, np.int64)
outside = 10**12
stop = False

def move():
    while not stop:
        index[0, 1::7] = outside
        rows[1::7] = outside
        index[0, 1::7] = 0
        rows[1::7] = 0

thread = threading.Thread(target=move)
thread.start()
out, values = np.zeros((1, 8)), np.ones((1, 400_000))
end = time.monotonic() + 2
while time.monotonic() < end:
    core.scatter_add(out, 1, index, values)
    core.gather(out, 1, index)
    core.add_rows(out.reshape(8, 1), rows, values)
stop = True
thread.join()
"""


def test_an_index_that_changes_meanwhile_stays_inside() -> None:
    done = subprocess.run([sys.executable, "-c", MOVING_INDEX], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_a_number_that_lies_askew_is_left_to_numpy() -> None:
    askew = np.frombuffer(bytearray(b"." + np.float64(2.5).tobytes()), np.float64, 1, 1).reshape(())
    assert not askew.flags.aligned
    tree = ("binary", "*", ("argument", 0), ("argument", 1))
    assert core.evaluate(tree, (np.ones(3), askew)).tolist() == [2.5] * 3

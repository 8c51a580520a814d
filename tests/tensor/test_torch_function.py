"""`__torch_function__`: classes have a say in what functions make of their objects; torch.overrides; modes.

What is compared with PyTorch is written once; undertow runs it in a process of its own, because functions ask from the
first such class on, and for good.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

BOTH = """
F = torch.nn.functional
torch.Tensor.of_the_program = lambda self: "not asked for"

class Diagonal:
    def __init__(self, values):
        self.values = values
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.matmul, torch.Tensor.matmul):
            return "matmul", [type(a).__name__ for a in args], [t.__name__ for t in types]
        if func is torch.cat:
            return "cat", kwargs
        if func is F.linear:
            return "linear", len(args)
        return NotImplemented

class Logged(torch.Tensor):
    calls = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})

class Derived(Logged):
    pass

class Bare(torch.Tensor):  # asks Tensor in place of `super()`: results are not to be of this class
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = tuple(torch.Tensor if kind is Bare else kind for kind in types)
        return torch.Tensor.__torch_function__(func, plain, args, kwargs or {})

bare = torch.ones(3).as_subclass(Bare)
results = bare.sum(), bare + 1, torch.sin(bare), bare[0], bare.clone(), bare.max(0)[0], torch.stack([bare, bare])
print([type(result).__name__ for result in (*results, bare.split(1)[0], bare.add_(1))], f"{bare.sum():.1f}")

class Quiet(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

diagonal = Diagonal(torch.ones(2))
print(torch.matmul(diagonal, torch.ones(2)), torch.ones(2, 2) @ diagonal)
print(torch.cat([torch.ones(2), diagonal], dim=0), F.linear(torch.ones(2), diagonal))
for refused in (lambda: torch.sin(diagonal), lambda: torch.ones(2) * diagonal):
    try:
        refused()
    except TypeError:
        print("refused")

x = torch.ones(2, 2).as_subclass(Logged)
leaf = torch.ones(2, 2, requires_grad=True)
y = F.linear(leaf.as_subclass(Logged), x) + x.sum() * 2
z = torch.cat([x, torch.ones(1, 2)]).max(0)
print(Logged.calls, type(y).__name__, type(z.values).__name__)
torch.Tensor.backward(torch.sum(y))
print(leaf.grad.tolist())
print(type(x * torch.ones(2).as_subclass(Derived)).__name__, type(torch.nn.Parameter(torch.ones(2)) * x).__name__)
print(type(torch.ones(2).as_subclass(Quiet) + 1).__name__)
with torch._C.DisableTorchFunctionSubclass():
    print(type(x + 1).__name__)
Logged.calls.clear()
print(x.of_the_program(), Logged.calls)
del torch.Tensor.of_the_program

class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        print("asked", func.__name__, [t.__name__ for t in types])
        if func is torch.sigmoid:
            return 7
        return func(*args, **(kwargs or {}))

with Mode():
    a = torch.zeros(2)
    a.add_(2)
    print(torch.sigmoid(a), type(F.linear(a, torch.ones(1, 2))).__name__)
    x.sum()
print(torch.overrides.resolve_name(torch.Tensor.add), torch.overrides.resolve_name(torch.add))
print(torch.overrides.has_torch_function((1, x)), torch.overrides.has_torch_function_unary(torch.ones(1)))
print(torch.overrides.is_tensor_like(diagonal), torch.overrides.is_tensor_like(3))

from torch.utils._python_dispatch import TorchDispatchMode

class Products(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func == torch.ops.aten.mm.default:
            print(func)
        return func(*args, **(kwargs or {}))

with Products():
    print((torch.ones(2, 2) @ torch.ones(2, 2)).sum().item())

class Kinded(torch.Tensor):  # gets an attribute after `as_subclass`, which asks nobody
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kind = next(arg.kind for arg in args if isinstance(arg, Kinded))
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Kinded):
            result.kind = kind
        return result

class Shown(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        shown.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})

rows, labels = torch.ones(2, 4), torch.tensor([0, 1])
for layer, name, arguments in [
    (torch.nn.Linear(4, 2), "linear", [rows]), (torch.nn.ReLU(), "relu", [rows]), (torch.nn.GELU(), "gelu", [rows]),
    (torch.nn.Softplus(), "softplus", [rows]), (torch.nn.LogSigmoid(), "logsigmoid", [rows]),
    (torch.nn.Softshrink(), "softshrink", [rows]), (torch.nn.AvgPool2d(1), "avg_pool2d", [rows.view(1, 1, 2, 4)]),
    (torch.nn.CrossEntropyLoss(), "cross_entropy", [rows, labels]), (torch.nn.NLLLoss(), "nll_loss", [rows, labels]),
    (torch.nn.MSELoss(), "mse_loss", [rows, rows]), (torch.nn.L1Loss(), "l1_loss", [rows, rows]),
    (torch.nn.BCEWithLogitsLoss(), "binary_cross_entropy_with_logits", [rows, rows]),
    (torch.nn.KLDivLoss(reduction="sum"), "kl_div", [rows, rows]), (torch.nn.HuberLoss(), "huber_loss", [rows, rows]),
]:
    shown = []
    layer(*[argument.as_subclass(Shown) for argument in arguments])
    print(name, shown[0] is getattr(F, name))

class Several:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func is torch.autograd.grad, len(args)

print(torch.autograd.grad(Several(), [rows]), torch.autograd.grad(rows.sum(), Several()))

leaf = torch.ones(2, requires_grad=True)
kinded = leaf.as_subclass(Kinded).as_subclass(Kinded)
kinded.kind = "rotation"
tripled = kinded * 3
print(type(tripled).__name__, tripled.kind)
tripled.as_subclass(torch.Tensor).sum().backward()
print(leaf.grad.tolist())

class Passes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.autograd.grad, torch.autograd.backward):
            print(func.__name__, [len(arg) for arg in args], sorted(kwargs))
        return super().__torch_function__(func, types, args, kwargs or {})

class Asked:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, args[0][0].__class__.__name__

class Labelled(torch.Tensor):
    pass

for kind in (Passes, Labelled):
    leaf = torch.ones(2).as_subclass(kind).requires_grad_()
    loss = (leaf * leaf).sum()
    found = torch.autograd.grad(loss, {"leaf": leaf}, create_graph=True)
    torch.autograd.backward([loss], inputs=leaf, retain_graph=True)
    print(type(found["leaf"]).__name__, type(torch.autograd.grad(loss, leaf)[0]).__name__, leaf.grad.tolist())
print(torch.autograd.grad(Asked(), leaf), torch.autograd.backward(Asked()))

class Refusing(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func.__name__ if func is torch.autograd.grad else func(*args, **(kwargs or {}))

leaf = torch.ones(1, requires_grad=True)
with Refusing():
    refused = torch.autograd.grad(leaf * 2, leaf)
print(refused)
"""


def printed(code: str) -> str:
    """What the code prints in a process of its own, with undertow for torch."""
    done = subprocess.run([sys.executable, "-m", "undertow", "run", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_programs_print_what_they_print_with_pytorch(torch: ModuleType) -> None:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        exec(BOTH, {"torch": torch, "__name__": "__main__"})
    assert printed("import torch\n" + BOTH) == text.getvalue()


ALONE = """
import undertow as ut
before = ut.matmul, ut.Tensor.add, ut.nn.functional.softsign
import sys
class Foreign:
    shape, ndim = (2, 2), 2
    @staticmethod
    def __torch_function__(func, types, args=(), kwargs=None):
        frame = sys._getframe()
        while frame is not None:  # whoever looks at a traceback reads the variables of all functions
            frame, _ = frame.f_back, frame.f_locals
        return func.__name__
try:
    ut.matmul(Foreign(), ut.ones(2, 2))
except TypeError as error:
    print(str(error).partition(":")[0])
print(ut.matmul(Foreign(), ut.ones(2, 2)), ut.nn.functional.softsign(Foreign()), ut.ones(2) + Foreign())
assert before == (ut.matmul, ut.Tensor.add, ut.nn.functional.softsign)
x = ut.ones(3, requires_grad=True)
ut.nn.functional.softsign(x).sum().backward()
print(x.grad.tolist(), [ut.sum(x).item(), ut.cat([x, x]).shape[0]])
"""


def test_a_class_is_known_after_its_first_object() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "matmul() was given Foreign, the first object whose class has __torch_function__",
        "matmul softsign add",
        "[0.25, 0.25, 0.25] [3.0, 6]",
    ], done.stderr


@pytest.mark.parametrize("name", ["unbind", "flatten", "t", "conj", "add", "isnan", "flip"])
def test_handlers_hear_whether_a_method_was_called_or_a_function(L: Any, name: str) -> None:
    heard = []

    class Listener(L.Tensor):  # type: ignore[misc, name-defined]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = L.ones(2, 2).as_subclass(Listener)
    more = {"add": (1,), "flip": ((0,),)}.get(name, ())
    heard.clear()
    getattr(L, name)(x, *more), getattr(x, name)(*more)
    assert heard == [getattr(L, name), getattr(L.Tensor, name)] and heard[0] != heard[1]

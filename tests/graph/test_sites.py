"""Errors name lines of the user's program: where a node was recorded, a tensor changed, a graph freed."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import undertow as ut
from undertow.errors import GraphFreedError, ModifiedInplaceError
from undertow.graph.node import site_of
from undertow.graph.user_lines import is_site_recording_enabled, set_site_recording

HERE = __file__


def leaf() -> Any:
    return ut.tensor([1.0, 2.0], requires_grad=True)


def line_of(mark: str) -> int:
    """The line of this file that ends with a comment `# mark`."""
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def place(mark: str, function: str) -> str:
    return f"{HERE}:{line_of(mark)} in {function}"


# ---- nodes


def test_a_node_knows_the_line_that_recorded_it() -> None:
    y = leaf().exp()  # a method
    assert site_of(y.grad_fn) == place("a method", "test_a_node_knows_the_line_that_recorded_it")


RECORDED: dict[str, Callable[[Any], Any]] = {
    "operator": lambda x: x * 2,  # operator
    "function": lambda x: ut.sin(x),  # function
    "reduction": lambda x: x.sum(),  # reduction
    "view": lambda x: x.view(2, 1),  # view
    "index": lambda x: x[0],  # index
    "composite": lambda x: ut.square(x),  # composite
    "several outputs": lambda x: x.unbind()[0],  # several outputs
    "list of tensors": lambda x: ut.cat([x, x]),  # list of tensors
    "reflected operator": lambda x: 3 - x,  # reflected operator
    "in place": lambda x: x.clone().mul_(2),  # in place
}


@pytest.mark.parametrize("name", RECORDED)
def test_every_kind_of_operation_takes_the_line(name: str) -> None:
    site = site_of(RECORDED[name](leaf()).grad_fn)
    assert site is not None and site.startswith(f"{HERE}:{line_of(name)} in ")


def test_a_custom_function_takes_the_line_of_apply() -> None:
    class Double(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    y = Double.apply(leaf())  # apply
    assert site_of(y.grad_fn) == place("apply", "test_a_custom_function_takes_the_line_of_apply")


def test_a_helper_of_the_users_is_the_users_line() -> None:
    def helper(x: Any) -> Any:
        return x.exp() + 1  # in the helper

    assert site_of(helper(leaf()).grad_fn) == place("in the helper", "helper")


def test_lines_are_taken_in_threads() -> None:
    found: list[Any] = []

    def work() -> None:
        found.append(site_of((leaf() * 2).grad_fn))  # in a thread

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [place("in a thread", "work")]


# ---- errors


def test_the_error_of_a_change_names_both_lines() -> None:
    y = leaf() * 1
    z = y.sin()  # recorded here
    y.add_(1)  # changed here
    with pytest.raises(ModifiedInplaceError) as caught:
        z.sum().backward()
    function = "test_the_error_of_a_change_names_both_lines"
    assert caught.value.created_at == place("recorded here", function)
    assert caught.value.mutated_by is not None and place("changed here", function) in caught.value.mutated_by
    for mark in ("recorded here", "changed here"):
        assert place(mark, function) in str(caught.value)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "augmented": lambda y: y.__iadd__(1),  # augmented
    "item": lambda y: y.__setitem__(0, 1.0),  # item
    "through a view": lambda y: y.view(2, 1).mul_(2),  # through a view
    "fill": lambda y: y.fill_(0),  # fill
    "copy": lambda y: y.copy_(ut.ones(2)),  # copy
    "announced": lambda y: ut.autograd.graph.increment_version(y),  # announced
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_kind_of_change_takes_the_line(name: str) -> None:
    y = leaf() * 1
    z = y.sin()
    CHANGES[name](y)
    with pytest.raises(ModifiedInplaceError) as caught:
        z.sum().backward()
    assert f"{HERE}:{line_of(name)} in " in (caught.value.mutated_by or "")


def test_the_last_change_is_named() -> None:
    y = leaf() * 1
    z = y.sin()
    y.add_(1)
    y.mul_(3)  # the last change
    with pytest.raises(ModifiedInplaceError) as caught:
        z.sum().backward()
    assert place("the last change", "test_the_last_change_is_named") in str(caught.value)


def test_a_saved_output_is_named_too() -> None:
    z = leaf().exp()  # recorded output
    out = z.clone().sum()
    z.zero_()  # changed output
    with pytest.raises(ModifiedInplaceError) as caught:
        out.backward()
    function = "test_a_saved_output_is_named_too"
    assert place("recorded output", function) in str(caught.value)
    assert place("changed output", function) in str(caught.value)


def test_the_error_of_a_freed_graph_names_both_lines() -> None:
    y = leaf().exp()  # recorded before it was freed
    total = y.sum()
    total.backward()  # freed here
    with pytest.raises(GraphFreedError) as caught:
        total.backward()
    function = "test_the_error_of_a_freed_graph_names_both_lines"
    assert caught.value.node_name == "ExpBackward0"
    assert caught.value.created_at == place("recorded before it was freed", function)
    assert caught.value.freed_at == place("freed here", function)
    assert caught.value.created_at in str(caught.value) and caught.value.freed_at in str(caught.value)


def test_the_line_of_grad_that_freed_a_graph() -> None:
    x = leaf()
    y = x.exp().sum()
    ut.autograd.grad(y, x)  # freed by grad
    with pytest.raises(GraphFreedError) as caught:
        y.backward()
    assert caught.value.freed_at == place("freed by grad", "test_the_line_of_grad_that_freed_a_graph")


def test_an_error_of_a_node_says_where_it_was_recorded() -> None:
    """The user sees the line of the forward pass, not only that of backward()."""

    class Failing(ut.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise ValueError("no gradient today")

    y = Failing.apply(leaf())  # failing node
    with pytest.raises(ValueError, match="no gradient today") as caught:
        y.sum().backward()
    notes = "\n".join(getattr(caught.value, "__notes__", []))
    assert "FailingBackward" in notes
    assert place("failing node", "test_an_error_of_a_node_says_where_it_was_recorded") in notes


# ---- the switch


@pytest.fixture
def without_sites() -> Iterator[None]:
    set_site_recording(False)
    yield
    set_site_recording(True)


def test_recording_is_on() -> None:
    assert is_site_recording_enabled()


@pytest.mark.usefixtures("without_sites")
def test_without_recording_errors_still_say_what_happened() -> None:
    assert not is_site_recording_enabled()
    y = leaf() * 1
    z = y.exp()
    assert site_of(z.grad_fn) is None
    z.sum().backward()
    with pytest.raises(GraphFreedError, match=r"ExpBackward0 were released by an earlier .backward\(\)") as caught:
        z.sum().backward()
    assert caught.value.created_at is None and caught.value.freed_at is None


@pytest.mark.usefixtures("without_sites")
def test_switching_back_on_concerns_operations_that_were_called_before() -> None:
    x = leaf()
    x.exp()
    set_site_recording(True)
    assert site_of(x.exp().grad_fn) is not None


def test_the_environment_switches_it_off() -> None:
    program = (
        "import undertow as ut; from undertow.graph.node import site_of;"
        "print(site_of(ut.ones(2, requires_grad=True).exp().grad_fn))"
    )
    environment = {"UNDERTOW_SITES": "0", "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    assert finished.stdout.strip() == "None"


def test_a_site_does_not_keep_the_frame_alive() -> None:
    """Only the code object is held, no local variable."""
    import weakref

    class Local:
        pass

    def work() -> tuple[Any, Any]:
        local = Local()
        return leaf() * 2, weakref.ref(local)

    y, alive = work()
    assert alive() is None and site_of(y.grad_fn) is not None

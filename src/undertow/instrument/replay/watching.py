"""`watch`: record backward passes, and write a page in which they can be watched."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from threading import get_ident
from typing import Any

from undertow.autograd.interceptors.observer import Observer, clock, enter, leave, name_of
from undertow.engine.watch import Watch, install_watcher
from undertow.instrument.module_calls import ModuleCalls
from undertow.instrument.nodes import node_of
from undertow.instrument.replay.page import page_text, write_page
from undertow.instrument.replay.paths import names_of_parameters
from undertow.instrument.replay.recording import PassRecording
from undertow.scopes import Switched, put_back
from undertow.tensor import Tensor

#: operations of the forward pass that are shown beside a backward pass
MOST_OPERATIONS = 200_000


class Watching(Switched):
    """What `watch` returns: the recording, and the page.

    path    the file that was written, or None
    passes  the backward passes that were recorded; at most `most_passes`, after which `left_out` counts the others
    model   whose parameters and modules have names on the page
    title   of the page

    >>> import undertow as ut
    >>> x = ut.ones(2, requires_grad=True)
    >>> with ut.instrument.watch(path=None) as watching:
    ...     (x * x).sum().backward()
    >>> len(watching.passes)
    1
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        model: Any = None,
        title: str | None = None,
        most_passes: int = sys.maxsize,
    ) -> None:
        self.path = None if path is None else os.fspath(path)
        self.title = title or f"backward pass of {os.path.basename(sys.argv[0]) or 'undertow'}"
        self.model = model
        self.most_passes, self.left_out = most_passes, 0
        self.passes: list[PassRecording] = []
        self.parameters: dict[int, str] = {} if model is None else names_of_parameters(model)
        self.modules = ModuleCalls(None)
        self.watched: dict[int, str] = {}
        self.operations: list[tuple[str, int, int, int, int]] = []
        self.roots: dict[int, Any] = {}
        self._outer: Any = None

    def begin(self) -> None:
        self.modules.start()
        enter(Seen(self))
        self._outer = _watching.get()
        _watching.set(self)

    def cease(self) -> None:
        put_back(_watching, self, None, self._outer)
        leave(Seen, lambda found: found.watching is self)
        self.modules.stop()

    def ended(self) -> None:
        for each in self.passes:
            each.close()
        self.roots.clear()
        if self.path is not None:
            self.write(self.path)

    def operation_ran(self, what: Any, result: Any, begin: int) -> None:
        if self.left_out:
            return
        node = node_of(result)
        if node is not None:
            path = self.modules.path
            calls = self.modules.open.get()
            if calls:
                # the outermost module's own operations are at the top, as its path is its class's name
                self.watched[node.sequence_nr] = "" if len(calls) == 1 else path
                if id(calls[0].module) not in self.roots:
                    self.roots[id(calls[0].module)] = calls[0].module
                    self.parameters.update(names_of_parameters(calls[0].module))
        if len(self.operations) < MOST_OPERATIONS:
            number = -1 if node is None else node.sequence_nr
            self.operations.append((name_of(what), begin, clock(), get_ident(), number))

    def start_pass(self) -> PassRecording | None:
        if len(self.passes) >= self.most_passes:
            self.left_out += 1
            return None
        recording = PassRecording(self.watched, self.parameters)
        self.passes.append(recording)
        return recording

    def content(self) -> dict[str, Any]:
        """What the page shows, as plain lists and numbers."""
        passes = []
        for each in self.passes:
            if each.columns:
                found = each.as_dict()
                found["forward"] = self.forward_of(each)
                passes.append(found)
        return {"title": self.title, "passes": passes}

    def forward_of(self, recording: PassRecording) -> list[list[Any]]:
        """The operations that recorded the graph of a pass: title, begin, end, thread, sequence number.

        recording  one of `passes`
        """
        wanted = set(recording.columns["sequence"])
        return [
            [name, round((begin - recording.begin) / 1000, 3), round((end - recording.begin) / 1000, 3), number]
            for name, begin, end, _, number in self.operations
            if number in wanted
        ]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file.

        path  its name
        """
        self.path = os.fspath(path)
        write_page(self.path, self.content())

    def _repr_html_(self) -> str:
        """In a notebook, the page in a frame."""
        import html

        return (
            f'<iframe srcdoc="{html.escape(page_text(self.content()))}" style="width:100%;height:640px;border:0">'
            "</iframe>"
        )

    def __repr__(self) -> str:
        nodes = sum(len(each.columns.get("title", ())) for each in self.passes)
        return f"<Watching: {len(self.passes)} passes, {nodes} nodes, page {self.path}>"


class Seen(Observer):
    """The observer of a Watching."""

    def __init__(self, watching: Watching, below: Any = None) -> None:
        super().__init__(below)
        self.watching = watching

    def over(self, below: Any) -> Seen:
        return Seen(self.watching, below)

    def ran(self, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, begin: int) -> None:
        self.watching.operation_ran(what, result, begin)


_watching: ContextVar[Watching | None] = ContextVar("undertow.watching", default=None)


def _recording_if_watched() -> Watch | None:
    watching = _watching.get()
    return None if watching is None else watching.start_pass()


install_watcher(_recording_if_watched)


def watch(
    output: Tensor | str | os.PathLike[str] | None = None,
    path: str | os.PathLike[str] | None = "watch.html",
    *,
    model: Any = None,
    gradient: Any = None,
    retain_graph: bool | None = None,
    title: str | None = None,
) -> Watching:
    """Watch a backward pass: `watch(loss)` runs it, and writes a page that replays it node by node.

    `with watch() as w:` watches everything in a block: it also knows which module recorded which node, and shows when
    the forward operations ran. The page is one file that any browser opens, without network: the graph folded by module
    path, a slider through the pass, threads, memory, and for each node its line, its rules, what it saved and the
    gradient that reached it.

    output                  what `backward` is called on; for a block None, or the path
    path                    the file to write; None: none, `.write(path)` does it later
    model                   whose parameters name the leaves of a graph that was made before; a block finds the modules
                            itself
    gradient, retain_graph  as `backward` takes them
    title                   of the page

    >>> import undertow as ut
    >>> x = ut.ones(3, requires_grad=True)
    >>> ut.instrument.watch((x * 2).exp().sum(), path=None)
    <Watching: 1 passes, 4 nodes, page None>
    """
    if isinstance(output, str | os.PathLike):
        output, path = None, output
    watching = Watching(path, model, title)
    if output is None:
        return watching
    if not isinstance(output, Tensor):
        raise TypeError(f"watch(output) takes the tensor whose backward is to be watched, got {type(output).__name__}")
    with watching:
        output.backward(gradient, retain_graph=retain_graph)
    return watching

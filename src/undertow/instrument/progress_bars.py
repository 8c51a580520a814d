"""`progress`: how far a loop has come, one of the program's or one inside undertow (`gradcheck`, `LBFGS`)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TextIO

from undertow.data.progress import Progress, find_tqdm
from undertow.long_loops import shown


class progress:
    """Show how far a loop has come: `for x in progress(items):`, or everything long in a block: `with progress():`.

    items  what to loop over
    total  how many there are, if `len(items)` does not say so
    name   stands before the bar
    file   where it is shown: standard error, unless given

    tqdm draws the bar if it is installed and no file is given, in notebooks as a widget. In a block, long loops of
    undertow's own are shown, the outermost of several: `gradcheck`, `jacobian` and `hessian` (by rows, or by chunks),
    `vmap(chunk_size=...)`, sparsity patterns, `LBFGS.step`, `update_bn`. `DataLoader(progress=True)` and
    `LBFGS(progress=True)` need no block.

    >>> import io, undertow as ut
    >>> out = io.StringIO()
    >>> sum(ut.instrument.progress(range(10), file=out))
    45
    >>> out.getvalue().splitlines()[-1].split()[:2]
    ['step', '10/10']
    """

    def __init__(
        self, items: Iterable[Any] = (), total: int | None = None, name: str = "", file: TextIO | None = None
    ) -> None:
        self.items, self.name, self.file = items, name, file
        self.total = len(items) if total is None and isinstance(items, Sized) else total
        self.note = ""
        self._token: Any = None
        self._is_showing = False

    def __iter__(self) -> Iterator[Any]:
        tqdm = None if self.file is not None else find_tqdm()
        if tqdm is not None:
            yield from tqdm(self.items, total=self.total, desc=self.name or None)
            return
        bar = Progress(self.total, self.file or sys.stderr)
        try:
            for done, item in enumerate(self.items, 1):
                yield item
                bar.update(done, " ".join([word for word in (self.name, self.note) if word]))
        finally:
            bar.close()

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError("how many items there are is not known")
        return self.total

    def __enter__(self) -> progress:
        self._token = shown.set(self._show)
        return self

    def _show(self, items: Iterable[Any], total: int | None, name: str) -> Iterable[Any]:
        """A loop in the block; loops inside it would write over its line."""
        return items if self._is_showing else self._shown(progress(items, total, name, self.file))

    def _shown(self, bar: progress) -> Iterator[Any]:
        self._is_showing = True
        try:
            for item in bar:  # noqa: UP028  (`yield from` in a block: an interrupt may skip its end in Python 3.12)
                yield item
        finally:
            self._is_showing = False

    def __exit__(self, *exc: object) -> None:
        shown.reset(self._token)

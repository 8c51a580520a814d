"""A real browser for tests: Chromium without a window, spoken to through a pipe by the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update
--disable-sync --no-first-run --hide-scrollbars --disable-dev-shm-usage --force-device-scale-factor=1
--remote-debugging-pipe""".split()


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")


class Browser:
    """One process of the browser, with a profile of its own; `open` gives a page."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="undertow-browser-")
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()

        def give_pipes() -> None:  # the browser reads from 3 and writes to 4
            ours = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        self.process = subprocess.Popen(
            [str(find_browser()), *FLAGS, f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=give_pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.number = 0
        self.received = b""
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def call(self, method: str, session: str | None = None, limit: float = 120.0, **params: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + limit
        while True:
            answer = self.read(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def read(self, end: float) -> dict[str, Any]:
        while b"\0" not in self.received:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self.back, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self.received += chunk
        first, _, self.received = self.received.partition(b"\0")
        return dict(json.loads(first))

    def open(self, path: Path, width: int = 1200, height: int = 800, dark: bool = False) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        page.call("Runtime.enable")
        page.call("Page.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.call("Emulation.setEmulatedMedia", features=scheme)
        page.call("Page.navigate", url=path.resolve().as_uri())
        page.wait_for("document.readyState === 'complete'")
        return page


class Page:
    """One open page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is, as plain Python; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']['exception'].get('description')}")
        return found["result"].get("value")

    def wait_for(self, expression: str, limit: float = 60.0) -> None:
        end = time.monotonic() + limit
        while not self.value(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.02)

    def frame(self) -> None:
        """Wait until what was asked for has been drawn."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def click(self, x: float, y: float, times: int = 1) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=times)
        self.frame()

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def screenshot(self) -> bytes:
        self.frame()
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def errors(self) -> list[str]:
        """What went wrong in the page so far."""
        found = [e for e in self.browser.events if e.get("method") == "Runtime.exceptionThrown"]
        return [str(e["params"]["exceptionDetails"]) for e in found if e.get("sessionId") == self.session]

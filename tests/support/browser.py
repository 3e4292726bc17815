"""A headless Chromium for pages, driven by the DevTools protocol over a pipe.

``chromium`` is a package of Debian. Without it tests that need it are skipped, but fail in CI.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.missing_tools import without

_SECONDS = 60.0
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)  # fmt: skip


def browser_path() -> str:
    """Path of a Chromium; without one the test is skipped, or fails in CI."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        without("chromium", "apt-get install chromium")
    return found


class Page:
    """One page of a browser, with the errors that occurred in it."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._number, self._rest = read, write, 0, b""
        self._session: str | None = None
        self.problems: list[str] = []
        """Errors and warnings of the console, and exceptions."""
        self.requests: list[str] = []
        """URLs that the page loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
        raise TimeoutError(method)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._read, 1 << 20)
            if not read:
                raise EOFError("the browser has ended")
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        about = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                self.problems.append(str([each.get("value") or each.get("description") for each in about["args"]]))
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(about["exceptionDetails"]))
            case "Log.entryAdded" if about["entry"]["level"] in ("error", "warning"):
                self.problems.append(about["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])

    def open(self, path: Path, *, width: int = 1100, height: int = 900) -> None:
        """Open a file in a window of this size in pixels, and wait until it is drawn."""
        self.resize(width, height)
        self.send("Page.navigate", url=path.as_uri())
        until = time.monotonic() + _SECONDS
        while self.run("document.readyState") != "complete" or self.run("location.href") != path.as_uri():
            assert time.monotonic() < until, "the page was not loaded"
            time.sleep(0.02)
        self.drawn()

    def resize(self, width: int, height: int) -> None:
        """Change the window's size in pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, script: str) -> Any:
        """Evaluate an expression of JavaScript, awaiting promises, and return its value."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def drawn(self) -> None:
        """Wait for two frames."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def scheme(self, name: str) -> None:
        """Prefer ``light`` or ``dark`` colours."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.drawn()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send a mouse event, such as ``mousePressed``, at a position in the window."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def press(self, key: str, code: str) -> None:
        """Press a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=code, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=code)
        self.drawn()

    def screenshot(self, path: Path | None = None, *, whole: bool = True) -> bytes:
        """Return a PNG of the whole page or of the window, and optionally write it to a file."""
        found = base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"])
        if path is not None:
            path.write_bytes(found)
        return found

    def pdf(self) -> bytes:
        """Return the page as a PDF for printing."""
        found = self.send("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        return base64.b64decode(found["data"])


@contextmanager
def opened_browser() -> Iterator[Page]:
    """Open a page in a new browser."""
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()

    def pipes() -> None:  # the protocol reads from file descriptor 3 and writes to 4
        ends = os.dup(to_browser), os.dup(from_browser)
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [browser_path(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        try:
            page = Page(to_us, from_us)
            yield page
            page._session = None
            with suppress(EOFError, OSError):
                page.send("Browser.close")
        finally:
            os.close(from_us)
            os.close(to_us)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

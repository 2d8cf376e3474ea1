"""A page in headless Chromium, driven over the DevTools protocol's pipe with the standard library alone."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--mute-audio",
    "--remote-debugging-pipe",
]


def program() -> str | None:
    """The browser's path, if there is one."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


class Page:
    """One page: `open` a file, `run` an expression in it, collect what it complains about."""

    def __init__(self, profile: Path, width: int = 1200, height: int = 900, dark: bool = False):
        command_read, self._write = os.pipe()
        self._read, answer_write = os.pipe()
        # The protocol wants to be on descriptors 3 and 4; bash moves ours there whatever their numbers are.
        shell = f'exec "$@" 3<&{command_read} 4>&{answer_write}'
        arguments = [*FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", program(), *arguments],
            pass_fds=(command_read, answer_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        self._buffer, self._number, self.complaints, self.requests = b"", 0, [], []
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self._send("Browser.close", wait=False)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._read)
        os.close(self._write)

    def size(self, width: int, height: int, mobile: bool = False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def open(self, path: Path):
        self.loaded = False
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        deadline = time.monotonic() + 60
        while not self.loaded and time.monotonic() < deadline:
            self._pump(1.0)
        assert self.loaded, "the page did not load within a minute"

    def run(self, expression: str):
        """The value of an expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def mouse(self, x: float, y: float, kind: str = "mouseMoved"):
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, pointerType="mouse", **button)

    def click(self, x: float, y: float):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(x, y, kind)

    def key(self, name: str):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def screenshot(self, path: Path, whole: bool = True):
        import base64

        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        import base64

        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    def call(self, method: str, **parameters):
        return self._send(method, session=self._session, **parameters)

    def _send(self, method: str, session: str | None = None, wait: bool = True, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while wait and time.monotonic() < deadline:
            for answer in self._pump(1.0):
                if answer.get("id") == self._number:
                    assert "error" not in answer, answer
                    return answer["result"]
        assert not wait, f"no answer to {method} within a minute"

    def _pump(self, seconds: float) -> list[dict]:
        """Read what has arrived; events are noted, everything is returned."""
        if select.select([self._read], [], [], seconds)[0]:
            self._buffer += os.read(self._read, 1 << 20)
        *whole, self._buffer = self._buffer.split(b"\0")
        found = [json.loads(part) for part in whole]
        for event in found:
            self._note(event.get("method"), event.get("params", {}))
        return found

    def _note(self, method: str | None, parameters: dict):
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(parameters["exceptionDetails"].get("text", "exception"))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(parameters["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

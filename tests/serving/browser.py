"""A headless Chromium for the tests, driven over its debugging pipe: messages of JSON that end with a zero byte."""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAM = next(filter(None, map(shutil.which, _NAMES)), None)
_FLAGS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe".split()


class Page:
    """A tab. Its scripts' errors are kept in `errors`, the addresses it asks for in `requested`."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers, self._unread = commands, answers, b""
        self._number, self._session = 0, {}
        self.errors: list[str] = []
        self.requested: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while True:
            answer = self._message(end)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            assert select.select([self._answers], [], [], max(0.0, end - time.monotonic()))[0], "no answer"
            data = os.read(self._answers, 1 << 20)
            assert data, "the browser ended"
            self._unread += data
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        elif event.get("method") == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, as JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 30) -> Any:
        """Its value as soon as it is true."""
        end = time.monotonic() + seconds
        while not (value := self.value(expression)):
            assert time.monotonic() < end, (expression, self.value("document.body.innerText"), self.errors)
            time.sleep(0.05)
        return value

    def type_into(self, name: str, text: str) -> None:
        """Replace the content of a field by keyboard input."""
        self.value(f"(document.getElementById({json.dumps(name)}).focus(), document.activeElement.select())")
        self.call("Input.insertText", text=text)

    def click(self, name: str) -> None:
        """Click in the middle of an element with the mouse."""
        box = self.value(
            f"(() => {{ const e = document.getElementById({json.dumps(name)}); e.scrollIntoView();"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A browser with one tab; its profile is in `folder`."""
    assert PROGRAM is not None
    their_input, commands = os.pipe()
    answers, their_output = os.pipe()
    script = f'exec "$@" 3<&{their_input} 4>&{their_output}'  # the numbers that it expects
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", PROGRAM, *_FLAGS, f"--user-data-dir={folder / 'profile'}"],
        pass_fds=(their_input, their_output),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(their_input)
    os.close(their_output)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)  # it ends with its input
        os.close(answers)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

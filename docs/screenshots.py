"""Makes the screenshots of the pages again, with headless Chromium and without a network.

    .venv/bin/python docs/screenshots.py report
    .venv/bin/python docs/screenshots.py server --model results/labels
    .venv/bin/python docs/screenshots.py search --model results/vectors-raw --index results/index-raw

`report` shows the HTML report of the recorded runs in tests/golden/runs/quickstart. `server` starts the server with the
model that you name, asks it about a sentence, and shows the page. A model for it comes from
`bash scripts/run_classify.sh --train data/examples/sentiment/train.tsv --model MODEL --output-dir results/labels`.
`search` shows what an index of this project's pages, such as that of docs/tutorials/search.md, answers.
"""

import argparse
import base64
import io
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURES = REPOSITORY / "docs/pictures"
RUN = "tests/golden/runs/quickstart"
QUESTION = "Which signals stop a training?"
SENTENCE = "The soup was cold, but the waiter made us laugh and the cake was worth the trip."
MOST_BYTES = 150_000  # of a picture
COLOURS = 128  # of a picture, which makes its file small
LOAD_SECONDS = 120
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")


class Browser:
    """A page of headless Chromium, controlled through a pair of pipes by Chrome's DevTools protocol."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = os.fdopen(commands, "wb"), os.fdopen(answers, "rb")
        self._numbers, self._session = itertools.count(1), ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of the protocol; events that come before it are dropped."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _message(self) -> bytes:
        letters = bytearray()
        while (letter := self._answers.read(1)) != b"\0":
            if not letter:
                raise RuntimeError("Chromium ended")
            letters += letter
        return bytes(letters)

    def open(self, address: str, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=address)
        self.wait_for("document.readyState == 'complete'")

    def evaluate(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 30.0) -> None:
        """Wait until a condition in JavaScript is true; RuntimeError after `seconds`."""
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise RuntimeError(f"the page did not reach `{condition}` in {seconds:.0f} s")
            time.sleep(0.1)

    def save(self, name: str) -> Path:
        """Write the visible part of the page as docs/pictures/NAME."""
        content = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        picture = Image.open(io.BytesIO(content)).convert("RGB").quantize(COLOURS)
        path = PICTURES / name
        picture.save(path, optimize=True)
        if (size := path.stat().st_size) >= MOST_BYTES:
            raise RuntimeError(f"{path} has {size:,} bytes, more than {MOST_BYTES:,}: show less of the page")
        return path


@contextmanager
def browser() -> Iterator[Browser]:
    """Headless Chromium with a folder of its own, which is removed at the end."""
    program = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if program is None:
        raise SystemExit("error: Chromium is not installed; run `apt-get install chromium`, or install Google Chrome")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        read_commands, write_commands = os.pipe()
        read_answers, write_answers = os.pipe()
        flags = [*_FLAGS, f"--user-data-dir={profile}"]
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        words = ["bash", "-c", f'exec "$@" 3<&{read_commands} 4>&{write_answers}', "bash", program, *flags]
        process = subprocess.Popen(
            words, pass_fds=(read_commands, write_answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read_commands)
        os.close(write_answers)
        try:
            yield Browser(write_commands, read_answers)
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def server(model: Path, *flags: str) -> Iterator[str]:
    """The address of a server with the model, once it can answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "bert.serving", str(model), "--port", str(port), *flags]
    process = subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + LOAD_SECONDS
        while not _is_ready(address):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"error: the server of {model} cannot answer; try {' '.join(words)}")
            time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/ready", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def report_picture() -> Path:
    with tempfile.TemporaryDirectory() as folder, browser() as page:
        file = Path(folder) / "report.html"
        words = [sys.executable, "-m", "bert.reporting", RUN, "--html", str(file)]
        subprocess.run(words, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
        page.open(file.as_uri(), 1180, 1215)
        return page.save("report.png")


def server_picture(model: Path) -> Path:
    with server(model.resolve()) as address, browser() as page:
        page.open(address, 760, 460)
        page.wait_for("document.getElementById('text') !== null")
        page.evaluate(f"document.getElementById('text').value = {json.dumps(SENTENCE)}")
        page.evaluate("document.getElementById('send').click()")
        page.wait_for("!document.getElementById('result').hidden")
        return page.save("server.png")


def search_picture(model: Path, index: Path) -> Path:
    with server(model.resolve(), "--index", str(index.resolve())) as address, browser() as page:
        page.open(address, 760, 560)
        page.wait_for("!document.getElementById('search').hidden")
        page.evaluate(f"document.getElementById('query').value = {json.dumps(QUESTION)}")
        page.evaluate("document.getElementById('find').click()")
        page.wait_for("!!document.querySelector('#hits li')")
        return page.save("search.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", choices=("report", "server", "search"))
    parser.add_argument("--model", type=Path, help="folder of a classifier, or of a model of vectors for the search")
    parser.add_argument("--index", type=Path, help="folder of an index, for the picture of the search")
    arguments = parser.parse_args()
    if arguments.picture == "server" and arguments.model is None:
        parser.error("the picture of the server needs --model FOLDER, the folder of a classifier")
    PICTURES.mkdir(exist_ok=True)
    if arguments.picture == "search":
        if arguments.model is None or arguments.index is None:
            parser.error("the picture of the search needs --model FOLDER and --index FOLDER")
        print(search_picture(arguments.model, arguments.index))
    else:
        print(report_picture() if arguments.picture == "report" else server_picture(arguments.model))


if __name__ == "__main__":
    main()

"""One file over HTTP, from a server that fails as real ones do."""

import hashlib
import io
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from bert import REPOSITORY
from bert.files import waiting_lock
from bert.printable import printable
from data.fetching import transfer
from data.fetching.transfer import DownloadError, fetch
from tests.support.faulty_server import Served, serving
from tests.support.waiting import wait_until

DATA = random.Random(0).randbytes(50_017)
SHA256 = "sha256:" + hashlib.sha256(DATA).hexdigest()
WRONG = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(transfer, "sleep", lambda seconds: None)
    monkeypatch.setattr(transfer.Retry, "sleep", lambda self, response=None: None)


def get(served: Served, folder: Path, checksum: str | None = SHA256, num_bytes: int | None = None) -> bytes:
    with serving({"/file.bin": served}) as url:
        return fetch(folder / "file.bin", [f"{url}/file.bin"], checksum, num_bytes).read_bytes()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".file.bin.lock"}


@pytest.mark.parametrize("checksum", [SHA256, None, "md5:" + hashlib.md5(DATA).hexdigest()])
def test_a_file_comes_whole_and_once(tmp_path, checksum):
    served = Served(DATA)
    assert get(served, tmp_path, checksum) == get(served, tmp_path, checksum) == DATA
    assert names(tmp_path) == {"file.bin"} and len(served.requests) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_dropped_transfer_resumes_where_it_was(tmp_path, chunked):
    for number, drops in enumerate([[0], [999], [1000, 20_000], [50_016], [3] * 7]):
        served = Served(DATA, drops=list(drops), chunked=chunked)
        assert get(served, tmp_path / str(number)) == DATA
        places = [int(request.get("Range", "bytes=0-")[6:-1]) for request in served.requests]
        assert places == [sum(drops[:count]) for count in range(len(drops) + 1)]


def test_what_does_not_continue_a_partial_file_is_not_appended(tmp_path):
    assert get(Served(DATA, drops=[20_000, 30_000], ignore_range=True), tmp_path / "ignored") == DATA
    served = Served(DATA, drops=[20_000], wrong_range=True)
    assert get(served, tmp_path / "wrong") == DATA
    assert ["Range" in request for request in served.requests] == [False, True, False]


def test_without_a_checksum_a_partial_file_is_not_resumed(tmp_path):
    """The file on the server may have changed meanwhile."""
    with pytest.raises(DownloadError, match="attempts in a row"):
        get(Served(DATA, drops=[20_000] + [0] * 9), tmp_path, None)
    served = Served(DATA[::-1])
    assert get(served, tmp_path, None) == DATA[::-1]
    assert [request.get("Range") for request in served.requests] == [None]


@pytest.mark.parametrize(
    ("served", "checksum", "num_bytes", "message"),
    [
        (Served(DATA), WRONG, None, "not the one whose checksum is sha256:000.* it was deleted"),
        (Served(DATA[:-1]), SHA256, None, "not the one whose checksum"),
        (Served(DATA), SHA256, 50_000, "has 50017 bytes and must have 50000"),
        (Served(DATA, chunked=True), SHA256, 50_000, "more than 50000 bytes"),
        (Served(DATA, extra_length=100), None, None, "attempts in a row brought nothing new"),
        (Served(DATA, statuses=[503] * 9), None, None, "503"),
        (Served(DATA, statuses=[403]), None, None, "answered 403"),
        (Served(b"<html>please log in", headers={"Content-Type": "text/html; charset=utf-8"}), None, None, "HTML page"),
        (Served(DATA, headers={"Content-Encoding": "br"}), None, None, "Content-Encoding br"),
        (Served(DATA, redirect="/file.bin"), None, None, "Exceeded 10 redirects"),
        (Served(DATA, redirect="/nowhere.bin"), None, None, "answered 404"),
        (Served(DATA, redirect="ftp://127.0.0.1/file.bin"), None, None, "ftp"),
    ],
)
def test_a_wrong_answer_is_refused_and_nothing_gets_the_final_name(tmp_path, served, checksum, num_bytes, message):
    with pytest.raises(DownloadError, match=message) as refused:
        get(served, tmp_path, checksum, num_bytes)
    assert "\\n" not in printable(str(refused.value), indented_lines=True)  # as a command shows it
    assert names(tmp_path) <= {".file.bin.part"}


def test_a_server_that_is_not_there_is_named_with_the_remedy(tmp_path):
    with serving({}) as url:
        pass
    with pytest.raises(DownloadError, match="(?s)Connection refused.*the same command starts it again"):
        fetch(tmp_path / "file.bin", [f"{url}/file.bin"])


def test_passing_trouble_and_a_stalled_server_are_asked_again(tmp_path, monkeypatch):
    assert get(Served(DATA, statuses=[503, 429, 500]), tmp_path / "busy") == DATA
    monkeypatch.setattr(transfer, "TIMEOUT_SECONDS", 0.3)
    assert get(Served(DATA, pause_seconds=0.005), tmp_path / "slow") == DATA
    served = Served(DATA, stalls=1)
    assert get(served, tmp_path / "stalled") == DATA and len(served.requests) == 2


def test_the_next_address_is_tried(tmp_path):
    files = {"/bad": Served(DATA[::-1]), "/half": Served(DATA, drops=[9_000] + [0] * 9), "/good": Served(DATA)}
    with serving(files) as url:
        urls = [f"{url}/{name}" for name in ("missing", "bad", "half", "good")]
        assert fetch(tmp_path / "file.bin", urls, SHA256).read_bytes() == DATA
    assert files["/good"].requests[0]["Range"] == "bytes=9000-"


def test_another_file_of_that_name_is_refused_and_stays(tmp_path):
    (tmp_path / "file.bin").write_bytes(DATA[::-1])
    served = Served(DATA)
    with pytest.raises(DownloadError, match="is there, but is not the file .*: remove it and start again"):
        get(served, tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == DATA[::-1] and not served.requests


def test_two_processes_do_not_write_one_file(tmp_path, capsys):
    served = Served(DATA)
    with ThreadPoolExecutor() as pool:
        with waiting_lock(tmp_path / ".file.bin.lock", "process"):
            second = pool.submit(get, served, tmp_path)
            wait_until(lambda: "waiting for another process" in capsys.readouterr().err)
            (tmp_path / "file.bin").write_bytes(DATA)
        assert second.result(60) == DATA and not served.requests


def test_a_full_disk_stops_it_and_what_came_is_resumed(tmp_path, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr("tqdm.tqdm.update", full_disk)
        with pytest.raises(OSError, match="No space left"):
            get(Served(DATA), tmp_path)
    assert names(tmp_path) == {".file.bin.part"}
    served = Served(DATA)
    assert get(served, tmp_path) == DATA and "Range" in served.requests[0]


def test_missing_room_is_said_before_the_transfer(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=64 << 20))
    with pytest.raises(OSError, match="are missing, and the disk has room for 0"):
        get(Served(DATA), tmp_path)
    assert not (tmp_path / "file.bin").exists()


def full_disk(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("hops", [["http://b/x", "https://c/x"], ["https://b/x", "http://c/x"], ["//b/x", "ftp://c/x"]])
def test_no_hop_leads_from_https_to_anything_else(tmp_path, monkeypatch, hops):
    asked: list[str] = []

    class Redirecting(requests.adapters.BaseAdapter):
        def send(self, request, **options):
            response = requests.Response()
            response.url, response.request, response.raw = request.url, request, io.BytesIO(DATA)
            response.status_code = 302 if len(asked) < len(hops) else 200
            response.headers["location"] = hops[len(asked)] if len(asked) < len(hops) else ""
            asked.append(request.url)
            return response

    monkeypatch.setattr(transfer.HttpsSession, "get_adapter", lambda self, url: Redirecting())
    with pytest.raises(DownloadError, match="redirected from https to (http|ftp)://[bc]/x, which anyone"):
        fetch(tmp_path / "file.bin", ["https://a/x"])
    assert asked and all(url.startswith("https://") for url in asked)


def test_an_address_or_checksum_that_is_none_is_refused(tmp_path):
    for url in ("file:///etc/passwd", "ftp://host/x", "https:///x", "x"):
        with pytest.raises(ValueError, match="must begin with https"):
            fetch(tmp_path / "x", [url])
    for checksum in ("sha256:12", "sha512:" + "0" * 128, "0" * 64, "md5:" + "G" * 32):
        with pytest.raises(ValueError, match="64, 40, 40 or 32"):
            fetch(tmp_path / "x", ["https://host/x"], checksum)


def test_a_killed_download_is_resumed_by_the_next_process(tmp_path):
    served = Served(DATA, pause_seconds=0.02)
    code = (
        "import sys; from pathlib import Path; from data.fetching.transfer import fetch\n"
        "fetch(Path(sys.argv[2]), [sys.argv[1]], sys.argv[3])"
    )
    with serving({"/file.bin": served}) as url:
        command = [sys.executable, "-c", code, f"{url}/file.bin", str(tmp_path / "file.bin"), SHA256]
        with subprocess.Popen(command, cwd=REPOSITORY) as process:
            wait_until(lambda: served.requests)
            time.sleep(0.3)
            os.kill(process.pid, signal.SIGKILL)
        served.pause_seconds = 0
        assert names(tmp_path) == {".file.bin.part"}
        assert fetch(tmp_path / "file.bin", [f"{url}/file.bin"], SHA256).read_bytes() == DATA
    assert names(tmp_path) == {"file.bin"}

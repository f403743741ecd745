import errno
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from bert import REPOSITORY
from data.fetching import transfer
from data.fetching.transfer import CHECKSUMS_NAME, DownloadError, Remote, exclusive, fetch
from tests.support.faulty_server import Served, serving
from tests.support.waiting import wait_until

DATA = random.Random(0).randbytes(50_017)
SHA256 = "sha256:" + hashlib.sha256(DATA).hexdigest()
WRONG = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """The seconds that would have been waited."""
    seconds: list[float] = []
    monkeypatch.setattr(transfer, "sleep", seconds.append)
    monkeypatch.setattr(transfer, "ATTEMPTS", 4)
    return seconds


def fetched(remote: Remote, folder: Path) -> bytes:
    fetch(remote, folder / "file.bin")
    return (folder / "file.bin").read_bytes()


def get(served: Served, folder: Path, checksum: str | None = SHA256, num_bytes: int | None = None) -> str:
    with serving({"/file.bin": served}) as url:
        return fetch(Remote((f"{url}/file.bin",), checksum, num_bytes), folder / "file.bin")


def content(served: Served, folder: Path, checksum: str | None = SHA256) -> bytes:
    get(served, folder, checksum)
    return (folder / "file.bin").read_bytes()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("checksum", [SHA256, None, "md5:" + hashlib.md5(DATA).hexdigest()])
def test_a_file_comes_whole_and_leaves_only_itself_and_a_checksum_that_nobody_published(tmp_path, checksum):
    assert get(Served(DATA), tmp_path, checksum) == ("published checksum" if checksum else "nothing yet")
    assert (tmp_path / "file.bin").read_bytes() == DATA
    assert names(tmp_path) == ({"file.bin"} if checksum else {"file.bin", CHECKSUMS_NAME})
    if not checksum:
        assert json.loads((tmp_path / CHECKSUMS_NAME).read_text())["file.bin"]["sha256"] == SHA256[7:]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("drops", [[0], [1], [999], [1000, 20_000], [50_016], [3, 3, 3, 3, 3, 3, 3]])
def test_a_dropped_transfer_goes_on_where_it_was(tmp_path, drops, chunked):
    served = Served(DATA, drops=list(drops), chunked=chunked)
    assert content(served, tmp_path) == DATA
    assert len(served.requests) == len(drops) + 1
    places = [int(request.get("Range", "bytes=0-")[6:-1]) for request in served.requests]
    assert places == [sum(drops[:count]) for count in range(len(drops) + 1)]


def test_an_ignored_range_starts_again_and_mixes_nothing(tmp_path):
    served = Served(DATA, drops=[20_000, 30_000], ignore_range=True)
    assert content(served, tmp_path) == DATA
    assert len(served.requests) == 3


def test_without_a_checksum_what_an_attempt_received_is_not_kept(tmp_path):
    """The server's file may be another by now."""
    files = {"/file.bin": Served(DATA, drops=[20_000, 0, 0, 0])}
    with serving(files) as url:
        remote = Remote((f"{url}/file.bin",))
        with pytest.raises(DownloadError, match="attempts"):
            fetch(remote, tmp_path / "file.bin")
        assert names(tmp_path) <= {".file.bin.part"}
        files["/file.bin"] = served = Served(DATA[::-1], drops=[20_000])
        assert fetched(remote, tmp_path) == DATA[::-1]
    assert [request.get("Range") for request in served.requests] == [None, None]


def test_a_wrong_piece_is_not_appended(tmp_path):
    served = Served(DATA, drops=[20_000], wrong_range=True)
    assert content(served, tmp_path) == DATA
    assert ["Range" in request for request in served.requests] == [False, True, False]


def test_a_resumed_transfer_with_the_wrong_checksum_is_fetched_anew_once(tmp_path):
    (tmp_path / ".file.bin.part").write_bytes(b"rubbish of an earlier run")
    served = Served(DATA)
    assert content(served, tmp_path) == DATA
    assert len(served.requests) == 2


@pytest.mark.parametrize(
    ("served", "checksum", "num_bytes", "message"),
    [
        (Served(DATA), WRONG, None, "not the one whose checksum"),
        (Served(DATA[:-1]), SHA256, None, "not the one whose checksum"),
        (Served(DATA), SHA256, 50_000, "has 50017 bytes and must be 50000"),
        (Served(DATA, chunked=True), SHA256, 50_000, "more than the 50000 bytes"),
        (Served(DATA, chunked=True), None, 60_000, "not the one whose checksum"),
        (Served(DATA, extra_length=100), None, None, "attempts in a row brought nothing new"),
        (Served(DATA, statuses=[503] * 4), None, None, "503"),
        (Served(DATA, statuses=[403]), None, None, "answered 403"),
        (Served(DATA, statuses=[410]), None, None, "answered 410"),
        (Served(b"<html>please log in", headers={"Content-Type": "text/html; charset=utf-8"}), None, None, "HTML page"),
        (Served(DATA, headers={"Content-Encoding": "br"}), None, None, "Content-Encoding br"),
        (Served(DATA, redirect="/file.bin"), None, None, "Exceeded 10 redirects"),
        (Served(DATA, redirect="/nowhere.bin"), None, None, "answered 404"),
        (Served(DATA, redirect="ftp://127.0.0.1/file.bin"), None, None, "ftp"),
    ],
)
def test_a_wrong_answer_is_refused_and_nothing_gets_the_final_name(tmp_path, served, checksum, num_bytes, message):
    with pytest.raises(DownloadError, match=message):
        get(served, tmp_path, checksum, num_bytes)
    assert "file.bin" not in names(tmp_path) and CHECKSUMS_NAME not in names(tmp_path)


def test_a_server_that_is_not_there_is_named_with_the_remedy(tmp_path, waits):
    with serving({}) as url:
        pass
    with pytest.raises(DownloadError, match="the same command starts it again"):
        fetch(Remote((f"{url}/file.bin",)), tmp_path / "file.bin")
    assert waits == [1.0, 2.0, 4.0] and names(tmp_path) == set()


def test_passing_trouble_is_waited_for(tmp_path):
    served = Served(DATA, statuses=[503, 429, 500])
    assert content(served, tmp_path) == DATA


def test_a_slow_server_is_served_and_a_stalled_one_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "TIMEOUT_SECONDS", 0.3)
    assert content(Served(DATA, pause_seconds=0.005), tmp_path / "slow") == DATA
    served = Served(DATA, stalls=1)
    assert content(served, tmp_path / "stalled") == DATA
    assert len(served.requests) == 2


def test_the_next_address_is_tried(tmp_path):
    files = {"/bad": Served(DATA[::-1]), "/half": Served(DATA, drops=[9_000] + [0] * 9), "/good": Served(DATA)}
    with serving(files) as url:
        remote = Remote(tuple(f"{url}/{name}" for name in ("missing", "bad", "half", "good")), SHA256)
        assert fetched(remote, tmp_path) == DATA
    assert files["/good"].requests[0]["Range"] == "bytes=9000-"


def test_a_file_that_is_there_is_verified_and_not_fetched(tmp_path):
    get(Served(DATA), tmp_path, None)
    served = Served(DATA)
    assert get(served, tmp_path, None) == "recorded checksum" and not served.requests
    damaged = bytearray(DATA)
    damaged[1234] ^= 1
    (tmp_path / "file.bin").write_bytes(damaged)
    for checksum in (None, SHA256):
        with pytest.raises(DownloadError, match="remove it and start again"):
            get(served, tmp_path, checksum)


def test_a_second_download_must_have_the_recorded_checksum(tmp_path):
    get(Served(DATA), tmp_path, None)
    (tmp_path / "file.bin").unlink()
    with pytest.raises(DownloadError, match="recorded in checksums.json"):
        get(Served(DATA[::-1]), tmp_path, None)
    (tmp_path / CHECKSUMS_NAME).write_text("{")
    with pytest.raises(DownloadError, match="is damaged"):
        get(Served(DATA), tmp_path, None)


def test_two_processes_do_not_write_one_file(tmp_path, capsys):
    part, served = tmp_path / ".file.bin.part", Served(DATA)
    with ThreadPoolExecutor() as pool:
        with exclusive(part) as file:
            second = pool.submit(get, served, tmp_path)
            wait_until(lambda: "waiting for another process" in capsys.readouterr().err)
            file.write(DATA)
            os.replace(part, tmp_path / "file.bin")
        assert second.result(60) == "published checksum" and not served.requests
    assert names(tmp_path) == {"file.bin"}


def test_a_full_disk_is_said_before_the_transfer(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: os.terminal_size((0, 0)) and type("Use", (), {"free": 10_000})())
    with pytest.raises(DownloadError, match="disk has room for 0 bytes"):
        get(Served(DATA), tmp_path)


def test_a_disk_that_fills_up_stops_it_and_keeps_what_came(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr("bert.reporting.progress.tqdm.update", fails)
        with pytest.raises(OSError, match="No space left"):
            get(Served(DATA), tmp_path)
    assert names(tmp_path) == {".file.bin.part"}
    served = Served(DATA)
    assert content(served, tmp_path) == DATA and "Range" in served.requests[0]


@pytest.mark.parametrize(
    "hops", [["http://b/x", "https://c/x"], ["https://b/x", "http://c/x"], ["HTTP://c/x"], ["//b/x", "ftp://c/x"]]
)
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
    with pytest.raises(DownloadError, match="redirected from https to (http|HTTP|ftp)://[bc]/x, which anyone"):
        fetched(Remote(("https://a/x",)), tmp_path)
    assert asked and all(url.startswith("https://") for url in asked) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "https:///x", "x"])
def test_only_the_web_is_read(url):
    with pytest.raises(ValueError, match="must begin with https"):
        Remote((url,))


@pytest.mark.parametrize("checksum", ["sha256:12", "sha512:" + "0" * 128, "0" * 64, "md5:" + "G" * 32])
def test_a_checksum_that_is_none_is_refused(checksum):
    with pytest.raises(ValueError, match="64, 40, 40 or 32"):
        Remote(("https://host/x",), checksum)


@pytest.mark.parametrize("seconds", [0.15, 0.3, 0.45])
def test_a_killed_download_goes_on_in_the_next_process(tmp_path, seconds):
    served = Served(DATA, pause_seconds=0.02)
    code = (
        "import sys; from pathlib import Path; from data.fetching.transfer import Remote, fetch\n"
        "print('ready', flush=True); fetch(Remote((sys.argv[1],)), Path(sys.argv[2]))"
    )
    with serving({"/file.bin": served}) as url:
        process = subprocess.Popen(
            [sys.executable, "-c", code, f"{url}/file.bin", str(tmp_path / "file.bin")],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
        )
        process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (tmp_path / "file.bin").exists()
        served.pause_seconds = 0
        assert fetched(Remote((f"{url}/file.bin",)), tmp_path) == DATA

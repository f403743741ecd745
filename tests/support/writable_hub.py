"""A writable Hugging Face hub on this machine: repositories, large files, commits, as its client requests."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import yaml

TOKEN, ACCOUNT = "hf_SecretOfTheTest", "anna"
COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


@dataclass
class Repository:
    private: bool = False
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b""})
    commits: int = 0


@dataclass
class Hub:
    """Holds repositories; `faults` are (pattern of "METHOD path", status) of the next answers, each used once."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)  # sha256 -> content, also of commits that were not made
    faults: list[tuple[str, int]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        """Write no log."""

    def _answer(self, status: int, value: object = None, headers: dict[str, str] | None = None) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _handle(self) -> None:
        body, path = self.rfile.read(int(self.headers.get("Content-Length") or 0)), self.path.partition("?")[0]
        request = f"{self.command} {path}"
        self.hub.requests.append(request)
        for number, (pattern, status) in enumerate(self.hub.faults):
            if re.search(pattern, request):
                del self.hub.faults[number]
                return self._answer(status, {"error": "a fault of the test"})
        if path.startswith("/lfs/"):  # a signed address
            self.hub.large[path.rpartition("/")[2]] = body
            return self._answer(200, {}, {"ETag": '"x"'})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}" and self.command not in ("GET", "HEAD"):
            return self._answer(401, {"error": "Invalid credentials"})
        for pattern, handle in _ROUTES:
            if match := re.fullmatch(pattern, request):
                return handle(self, body, *match.groups())
        return self._answer(404, {"error": "not here"}, {"X-Error-Code": "EntryNotFound"})

    do_GET = do_POST = do_PUT = do_HEAD = _handle

    def _whoami(self, body: bytes) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid credentials in Authorization header"})
        return self._answer(200, {"name": ACCOUNT, "type": "user"})

    def _create(self, body: bytes) -> None:
        values = json.loads(body)
        owner = values["organization"] or ACCOUNT
        name = f"{owner}/{values['name']}"
        if owner != ACCOUNT:
            return self._answer(403, {"error": f"no right to create a model under {owner}"})
        if name in self.hub.repositories:
            return self._answer(409, {"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"})
        self.hub.repositories[name] = Repository(bool(values.get("private")))
        return self._answer(200, {"url": f"{self.hub.url}/{name}"})

    def _repository(self, name: str) -> Repository | None:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and self.headers.get("Authorization") != f"Bearer {TOKEN}"):
            self._answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            return None
        return repository

    def _info(self, body: bytes, name: str, _: str | None = None) -> None:
        if repository := self._repository(name):
            files = [{"rfilename": file} for file in repository.files]
            self._answer(200, {"id": name, "sha": COMMIT, "private": repository.private, "siblings": files, "tags": []})

    def _validate(self, body: bytes) -> None:
        values = yaml.safe_load(json.loads(body)["content"].split("---")[1])
        errors = [] if isinstance(values, dict) else [{"message": "not a mapping"}]
        self._answer(400 if errors else 200, {"errors": errors, "warnings": []})

    def _preupload(self, body: bytes, name: str) -> None:
        if self._repository(name):
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = [
                {"path": path, "uploadMode": "lfs" if path.endswith(".safetensors") else "regular"} for path in paths
            ]
            self._answer(200, {"files": [{**mode, "shouldIgnore": False} for mode in modes]})

    def _batch(self, body: bytes, name: str) -> None:
        objects = []
        for wanted in json.loads(body)["objects"]:
            href = {"upload": {"href": f"{self.hub.url}/lfs/{wanted['oid']}"}}
            objects.append({**wanted, **({} if wanted["oid"] in self.hub.large else {"actions": href})})
        self._answer(200, {"objects": objects, "transfer": "basic"})

    def _tree(self, body: bytes, name: str) -> None:
        if repository := self._repository(name):
            files = repository.files.items()
            entries = [{"type": "file", "path": path, "oid": "0" * 40, "size": len(data)} for path, data in files]
            self._answer(200, entries)

    def _commit(self, body: bytes, name: str) -> None:
        if (repository := self._repository(name)) is None:
            return
        for line in map(json.loads, body.decode().splitlines()):
            value = line["value"]
            if line["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                repository.files[value["path"]] = self.hub.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del repository.files[value["path"]]
        repository.commits += 1
        self._answer(200, {"success": True, "commitOid": COMMIT, "commitUrl": f"{self.hub.url}/{name}/commit/{COMMIT}"})

    def _resolve(self, body: bytes, name: str, _: str, file: str) -> None:
        if repository := self._repository(name):
            if file not in repository.files:
                return self._answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            data = repository.files[file]
            self._answer(200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT})
        return None


_NAME = "([^/ ]+/[^/ ]+)"
_ROUTES = (
    ("GET /api/whoami-v2", _Handler._whoami),
    ("POST /api/repos/create", _Handler._create),
    ("POST /api/validate-yaml", _Handler._validate),
    (f"GET /api/models/{_NAME}(/revision/[^/]+)?", _Handler._info),
    (f"GET /api/models/{_NAME}/tree/main", _Handler._tree),
    (f"POST /api/models/{_NAME}/preupload/main", _Handler._preupload),
    (f"POST /{_NAME}.git/info/lfs/objects/batch", _Handler._batch),
    (f"POST /api/models/{_NAME}/commit/main", _Handler._commit),
    (f"(?:GET|HEAD) /{_NAME}/resolve/([^/]+)/(.+)", _Handler._resolve),
)


@contextmanager
def writable_hub() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()

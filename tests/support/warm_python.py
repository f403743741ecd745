"""A Python whose commands start at once: each is a fork of a server that has imported the packages.

`use_in(clone)` replaces `.venv/bin/python` of a clone for tests by a small client. It sends its words, folder,
environment and descriptors to the server, which forks; the fork runs the script or module as `__main__`. The client
passes signals on, ends as the fork does, and takes it along when it is killed. A command that one of these forks starts
with this Python is a fork of the fork: parents, sessions and parent-death signals are as without a server.

What cannot be warm is started as usual, by the interpreter itself: `-c`, pip and venv, other flags, variables that the
packages read when they are imported, other limits of memory; everything, if BERT_COLD_START is set. Our own modules are
imported in the fork: the server has none of any clone.
"""

import ctypes
import marshal
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

PACKAGES = (
    "numpy paddle paddle.distributed.fleet paddle.distributed.launch.main paddle.static.amp numba pyarrow "
    "pyarrow.parquet pyarrow.csv pydantic yaml safetensors.numpy tokenizers scipy.stats scipy.special requests tqdm "
    "psutil xxhash crc32c zstandard charset_normalizer h5py sentencex visualdl pandas sklearn.metrics "
    "sklearn.feature_extraction.text sklearn.linear_model rich.console rich.table importlib.metadata logging.handlers "
    "concurrent.futures multiprocessing.connection tomllib zipfile html.parser unittest.mock"
).split()
COLD_START = "BERT_COLD_START"
COLD = {COLD_START: "1"}  # for a command that shall start as it does for users
_CLIENT = """#!{interpreter} -ISE
import sys, posix, resource, _signal, _socket, marshal
def cold():
    real = {real!r}
    path = real.rpartition("/")[0].encode() + b":" + posix.environ.get(b"PATH", b"")
    posix.execve(real, [real, *sys.argv[1:]], {{**posix.environ, b"PATH": path}})
if b"{cold}" in posix.environ:
    cold()
connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
try:
    connection.connect({address!r})
except OSError:
    cold()
descriptors = [int(name) for name in posix.listdir("/proc/self/fd")]
opened = []
for number in descriptors:
    try:
        if number != connection.fileno() and posix.get_inheritable(number) or number < 3:
            posix.fstat(number)
            opened.append(number)
    except OSError:
        pass
ignored = [int(number) for number in _signal.valid_signals() if _signal.getsignal(number) == 1]
mask = posix.umask(0)
posix.umask(mask)
limit = resource.getrlimit(resource.RLIMIT_AS)
words = marshal.dumps((sys.argv, posix.getcwd(), posix.environ, mask, limit, ignored, opened))
numbers = b"".join(number.to_bytes(4, "little") for number in opened)
connection.sendmsg([len(words).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
connection.sendall(words)
if connection.recv(1) != b"w":
    cold()
def send(number, frame):
    connection.send(bytes([number]))
for number in (1, 2, 10, 12, 15):
    if number not in ignored:
        _signal.signal(number, send)
answer = connection.recv(4)
if len(answer) < 4:
    posix._exit(137)
code = int.from_bytes(answer, "little", signed=True)
if code < 0:
    if code not in (-9, -19):
        _signal.signal(-code, 0)
    posix.kill(posix.getpid(), -code)
posix._exit(code)
"""


class WarmPython:
    """Starts the server as a process; `close` ends it with all commands that are left."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._address = folder, str(folder / "socket")
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("PADDLE_", "FLAGS_"))}
        environment |= {"PYTHONUTF8": "1", "PYTHONPATH": ""}
        words = [sys.executable, __file__, self._address]
        self._process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout and self._process.stdout.readline() == b"ready\n"

    def use_in(self, clone: Path) -> None:
        """Make the client the `.venv/bin/python` of the clone, and link everything else to this environment's files."""
        real, own = Path(sys.prefix), clone / ".venv"
        own.unlink(missing_ok=True)
        (own / "bin").mkdir(parents=True)
        for place, target in ((real, own), (real / "bin", own / "bin")):
            for path in place.iterdir():
                if path.name != "bin" and not re.fullmatch(r"python[\d.]*", path.name):
                    (target / path.name).symlink_to(path)
        values = {"real": str(real / "bin/python"), "address": self._address, "cold": COLD_START}
        interpreter = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        client = own / "bin/python"
        client.write_text(_CLIENT.format(interpreter=interpreter, **values))
        client.chmod(0o755)
        for name in ("python3", f"python3.{sys.version_info[1]}"):
            (own / "bin" / name).symlink_to("python")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


# ---- the server ------------------------------------------------------------------------------------------------------


def serve(address: str) -> None:
    """Fork for each command that a client brings, until SIGTERM."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))  # the server ends with the process that started it
    at_start, path = dict(os.environ), sys.path[1:]  # without this script's folder
    _import_packages()
    import forked_command  # beside this file; it imports NumPy

    state = forked_command.Interpreter(at_start, path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening, selectors.DefaultSelector() as selector:
        listening.bind(address)
        listening.listen(64)
        selector.register(listening, selectors.EVENT_READ)
        forks: dict[int, tuple[socket.socket, int]] = {}  # number of a process -> its client, its descriptor

        def stop(*_: Any) -> None:
            for pid in forks:
                _kill(pid)
            os._exit(0)

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listening:
                    client = listening.accept()[0]
                    if pid := _begin(client, state, [listening, *(each for each, _ in forks.values())]):
                        forks[pid] = client, os.pidfd_open(pid)
                        selector.register(client, selectors.EVENT_READ, (pid, "client"))
                        selector.register(forks[pid][1], selectors.EVENT_READ, (pid, "end"))
                    else:
                        client.close()
                    continue
                pid, what = key.data
                if pid not in forks:
                    continue
                client, descriptor = forks[pid]
                if what == "client" and (numbers := _received(client)):
                    for number in numbers:
                        _signal(pid, number)
                    continue
                if what == "client":
                    _kill(pid)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                if what == "client":
                    _kill(pid)
                try:
                    client.sendall(code.to_bytes(4, "little", signed=True))
                except OSError:
                    pass
                selector.unregister(client)
                selector.unregister(descriptor)
                client.close()
                os.close(descriptor)
                del forks[pid]


def _import_packages() -> None:
    """Import as bert.runtime.paddle_api does, which sets these before: the forks' own import of it changes no more."""
    os.environ.setdefault("GLOG_minloglevel", "2")
    os.environ["FLAGS_enable_pir_api"] = "0"
    os.environ.setdefault("KMP_BLOCKTIME", "1")
    cpuinfo = Path("/proc/cpuinfo").read_text()
    if "MKL_DEBUG_CPU_TYPE" not in os.environ and "AuthenticAMD" in cpuinfo and " avx2" in cpuinfo:
        os.environ["MKL_DEBUG_CPU_TYPE"] = "7" if " avx512f" in cpuinfo and " avx512bw" in cpuinfo else "5"
    import logging
    import zlib  # noqa: F401 - before Paddle

    handlers = logging.getLogger().handlers[:]
    for name in PACKAGES:
        __import__(name)
    logging.getLogger().handlers[:] = handlers


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(64)
    except OSError:
        return b""


def _signal(pid: int, number: int) -> None:
    """Send Ctrl-C to the whole group, as a terminal does."""
    try:
        if number == signal.SIGINT:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass


def _kill(pid: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _begin(client: socket.socket, state: Any, others: list[socket.socket]) -> int | None:
    """Fork for the client's command; None if it must start cold, or went away."""
    import forked_command

    head, descriptors, *_ = socket.recv_fds(client, 8, 253)
    try:
        if len(head) < 8:
            return None
        size, data = int.from_bytes(head, "little"), b""
        while len(data) < size:
            part = client.recv(size - len(data))
            if not part:
                return None
            data += part
        words, folder, variables, mask, limit, ignored, numbers = marshal.loads(data)
        environment = {os.fsdecode(name): os.fsdecode(text) for name, text in variables.items()}
        if limit != state.limit or state.is_cold(words, environment):
            client.sendall(b"c")
            return None
        pid = os.fork()
        if pid:
            client.sendall(b"w")
            return pid
        code = 1
        try:
            os.setsid()
            ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # as the server
            for other in (client, *others):
                os.close(other.detach())
            placed = {number: os.dup(descriptor) for number, descriptor in zip(numbers, descriptors, strict=True)}
            forked_command.place(placed)
            os.chdir(folder)
            os.umask(mask)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
            code = forked_command.become(words, environment, state)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    serve(sys.argv[1])

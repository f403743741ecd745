"""A Python for the tests whose commands start at once: each is a fork of a server that has the packages imported.

`use_in(clone)` replaces `.venv/bin/python` of a clone for tests by a small client. It sends its words, folder,
environment and descriptors to the server, which forks; the fork runs the script or module as `__main__`. The client
passes signals on, ends as the fork does, and takes it along when it is killed. A command that one of these forks starts
with this Python is a fork of the fork: parents, sessions and parent-death signals are as without a server.

What cannot be warm is started as usual, by the interpreter itself: `-c`, pip and venv, other flags, variables that the
packages read when they are imported, other limits of memory; everything, if BERT_COLD_START is set. Our own modules are
imported in the fork: the server has none of any clone.
"""

import ctypes
import inspect
import marshal
import os
import re
import resource
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
import types
from pathlib import Path
from typing import Any

PACKAGES = (
    "numpy paddle paddle.distributed.fleet paddle.distributed.launch.main paddle.static.amp numba pyarrow "
    "pyarrow.parquet pyarrow.csv pydantic yaml safetensors.numpy tokenizers scipy.stats scipy.special requests tqdm "
    "psutil xxhash crc32c zstandard charset_normalizer h5py huggingface_hub sentencex visualdl pandas sklearn.metrics "
    "sklearn.feature_extraction.text sklearn.linear_model rich.console rich.table importlib.metadata logging.handlers "
    "concurrent.futures multiprocessing.connection tomllib zipfile html.parser unittest.mock"
).split()
COLD_START = "BERT_COLD_START"
COLD = {COLD_START: "1"}  # for a command that shall start as it does for users
# Read when a package is imported, or by the interpreter when it starts: with another value than here, a cold start.
_READ_EARLY = re.compile(
    r"(FLAGS|OMP|KMP|MKL|MALLOC|GLOG|LD|GLIBC|NUMBA|NUMEXPR|OPENBLAS|GOTO|ARROW|HF|HUGGINGFACE|TRANSFORMERS)_\w+|LC_\w+|"
    r"LANG|TZ|PYTHON(?!PATH$|SAFEPATH$|UNBUFFERED$)\w+"
)
_MODULES = re.compile(r"(bert|data|tests\.benchmarks)(\.|$)|paddle\.distributed\.launch$")
_SCRIPTS = re.compile(r"run_\w+\.py|requirements\.py")
_CLIENT = """#!{interpreter} -ISE
import sys, posix, _signal, _socket, marshal
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
words = marshal.dumps((sys.argv, posix.getcwd(), posix.environ, mask, ignored, opened))
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
    """The server as its user sees it: a process that `close` ends, with all commands that are left."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._address = folder, str(folder / "socket")
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("PADDLE_", "FLAGS_"))}
        environment |= {"PYTHONUTF8": "1", "PYTHONPATH": ""}
        words = [sys.executable, __file__, self._address]
        self._process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout and self._process.stdout.readline() == b"ready\n"

    def use_in(self, clone: Path) -> None:
        """Let `.venv/bin/python` of the clone be the client, and everything else that of this environment."""
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
    state = _State(at_start, path)
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
    """Ctrl-C is for all of the group, as in a terminal."""
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


class _State:
    """What of an interpreter a command changes, as it is before the first."""

    def __init__(self, at_start: dict[str, str], path: list[str]) -> None:
        import logging
        import warnings

        self.at_start = at_start
        # Paddle asks for the modules of all callers of an operator. Those that no module has, as these frames below a
        # command, are looked for in all modules each time: twice the time of building a program.
        sys.modules["warm_python"] = sys.modules["__main__"]
        inspect.modulesbyfile.update({"<frozen runpy>": "runpy", os.path.abspath(__file__): "warm_python"})
        self.modules = set(sys.modules)
        self.loggers = set(logging.root.manager.loggerDict)
        self.filters = warnings.filters[:]
        self.path = path
        self.environment = dict(os.environ)
        self.limit = resource.getrlimit(resource.RLIMIT_AS)
        self.python = ""  # the clone's
        self.kept: list[Any] = []  # modules and loggers of earlier commands

    def is_cold(self, words: list[str], environment: dict[str, str]) -> bool:
        """Whether the command must be started by the interpreter itself."""
        names = {name for name in environment.keys() | self.environment.keys() if _READ_EARLY.fullmatch(name)}
        for name in names:  # packages set some themselves, which a command that such a command starts has too
            if environment.get(name) not in (self.at_start.get(name), self.environment.get(name)):
                return True
        if COLD_START in environment or resource.getrlimit(resource.RLIMIT_AS) != self.limit:
            return True
        rest = words[1:]
        while rest and rest[0] in ("-u", "-P"):
            rest = rest[1:]
        if rest[:1] == ["-m"]:
            return not (len(rest) > 1 and _MODULES.match(rest[1]))
        return not rest or not _SCRIPTS.fullmatch(os.path.basename(rest[0]))


def _begin(client: socket.socket, state: _State, others: list[socket.socket]) -> int | None:
    """Fork for the client's command; None if it must start cold, or went away."""
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
        words, folder, variables, mask, ignored, numbers = marshal.loads(data)
        environment = {os.fsdecode(name): os.fsdecode(text) for name, text in variables.items()}
        if state.is_cold(words, environment):
            client.sendall(b"c")
            return None
        pid = os.fork()
        if pid:
            client.sendall(b"w")
            return pid
        code = 1
        try:
            os.setsid()
            for other in (client, *others):
                os.close(other.detach())
            placed = {number: os.dup(descriptor) for number, descriptor in zip(numbers, descriptors, strict=True)}
            _place(placed)
            os.chdir(folder)
            os.umask(mask)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
            code = _become(words, environment, state)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _place(descriptors: dict[int, int]) -> None:
    """Give each descriptor its number, and close all others above 2."""
    high = max([3, *descriptors, *descriptors.values()]) + 1
    moved = {}
    for number, descriptor in descriptors.items():
        moved[number] = high
        os.dup2(descriptor, high)
        high += 1
    os.closerange(3, min(moved.values(), default=3))
    for number, descriptor in moved.items():
        os.dup2(descriptor, number, inheritable=True)
        os.close(descriptor)
    for number in range(3):
        if number not in descriptors:
            os.close(number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in descriptors:
            try:
                os.close(int(name))
            except OSError:
                pass


# ---- a fork becomes the command --------------------------------------------------------------------------------------


def _become(words: list[str], environment: dict[str, str], state: _State) -> int:
    """Run the script or module as the interpreter would, in a process that has run another; returns the exit code."""
    _forget(state)
    state.python = os.path.abspath(words[0])
    added = {name: state.environment[name] for name in ("OMP_NUM_THREADS", "CUSTOM_DEVICE_ROOT") if name in os.environ}
    os.environ.clear()
    os.environ.update(added | environment)
    rest, is_safe = words[1:], bool(environment.get("PYTHONSAFEPATH"))
    is_unbuffered = bool(environment.get("PYTHONUNBUFFERED"))
    while rest[0] in ("-u", "-P"):
        is_unbuffered, is_safe = is_unbuffered or rest[0] == "-u", is_safe or rest[0] == "-P"
        rest = rest[1:]
    is_module = rest[0] == "-m"
    if is_module:
        rest = rest[1:]
    places = [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    first = os.getcwd() if is_module else os.path.dirname(os.path.abspath(os.path.realpath(rest[0])))
    sys.path[:] = ([] if is_safe else [first]) + places + state.path
    sys.path_importer_cache.clear()
    sys.argv[:], sys.orig_argv[:], sys.executable = rest, words, state.python
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            raw = open(number, mode + "b", -1 if number != 1 or not is_unbuffered else 0, closefd=False)
        except OSError:
            setattr(sys, name, None)
            continue
        import io

        lines = number == 2 or number == 1 and os.isatty(1)
        errors = "backslashreplace" if number == 2 else "surrogateescape"
        through = is_unbuffered and number > 0
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=lines, write_through=through)  # type: ignore
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _start_children_warm(state)
    return _run(rest, is_module)


def _forget(state: _State) -> None:
    """Undo what an earlier command of this process, from which it was forked, has changed."""
    import atexit
    import gc
    import logging
    import warnings

    import numpy

    for name in [name for name in sys.modules if name not in state.modules]:
        top = name.partition(".")[0]
        if top in ("bert", "data", "program", "tests", "__mp_main__") or top.startswith("run_"):
            state.kept.append(sys.modules.pop(name))
    gc.freeze()  # a file of theirs that was freed later would close a descriptor of ours
    for name in [name for name in logging.root.manager.loggerDict if name not in state.loggers]:
        if name.partition(".")[0] in ("bert", "data", "__main__"):
            state.kept.append(logging.root.manager.loggerDict.pop(name))
    warnings.filters[:] = state.filters
    sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
    atexit._clear()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    numpy.random.seed()


def _run(words: list[str], is_module: bool) -> int:
    """Run it, and what the interpreter does at its end."""
    import atexit
    import threading

    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    code, is_interrupted = 0, False
    try:
        if is_module:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        else:
            _run_script(os.path.abspath(words[0]))
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code & 0xFF if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        code, is_interrupted = 1, isinstance(error, KeyboardInterrupt)
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            code = code or 120
    if is_interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code


def _run_script(path: str) -> None:
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    code = compile(Path(path).read_bytes(), path, "exec")
    exec(code, main.__dict__)


def _start_children_warm(state: _State) -> None:
    """Let `subprocess` fork this process where it would start this Python."""
    import _posixsubprocess

    real = _posixsubprocess.fork_exec

    def fork_exec(*given: Any) -> int:
        (words, executables, close, keep, folder, variables, to_read, to_write, out_read, out_write) = given[:10]
        (err_read, err_write, failure_read, failure_write, restores, session, group) = given[10:17]
        mask, prepare = given[20], given[21]
        if os.path.realpath(os.fsdecode(executables[0])) != os.path.realpath(state.python) or not close:
            return real(*given)
        own = [item.split(b"=", 1) for item in variables] if variables is not None else None
        environment = dict(os.environ)
        if own is not None:
            environment = {os.fsdecode(name): os.fsdecode(text) for name, text in own}
        texts = [os.fsdecode(word) for word in words]
        if state.is_cold(texts, environment):
            return real(*given)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            numbers = {0: to_read, 1: out_write, 2: err_write}
            placed = {number: os.dup(number if wanted == -1 else wanted) for number, wanted in numbers.items()}
            placed |= {number: os.dup(number) for number in keep if number not in (failure_write, failure_read)}
            _place(placed)
            if folder is not None:
                os.chdir(folder)
            if mask >= 0:
                os.umask(mask)
            for number in signal.valid_signals():
                if callable(signal.getsignal(number)) and number not in (signal.SIGKILL, signal.SIGSTOP):
                    signal.signal(number, signal.SIG_DFL)
            if session:
                os.setsid()
            if group >= 0:
                os.setpgid(0, group)
            if prepare is not None:
                prepare()
            code = _become(
                [texts[0] if "/" in texts[0] else os.fsdecode(executables[0]), *texts[1:]], environment, state
            )
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]


if __name__ == "__main__":
    serve(sys.argv[1])

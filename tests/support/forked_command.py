"""Turns a fork of the server of `warm_python` into a command, as if its interpreter had just started.

The server imports this file as a module of its own folder; it has none of ours.
"""

import atexit
import gc
import inspect
import io
import logging
import os
import re
import resource
import runpy
import signal
import subprocess
import sys
import threading
import traceback
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np

COLD_START = "BERT_COLD_START"
# Read when a package is imported, or by the interpreter when it starts: with another value than here, a cold start.
_READ_EARLY = re.compile(
    r"(FLAGS|OMP|KMP|MKL|MALLOC|GLOG|LD|GLIBC|NUMBA|NUMEXPR|OPENBLAS|GOTO|ARROW)_\w+|LC_\w+|"
    r"LANG|TZ|PYTHON(?!PATH$|SAFEPATH$|UNBUFFERED$)\w+"
)
_MODULES = re.compile(r"(bert(?!\.doctor$)|data|tests\.benchmarks)(\.|$)|paddle\.distributed\.launch$")
_SCRIPTS = re.compile(r"run_\w+\.py|requirements\.py")


class Interpreter:
    """Holds the state of an interpreter that a command changes, as it is before the first command."""

    def __init__(self, at_start: dict[str, str], path: list[str]) -> None:
        self.at_start = at_start
        # Paddle asks for the modules of all callers of an operator. Those that no module has, as these frames below a
        # command, are looked for in all modules each time: twice the time of building a program.
        self.names_of_files = inspect.modulesbyfile  # type: ignore[attr-defined]
        self.names_of_files["<frozen runpy>"] = "runpy"
        self.modules = set(sys.modules)
        self.loggers = set(logging.root.manager.loggerDict)
        self.filters = warnings.filters[:]
        self.path = path
        self.environment = dict(os.environ)
        self.limit = resource.getrlimit(resource.RLIMIT_AS)
        self.python = ""  # the clone's
        self.kept: list[Any] = []  # modules and loggers of earlier commands

    def is_cold(self, words: list[str], environment: dict[str, str]) -> bool:
        """Tell whether the interpreter itself must start the command."""
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


def place(descriptors: dict[int, int]) -> None:
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


def become(words: list[str], environment: dict[str, str], state: Interpreter) -> int:
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
        lines = number == 2 or number == 1 and os.isatty(1)
        errors = "backslashreplace" if number == 2 else "surrogateescape"
        through = is_unbuffered and number > 0
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=lines, write_through=through)  # type: ignore
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _start_children_warm(state)
    return _run(rest, is_module)


def _forget(state: Interpreter) -> None:
    """Undo the changes by an earlier command of this process, from which it was forked."""
    for name in [name for name in sys.modules if name not in state.modules or name == "__main__"]:
        top = name.partition(".")[0]
        if top in ("bert", "data", "program", "tests", "__main__", "__mp_main__") or top.startswith("run_"):
            module = sys.modules.pop(name)
            state.kept.append(module)
            state.names_of_files[getattr(module, "__file__", None) or name] = name
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
    np.random.seed()


def _run(words: list[str], is_module: bool) -> int:
    """Run the command, and then an interpreter's work at its end."""
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


def _start_children_warm(state: Interpreter) -> None:
    """Make `subprocess` fork this process where it would start this Python."""
    real = subprocess._fork_exec  # type: ignore[attr-defined]

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
            place(placed)
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
            code = become(
                [texts[0] if "/" in texts[0] else os.fsdecode(executables[0]), *texts[1:]], environment, state
            )
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]

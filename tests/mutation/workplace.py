"""A private copy of the working tree, and runs of its tests in forks of a process that has the packages imported."""

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

# Folders of tests that take minutes, and of these here.
_UNUSUAL = {"cluster", "documents", "figures", "mutation", "newcomer", "selftest"}
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass(frozen=True)
class Outcome:
    passed: bool
    by: str  # the test that failed, or that ran when the time was over
    cpu_seconds: float
    seconds: float
    modules: tuple[str, ...] = ()  # installed ones that the run had imported, in their order


@dataclass(frozen=True)
class Limits:
    """Limits after which a run counts as failed: it loops or waits for ever."""

    cpu_seconds: int = 900
    seconds: float = 1800.0

    @classmethod
    def after(cls, run: Outcome) -> "Limits":
        return cls(int(3 * run.cpu_seconds) + 15, 8 * run.seconds + 30)  # other work may begin on the machine


class Workplace:
    """A copy of a repository in which modules can be faulty while its tests run."""

    def __init__(self, repository: Path, work: Path):
        self.folder, self._work, self._repository = work / "copy", work, repository
        _copy(repository, self.folder)

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    @contextlib.contextmanager
    def faulty(self, path: str, source: bytes) -> Iterator[None]:
        """Give the module another source; remove its bytecode, whose stamp (second, size) may be the same."""
        file = self.folder / path
        right = file.read_bytes()
        try:
            self._write(file, source)
            yield
        finally:
            self._write(file, right)

    def _write(self, file: Path, source: bytes) -> None:
        file.write_bytes(source)
        for bytecode in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            bytecode.unlink()

    def run(self, tests: list[str], limits: Limits) -> Outcome:
        """Run the tests in a fork that imports all our modules anew; nothing of it is left."""
        result, start = self._work / "result", time.monotonic()
        result.unlink(missing_ok=True)
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            self._test(tests, result, limits)
        try:
            status, usage = _wait(pid, start + limits.seconds)
        finally:
            end_processes()
        for leftover in (self._work / "tmp", self.folder / ".hypothesis" / "examples"):
            shutil.rmtree(leftover, ignore_errors=True)
        written = [json.loads(line) for line in result.read_text().splitlines()] if result.exists() else []
        tested = next((row["test"] for row in reversed(written) if "test" in row), "before the first test")
        failed = next((row["failed"] for row in written if "failed" in row), None)
        modules = next((row["modules"] for row in written if "modules" in row), None)  # of a run that came to its end
        too_long = status is None or os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        by = failed or f"{tested} ({'no end' if too_long else 'it ended the process'})"
        cpu_seconds = usage.ru_utime + usage.ru_stime
        is_passed = status == 0 and modules is not None
        return Outcome(is_passed, by, cpu_seconds, time.monotonic() - start, tuple(modules or ()))

    def output(self) -> str:
        """Return what the last run printed."""
        return (self._work / "output").read_text(errors="replace")

    def _test(self, tests: list[str], result: Path, limits: Limits) -> None:
        code = 1
        try:
            os.setsid()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            output = os.open(self._work / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            self._move()
            options = ["-x", "-q", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"]
            if importlib.util.find_spec("hypothesis"):
                options.append("--hypothesis-seed=0")
                _stop_at_the_first_failing_example()
            recorder = _Recorder(result, self.folder)
            code = int(pytest.main([*options, f"--basetemp={self._work}/tmp/pytest", *tests], plugins=[recorder]))
            recorder.write(modules=_installed_modules())
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)

    def _move(self) -> None:
        """Make this process work in the copy, as if it had been started there."""
        here, there = str(self._repository), str(self.folder)
        (self._work / "tmp").mkdir(exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(self._work / "tmp")
        for name in ("CI", "BERT_FULL_FAULTS"):
            os.environ.pop(name, None)
        if "PYTHONPATH" in os.environ:
            paths = os.environ["PYTHONPATH"].split(os.pathsep)
            os.environ["PYTHONPATH"] = os.pathsep.join(there if path == here else path for path in paths)
        os.chdir(there)
        sys.path[:] = [there, *(path for path in sys.path if path not in ("", here))]
        sys.argv = ["pytest"]
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        importlib.invalidate_caches()


class _Recorder:
    """Records, as a plugin of pytest, which test runs and which failed."""

    def __init__(self, result: Path, folder: Path):
        self._file = open(result, "a", buffering=1)
        self._folder = folder

    def write(self, **row) -> None:
        print(json.dumps(row), file=self._file)

    def pytest_runtest_logstart(self, nodeid):
        self.write(test=nodeid)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.write(failed=report.nodeid)

    def pytest_collectreport(self, report):
        if report.failed:
            self.write(failed=f"{report.nodeid} (not imported)")


def warm(modules: tuple[str, ...]) -> None:
    """Import the modules that a run of the tests had imported, in its order: forks have them."""
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def prepare_process() -> None:
    """Make this process the parent of processes whose parent ends, so that none is left."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_processes() -> None:
    """Kill all descendants of this process."""
    while processes := psutil.Process().children(recursive=True):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def own_tests(path: str, repository: Path) -> list[str]:
    """Return the test files of a module: its mirror, and its folder's, first the files that name the module."""
    module, tests = Path(path), repository / "tests"
    folder = tests.joinpath(*module.parts[1 if module.parts[0] == "bert" else 0 : -1])
    while not folder.is_dir():
        folder = folder.parent
    files = sorted(folder.glob("test_*.py"))
    if path == "program.py":
        files = [tests / "test_program.py", *sorted((tests / "model").glob("test_*.py"))]
    elif folder == tests:
        files = [file for file in sorted(tests.rglob("test_*.py")) if not _UNUSUAL & {*file.relative_to(tests).parts}]
    dotted = ".".join(module.with_suffix("").parts)
    package, name = dotted.rpartition(".")[::2]
    named = re.compile(rf"\b{re.escape(dotted)}\b|from {re.escape(package)} import [^\n]*\b{name}\b")

    def rank(file: Path) -> tuple[int, str]:
        is_named = bool(named.search(file.read_text(encoding="utf-8")))
        return (0 if file.stem == f"test_{module.stem}" else 2 - is_named), str(file)

    ranked = sorted(map(rank, files))
    if folder == tests and path != "program.py":
        ranked = [row for row in ranked if row[0] < 2]
    return [str(Path(file).relative_to(repository)) for _, file in ranked]


def _copy(repository: Path, folder: Path) -> None:
    """Copy tracked and untracked files as they are now, with a repository of their own and Numba's machine code."""
    clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", str(repository), str(folder)]
    subprocess.run(clone, check=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=repository, check=True, capture_output=True, text=True).stdout.split("\0")
    machine_code = [str(path.relative_to(repository)) for path in repository.glob("*/**/__pycache__/*.nb?")]
    for name in [*filter(None, names), *machine_code]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # removed, or just being written
            shutil.copy2(repository / name, folder / name, follow_symlinks=False)
    subprocess.run(["git", "reset", "--quiet"], cwd=folder, check=True)
    (folder / ".venv").symlink_to(sys.prefix)  # which scripts/setup.sh would make


def _stop_at_the_first_failing_example() -> None:
    """Keep hypothesis from searching for the simplest example, which costs ten times as much."""
    from hypothesis import Phase, settings

    settings.register_profile("mutation", phases=[Phase.explicit, Phase.generate])
    settings.load_profile("mutation")


def _installed_modules() -> list[str]:
    """Return names in sys.modules of modules that are installed with or beside Python, except tests of these."""
    places = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    names = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(places) and getattr(module, "__name__", "") == name and name != "__main__":
            names.append(name)
    return names


def _wait(pid: int, deadline: float) -> tuple[int | None, resource.struct_rusage]:
    """Return exit status and resource use of a process that is killed at the deadline; then the status is None."""
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return status, usage
        if time.monotonic() >= deadline:
            os.killpg(pid, signal.SIGKILL)
            return None, os.wait4(pid, 0)[2]
        time.sleep(0.01)

"""Options of scripts/run_gpu_selftest.sh, the order of its checks, and the report, written after each of them."""

import signal
from pathlib import Path

import pytest

from bert.reporting.progress import duration
from tests.gpu.selftest.bench import Bench
from tests.gpu.selftest.machine import NO_GPU, find_machine
from tests.gpu.selftest.report import FIRST_CHECKS, REPORT, RESULTS, Report, Result

CHECKS = pytest.StashKey[Report]()
BENCH = pytest.StashKey[Bench]()


def pytest_addoption(parser):
    add = parser.getgroup("self-test of GPUs").addoption
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: the GPUs")
    add("--gpus", type=int, metavar="N", help="GPUs to use; all without it")
    add("--only", action="append", default=[], metavar="NAME", help="checks whose names begin so; may be repeated")
    add("--output-dir", type=Path, default=Path("results/gpu_selftest"), metavar="DIR", help="data, logs and report")


def pytest_configure(config):
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the running command, as Ctrl-C does
    try:
        machine = find_machine(config.getoption("device"), config.getoption("gpus"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[CHECKS] = Report(config.getoption("output_dir").absolute(), machine)


def name_of(item) -> str:
    """`test_resume[amp]` is the check `resume-amp`."""
    name = item.originalname.removeprefix("test_").replace("_", "-")
    return f"{name}-{item.callspec.id}" if hasattr(item, "callspec") else name


def pytest_collection_modifyitems(config, items):
    """The most likely failures first; without the GPU that was asked for, only the doctor."""
    machine, wanted = config.stash[CHECKS].machine, config.getoption("only")
    if machine.num_ranks == 0 and not config.option.collectonly:
        wanted = ["doctor"]
    names = {item: name_of(item) for item in items}
    for start in wanted:
        if not any(name.startswith(start) for name in names.values()):
            raise pytest.UsageError(f"only={start} must begin the name of a check: {', '.join(names.values())}")
    first = {name: number for number, name in enumerate(FIRST_CHECKS)}
    items.sort(key=lambda item: first.get(names[item], len(first)))
    starts = tuple(start for start in wanted if start not in names.values())
    if wanted:
        items[:] = [item for item in items if names[item] in wanted or names[item].startswith(starts)]


@pytest.fixture
def bench(request):
    """Of one check."""
    checks = request.config.stash[CHECKS]
    log_file = checks.folder / "logs" / f"{name_of(request.node)}.log"
    log_file.unlink(missing_ok=True)
    found = request.node.stash[BENCH] = Bench(checks.machine, checks.folder, log_file)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" or report.skipped or report.failed:
        bench = item.stash[BENCH]
        text, output = said_by(call.excinfo, report) if call.excinfo else (bench.text, "")
        title = item.obj.__doc__.splitlines()[0].rstrip(".")
        line = " ".join(text.split())
        result = Result(name_of(item), title, report.outcome, report.duration, line, bench.figures, output)
        item.config.stash[CHECKS].add(result)
        report.text = f"{report.outcome}, {duration(report.duration)}: {line}"
    return report


def said_by(error, report) -> tuple[str, str]:
    """A line, and what else is kept: the end of a command's output, or the traceback of an error of the check."""
    line = (str(error.value).splitlines() or [""])[0]
    if error.errisinstance((AssertionError, pytest.skip.Exception, pytest.fail.Exception)):
        return line, getattr(error.value, "output", "")
    return f"{error.typename}: {line}", str(report.longrepr)


def pytest_report_teststatus(report, config):
    """The word that -v shows."""
    if hasattr(report, "text"):
        return report.outcome, report.outcome[0], report.text
    return None


def pytest_sessionfinish(session):
    is_run = session.testscollected and not session.config.option.collectonly
    if session.config.stash[CHECKS].machine.num_ranks == 0 and is_run:
        session.exitstatus = pytest.ExitCode.INTERRUPTED


def pytest_terminal_summary(terminalreporter, config):
    checks = config.stash[CHECKS]
    if checks.machine.num_ranks == 0 and checks.results:
        terminalreporter.write_line(f"error: {NO_GPU}")
    if checks.results:
        terminalreporter.write_line(f"Send back {checks.folder / REPORT} and {RESULTS} beside it")

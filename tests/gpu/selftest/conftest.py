"""Options of scripts/run_gpu_selftest.sh, the order of its checks, and the table at its end."""

import signal
from pathlib import Path

import pytest

from bert.reporting.logs import to_json
from tests.gpu.selftest.bench import Bench
from tests.gpu.selftest.machine import NO_GPU, Machine, describe, find_machine

MACHINE = pytest.StashKey[Machine]()
ROWS = pytest.StashKey[list[dict]]()
FIRST = ("doctor", "nccl", "fused-kernels-float16", "throughput-phase1_large")  # the most likely failures
WORDS = {"passed": "passed", "failed": "not passed", "skipped": "could not run"}


def pytest_addoption(parser):
    add = parser.getgroup("self-test of GPUs").addoption
    add("--device", choices=("auto", "cpu", "gpu"), default="auto", help="auto: the GPUs")
    add("--gpus", type=int, metavar="N", help="GPUs to use; all without it")
    add("--only", action="append", default=[], metavar="NAME", help="checks whose names begin so; may be repeated")
    add("--output-dir", type=Path, default=Path("results/gpu_selftest"), metavar="DIR", help="data, logs and results")


def pytest_configure(config):
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the running command, as Ctrl-C does
    try:
        config.stash[MACHINE] = find_machine(config.getoption("device"), config.getoption("gpus"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[ROWS] = []


def name_of(item) -> str:
    """Return the name of a check: `test_resume[amp]` is `resume-amp`."""
    name = item.originalname.removeprefix("test_").replace("_", "-")
    return f"{name}-{item.callspec.id}" if hasattr(item, "callspec") else name


def pytest_collection_modifyitems(config, items):
    if config.stash[MACHINE].num_ranks == 0 and not config.option.collectonly:
        raise pytest.UsageError(NO_GPU)
    names = {item: name_of(item) for item in items}
    for start in config.getoption("only"):
        if not any(name.startswith(start) for name in names.values()):
            raise pytest.UsageError(f"only={start} must begin the name of a check: {', '.join(names.values())}")
    if wanted := tuple(config.getoption("only")):
        items[:] = [item for item in items if names[item].startswith(wanted)]
    items.sort(key=lambda item: FIRST.index(names[item]) if names[item] in FIRST else len(FIRST))


@pytest.fixture
def bench(request):
    """Make the bench of one check."""
    folder = request.config.getoption("output_dir").absolute()
    log_file = folder / "logs" / f"{name_of(request.node)}.log"
    log_file.unlink(missing_ok=True)
    return Bench(request.config.stash[MACHINE], folder, log_file)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Write a line of results.jsonl for each check, as soon as it ends; before the first a line for the machine."""
    report = yield
    if report.when == "call" or not report.passed:
        bench, rows = item.funcargs["bench"], item.config.stash[ROWS]
        text = str(call.excinfo.value) if call.excinfo else bench.text
        row = {"name": name_of(item), "result": WORDS[report.outcome], "seconds": round(report.duration, 1)}
        row |= {"text": (text.splitlines() or [""])[0], "figures": bench.figures}
        lines = [row] if rows else [describe(bench.machine), row]
        rows.append(row)
        bench.folder.mkdir(parents=True, exist_ok=True)
        with open(bench.folder / "results.jsonl", "a") as file:
            file.writelines(f"{to_json(line)}\n" for line in lines)
    return report


def pytest_terminal_summary(terminalreporter, config):
    if rows := config.stash[ROWS]:
        terminalreporter.section("self-test")
        width = max(len(row["name"]) for row in rows)
        for row in rows:
            terminalreporter.write_line(f"{row['name']:{width}}  {row['result']:13} {row['text']}")
        terminalreporter.write_line(f"Send back {config.getoption('output_dir').absolute() / 'results.jsonl'}")

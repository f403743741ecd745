"""Prints CPU seconds by folder at the end of a run, and tests over 10 s that are not marked `long`.

A test's figure has all processes that it started and that ended. It is a report and never a failure: the same test
takes more CPU time on a slower machine or beside other work.
"""

import os
from collections import Counter

import pytest

LIMIT = 10.0  # of a call
SHOWN = 20
PHASES = ("setup", "call", "teardown")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    return (yield from _measured(item, "setup"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    return (yield from _measured(item, "call"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    return (yield from _measured(item, "teardown"))


def _measured(item, phase: str):
    """Keep the CPU seconds of a phase with the test; reports carry them, also from the workers of xdist."""
    before = sum(os.times()[:4])  # of this process and of the processes that ended
    try:
        return (yield)
    finally:
        item.user_properties.append((f"CPU seconds of {phase}", round(sum(os.times()[:4]) - before, 3)))


def pytest_terminal_summary(terminalreporter):
    folders: Counter[str] = Counter()
    calls = []
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if getattr(report, "when", "") == "teardown":  # it has the figures of all phases
            used = [dict(report.user_properties).get(f"CPU seconds of {phase}", 0.0) for phase in PHASES]
            folders["/".join(report.nodeid.split("::")[0].split("/")[:2])] += sum(used)
            if not {"long", "gpu"} & set(report.keywords) and used[1] > LIMIT:
                calls.append((used[1], report.nodeid))
    if sum(folders.values()) > 60:
        terminalreporter.section("CPU seconds")
        texts = [f"{folder} {seconds:.0f}" for folder, seconds in folders.most_common(SHOWN)]
        terminalreporter.write_line(f"{sum(folders.values()):.0f} in all: {', '.join(texts)}")
    for seconds, name in sorted(calls, reverse=True):
        terminalreporter.write_line(f"{seconds:.1f} s of CPU time without the mark `long`: {name}")

"""With CI=true, fails tests that skip, unless their reason is in ALLOWED."""

import os
import re

import pytest

ALLOWED = {  # a reason, as a regular expression -> why the gate does without the test
    "needs AVX512-BF16 or AMX": "a matter of the processor",
    "needs oneDNN|for CPU wheels with oneDNN": "a matter of the wheel",
    "another C library than glibc": "a matter of the machine",
    "needs permission to mount a tmpfs": "containers may not mount",
    "needs a C compiler": "a matter of the machine",
    "BERT_TORCH_VENV": "PyTorch is gigabytes; tests/golden/libraries has what it gave, which other tests compare",
    "BERT_LDDL_VENV": "LDDL's preprocessor wants packages of its own; its loader runs, by the extra lddl",
    r"\.venv(-paddle3\.1)?/bin/python does not exist": "a later suite installs the other Paddle and runs the test",
    "Paddle 3 has no quantiser|Paddle 3 is left as it is|with Paddle 3|tests on Paddle 3": "on Paddle 3",
    "no Slurm|no network namespaces": "what clusters need is tried on request",
    "golden losses replaced": "--write-golden was given",
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _judged((yield))


def _judged(report):
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(re.search(allowed, reason) for allowed in ALLOWED):
            report.outcome = "failed"
            report.longrepr = f"{reason}: mend it, or add the reason to ALLOWED in tests/support/skips.py"
    return report

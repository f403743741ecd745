"""Passes environment variables that may be secrets to the ranks, but not to Paddle's launcher, which logs its own.

Paddle's launcher stores its environment beside the ranks' logs, for all to read. So it gets only what a process needs
before its first line of Python, and Paddle's own variables. The ranks read the others from a file in memory, which it
holds open, before they import anything else: trackers and hubs find their keys.

A list of what is needed, not of what looks like a secret: no list knows the names of all secrets (DATABASE_URL, a proxy
whose address has a password), and what this one lacks still reaches the ranks. Standard library only.
"""

import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

WITHHELD = "BERT_WITHHELD"  # environment variable of the ranks: the launcher's descriptor of the file in memory
_NEEDED = re.compile(
    r"PATH|HOME|TMPDIR|TZ|LANG|LANGUAGE|GLIBC_TUNABLES|(LC|LD|CUDA|OMP|KMP|MKL|MALLOC|TCMALLOC|MIMALLOC)_.*"
    r"|(NSYS|QUADD|NVTX)_.*"  # of a profiler, which is loaded first
    r"|(PADDLE|FLAGS)_.*|POD_IP|PORT_RANGE"
    r"|PYTHON(?!OPTIMIZE|WARNINGS).*"  # with which Paddle's launcher ends at an import
)
_SECRET = re.compile("TOKEN|KEY|SECRET|PASS|PWD|DSN|CREDENTIAL|AUTH|WEBHOOK")  # a company named Paddle has keys too


def of_launcher(environment: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """The launcher's environment, and the descriptor that it must inherit; the caller closes it."""
    needed = {name: text for name, text in environment.items() if _NEEDED.fullmatch(name) and not _SECRET.search(name)}
    descriptor = os.memfd_create("environment")
    os.write(descriptor, json.dumps({name: environment[name] for name in environment.keys() - needed}).encode())
    return needed | {WITHHELD: str(descriptor)}, descriptor


def take_withheld() -> None:
    """In a rank: add the variables that the launcher did not get. If the launcher has ended, end the rank."""
    if (descriptor := os.environ.pop(WITHHELD, None)) is not None:
        file = f"/proc/{os.getppid()}/fd/{descriptor}"
        try:
            if "memfd:" not in os.readlink(file):  # of the process that takes over orphans; reading it might not end
                raise FileNotFoundError(file)
            values = json.loads(Path(file).read_bytes())
        except OSError as error:
            message = f"error: Paddle's launcher has ended, or this machine hides its files: {error}"
            print(message, file=sys.stderr, flush=True)
            os._exit(128 + signal.SIGKILL)
        os.environ.update({name: value for name, value in values.items() if name not in os.environ})

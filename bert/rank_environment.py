"""The environment of ranks: variables that may be secrets reach them past Paddle's launcher, which writes its own down.

Paddle's launcher stores its whole environment beside the ranks' logs, for all to read (backup_env.N.json, envlog.N, the
first line of its log). So it gets only variables that a process needs before its first line of Python, or that are
Paddle's own. The others are in a file in memory, which it holds open, and which the ranks read before they import
anything else: trackers and hubs find their keys.

A list of what is needed, not of what looks like a secret: no list knows the names of all secrets (DATABASE_URL, a proxy
whose address has a password), and what this one lacks still reaches the ranks. Standard library only.
"""

import json
import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

WITHHELD = "BERT_WITHHELD"  # environment variable of the ranks: the launcher's descriptor of the file in memory
BACKUP = "PADDLE_BACKUP_ENV_PATH"  # environment variable of the ranks that Paddle's launcher starts: its backup_env.N
_NEEDED = re.compile(
    r"PATH|HOME|TMPDIR|TZ|LANG|LANGUAGE|GLIBC_TUNABLES|(LC|LD|PADDLE|FLAGS|CUDA|OMP|KMP|MKL|MALLOC)_.*"
)
_OF_PYTHON = re.compile(r"PYTHON(?!OPTIMIZE|WARNINGS).*")  # which end Paddle's launcher at its first import
_SECRET = re.compile("TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|WEBHOOK")  # a company named Paddle has keys too
_DUMP = b"environ({"  # begins the log of Paddle's launcher


def of_launcher(environment: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """The environment of Paddle's launcher, and the descriptor that it must inherit, which the caller closes."""
    needed = {
        name: value
        for name, value in environment.items()
        if (_NEEDED.fullmatch(name) or _OF_PYTHON.fullmatch(name)) and not _SECRET.search(name)
    }
    descriptor = os.memfd_create("environment")
    with open(descriptor, "w", closefd=False, encoding="ascii") as file:
        json.dump({name: value for name, value in environment.items() if name not in needed}, file)
    return needed | {WITHHELD: str(descriptor)}, descriptor


def take_withheld() -> None:
    """In a rank: add the variables that Paddle's launcher was not given. It ends the rank if the launcher has ended."""
    if (descriptor := os.environ.pop(WITHHELD, None)) is not None:
        try:
            values = json.loads(Path(f"/proc/{os.getppid()}/fd/{descriptor}").read_bytes())
        except OSError:
            os._exit(128 + signal.SIGKILL)
        os.environ.update({name: value for name, value in values.items() if name not in os.environ})


def remove_dumps(folder: Path, rank: str = "*", pod: str = "*") -> None:
    """Delete what Paddle's launcher wrote of its environment, of all ranks and starts or of one.

    Args:
        pod: name of a start of the launcher.
    """
    logs = [path for path in folder.glob(f"*.{pod}.log") if path.is_file() and _begins(path, _DUMP)]
    for path in [*folder.glob(f"backup_env.{rank}.json"), *folder.glob(f"envlog.{rank}"), *logs]:
        path.unlink(missing_ok=True)


def _begins(path: Path, text: bytes) -> bool:
    with suppress(OSError), open(path, "rb") as file:
        return file.read(len(text)) == text
    return False

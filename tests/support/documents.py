"""The commands of the documents, and a fresh clone in which they are run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from bert import REPOSITORY

FOLDERS = ("bert", "data", "docs", "scripts", "tests", ".ci")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)


def commands(text: str) -> list[str]:
    """Return the lines of the bash blocks, without their comments."""
    blocks = [block for language, block in FENCE.findall(text) if language == "bash"]
    return [line.split("   #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def fresh_clone(folder: Path) -> Path:
    """Clone the repository with its uncommitted changes; the clone's .venv is the environment of the tests."""
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(folder)], check=True)
    changed = ["git", "diff", "--name-only", "--no-renames", "HEAD"]
    for name in subprocess.run(changed, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.split():
        (folder / name).unlink(missing_ok=True)
        if (REPOSITORY / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)  # which scripts/setup.sh would make
    for machine_code in REPOSITORY.glob("*/**/__pycache__/*.nb?"):  # Numba's; it is used if the sources are the same
        target = folder / machine_code.relative_to(REPOSITORY)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(machine_code, target)
    return folder


_PAGES = sorted([*REPOSITORY.glob("*.md"), *(path for name in FOLDERS for path in (REPOSITORY / name).rglob("*.md"))])
TEXTS = {str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8") for path in _PAGES}
# tests/newcomer/test_afternoon.py runs those of that page.
COMMANDS = list(
    dict.fromkeys(
        line for name, text in TEXTS.items() if name != "docs/tutorials/afternoon.md" for line in commands(text)
    )
)

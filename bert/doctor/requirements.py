"""`python -m bert.doctor.requirements FILE ...`: does this Python have what the requirements files pin?

Standard library only.

Exit code 0 if so; otherwise 1, with the differences on standard error. scripts/setup.sh asks before it makes an
environment of its own.
"""

import importlib.metadata
import re
import sys
from collections.abc import Sequence
from pathlib import Path

SUPPORTED = ((3, 11), (3, 12))  # what constraints.txt has wheels for
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;#]+)")


def pins(requirements_file: Path) -> dict[str, str]:
    """Package -> version, of the file and of those it includes with -r."""
    found: dict[str, str] = {}
    for line in requirements_file.read_text(encoding="utf-8").splitlines():
        if line.startswith("-r "):
            found |= pins(requirements_file.parent / line[3:].strip())
        elif match := _PIN.match(line):
            found[match[1]] = match[2]
    return found


def differences(wanted: dict[str, str]) -> list[str]:
    lines = []
    for package, version in wanted.items():
        try:
            installed = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            installed = "missing"
        if package == "setuptools" and installed != "missing" and int(installed.split(".")[0]) < 81:
            continue  # images come with one of their own, and any that has pkg_resources will do
        if installed != version:
            lines.append(f"{package} is {installed}, wanted {version}")
    return lines


def main(argv: Sequence[str]) -> int:
    if sys.version_info[:2] not in SUPPORTED:
        print(f"Python {sys.version.split()[0]} must be 3.11 or 3.12", file=sys.stderr)
        return 1
    lines = [line for name in argv for line in differences(pins(Path(name)))]
    print("\n".join(lines), end="\n" if lines else "", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Checks that this Python has the packages that requirements files pin: `python -m bert.doctor.requirements FILE ...`.

Uses only the standard library. Exit code 0 if all are there; otherwise 1, with the differences on standard error.
scripts/setup.sh runs it to decide whether to create an environment.
"""

import importlib.metadata
import re
import sys
from collections.abc import Sequence
from pathlib import Path

SUPPORTED = ((3, 11), (3, 12), (3, 13))  # what constraints.txt has wheels for; Paddle 2.6 has none for 3.13
_PIN = re.compile(r'([A-Za-z0-9._-]+)==([^\s;#]+)(?:;python_version(<|>=)"3\.(\d+)")?')


def pins(requirements_file: Path) -> dict[str, str]:
    """Package -> version, of the file and of those it includes with -r."""
    found: dict[str, str] = {}
    for line in requirements_file.read_text(encoding="utf-8").splitlines():
        if line.startswith("-r "):
            found |= pins(requirements_file.parent / line[3:].strip())
        elif (match := _PIN.match(line)) and (match[3] is None or _applies(match[3], int(match[4]))):
            found[match[1]] = match[2]
    return found


def _applies(comparison: str, minor: int) -> bool:
    """Whether this Python is `<` or `>=` 3.minor."""
    return (sys.version_info[1] < minor) == (comparison == "<")


def differences(wanted: dict[str, str]) -> list[str]:
    lines = []
    for package, version in wanted.items():
        try:
            installed = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            installed = "missing"
        if package == "setuptools" and installed != "missing" and int(installed.split(".")[0]) < 81:
            continue  # images bring their own; every version with pkg_resources is good enough
        if installed != version:
            lines.append(f"{package} is {installed}, wanted {version}")
    return lines


def unmet_by_installation(distribution: str = "bert-on-paddle") -> list[str] | None:
    """Requirements of the installed package that the installed versions are not in; None if pip did not install it."""
    try:
        ranges = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    from packaging.requirements import Requirement

    lines = []
    for requirement in map(Requirement, ranges):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue  # of another version of Python
        try:
            installed = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            installed = "missing"
        if installed == "missing" or not requirement.specifier.contains(installed, prereleases=True):
            lines.append(f"{requirement.name} is {installed}, wanted {requirement.specifier}")
    return lines


def main(argv: Sequence[str]) -> int:
    if sys.version_info[:2] not in SUPPORTED:
        print(f"Python {sys.version.split()[0]} must be 3.11, 3.12 or 3.13", file=sys.stderr)
        return 1
    lines = [line for name in argv for line in differences(pins(Path(name)))]
    print("\n".join(lines), end="\n" if lines else "", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The packages of the extras in pyproject.toml, with the versions and hashes of the lock.

scripts/setup.sh runs this file before anything is installed, so it uses only the standard library. `requirements.py
EXTRA ...` checks that this Python has the packages: exit code 0 if so, otherwise 1, with the differences on standard
error. `--locked` checks all that those need too. `--print` prints them as a requirements file for pip.
"""

import importlib.metadata
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

SUPPORTED = ((3, 11), (3, 12), (3, 13))  # what the locks have wheels for; Paddle 2.6 has none for 3.13
_FOLDER = Path(__file__).resolve().parents[2]
_LOCKED = re.compile(
    r"^([\w.-]+)==([^\s;]+)(?: ; ([^\\\n]+?))? \\\n((?:    --hash=\S+(?: \\)?\n)+)    # via (.*)$", re.M
)
_PYTHON = re.compile(r"python_(?:full_)?version ?(<|>=) ?'3\.(\d+)'")


class Locked(NamedTuple):
    version: str
    text: str  # of a requirements file: name, version and hashes
    needed_by: frozenset[str]  # names of packages


def lock_file(extras: Iterable[str]) -> Path:
    """Each version of Paddle has a lock of its own."""
    return _FOLDER / f"lock-paddle{'3.1' if any(extra.startswith('paddle3') for extra in extras) else '2.6'}.txt"


def packages(extras: Sequence[str]) -> dict[str, Locked]:
    """The packages of the extras and all that those need, by name. Paddle's wheel for newer GPUs is in no lock."""
    locked = _read(lock_file(extras))
    chosen = declared(extras).keys() & locked.keys()
    while further := {name for name in locked.keys() - chosen if locked[name].needed_by & chosen}:
        chosen |= further
    return {name: package for name, package in locked.items() if name in chosen}


def pins(extras: Sequence[str]) -> dict[str, str]:
    """Package -> version, of the packages that pyproject.toml names."""
    locked = _read(lock_file(extras))
    return {
        name: locked[name].version if name in locked else requirement.partition("==")[2]
        for name, requirement in declared(extras).items()
    }


def _read(lock: Path) -> dict[str, Locked]:
    entries = {}
    for name, version, marker, hashes, parents in _LOCKED.findall(lock.read_text(encoding="utf-8")):
        if _applies(marker):
            needed_by = frozenset(parent.strip() for parent in parents.split(","))
            entries[name] = Locked(version, f"{name}=={version} \\\n{hashes}", needed_by)
    return entries


def _applies(marker: str) -> bool:
    """Whether a marker holds on Linux with this Python."""
    comparisons = _PYTHON.findall(marker)
    return "win32" not in marker and all(
        (sys.version_info[1] < int(minor)) == (comparison == "<") for comparison, minor in comparisons
    )


def declared(extras: Iterable[str]) -> dict[str, str]:
    """The requirements of the extras in pyproject.toml that hold for this Python, by name as the lock has it."""
    import tomllib  # not in Python 3.10, whose user gets a sentence

    project = tomllib.loads((_FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed: dict[str, str] = {}
    for extra in extras:
        if extra not in project["optional-dependencies"]:
            raise ValueError(f"{extra} must be one of {', '.join(project['optional-dependencies'])}; correct it")
        for requirement in project["optional-dependencies"][extra]:
            name, inner = re.split(r"[^\w.-]", requirement + "[")[:2]
            if name == project["name"]:
                listed |= declared([inner])
            elif _applies(requirement):
                listed[re.sub(r"[-_.]+", "-", name).lower()] = requirement
    return listed


def differences(wanted: dict[str, str]) -> list[str]:
    lines = []
    for package, version in wanted.items():
        installed = installed_version(package)
        if package == "setuptools" and installed is not None and int(installed.split(".")[0]) < 81:
            continue  # images bring their own; every version with pkg_resources is good enough
        if installed != version:
            lines.append(f"{package} is {installed or 'missing'}, wanted {version}")
    return lines


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


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
            continue  # of an extra, or of another version of Python
        installed = installed_version(requirement.name)
        if installed is None or not requirement.specifier.contains(installed, prereleases=True):
            lines.append(f"{requirement.name} is {installed or 'missing'}, wanted {requirement.specifier}")
    return lines


def main(argv: Sequence[str]) -> int:
    if sys.version_info[:2] not in SUPPORTED:
        print(f"Python {sys.version.split()[0]} must be 3.11, 3.12 or 3.13", file=sys.stderr)
        return 1
    extras = [word for word in argv if not word.startswith("--")]
    try:
        if "--print" in argv:
            print("".join(package.text for package in packages(extras).values()), end="")
            return 0
        needed = packages(extras) if "--locked" in argv else {}
        lines = differences(pins(extras) | {name: package.version for name, package in needed.items()})
    except ValueError as error:
        lines = [f"error: {error}"]
    print("\n".join(lines), end="\n" if lines else "", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

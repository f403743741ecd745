"""The packages of the extras in pyproject.toml, and their versions in uv.lock.

scripts/setup.sh runs this file before anything is installed, so it uses only the standard library.
`requirements.py EXTRA ...` checks that this Python has the packages: exit code 0 if so, otherwise
1, with the differences on standard error. Every script runs it at its start, so it reads no
more than it needs.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

SUPPORTED = ((3, 11), (3, 12), (3, 13))  # what uv.lock has wheels for; Paddle 2.6 has none for 3.13
_FOLDER = Path(__file__).resolve().parents[2]
_PACKAGE = re.compile(r'^\[\[package\]\]\nname = "(.+)"\nversion = "(.+)"$', re.MULTILINE)
_PYTHON = re.compile(r"python_(?:full_)?version ?(<|>=) ?'3\.(\d+)'")


def pins(extras: Iterable[str]) -> dict[str, str]:
    """Package -> version in uv.lock, for the packages that pyproject.toml names in the extras."""
    import tomllib  # not in Python 3.10, whose user gets a sentence

    lock = (_FOLDER / "uv.lock").read_text(encoding="utf-8")
    versions = dict(_PACKAGE.findall(lock))
    own = next(text for text in lock.split("[[package]]\n") if text.startswith('name = "bert-on-paddle"\n'))
    named = tomllib.loads(f"[[package]]\n{own}")["package"][0]["optional-dependencies"]
    pinned: dict[str, str] = {}
    for extra in extras:
        if extra == "paddle3-gpu":  # in Paddle's own index alone
            project = tomllib.loads((_FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
            name, version = project["tool"]["bert-on-paddle"][extra].split("==")
            pinned[name] = version
        for package in named.get(extra, ()):
            if _applies(package.get("marker", "")):
                pinned[package["name"]] = package.get("version", versions[package["name"]])
    return pinned


def _applies(marker: str) -> bool:
    """Whether a marker includes this Python version; other parts of the marker select extras."""
    comparisons = _PYTHON.findall(marker)
    return all((sys.version_info[1] < int(minor)) == (comparison == "<") for comparison, minor in comparisons)


def differences(wanted: dict[str, str]) -> list[str]:
    lines = []
    for package, version in wanted.items():
        if _versions_of_folders().get(package) == [version]:
            continue
        installed = installed_version(package)
        if package == "setuptools" and installed is not None and int(installed.split(".")[0]) < 81:
            continue  # images bring their own; every version with pkg_resources is good enough
        if installed != version and (installed is None or package != "pip"):
            lines.append(f"{package} is {installed or 'missing'}, wanted {version}")
    return lines


@cache
def _versions_of_folders() -> dict[str, list[str]]:
    """Package -> versions, from the names of the .dist-info folders (ten times faster than their metadata)."""
    versions: dict[str, list[str]] = {}
    for folder in filter(os.path.isdir, dict.fromkeys(sys.path)):
        for name in os.listdir(folder):
            if name.endswith(".dist-info"):
                package, _, version = name.removesuffix(".dist-info").partition("-")
                versions.setdefault(re.sub(r"[-_.]+", "-", package).lower(), []).append(version)
    return versions


def installed_version(package: str) -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def unmet_by_installation(distribution: str = "bert-on-paddle") -> list[str] | None:
    """Requirements of the installed package that are not met; None if pip did not install it."""
    import importlib.metadata

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
    if "--help" in argv:
        print(__doc__)
        return 0
    if sys.version_info[:2] not in SUPPORTED:
        print(f"Python {sys.version.split()[0]} must be 3.11, 3.12 or 3.13", file=sys.stderr)
        return 1
    lines = differences(pins(argv))
    print("\n".join(lines), end="\n" if lines else "", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

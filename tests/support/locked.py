"""Packages of extras in uv.lock, with all their dependencies."""

import re
import tomllib
from collections.abc import Iterable

from packaging.markers import Marker
from packaging.requirements import Requirement

from bert import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
TABLES = tomllib.loads((REPOSITORY / "uv.lock").read_text(encoding="utf-8"))["package"]


def declared(extras: Iterable[str]) -> dict[str, Requirement]:
    """Return the requirements of the extras in pyproject.toml that hold for this Python, by name."""
    listed = {}
    for extra in extras:
        for line in PROJECT["project"]["optional-dependencies"][extra]:
            requirement = Requirement(line)
            if requirement.name == PROJECT["project"]["name"]:
                listed |= declared(requirement.extras)
            elif requirement.marker is None or requirement.marker.evaluate():
                listed[re.sub(r"[-_.]+", "-", requirement.name).lower()] = requirement
    return listed


def locked(extras: Iterable[str]) -> set[str]:
    """Return names of the packages that `setup.sh EXTRA ...` installs on this Python."""
    (own,) = (table for table in TABLES if table["name"] == PROJECT["project"]["name"])
    found: set[str] = set()
    waiting = [(package, set(extras)) for extra in extras for package in own["optional-dependencies"].get(extra, ())]
    while waiting:
        package, chosen = waiting.pop()
        if not applies(package.get("marker"), chosen):
            continue
        fresh = package["name"] not in found
        found.add(package["name"])
        for table in (table for table in TABLES if table["name"] == package["name"]):
            needed = table.get("dependencies", []) if fresh else []
            for extra in package.get("extra", ()):
                needed = needed + table.get("optional-dependencies", {}).get(extra, [])
            waiting += [(item, chosen) for item in needed]
    return found


def applies(marker: str | None, extras: set[str]) -> bool:
    """uv writes the extras of a conflict as `extra == 'extra-14-bert-on-paddle-gpu'`."""
    if marker is None:
        return True
    known = {f"extra-{len(PROJECT['project']['name'])}-{PROJECT['project']['name']}-{extra}" for extra in extras}
    holds = {True: "sys_platform == 'linux'", False: "sys_platform != 'linux'"}
    return Marker(
        re.sub(r"extra (==|!=) '([^']*)'", lambda m: holds[(m[2] in known) == (m[1] == "==")], marker)
    ).evaluate()

"""Fixtures of the documents' tests: a clone for each group, and the quickstart, which runs once for all.

The groups run beside each other: `pytest -n 2 --dist loadgroup tests/documents`. A test needs only what its fixtures
make, so any file, and any test, runs alone.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents.document import DIVISOR, command
from tests.support import shell
from tests.support.disk_cache import made_once
from tests.support.documents import fresh_clone
from tests.support.warm_python import WarmPython

QUICKSTART = command("bash scripts/run_pretraining.sh")
SECRET = "a-secret-of-these-tests"


@pytest.fixture(scope="session", autouse=True)
def secret() -> Iterator[None]:
    """Put a token into the environment of all commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_TOKEN", SECRET)
        yield


@pytest.fixture(scope="session")
def python() -> Iterator[WarmPython]:
    """Return the interpreter of the clones."""
    with tempfile.TemporaryDirectory() as folder:  # the address of a socket is short
        warm = WarmPython(Path(folder))
        yield warm
        warm.close()


@pytest.fixture(scope="module")
def clone(tmp_path_factory, python) -> Iterator[Path]:
    """Make the clone of a group; at the end no result in it may hold an environment, and no file one of its secrets."""
    folder = fresh_clone(tmp_path_factory.mktemp("documents") / "clone")
    python.use_in(folder)
    yield folder
    if (folder / "results").exists():
        found = shell.run(command("grep -rlE"), folder).stdout.splitlines()
        of_interrupted_runs = [path for path in found if path.endswith("/launch/launcher.log")]
        assert found == of_interrupted_runs  # Paddle's launcher notes there what it was given, which is no secret
        holding = shell.run(f"grep -rl {SECRET} results", folder)
        assert (holding.returncode, holding.stdout) == (1, ""), holding


@pytest.fixture(scope="session")
def quickstart_clone(tmp_path_factory) -> Path:
    """Make clone/, in which the quickstart was stopped by Ctrl-C, continued and typed once more, and outputs.json.

    It has the real interpreter: every start of it is cold.
    """

    def make(folder: Path) -> None:
        clone = fresh_clone(folder / "clone")
        shorter = [f"--phase{phase}-max-steps {steps // DIVISOR}" for phase, steps in ((1, 2500), (2, 500))]
        line = " ".join([QUICKSTART, *shorter]) if DIVISOR > 1 else QUICKSTART
        seen, rest = shell.interrupted(line, clone, "step 20/")
        continued, again = (shell.output_of(line, clone, timeout=1500) for _ in range(2))
        outputs = {"line": line, "seen": seen, "rest": rest, "continued": continued, "again": again}
        (folder / "outputs.json").write_text(json.dumps(outputs))

    return made_once(tmp_path_factory, "quickstart", make)


@pytest.fixture(scope="module")
def quickstart(clone, quickstart_clone) -> dict[str, str]:
    """Put results/quickstart into the clone; return the command's output, by moment."""
    shutil.copytree(quickstart_clone / "clone/results/quickstart", clone / "results/quickstart", dirs_exist_ok=True)
    return json.loads((quickstart_clone / "outputs.json").read_text())

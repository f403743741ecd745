"""Row 26: files and names that would run code, write elsewhere or fill the disk."""

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from tests.faults.harness import Row, Trials
from tests.faults.rows_suites import REPOSITORY, suite


class Calls:
    """Pickles to a call of `function(*arguments)`, as a hostile file holds one."""

    def __init__(self, function: Any, *arguments: Any):
        self._call = (function, arguments)

    def __reduce__(self):
        return self._call


def payloads(marker: Path) -> dict[str, Any]:
    """Objects whose unpickling would create `marker`."""
    import builtins
    import os
    import shutil

    code = f"open({str(marker)!r}, 'w').close()"
    return {
        "os.system": Calls(os.system, f"touch {marker}"),
        "os.popen": Calls(os.popen, f"touch {marker}"),
        "subprocess.call": Calls(subprocess.call, ["touch", str(marker)]),
        "subprocess.Popen": Calls(subprocess.Popen, ["touch", str(marker)]),
        "exec": Calls(builtins.exec, code),
        "eval": Calls(builtins.eval, f"open({str(marker)!r}, 'w').close()"),
        "open": Calls(builtins.open, str(marker), "w"),
        "Path.touch": Calls(Path.touch, marker),
        "shutil.copy": Calls(shutil.copy, __file__, str(marker)),
        "os.mkdir": Calls(os.mkdir, str(marker)),
        "a call inside a call": Calls(builtins.len, Calls(os.system, f"touch {marker}")),
        "among tensors": {"bert.pooler.dense.bias": [1.0], "hidden": Calls(os.system, f"touch {marker}")},
    }


def hostile_pickles(trials: Trials) -> None:
    """As .pdparams, as torch.save's zip file and as its older form: refused, and nothing was called."""
    from bert.conversion.reading import read_pretrained

    for form in ("model_state.pdparams", "pytorch_model.bin", "legacy.bin"):
        for name in payloads(trials.folder / "x"):
            folder = trials.folder / f"{form}-{name.replace(' ', '-')}"
            folder.mkdir()
            marker = folder / "executed"
            data = pickle.dumps(payloads(marker)[name], protocol=2)
            path = folder / form.replace("legacy", "pytorch_model")
            if form == "pytorch_model.bin":
                with zipfile.ZipFile(path, "w") as archive:
                    archive.writestr("archive/data.pkl", data)
                    archive.writestr("archive/version", "3\n")
            else:
                path.write_bytes(data)
            with trials.trial(f"{form}: {name}"):
                try:
                    read_pretrained(path)
                except ValueError as error:
                    assert form.split(".")[0].replace("legacy", "pytorch_model") in str(error), error
                else:
                    raise AssertionError("it was read")
                assert not marker.exists(), "it was executed"


def hostile_names(trials: Trials) -> None:
    """Names of folders and runs that a shell would take for commands."""
    names = ["x; touch executed", "$(touch executed)", "`touch executed`", "x && touch executed", "-rf", "x\n touch y"]
    script = str(REPOSITORY / "scripts/run_pretraining.sh")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    for number, name in enumerate(names):
        folder = trials.folder / f"names{number}"
        folder.mkdir()
        with trials.trial(repr(name)):
            subprocess.run(
                ["bash", script, f"--output-dir={name}", "--dry-run"],
                cwd=folder,
                capture_output=True,
                env={"PATH": path, "HOME": str(folder), "BERT_PYTHON": sys.executable},
                timeout=120,
            )
            assert not list(folder.rglob("executed")) and not (REPOSITORY / "executed").exists(), "it was executed"


def hostile_files(trials: Trials) -> None:
    hostile_pickles(trials)
    hostile_names(trials)
    suite("data/test_download_sets.py", "conversion/test_hostile.py", only="hostile or longer_than_it_says or damage")(
        trials
    )


ROWS = [
    Row(
        26,
        "hostile pickles, archives and names",
        "blocked: nothing is called, nothing written",
        hostile_files,
        50,
        50,
        ("pickles are loaded",),
        slow=True,
    )
]

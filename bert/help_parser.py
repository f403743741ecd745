"""The argument parser of all commands: its help names commands as they work in the reader's folder."""

import argparse
import sys
from pathlib import Path
from typing import Any

from bert.interpreter import runnable


class HelpParser(argparse.ArgumentParser):
    """ArgumentParser whose usage and help can be typed as they are printed."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        settings["prog"] = runnable(_documented(settings.get("prog")))
        super().__init__(**settings)

    def format_help(self) -> str:
        return runnable(super().format_help())


def _documented(name: str | None) -> str:
    """The command as the documents write it; None: the module that runs."""
    if name is None:
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        return f"python -m {spec.name.removesuffix('.__main__')}" if spec else Path(sys.argv[0]).name
    return {".py": f"python {name}", ".sh": f"bash scripts/{name}"}.get(Path(name).suffix, name)

"""The argument parser of all commands: its usage names the command as it runs in the reader's folder."""

import argparse
import sys
from typing import Any, NoReturn

from bert.interpreter import shell_command


class HelpParser(argparse.ArgumentParser):
    """ArgumentParser whose `prog` is the start of a `shell_command`; none: the module that runs."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        if "prog" not in settings:
            spec = getattr(sys.modules["__main__"], "__spec__", None)
            settings["prog"] = spec.name.removesuffix(".__main__") if spec else sys.argv[0]
        settings["prog"] = shell_command(settings["prog"])
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        """End in one line, as after other mistakes, with exit code 2."""
        self.exit(2, f"error: {message}; see --help\n")

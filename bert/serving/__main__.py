"""Command line of the server: `python -m bert.serving MODEL`."""

import importlib.util
import sys
from collections.abc import Sequence

from bert.config.setting_errors import usage_errors
from bert.interpreter import install_command
from bert.parent_death import end_with_caller
from bert.serving.settings import parse_settings

PACKAGES = ("fastapi", "fastapi_offline", "uvicorn", "prometheus_client")  # modules of the extra serve


def main(argv: Sequence[str] | None = None) -> int:
    end_with_caller()
    with usage_errors():
        settings = parse_settings(argv)
        if missing := [name.replace("_", "-") for name in PACKAGES if importlib.util.find_spec(name) is None]:
            raise ValueError(f"the server needs {', '.join(missing)}, not installed here; {install_command('serve')}")
        from bert.serving.running import run

        return run(settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())

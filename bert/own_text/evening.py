"""`bash scripts/run_pretraining.sh --config evening`: the command line of its training on own text."""

import os
from pathlib import Path
from typing import Any

from bert.launching.arguments import CommandLine
from bert.pretraining.recipes import evening
from data.examples import documentation


def own_text_line(line: CommandLine) -> CommandLine:
    """The command line of the training on own text; without --text the documentation is collected first."""
    launch = {name: value for name, value in line.launch.items() if name != "config"}
    has_length = not {*launch, *line.training}.isdisjoint(("hours", "epochs", "max_steps"))
    if "text" in launch:
        return line._replace(launch={**({} if has_length else {"hours": evening.HOURS}), **launch})
    output_dir = Path(line.training.get("output_dir", evening.OUTPUT_DIR))
    launch = {"config": evening.MODEL, "text": [str(_documentation(output_dir / "documentation"))], **launch}
    training: dict[str, Any] = {"output_dir": str(output_dir), **evening.FLAGS}
    if "vocab_file" in line.training:
        del training["vocab_size"]
    if not has_length:
        training["max_steps"] = evening.MAX_STEPS
    return line._replace(launch=launch, training={**training, **line.training})


def _documentation(folder: Path) -> Path:
    """The documentation of this machine as a file of documents; collected once."""
    file = folder / documentation.FILE_NAME
    if not file.exists():
        print("collecting the documentation of this machine ...", flush=True)
        roots = documentation.default_roots()
        report = documentation.build(folder, roots, num_workers=os.cpu_count() or 1)
        print(documentation.summary(report), flush=True)
    return file

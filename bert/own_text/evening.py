"""`bash scripts/run_pretraining.sh --config evening`: the command line of its training on own text."""

import os
from collections.abc import Sequence
from pathlib import Path

from bert.config.flags import flag_name
from bert.launching.arguments import split_phases, split_positional
from bert.launching.pretraining_plan import launcher_parser
from bert.pretraining.recipes import evening
from data.examples import documentation


def own_text_words(argv: Sequence[str]) -> list[str]:
    """The command line of the training on own text; without --text the documentation is collected first."""
    positional, words = split_positional(argv)
    parser = launcher_parser()
    parser.add_argument("--epochs", metavar="N")
    launcher, rest = parser.read(words)
    common, phases = split_phases(rest, parser.names())
    given = {*launcher, *common}
    has_length = not given.isdisjoint(("hours", "epochs", "max_steps"))
    if "text" in launcher:
        flags = {} if has_length else {"hours": evening.HOURS}
        return [*positional, *_with_config(words, []), *_words(flags, given)]
    output_dir = Path(common.get("output_dir", evening.OUTPUT_DIR))
    flags = {"output_dir": str(output_dir), "text": str(_documentation(output_dir / "documentation"))}
    flags |= {name: value for name, value in evening.FLAGS.items() if "vocab_file" not in given or name != "vocab_size"}
    for phase, values in evening.PHASE_FLAGS.items():
        if common.get("phase", phase) == phase:
            kept = {name: value for name, value in values.items() if name not in {*given, *phases[phase]}}
            if has_length:
                kept.pop("max_steps", None)
            flags |= {f"phase{phase}_{name}": value for name, value in kept.items()}
    return [*positional, *_with_config(words, ["--config", evening.MODEL]), *_words(flags, given)]


def _documentation(folder: Path) -> Path:
    """The documentation of this machine as a file of documents; collected once."""
    file = folder / documentation.FILE_NAME
    if not file.exists():
        print("collecting the documentation of this machine ...", flush=True)
        roots = documentation.default_roots()
        report = documentation.build(folder, roots, num_workers=os.cpu_count() or 1)
        print(documentation.summary(report), flush=True)
    return file


def _words(flags: dict[str, str], given: set[str]) -> list[str]:
    return [word for name, value in flags.items() if name not in given for word in (flag_name(name), value)]


def _with_config(words: Sequence[str], config: Sequence[str]) -> list[str]:
    """The words with others in place of `--config evening`."""
    kept: list[str] = []
    for word in words:
        if kept and (kept[-1], word) == ("--config", evening.NAME):
            kept[-1:] = config
        elif word == f"--config={evening.NAME}":
            kept += config
        else:
            kept.append(word)
    return kept

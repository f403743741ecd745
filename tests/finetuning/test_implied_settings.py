"""Settings that follow from others."""

from pathlib import Path

import pytest

from bert.config.command_line import parse_flags
from bert.config.setting_sources import resolve_config
from bert.finetuning.glue.config import ENTRY as GLUE
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.squad.config import ENTRY as SQUAD

_FILES = {
    "run_glue.py": ["--task-name", "custom", "--predict-file", "new.tsv"],
    "run_ner.py": ["--predict-file", "new.conll"],
    "run_squad.py": ["--predict-file", "new.json"],
}


@pytest.mark.parametrize("entry", [GLUE, NER, SQUAD], ids=lambda entry: entry.script)
@pytest.mark.parametrize(
    ("words", "cache_dir"),
    [
        (["--output-dir", "elsewhere/out"], Path("elsewhere/out/features")),
        (["--output-dir", "elsewhere/out", "--cache-dir", "kept"], Path("kept")),
        (["--output-dir", "elsewhere/out", "--cache-dir", "none"], None),
        ([], Path("results/features")),
    ],
)
def test_the_cache_of_features_stands_in_the_output_folder(entry, words, cache_dir):
    """A prediction with its own --output-dir leaves nothing in the current folder."""
    flags = parse_flags(["--do-predict", "--vocab-file", "vocab.txt", *_FILES[entry.script], *words], entry)
    assert resolve_config(flags, entry).data.cache_dir == cache_dir

"""Every default of NVIDIA's run_pretraining.py and run_squad.py, compared with ours; the page names each difference."""

import re

import pytest

from bert import REPOSITORY
from bert.config.command_line import parse_arguments
from bert.finetuning.squad.config import ENTRY as squad
from bert.pretraining.entry import ENTRY as pretraining

BOTH = {
    "bert-model": "bert-large-uncased",
    "config-file": None,
    "log-freq": 10,
    "num-steps-per-checkpoint": 100,
    "from-pretrained-params": None,
    "from-checkpoint": None,
    "last-step-of-checkpoint": None,
    "seed": 42,
    "report-file": "report.json",
    "model-prefix": "bert_paddle",
    "show-config": True,
    "enable-cpu-affinity": True,
    "benchmark": False,
    "benchmark-steps": 20,
    "benchmark-warmup-steps": 20,
    "optimizer": "Lamb",
    "gradient-merge-steps": 1,
    "learning-rate": 1e-4,
    "warmup-start-lr": 0.0,
    "warmup-proportion": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-6,
    "weight-decay": 0.01,
    "max-seq-length": 512,
    "amp": False,
    "scale-loss": 1.0,
    "use-dynamic-loss-scaling": False,
    "use-pure-fp16": False,
    "fuse-mha": False,
}
PRETRAINING, SQUAD = "run_pretraining.py", "run_squad.py"
ENTRIES = {PRETRAINING: pretraining, SQUAD: squad}
THEIRS = {  # but for the flags that are required there: input-dir, vocab-file, output-dir, of pre-training max-steps
    PRETRAINING: {
        **BOTH,
        "num-workers": 1,
        "from-phase1-final-params": None,
        "steps-this-run": None,
        "batch-size": 32,
        "max-predictions-per-seq": 80,
    },
    SQUAD: {
        **BOTH,
        "train-file": None,
        "eval-script": "evaluate.py",
        "epochs": 3,
        "max-steps": -1,  # as their script passes it; none means the same
        "do-train": False,
        "do-eval": False,
        "train-batch-size": 32,
        "predict-batch-size": 8,
        "verbose-logging": False,
        "doc-stride": 128,
        "max-query-length": 64,
        "n-best-size": 20,
        "max-answer-length": 30,
        "do-lower-case": False,
        "version-2-with-negative": False,
        "null-score-diff-threshold": 0.0,
    },
}
NEEDED = {
    PRETRAINING: "--phase2 --max-steps 9 --input-dir shards --vocab-file v.txt --output-dir out".split(),
    SQUAD: "--do-predict --predict-file dev.json --vocab-file v.txt --output-dir out".split(),
}
EXAMPLES = {  # of flags without a default
    "config-file": "bert_configs/bert-large-uncased.json",
    "from-pretrained-params": "weights",
    "from-checkpoint": "weights",
    "from-phase1-final-params": "weights",
    "last-step-of-checkpoint": "auto",
    "steps-this-run": "5",
    "train-file": "train.json",
}
WITH = {"last-step-of-checkpoint": ["--from-checkpoint", "weights"], "use-pure-fp16": ["--amp"]}
ALIASES = {"train-batch-size": "batch_size"}
EACH_SCRIPT = pytest.mark.parametrize("script", THEIRS)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    return tmp_path


def settings(script, *words: str) -> dict:
    values = {}
    for _, section in parse_arguments(ENTRIES[script], [*NEEDED[script], *words]):
        values |= dict(section)
    return values


def shown(value) -> str:
    """Return a value as the document shows it."""
    if isinstance(value, (bool, type(None))):
        return {True: "on", False: "off", None: "none"}[value]
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def differences(script) -> dict[str, tuple[str, str]]:
    """Return (theirs, ours) by flag."""
    ours = settings(script) | {"config_file": None, "show_config": False}  # flags that are no settings
    pairs = {
        flag: (shown(value), shown(ours[ALIASES.get(flag, flag.replace("-", "_"))]))
        for flag, value in THEIRS[script].items()
    }
    return {flag: pair for flag, pair in pairs.items() if pair[0] != pair[1]}


def documented(script) -> dict[str, tuple[str, str]]:
    text = (REPOSITORY / "docs/from_nvidia.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `--([\w-]+)` \| (.*?) \| (.*?) \| (.*?) \| .+ \|$", text, re.M)
    return {flag: (theirs, ours) for flag, scripts, theirs, ours in rows if scripts in ("both", f"`{script}`")}


@EACH_SCRIPT
def test_the_document_names_every_default_that_differs_and_no_other(script):
    assert documented(script) == differences(script)


@EACH_SCRIPT
def test_each_flag_is_typed_with_its_default(script):
    for flag, value in THEIRS[script].items():
        words = [f"--{flag}"] if value is False else [f"--{flag}", str(EXAMPLES.get(flag, value))]
        values = settings(script, *words, *WITH.get(flag, []))
        if flag not in ("config-file", "show-config"):  # which are no settings
            typed = True if value is False else EXAMPLES.get(flag, value)
            assert shown(values[ALIASES.get(flag, flag.replace("-", "_"))]) == shown(typed), flag

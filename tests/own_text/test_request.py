"""The command line of a training on the user's text: the request, and contradictions."""

import re
from pathlib import Path

import pytest

from bert.commands.pretrain import parse_launch_arguments
from bert.config.setting_errors import explain
from bert.own_text.request import read_text_request
from tests.support.launching import line_of

REFUSED = {
    "256 --text t": "--text contradicts the positional argument 256; drop it",
    "--text t --input-dir x": "--input-dir contradicts --text, which makes its own shards",
    "--text t --phase2-learning-rate 1": "--phase2-learning-rate contradicts .*; pass --learning-rate",
    "--text t --wikipedia-source x": "--wikipedia-source contradicts --text",
    "--text t --from-checkpoint x": "--from-checkpoint contradicts --text, which resumes by itself",
    "--text t --num-nodes 2": "--num-nodes contradicts --text, which trains on one machine",
    "--text t --plan": "--plan needs --hardware, such as --hardware 8xA100-80GB",
    "--text t --hardware 8xT4 --dry-run": "--hardware=8xT4 is for --plan; add --plan, or drop it",
    "--text t --plan --hardware T4 --mean-padded-length 9": "--mean-padded-length contradicts --text, .*; drop it",
    "--text t --benchmark --dry-run": "--benchmark contradicts --text, .*; drop it",
    "--words 5k": "--words 5k is for a plan; pass --plan --hardware 8xA100-80GB, or --dry-run, with it",
    "--words 5k --text t --dry-run": "--words 5k stands for text that is not there, and --text names some; drop",
    "--words 5k --config evening --dry-run": "--words 5k .*--config evening collects some; drop one",
    "--words few --dry-run": "words=few must be a number of words above 0, such as 120M",
    "--text t --phase2": "--phase2 contradicts --text, which trains in one phase",
    "--text t --hours 1 --epochs 2": "--hours=1 and --epochs=2 both decide how long to train; give one of them",
    "--text t --max-steps 0": "max_steps=0 must be at least 1",
    "--text t --hours soon": "hours=soon must be a valid number, .*; change --hours",
    "--text t --config smal": "config=smal with --text must be the size of a model; did you mean small",
    "--text t --bert-model bert-tiny": "bert_model=bert-tiny with --text must be one of",
    "--text t --from-pretrained-params x --config mini": "--config contradicts --text",
    "--text t --learning-rate fast": "learning_rate",
    "--text t --masked-lm-ratio inf": "masked_lm_ratio=inf must be a finite number; change --masked-lm-ratio",
    "--text t --epochs inf": "epochs=inf must be a finite number; change --epochs",
    "--text t --report-to wandb,board": "report_to=wandb,board must be none, or names of",
    "--text t --loss-spike-factor 0.5": "loss_spike_factor=0.5 must be above 1, or 0 to turn it off",
    "--text t --finish-in soon": "finish_in=soon must be a duration above 0: 90, 90s, 10m or 2h",
    "--text t --held-out-fraction 0.9": "held_out_fraction=0.9 must be less than or",
    "--text t --held-out-fraction 0 --early-stopping 3": "early_stopping=3 needs held-out text",
    "--text t --lerning-rate 1": "did you mean --learning-rate",
    "--text .": r"output_dir=.* lies in --text \., whose files are all read; pass --output-dir",
    "--text t --encoding utf9": "encoding='utf9' is not known to Python",
    "--text t --document-separator paragraph": "document_separator=paragraph must be one of",
    "--text t --replay-share 1": "replay_share=1 must be less than or equal to 0.9",
    "--text t --word-segmenter jeiba": "must be one of auto, jieba, icu, syllables, none; did you mean jieba",
    "--text t --lang EN": "language='EN' must be a code",
    "--text a=0.7:T b=0.2:U": r"the weights a=0.7 \+ b=0.2 are 0.9 together and must be 1; change them",
    "--text a=0.7:T a=0.3:U": "text=a=0.3:U: the name a is used twice; pass another",
    "--text a=0.7:T b=0.3:V": "text=b=0.3:V: no such file or folder: V",
    "--text a=0.7:T U": "text=U has no weight, the others have; pass --text NAME=WEIGHT:PATH for each",
    "--text a=0:T b=1:U": "the weight '0' must be above 0 and at most 1",
    "--text a=much:T b=1:U": "the weight 'much' must be above 0",
    "--text replay=1:T": "the name replay means something else here",
    "--text a=0.7:T b=0.3:T/in": "b=T/in lies in a=T; give each source files of its own",
    "--text T --replay-share 0.2": "replay_share=0.2 is a share of --replay PATH; pass it too, or drop it",
    "--text T --replay U": "--replay is for --from-pretrained-params",
}


def test_contradictions_are_refused_with_the_rule_and_the_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("T/in", "U"):
        (tmp_path / name).mkdir(parents=True)
    wrong = []
    for words, message in REFUSED.items():
        try:
            wrong.append((words, read_text_request(line_of(*words.split()))))
        except ValueError as refused:
            shown = "\n".join(explain(refused))
            wrong += [] if re.search(message, shown) else [(words, shown)]
    assert not wrong
    with pytest.raises(ValueError, match="names no file or folder"):
        read_text_request(line_of("--text", ""))
    with pytest.raises(ValueError, match="--deduplicate is for own text; pass --text FOLDER with it, or drop it"):
        parse_launch_arguments(["--deduplicate", "near"])


def test_results_have_the_name_of_the_text():
    assert read_text_request(line_of("--text", "my texts/")).output_dir == Path("results/my-texts")


def test_text_that_is_named_twice_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x=0.5:y").mkdir()
    request = read_text_request(line_of("--text", "one", "two", "--text", "x=0.5:y"))
    assert [str(path) for path in request.paths()] == ["one", "two", "x=0.5:y"]


@pytest.mark.parametrize(
    ("words", "longer"),
    [
        ("my-text --hours 2 --seed 3", "my-text --seed 3 --hours 4"),
        ("t --max-steps=20 --finish-in 5m --steps-this-run=3", "t --max-steps 40"),
        ("t --max_steps 20 --finish_in 5m", "t --max-steps 40"),
        ("myhours --seed 3", "myhours --seed 3 --hours 4"),
        ("t --epochs 2.5 --seed 3", "t --seed 3 --epochs 5"),
    ],
)
def test_the_suggestion_to_train_longer_keeps_the_other_words(words, longer):
    request = read_text_request(line_of("--text", *words.split()))
    assert request.longer(2.0) == f"bash scripts/run_pretraining.sh --text {longer}"


def test_the_recipe_s_updates_are_replaced_by_hours():
    assert read_text_request(line_of("--config", "evening")).longer(2.0).endswith("--config evening --hours 4")
    asked = line_of("--config", "evening", "--max-steps", "9000")
    assert read_text_request(asked).longer(2.0).endswith("--config evening --max-steps 18000")


def test_only_show_config_shows_the_settings_alone():
    assert read_text_request(line_of("--text", "t", "--show-config")).shows_config
    assert not read_text_request(line_of("--text", "t", "--dry-run")).shows_config


def test_all_mistakes_of_a_line_are_shown_together(tmp_path, monkeypatch):
    """The mistakes: an unknown flag, no number, a contradiction, an unknown choice, a setting of a phase."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "T").mkdir()
    words = "--text T --lerning-rate 1 --learning-rate fast --input-dir shards --deduplicate some --phase1-seed 3"
    with pytest.raises(ValueError) as refused:
        read_text_request(line_of(*words.split(), "--hours", "-1", "--warmup-proportion", "much"))
    shown = explain(refused.value)
    expected = (
        "--lerning-rate is not a flag",
        "--phase1-seed contradicts --text",
        "--input-dir contradicts --text",
        "deduplicate=some must be one of",
        "hours=-1 must be greater than 0",
        "learning_rate=fast must be a valid number",
        "warmup_proportion=much must be a valid number",
    )
    assert len(shown) == len(expected), shown
    assert all(line.startswith(start) for line, start in zip(shown, expected, strict=True)), shown


@pytest.mark.parametrize("line", REFUSED)
def test_a_remedy_is_never_what_was_typed(tmp_path, monkeypatch, line):
    """A remedy that names a flag without a value must name a new flag."""
    monkeypatch.chdir(tmp_path)
    for name in ("T/in", "U"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(ValueError) as error:
        read_text_request(line_of(*line.split()))
    remedies = re.findall(r"(?:pass|add) (--[\w-]+)(?! [\w<])", "; ".join(explain(error.value)))
    assert not set(remedies) & set(line.split()), error.value


@pytest.mark.parametrize(
    ("typed", "words"), [("120M", 120_000_000), ("1.5b", 1_500_000_000), ("25k", 25_000), ("120,000", 120_000)]
)
def test_words_of_a_plan_are_a_number(typed, words):
    request = read_text_request(line_of(*f"--words {typed} --plan --hardware 8xA100-80GB --price-per-hour 3".split()))
    assert request.assumed_words == words and request.elsewhere.price_per_hour == 3
    assert str(request.output_dir) == "results/text"


def test_one_node_is_one_machine():
    """Launchers of clusters always say how many nodes there are."""
    read_text_request(line_of(*"--text t --num-nodes 1 --node-rank 0".split()))

"""Missing shards are made once, by the commands of data/."""

import pytest

from bert.commands.pretrain import parse_launch_arguments
from bert.pretraining.preparation import Steps, prepare_data


def test_a_step_that_failed_or_changed_is_repeated(tmp_path):
    codes, product = iter([3, 0, 0]), tmp_path / "product"
    ran = []

    def run(words):
        ran.append(words)
        product.write_text("")
        return next(codes)

    steps = Steps(tmp_path / "prepared.json", run)
    assert steps.step("title", ["make", "1"], product) == 3
    assert steps.step("title", ["make", "1"], product) == 0
    assert steps.step("title", ["make", "1"], product) == 0
    assert steps.step("title", ["make", "2"], product) == 0
    assert ran == [["make", "1"], ["make", "1"], ["make", "2"]]
    (tmp_path / "prepared.json").write_text("{cut")
    codes = iter([0])
    assert steps.step("title", ["make", "2"], product) == 0 and len(ran) == 4


def test_what_was_made_from_a_product_made_anew_is_made_anew(tmp_path):
    ran = []

    def run(words):
        ran.append(words[-1])
        (tmp_path / words[-1]).parent.mkdir(exist_ok=True)
        (tmp_path / words[-1]).write_text("")
        return 0

    def make_all(version):
        steps = Steps(tmp_path / "prepared.json", run)
        for command in (["corpus", version, "text"], ["preprocess", "shards/manifest.json"]):
            assert steps.step("title", command, tmp_path / command[-1]) == 0

    make_all("1")
    make_all("1")
    assert ran == ["text", "shards/manifest.json"]
    (tmp_path / "shards/of-the-old-text.parquet").write_text("")
    make_all("2")
    assert ran == ["text", "shards/manifest.json"] * 2
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["manifest.json"]


def test_another_source_makes_everything_again(tmp_path):
    ran = []

    def run(command):
        (tmp_path / "text").write_text("")
        return ran.append(command) or 0

    for source in ("files of Monday", "files of Monday", "files of Tuesday"):
        Steps(tmp_path / "prepared.json", run, source).step("title", ["import"], tmp_path / "text")
    assert len(ran) == 2


def test_a_step_without_its_product_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="should exist after `make`"):
        Steps(tmp_path / "prepared.json", lambda words: 0).step("title", ["make"], tmp_path / "product")


def test_missing_shards_are_made_from_wikipedia(tmp_path, capsys):
    source = tmp_path / "wikipedia"
    plan = parse_launch_arguments([*["-"] * 16, str(tmp_path / "one"), str(tmp_path / "two"), "-", "-", str(source)])
    with pytest.raises(ValueError, match="has no shards and wikipedia_source=.* no text to make them from; pass"):
        prepare_data(plan, plan.phases[0], lambda words: 0)
    source.mkdir()
    (source / "0.txt").write_text("wiki-1 text")
    commands = []
    for config in plan.phases:
        prepare_data(plan, config, lambda words: commands.append(" ".join(words)) or 0)
    for text in ("--target-seq-length 128", "--num-shards 4096", "--sample-ratio 0.9", "--seed 12439", "--masking"):
        assert text in commands[0]
    assert "--bin-size" not in commands[0] and "--bin-size 64" in commands[1]
    assert "--target-seq-length 512" in commands[1] and "--max-predictions-per-seq 80" in commands[1]
    assert "--masked-lm-ratio" not in commands[0]


@pytest.mark.parametrize(("masking", "flags"), [("static", "40 --masked-lm-ratio 0.3"), ("dynamic", None)])
def test_shards_have_the_share_of_masked_tokens_that_the_training_predicts(tmp_path, masking, flags):
    words = ["--config", "large", "--masked-lm-ratio", "0.3", "--masking", masking, "--phase1-input-dir", "none"]
    plan = parse_launch_arguments([*words, "--wikipedia-source", str(tmp_path)])
    (tmp_path / "0.txt").write_text("wiki-1 text")
    commands = []
    prepare_data(plan, plan.phases[0], lambda words: commands.append(" ".join(words)) or 0)
    assert plan.phases[0].data.max_predictions_per_seq == 40
    assert f"--max-predictions-per-seq {flags}" in commands[0] if flags else "--masked-lm-ratio" not in commands[0]


def test_missing_held_out_shards_are_an_error_before_the_training_shards_are_made(tmp_path):
    (tmp_path / "wikipedia").mkdir()
    (tmp_path / "wikipedia/0.txt").write_text("wiki-1 text")
    flags = ["--wikipedia-source", str(tmp_path / "wikipedia"), "--input-dir", str(tmp_path / "shards")]
    plan = parse_launch_arguments(["--config", "quickstart_phase1", *flags, "--eval-dir", str(tmp_path / "held_out")])
    with pytest.raises(ValueError, match=r"eval_dir=.*/held_out has no shards, .*--eval-dir none"):
        prepare_data(plan, plan.phases[0], lambda words: 1 / 0)
    plan = parse_launch_arguments(["--config", "quickstart_phase1", *flags, "--eval-dir", "none"])
    assert prepare_data(plan, plan.phases[0], lambda words: 0) == 0


def test_shards_that_are_there_are_not_made_unless_unfinished(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one/part.0.parquet").write_text("")
    plan = parse_launch_arguments([*["-"] * 16, str(tmp_path / "one")])
    assert prepare_data(plan, plan.phases[0], lambda words: 1 / 0) == 0
    (tmp_path / "one/.unfinished").mkdir()
    with pytest.raises(ValueError, match="no text to make them from"):
        prepare_data(plan, plan.phases[0], lambda words: 0)
    (tmp_path / "one/manifest.json").write_text("{}")  # vouches for all; only tidying up was left to do
    assert prepare_data(plan, plan.phases[0], lambda words: 1 / 0) == 0


def test_an_unset_variable_is_named(monkeypatch):
    monkeypatch.delenv("BERT_PREP_WORKING_DIR", raising=False)
    plan = parse_launch_arguments(["256"])
    with pytest.raises(ValueError, match="set BERT_PREP_WORKING_DIR"):
        prepare_data(plan, plan.phases[0], lambda words: 0)

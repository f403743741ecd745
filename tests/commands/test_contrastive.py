"""Tests of run_classify.sh --contrastive-start: the encoder trains on pairs of equal class, then the classifier."""

import json
import shlex

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert.commands import classify
from bert.commands.__main__ import main
from bert.config.plain_yaml import read_yaml
from bert.jobs.training import trainings
from tests.glue.test_glue import WORDS, weights  # noqa: F401
from tests.support.commands import refused


def write_lines(path, number: int = 40) -> None:
    """Write lines whose class is the half of the vocabulary from which their words come."""
    rng, rows = np.random.RandomState(1), ["words,kind"]
    for line in range(number):
        half = WORDS[: len(WORDS) // 2] if line % 2 else WORDS[len(WORDS) // 2 :]
        rows.append(f"{' '.join(rng.choice(half, 5))},{('calm', 'late')[line % 2]}")
    path.write_text("\n".join(rows) + "\n")


def words_of(folder, weights) -> list[str]:  # noqa: F811
    return shlex.split(
        f"--train {folder}/lines.csv --model {weights} --max-seq-length 16 --epochs 2 --device cpu --no-visualdl "
        f"--num-processes 1 --output-dir {folder}/out --peak-tflops 1 --contrastive-start"
    )


def test_the_steps_of_the_job_and_what_the_pairs_have_from_the_classifier(weights, tmp_path, capsys):  # noqa: F811
    write_lines(tmp_path / "lines.csv")
    words = [*words_of(tmp_path, weights), "--seed", "7", "--learning-rate", "1e-3"]
    job = classify.planned([*words, "--hours", "0.5"]).job
    first, second = trainings(job)
    assert (first.config.run.output_dir, first.config.run.seed) == (tmp_path / "out/contrastive", 7)
    assert (first.config.run.do_eval, first.config.run.epochs, first.config.run.max_steps) == (False, 1, -1)
    assert first.config.optimizer.learning_rate == pytest.approx(4e-4)
    assert first.config.optimizer.lr_schedule == second.config.optimizer.lr_schedule == "wsd"
    assert (first.config.model, first.config.initialization) == (second.config.model, second.config.initialization)
    assert second.start == {"from_pretrained_params": first.config.checkpoint_dir()}
    assert (first.share, second.share) == (0.25, 1)
    assert job.steps[-1].training == second
    ranks = classify.planned([*words, "--num-processes", "2"]).job
    assert trainings(ranks)[0].config.batch.batch_size == 16  # of 32 pairs of a batch, on two ranks
    assert main(["classify", *words, "--epochs", "99999999", "--hours", "0.01", "--dry-run"]) == 0
    shown = capsys.readouterr().out.replace("\n  ", " ")
    assert " 29 seconds, in which about" in shown  # of 36: the pairs have a quarter of the classifier's time
    assert f"2. training the encoder on pairs of equal class: {tmp_path}/out/contrastive/" in shown
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("--cross-validate 3", "--contrastive-start and --cross-validate exclude each other; omit one of them"),
        ("--regression --label-column size", "the labels are numbers; omit --contrastive-start"),
        ("--label-separator ;", "a text may have several labels; omit --contrastive-start"),
        ("--text-pair-column other", "the lines have two texts; omit --contrastive-start"),
    ],
)
def test_what_has_no_pairs_of_equal_class_is_refused(more, reason, weights, tmp_path):  # noqa: F811
    (tmp_path / "lines.csv").write_text("words,other,kind,size\n" + "a b,c,calm,1\nc d,e,late,2\n" * 9)
    columns = "--text-column words" + ("" if "label-column" in more else " --label-column kind")
    with refused(reason):
        main(["classify", *words_of(tmp_path, weights), *shlex.split(columns), *shlex.split(more), "--dry-run"])


@pytest.mark.long
def test_the_classifier_begins_with_the_encoder_of_the_pairs_and_a_second_start_keeps_it(
    weights,  # noqa: F811
    tmp_path,
    capfd,
):
    write_lines(tmp_path / "lines.csv")
    words, out = words_of(tmp_path, weights), tmp_path / "out"
    assert main(["classify", *words]) == 0
    pairs = [json.loads(line) for line in (out / "contrastive/pairs.jsonl").read_text().splitlines()]
    figures = json.loads((out / "contrastive/vectors/summary.json").read_text())
    assert figures["finished"] and figures["steps"] == -(-len(pairs) // 32)
    encoder = next((out / "contrastive").rglob(f"vectors/{figures['steps']}"))
    assert f"starting from the weights of {encoder}" in " ".join(capfd.readouterr().out.split())
    (trained,) = (file for file in encoder.glob("*.safetensors") if "optimizer" not in file.name)
    given = load_file(next(weights.glob("*.safetensors")))
    names = [name for name in load_file(trained) if name in given]
    assert names and any((load_file(trained)[name] != given[name]).any() for name in names)
    asked_for = read_yaml(out / "glue-custom.yaml")
    assert str(asked_for["from_pretrained_params"]) == str(weights)  # so that the same command resumes
    before = trained.stat().st_mtime_ns
    assert main(["classify", *words]) == 0
    assert trained.stat().st_mtime_ns == before and "starting from the weights" not in capfd.readouterr().out

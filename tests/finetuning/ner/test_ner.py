"""run_ner.py on a tiny model: training, evaluation, prediction, and refused input."""

import json
import shlex
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest

import run_ner
from bert.config.command_line import parse_arguments
from bert.finetuning.config import USUAL_SETTINGS, usual_settings
from bert.finetuning.ner.config import ENTRY
from bert.finetuning.ner.conll import ConllFormat, read_tagged_text
from bert.finetuning.ner.tags import Span, read_spans, score_spans, write_tags
from bert.inference.heads import load_model
from bert.runtime.paddle_api import static
from tests.glue.test_glue import WORDS, weights  # noqa: F401


def run_tagger(tmp_path, words: str) -> None:
    common = f"--device cpu --no-visualdl --report-file {tmp_path}/report.json --log-freq 5 --peak-tflops 1"
    with static.scope_guard(static.Scope()):
        assert run_ner.main(shlex.split(f"{words} {common}")) == 0


def tagged_file(path, size, seed):
    """Write IOB1 tags: words that end in 7 are persons, with the next word if it ends in 8; words in 5 are places."""
    rng, lines = np.random.RandomState(seed), ["-DOCSTART- O", ""]
    for _ in range(size):
        words = rng.choice(WORDS, 40 if size == 1 else rng.randint(3, 9))
        spans = []
        for place, word in enumerate(words):
            if word.endswith("8") and place and words[place - 1].endswith("7"):
                spans[-1] = Span("PER", place - 1, place + 1)
            elif word[-1] in "75":
                spans.append(Span("PER" if word.endswith("7") else "LOC", place, place + 1))
        tags = write_tags(spans, len(words), "iob1")
        lines += [*(f"{word} {tag}" for word, tag in zip(words, tags, strict=True)), ""]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def trained(weights, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("ner")
    tagged_file(folder / "train.conll", 250, 1)
    tagged_file(folder / "dev.conll", 60, 2)
    run_tagger(
        folder,
        f"--train-file {folder}/train.conll --eval-file {folder}/dev.conll --do-train --do-eval "
        "--batch-size 25 --epochs 12 --learning-rate 0.004 --max-seq-length 24 --from-pretrained-params "
        f"{weights} --output-dir {folder}/out",
    )
    return folder


def test_predictions_are_in_the_files_form_and_score_what_was_said(trained):
    path = trained / "out/ner/dev_predictions.conll"
    truth = read_tagged_text(path, ConllFormat(tag_column=1))
    predicted = read_tagged_text(path, ConllFormat(tag_column=2))
    assert truth.scheme == "iob1" and path.read_text().startswith("-DOCSTART- O O\n")
    tagger, bounds = load_model(trained / "out"), predicted.sentence_offsets.tolist()
    assert tagger.max_seq_length == 24
    sentences = [predicted.words[start:stop] for start, stop in pairwise(bounds[:11])]
    found = tagger.predict([" ".join(words) for words in sentences])
    wanted = [(span.type, " ".join(predicted.words[span.start : span.stop])) for span in predicted.spans]
    wanted = wanted[: sum(span.start < bounds[10] for span in predicted.spans)]
    assert [(entity["type"], entity["text"]) for result in found for entity in result["entities"]] == wanted
    summary = json.loads((trained / "out/ner/summary.json").read_text())
    assert score_spans(truth.spans, predicted.spans)["f1"] == pytest.approx(summary["eval_f1"])
    # The baseline: the tag that a word has most often in training.
    training, seen = read_tagged_text(trained / "train.conll"), defaultdict(Counter)
    for word, tag in zip(training.words, training.tags(training.spans, "iob2"), strict=True):
        seen[word][tag] += 1
    tags = [min(seen[word], key=lambda tag: (-seen[word][tag], tag)) if word in seen else "O" for word in truth.words]
    plain = score_spans(truth.spans, read_spans(tags, truth.sentence_offsets[:-1].tolist()))["f1"]
    assert 0.5 < plain == pytest.approx(summary["eval_most_frequent_tag_f1"])
    assert f"on 60 sentences: f1 {summary['eval_f1']:.3f} against {plain:.3f}" in summary["verdict"]


@pytest.mark.long
def test_plain_text_is_scored_beside_words_and_cut_as_the_training_was(weights, tmp_path, capsys):  # noqa: F811
    tokens = (weights / "vocab.txt").read_text().split("\n")
    tokens[-4:-1] = "see", "/", "."
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    for name, place in (("train", "/wa7/wa8"), ("dev", "/wa3/wa8")):
        (tmp_path / f"{name}.conll").write_text(f"see\tO\n{place}\tB-PATH\n.\tO\n\n" * 40)
    run_tagger(
        tmp_path,
        f"--train-file {tmp_path}/train.conll --eval-file {tmp_path}/dev.conll --epochs 6 --learning-rate 0.004 "
        f"--batch-size 10 --from-pretrained-params {weights} --vocab-file {tmp_path}/vocab.txt --max-seq-length 24 "
        f"--output-dir {tmp_path}/out",
    )
    summary = json.loads((tmp_path / "out/ner/summary.json").read_text())
    assert summary["eval_f1"] == summary["eval_plain_text_f1"] == 1
    (found,) = load_model(tmp_path / "out").predict(["see /wa1/wa2/wa3."])
    assert [entity["text"] for entity in found["entities"]] == ["/wa1/wa2/wa3"]
    assert "near zero" not in capsys.readouterr().out


def test_a_score_near_zero_is_named_with_the_remedy(trained, weights, tmp_path, capsys):  # noqa: F811
    swapped = (trained / "dev.conll").read_text().replace("PER", "XX").replace("LOC", "PER").replace("XX", "LOC")
    (tmp_path / "dev.conll").write_text(swapped)
    common = f"--eval-file {tmp_path}/dev.conll --max-seq-length 24 --output-dir {tmp_path}/"
    run_tagger(tmp_path, f"{common}a --do-eval --from-pretrained-params {trained}/out")
    assert "f1 0.0% is near zero: the model has learned next to nothing of this task; use weights" in " ".join(
        said(capsys).split()
    )
    training = (
        f"--train-file {trained}/train.conll --max-steps 6 --learning-rate 0.004 --from-pretrained-params {weights}"
    )
    run_tagger(tmp_path, f"{common}b {training}")
    lines = " ".join(said(capsys).split())
    assert "near zero" in lines and "(now --max-steps 6) or with another --learning-rate (now 0.004)" in lines


def said(capsys) -> str:
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_rate_and_epochs_follow_sentences_and_model(trained, weights, tmp_path):  # noqa: F811
    words = ["--train-file", f"{trained}/train.conll", "--from-pretrained-params", str(weights)]
    words += ["--output-dir", str(tmp_path)]
    config = parse_arguments(ENTRY, words)
    usual = usual_settings(250, config.model.model_dump())
    chosen = (config.batch.batch_size, config.run.epochs, config.optimizer.learning_rate, config.data.max_seq_length)
    assert chosen == tuple(usual[name] for name in USUAL_SETTINGS)
    named = parse_arguments(ENTRY, [*words, "--epochs", "2", "--config", "conll2003", "--max-seq-length", "24"])
    assert (named.run.epochs, named.optimizer.learning_rate) == (2, 3e-5)
    (tmp_path / "ner.yaml").write_text("learning_rate: 5.0e-05\nepochs: 2.0\n")
    earlier = parse_arguments(ENTRY, words)
    assert (earlier.run.epochs, earlier.optimizer.learning_rate) == (2, 5e-5), "a run goes on as it began"


def test_words_without_tags_are_tagged_by_a_trained_model(trained, tmp_path):
    (tmp_path / "words.txt").write_text("wa1\nwb5\n\nwc2\n")
    run_tagger(
        tmp_path,
        f"--predict-file {tmp_path}/words.txt --do-predict --from-pretrained-params {trained}/out "
        f"--output-dir {tmp_path}/out",
    )
    lines = (tmp_path / "out/ner/words_predictions.conll").read_text().splitlines()
    assert lines == ["wa1 O", "wb5 B-LOC", "", "wc2 O"]
    assert "max_seq_length: 24\n" in (tmp_path / "out/ner/config.yaml").read_text()


@pytest.mark.parametrize(
    "words, message",
    [
        ("--do-train --train-file EMPTY", "has no entity"),
        ("--do-predict --predict-file EMPTY", "the classes of "),
        ("--do-train --train-file EMPTY --window-overlap 20 --max-seq-length 24", "less than half"),
    ],
)
def test_what_cannot_be_done_is_refused(weights, tmp_path, capsys, words, message):  # noqa: F811
    (tmp_path / "empty.conll").write_text("wa1 O\n")
    words = words.replace("EMPTY", f"{tmp_path}/empty.conll")
    with pytest.raises(SystemExit) as stopped:
        run_tagger(
            tmp_path, f"--max-seq-length 24 {words} --from-pretrained-params {weights} --output-dir {tmp_path}/out"
        )
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_predictions_for_two_files_of_one_name_are_refused(weights, tmp_path):  # noqa: F811
    for name in ("dev", "test"):
        (tmp_path / name).mkdir()
        tagged_file(tmp_path / name / "data.txt", 3, 1)
    words = ["--do-eval", "--eval-file", str(tmp_path / "dev/data.txt"), "--do-predict", "--max-seq-length", "32"]
    words += ["--from-pretrained-params", str(weights)]
    message = "predict_file=.*test/data.txt must have another name than eval_file=.*dev/data.txt: .*; rename one"
    with pytest.raises(ValueError, match=message):
        parse_arguments(ENTRY, [*words, "--predict-file", str(tmp_path / "test/data.txt")]).check_files()
    parse_arguments(ENTRY, [*words, "--predict-file", str(tmp_path / "dev/data.txt")]).check_files()
    words.remove("--do-eval")
    parse_arguments(ENTRY, [*words, "--predict-file", str(tmp_path / "test/data.txt")]).check_files()

"""run_glue.py on a tiny model: training, evaluation, prediction, resuming, and refused input."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import run_convert
import run_glue
from bert.checkpoints import state as checkpoint
from bert.config.command_line import parse_arguments
from bert.conversion.reading import read_pretrained
from bert.conversion.usage import Usage
from bert.finetuning.model_files import implied_by_weights, labels_beside, labels_of_the_weights
from bert.finetuning.task import Features
from bert.glue.config import ENTRY
from bert.glue.task_table import TASKS
from bert.inference.heads import load_model
from bert.labels.task import LabelTask
from bert.model.head_specs import TOKEN_WEIGHTS
from bert.runtime.paddle_api import static
from bert.tokenization.vocabulary import SPECIAL_TOKENS
from tests.support import tiny, tokenizer_files
from tests.support.messages import messages

WORDS = [f"w{letter}{digit}" for letter in "abcdefghij" for digit in range(9)]
VOCABULARY = [*SPECIAL_TOKENS, *WORDS, "[unused0]"]
SIZE = len(VOCABULARY)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Make a folder with an encoder of random weights, its description and its vocabulary."""
    from bert.model.objectives import SequenceClassificationObjective
    from program import build_prediction_program

    folder = tmp_path_factory.mktemp("weights")
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("".join(f"{token}\n" for token in VOCABULARY))
    model = tiny.MODEL.model_copy(update={"vocab_size": SIZE, "max_position_embeddings": 32})
    tiny.join(tiny.ONE_RANK)
    scope = static.Scope()
    with static.scope_guard(scope):
        program = build_prediction_program(SequenceClassificationObjective(model))
        static.Executor(tiny.place_of("cpu")).run(program.startup)
        values = {
            name: tiny.read_variable(scope, name) for name in program.parameters if not name.startswith("classifier")
        }
    rng = np.random.RandomState(0)
    values = {
        name: value if "norm" in name.lower() else rng.randn(*value.shape).astype("float32") * 0.1
        for name, value in values.items()
    }
    return tiny.write_weights(folder / "checkpoint", values, model, vocabulary)


def run(tmp_path, words: str) -> None:
    common = f"--device cpu --no-visualdl --report-file {tmp_path}/report.json --log-freq 5 --peak-tflops 1"
    with static.scope_guard(static.Scope()):
        assert run_glue.main(shlex.split(f"{words} {common} --max-seq-length 16")) == 0


def sentences(rng, size):
    """A sentence is good if it holds a word that ends in 7."""
    texts, labels = [], []
    for row in range(size):
        words = [word for word in rng.choice(WORDS, 6) if not word.endswith("7")]
        if row % 2:
            words[rng.randint(len(words))] = f"w{rng.choice(list('abcdefghij'))}7"
        texts.append(" ".join(words))
        labels.append(row % 2)
    return texts, labels


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write SST-2 as published, and the same rows as a user's CSV."""
    folder, rng = tmp_path_factory.mktemp("sst"), np.random.RandomState(1)
    for name, size in (("train", 400), ("dev", 60)):
        texts, labels = sentences(rng, size)
        rows = list(zip(texts, labels, strict=True))
        (folder / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
        (folder / f"{name}.csv").write_text(
            "words,kind\n" + "".join(f"{a},{'good' if b else 'bad'}\n" for a, b in rows)
        )
    (folder / "test.tsv").write_text("index\tsentence\n" + "".join(f"{i}\t{a}\n" for i, (a, _) in enumerate(rows)))
    return folder


TRAINING = "--do-train --do-eval --batch-size 20 --epochs 8 --learning-rate 3e-3"


@pytest.fixture(scope="module")
def trained(weights, files, tmp_path_factory):
    """Return the folder of a run of SST-2 that trained, evaluated and predicted."""
    folder = tmp_path_factory.mktemp("trained")
    run(
        folder,
        f"--task-name sst2 --data-dir {files} --from-pretrained-params {weights} {TRAINING} --do-predict "
        f"--output-dir {folder}/out --num-steps-per-checkpoint 60",
    )
    return folder


def summary(folder, stage):
    return json.loads((folder / "out" / stage / "summary.json").read_text())


def test_a_task_is_learned_scored_and_predicted(trained, files):
    found = summary(trained, "glue-sst-2")
    assert found["eval_accuracy"] == found["eval_score"] > 0.9
    assert found["training_sequences_per_second"] > 0 and found["inference_sequences_per_second"] > 0
    lines = (trained / "out/glue-sst-2/SST-2.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 61
    truths = [line.split("\t")[1] for line in (files / "dev.tsv").read_text().splitlines()[1:]]
    predictions = [line.split("\t")[1] for line in lines[1:]]  # test.tsv holds dev.tsv's sentences
    assert np.mean([a == b for a, b in zip(truths, predictions, strict=True)]) == found["eval_accuracy"]
    dev = [line.split("\t") for line in (trained / "out/glue-sst-2/dev_predictions.tsv").read_text().splitlines()]
    assert dev[0] == ["index", "prediction", "label"] and [row[2] for row in dev[1:]] == truths
    assert [row[1] for row in dev[1:]] == predictions


@pytest.mark.long
def test_a_stopped_run_ends_as_the_one_that_was_not(weights, files, trained, tmp_path):
    arguments = (
        f"--task-name SST-2 --data-dir {files} {TRAINING} --output-dir {tmp_path}/out --num-steps-per-checkpoint 60"
    )
    run(tmp_path, f"{arguments} --from-pretrained-params {weights} --steps-this-run 63")
    run(tmp_path, f"{arguments} --from-checkpoint {tmp_path}/out --last-step-of-checkpoint auto")
    steps = [next(iter((folder / "out").glob("*/glue-sst-2"))) / "160" for folder in (tmp_path, trained)]
    tiny.assert_identical(*(checkpoint.load_parameters(step) for step in steps))
    kept = tmp_path / "out/glue-sst-2/vocab.txt"  # that of the best weights so far goes when better ones come
    assert f"vocab_file: {kept}" in (tmp_path / "out/glue-sst-2/config.yaml").read_text() and kept.is_file()
    run(tmp_path, f"{arguments} --from-checkpoint {tmp_path}/out --last-step-of-checkpoint auto")  # no update is left
    found, whole = summary(tmp_path, "glue-sst-2"), summary(trained, "glue-sst-2")
    for name in ("eval_score", "final_loss", "skipped_steps"):
        assert found[name] == whole[name] is not None


@pytest.mark.long
def test_files_of_ones_own_and_then_only_a_prediction(weights, files, tmp_path):
    custom = "--task-name custom --text-column words --label-column kind"
    run(
        tmp_path,
        f"{custom} --train-file {files}/train.csv --eval-file {files}/dev.csv {TRAINING} "
        f"--from-pretrained-params {weights} --no-do-lower-case --output-dir {tmp_path}/out",
    )
    found = summary(tmp_path, "glue-custom")
    assert found["eval_accuracy"] > 0.9 and 0 < found["eval_macro_f1"] <= 1
    (tmp_path / "new.jsonl").write_text('{"words": "wa1 wb7", "id": "x"}\n{"words": "wa1 wb2", "id": "y"}\n')
    run(
        tmp_path,
        f"{custom} --predict-file {tmp_path}/new.jsonl --index-column id --do-predict "
        f"--from-pretrained-params {tmp_path}/out --output-dir {tmp_path}/later",
    )
    # The text is lower-cased as in training without repeating the flag.
    assert "do_lower_case: false" in (tmp_path / "later/glue-custom/config.yaml").read_text()
    lines = (tmp_path / "later/glue-custom/predictions.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction\tprobability"
    assert [line.split("\t")[:2] for line in lines[1:]] == [["x", "good"], ["y", "bad"]]
    assert all(0.5 <= float(line.split("\t")[2]) <= 1 for line in lines[1:])
    # The model remembers its column, length and case: used alone, it gives the predictions of the run.
    classifier = load_model(tmp_path / "out")
    expected = Usage("custom", 16, ("words",), label_column="kind")
    assert classifier.max_seq_length == 16 and classifier.opened.usage == expected
    run(tmp_path, f"--eval-file {files}/dev.csv --from-pretrained-params {tmp_path}/out --output-dir {tmp_path}/again")
    assert (
        json.loads((tmp_path / "again/glue-custom/summary.json").read_text())["eval_macro_f1"] == found["eval_macro_f1"]
    )
    found = classifier.predict([{"words": "wa1 wb7"}, {"words": "wa1 wb2"}])
    for line, result in zip(lines[1:], found, strict=True):
        assert line.split("\t")[1] == result["label"]
        assert float(line.split("\t")[2]) == pytest.approx(result["probability"], abs=2e-5)


@pytest.mark.long
def test_a_linear_model_of_the_tokens_helps_an_encoder_that_has_learned_little(weights, files, tmp_path, capsys):
    """The linear model counts in each evaluation, and wherever the classifier is used afterwards."""
    line = (
        f"--task-name custom --text-column words --label-column kind --train-file {files}/train.csv --eval-file "
        f"{files}/dev.csv --do-train --do-eval --batch-size 20 --max-steps 4 --eval-freq 2 "
        f"--num-steps-per-checkpoint 2 --from-pretrained-params {weights}"
    )
    for name, flag in (("with", ""), ("without", "--no-token-weights")):
        run(tmp_path, f"{line} {flag} --output-dir {tmp_path}/{name}/out")
    found, plain = (summary(tmp_path / name, "glue-custom") for name in ("with", "without"))
    assert found["eval_accuracy"] > 0.9 and found["eval_accuracy"] > plain["eval_accuracy"] + 0.15
    rows = (tmp_path / "with/out/glue-custom/metrics.jsonl").read_text().splitlines()
    evaluations = [row["eval_accuracy"] for row in map(json.loads, rows) if "eval_accuracy" in row]
    assert len(evaluations) >= 2 and min(evaluations) > 0.85
    assert TOKEN_WEIGHTS not in read_pretrained(tmp_path / "without/out").parameters

    table = (tmp_path / "with/out/glue-custom/dev_predictions.tsv").read_text().splitlines()[1:]
    _, said, truths, likely, texts = zip(*(row.split("\t") for row in table), strict=True)
    again = load_model(tmp_path / "with/out").predict(list(texts))
    assert [result["label"] for result in again] == list(said)
    assert [result["probability"] for result in again] == pytest.approx([float(one) for one in likely], abs=2e-5)
    assert np.mean([one == other for one, other in zip(said, truths, strict=True)]) == found["eval_accuracy"]

    def score_of(name: str, source: Path, flag: str = "") -> float:
        place = f"--from-pretrained-params {source} --output-dir {tmp_path}/{name}/out"
        run(tmp_path, f"--eval-file {files}/dev.csv {place} {flag}")
        return summary(tmp_path / name, "glue-custom")["eval_accuracy"]

    out = tmp_path / "with/out"
    assert score_of("2", out) == found["eval_accuracy"]
    steps = [next(out.glob(f"*/glue-custom/{step}")) for step in (2, 4)]  # as an interrupted run leaves them
    assert [score_of(f"of{step.name}", step) for step in steps] == evaluations[-2:]
    without = score_of("3", out, "--no-token-weights")
    assert without < found["eval_accuracy"] - 0.15
    held_out = json.loads((out / "glue-custom/scores.json").read_text())["held_out"]
    assert (held_out["whole"]["accuracy"], held_out["token weights"]["accuracy"]) == (found["eval_accuracy"], without)

    capsys.readouterr()
    run(tmp_path, line.replace(f"params {weights}", f"params {out} --output-dir {tmp_path}/on/out"))
    assert f"not used: the token weights of {out}" in " ".join(capsys.readouterr().out.split())

    run_convert.main(["--from", f"{tmp_path}/with/out", "--to", f"{tmp_path}/hf", "--to-format", "hf"])
    number = SIZE * 2
    said = f"transformers ignores the {number:,} token weights of this classifier, so it gives other logits than this "
    said += f"project's programs, and on the held-out rows of the training it has accuracy {without:.1%}"
    assert said in (tmp_path / "hf/README.md").read_text() and said in (tmp_path / "hf/conversion.json").read_text()
    assert load_model(tmp_path / "hf").predict([texts[0]]) == again[:1]


@pytest.mark.long
def test_a_classifier_that_is_extended_equals_the_uninterrupted_one(weights, files, tmp_path):
    """The extended checkpoint has a calibrated head; its training goes on from the trained head."""
    header, *rows = (files / "dev.csv").read_text().splitlines()
    wrong = [row.replace("good", "bad") if number % 9 == 1 else row for number, row in enumerate(rows)]
    (tmp_path / "dev.csv").write_text("\n".join([header, *wrong]) + "\n")
    line = (
        f"--task-name custom --text-column words --label-column kind --train-file {files}/train.csv --eval-file "
        f"{tmp_path}/dev.csv --do-train --do-eval --batch-size 20 --eval-freq 2 --num-steps-per-checkpoint 2 "
        "--lr-schedule constant --warmup-proportion 0 --learning-rate 3e-3 --no-keep-best"
    )
    begins = f"{line} --from-pretrained-params {weights}"
    run(tmp_path, f"{begins} --max-steps 8 --keep-checkpoints 9 --output-dir {tmp_path}/whole")
    run(tmp_path, f"{begins} --max-steps 4 --output-dir {tmp_path}/parts")
    whole, parts = (next((tmp_path / name).glob("*/glue-custom/4")).parent for name in ("whole", "parts"))
    head = load_file(parts / "4/bert_paddle_trained_head.safetensors")
    final = load_file(parts / "4/bert_paddle.safetensors")
    temperature = head["classifier.bias"][0] / final["classifier.bias"][0]
    assert abs(temperature - 1) > 0.01
    for name in ("classifier.weight", "classifier.bias", TOKEN_WEIGHTS):
        np.testing.assert_allclose(head[name], final[name] * temperature, rtol=1e-5, err_msg=name)
    continues = f"--from-checkpoint {tmp_path}/parts --last-step-of-checkpoint auto"
    run(tmp_path, f"{line} --max-steps 8 --keep-checkpoints 9 --output-dir {tmp_path}/parts {continues}")
    for step in (6, 8):
        folders = [folder / str(step) for folder in (whole, parts)]
        tiny.assert_identical(*(checkpoint.load(folder)[0] for folder in folders))
        tiny.assert_identical(*(checkpoint.load(folder)[1] for folder in folders))
        tiny.assert_identical(*(load_file(folder / "bert_paddle.safetensors") for folder in folders))
    assert [result["probability"] for result in load_model(tmp_path / "parts").predict(["wa1 wb7", "wa1"])] == [
        result["probability"] for result in load_model(tmp_path / "whole").predict(["wa1 wb7", "wa1"])
    ]


@pytest.mark.long
def test_numbers_are_predicted(weights, tmp_path):
    rng = np.random.RandomState(2)
    for name, size in (("train", 240), ("dev", 60)):
        rows = []
        for _ in range(size):
            count = rng.randint(0, 6)
            words = ["wa7"] * count + [f"wb{rng.randint(7)}"] * (5 - count)
            rows.append(f"{' '.join(words)}\twc1\t{count}\n")
        (tmp_path / f"{name}.tsv").write_text("a\tb\tlabel\n" + "".join(rows))
    run(
        tmp_path,
        "--task-name custom --regression --text-column a --text-pair-column b --train-file "
        f"{tmp_path}/train.tsv --eval-file {tmp_path}/dev.tsv --predict-file "
        f"{tmp_path}/dev.tsv --do-predict {TRAINING} --from-pretrained-params {weights} --output-dir "
        f"{tmp_path}/out",
    )
    found = summary(tmp_path, "glue-custom")
    assert found["eval_pearson"] > 0.9 and found["eval_spearman"] > 0.85
    assert (tmp_path / "out/glue-custom/predictions.tsv").read_text().startswith("index\tprediction\n0\t")


@pytest.mark.long
def test_mnli_is_scored_on_both_sets_and_the_diagnostics_follow(weights, tmp_path):
    rng = np.random.RandomState(3)
    header = "index\tsentence1\tsentence2\tgold_label\n"
    for name in ("train", "dev_matched", "dev_mismatched"):
        labels = rng.choice(TASKS["MNLI"].labels, 40)
        (tmp_path / f"{name}.tsv").write_text(
            header + "".join(f"{i}\twa1\twb2\t{label}\n" for i, label in enumerate(labels))
        )
    for name in ("test_matched", "test_mismatched", "diagnostic"):
        (tmp_path / f"{name}.tsv").write_text(
            "index\tsentence1\tsentence2\n" + "".join(f"{i}\twa1\twb2\n" for i in range(3))
        )
    run(
        tmp_path,
        f"--task-name MNLI --data-dir {tmp_path} --do-train --do-eval --do-predict --max-steps 2 "
        f"--from-pretrained-params {weights} --output-dir {tmp_path}/out",
    )
    found = summary(tmp_path, "glue-mnli")
    assert {"eval_matched_accuracy", "eval_mismatched_accuracy"} <= found.keys()
    run(
        tmp_path,
        f"--task-name AX --data-dir {tmp_path} --do-predict --from-pretrained-params {tmp_path}/out --output-dir "
        f"{tmp_path}/ax",
    )
    for path in ("out/glue-mnli/MNLI-m.tsv", "out/glue-mnli/MNLI-mm.tsv", "ax/glue-ax/AX.tsv"):
        lines = (tmp_path / path).read_text().splitlines()
        assert len(lines) == 4 and {line.split("\t")[1] for line in lines[1:]} <= set(TASKS["MNLI"].labels)


REFUSED = [
    ("--task-name sst --do-eval", "task_name='sst' is not one of CoLA"),
    ("--task-name custom --do-train", "do_train=true needs train_file"),
    ("--task-name custom --do-train --data-dir .", "pass --train-file"),
    ("--task-name RTE --data-dir . --train-file x.tsv --do-train", "is for task_name=custom"),
    ("--task-name RTE --data-dir . --regression --do-train", "is for task_name=custom"),
    ("--task-name RTE --data-dir . --no-token-weights --do-train", "token_weights=false is for task_name=custom"),
    ("--task-name RTE --data-dir . --folds 4 --do-train", "folds=4 is for task_name=custom"),
    ("--task-name AX --data-dir . --do-train", "nothing to train on: train MNLI"),
    ("--config mrcp", "did you mean mrpc?"),
    ("--task-name SST-2 --data-dir . --do-train --from-pretrained-params /nowhere", "/nowhere does not exist"),
]


@pytest.mark.parametrize("words, message", REFUSED)
def test_what_cannot_be_done_is_refused_before_anything_starts(weights, tmp_path, capsys, words, message):
    with pytest.raises(SystemExit) as stopped:
        run(tmp_path, f"--from-pretrained-params {weights} --output-dir {tmp_path}/out {words}")
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def settings(weights, words: str):
    """Return the settings that run_glue.py makes from flags."""
    common = f"--max-seq-length 16 --from-pretrained-params {weights} --device cpu"
    return parse_arguments(ENTRY, shlex.split(f"{words} {common}"))


def test_a_broken_line_of_a_large_set_to_evaluate_is_left_out_and_told(weights, tmp_path):
    """The published files of QQP have such lines."""
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n" + "wa1 wb2\t1\n" * 20_000 + "torn\n")
    with messages() as lines:
        task = LabelTask(settings(weights, f"--task-name SST-2 --data-dir {tmp_path} --do-eval"))
        assert len(task.read_data().evaluated[0][1].table) == 20_000
    assert any("1 of 20001 lines skipped" in line and "line 20002" in line for line in lines)


def test_a_user_s_file_may_have_any_name_and_spaces_around_labels(weights, tmp_path):
    path = tmp_path / "my data (1).tsv"
    path.write_text("sentence\tlabel\nwa1\tyes\nwa2\tno \nwa3\t yes\nwa4\tno\n")
    task = LabelTask(settings(weights, f"--task-name custom --train-file '{path}' --do-train"))
    assert json.loads(task.texts()["labels.json"]) == ["no", "yes"]
    assert task.read_data().train.labels["labels"].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    "said, unused, used",
    [
        (
            "classifier_pooling, as classifiers on a bert read the first token",
            "--classifier-pooling mean",
            "--classifier-pooling cls",
        ),
        (
            "positive_label, as there is no --wanted-recall for it",
            "--positive-label yes",
            "--positive-label yes --wanted-recall 0.9",
        ),
    ],
)
def test_what_a_training_does_not_use_is_named(weights, tmp_path, said, unused, used):
    (tmp_path / "a.csv").write_text("sentence,label\n" + "".join(f"wa{n},yes\nwb{n},no\n" for n in range(10)))
    words = f"--task-name custom --train-file {tmp_path}/a.csv --do-train --do-eval"
    for flags, named in ((unused, True), (used, False)):
        assert (f"not used: {said}" in LabelTask(settings(weights, f"{words} {flags}")).notes) == named


def test_a_class_whose_rows_are_all_held_out_is_named(weights, tmp_path):
    rows = "".join(f"wa{row % 9} wb{row % 7} wc{row},{'yn'[row % 2]}\n" for row in range(20))
    (tmp_path / "a.csv").write_text(f"sentence,label\n{rows}wd1,rare\n")
    words = f"--task-name custom --train-file {tmp_path}/a.csv --do-train --do-eval --fold"
    notes = [" ".join(LabelTask(settings(weights, f"{words} {fold}")).notes) for fold in range(5)]
    found = ["all rows of rare are held out, none is trained on" in note for note in notes]
    assert sum(found) == 1
    task = LabelTask(settings(weights, f"{words} {found.index(True)}"))
    examples = task.read(task.evaluated[0])
    logits = np.eye(3, dtype="float32")[[2 * int(label == "y") for label in examples.labels]] * 5  # n, rare, y
    content = task.details(task.evaluated[0], Features(examples, *task.features(examples)), logits, fits=False)
    assert content is not None and "no line of" in content["verdict"] and "--balance" not in content["verdict"]


def test_labels_that_are_alike_and_rows_without_a_group_are_named(weights, tmp_path):
    rows = "".join(
        f"wa{row % 9} wb{row},{('Yes', 'no', 'yes')[row % 3]},{row // 4 if row % 2 else ''}\n" for row in range(40)
    )
    (tmp_path / "a.csv").write_text(f"sentence,label,patient\n{rows}")
    words = f"--task-name custom --train-file {tmp_path}/a.csv --do-train --do-eval --group-column patient"
    notes = LabelTask(settings(weights, words)).notes
    assert "alike, but classes of their own: 'Yes' and 'yes'. If they are one, correct the file" in notes
    assert "20 rows have no patient: each is a group of its own" in notes


def test_nearly_equal_texts_are_held_out_together_and_counted_between_files(weights, tmp_path):
    """Each text has a twin of the other class that ends with a full stop."""
    texts = [" ".join(f"w{letter}{row}x" for letter in "abcdef") for row in range(40)]
    rows = [f"{text}{mark},{label}" for text in texts for mark, label in (("", "y"), (".", "n"))]
    (tmp_path / "a.csv").write_text("\n".join(["sentence,label", *rows, ""]))
    words = f"--task-name custom --train-file {tmp_path}/a.csv --do-train --do-eval"
    seen = []
    for fold in range(4):
        task = LabelTask(settings(weights, f"{words} --folds 4 --fold {fold}"))
        held_out = task.read(task.evaluated[0])
        assert len(held_out) == 20 and held_out.labels.count("y") == 10
        plain = {text.rstrip(".") for text in held_out.texts[0]}
        assert len(plain) == 10 and not plain & {text.rstrip(".") for text in task.training.texts[0]}
        assert any("20 of 80 rows" in note and "equal and nearly equal texts together" in note for note in task.notes)
        seen += plain
    assert sorted(seen) == sorted(texts), "the parts of a cross-validation"
    (tmp_path / "b.csv").write_text(f"sentence,label\n{texts[0]}!,y\n{texts[1]}.,y\nwa wb,n\n")
    task = LabelTask(settings(weights, f"{words} --eval-file {tmp_path}/b.csv"))
    task.read(task.evaluated[0])
    assert any("2 of 3 texts of" in note and " too (1 of them nearly equal): the scores" in note for note in task.notes)


@pytest.mark.parametrize(
    "words, said, lowers",
    [
        (["Berlin", "the"], None, False),
        (["berlin", "the"], None, True),
        (["Berlin", "the"], "true", True),
        (["berlin", "the"], "false", False),
    ],
)
def test_a_vocabulary_with_capitals_is_of_a_cased_model_unless_its_tokenizer_says_other(tmp_path, words, said, lowers):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]) + "\n")
    if said:
        (tmp_path / "tokenizer_config.json").write_text(f'{{"do_lower_case": {said}}}')
    (tmp_path / "bert_config.json").write_text(tiny.MODEL.to_json())
    config = settings(tmp_path, f"--task-name SST-2 --data-dir {tmp_path} --do-train")
    assert config.data.do_lower_case is lowers


def test_a_tokenizer_json_of_another_kind_is_the_vocabulary_and_decides_on_case(tmp_path):
    file = tokenizer_files.write(tmp_path, "unigram")
    (tmp_path / "bert_config.json").write_text(tiny.MODEL.to_json())
    implied = implied_by_weights({"from_pretrained_params": str(tmp_path)})
    assert (implied["vocab_file"], implied["do_lower_case"]) == (file, False)


def test_a_tokenizer_json_is_vocabulary_enough(weights, files, tmp_path):
    """transformers 5 saves no vocab.txt; the folder of a model that is trained from such a folder has one."""
    run_convert.main(["--from", str(weights), "--to", str(tmp_path / "hf"), "--to-format", "hf"])
    (tmp_path / "hf/vocab.txt").unlink()
    steps = []
    for source in (weights, tmp_path / "hf"):
        words = f"--task-name SST-2 --data-dir {files} {TRAINING} --epochs 0.1 --output-dir"
        run(tmp_path, f"{words} {tmp_path / source.name / 'out'} --from-pretrained-params {source}")
        steps.append(next((tmp_path / source.name / "out").glob("*/glue-sst-2")) / "2")
    tiny.assert_identical(*map(checkpoint.load_parameters, steps))
    assert (steps[1] / "vocab.txt").read_bytes() == (weights / "vocab.txt").read_bytes()


def test_classes_of_other_libraries_weights_are_known_in_any_case(weights, tmp_path):
    """The order of the classes often differs; assuming the task's order would make every score wrong."""
    (tmp_path / "labels.json").write_text('["CONTRADICTION", "NEUTRAL", "ENTAILMENT"]')
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    (tmp_path / "bert_config.json").write_text((weights / "bert_config.json").read_text())
    config = settings(tmp_path, f"--task-name MNLI --data-dir {tmp_path} --do-predict")
    found = labels_of_the_weights(config.initialization, config.label_schema().labels)
    assert found == ("contradiction", "neutral", "entailment")


def test_a_text_may_have_several_labels_of_another_librarys_model(weights, tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    description = json.loads((weights / "bert_config.json").read_text())
    kind = {"problem_type": "multi_label_classification", "id2label": {"0": "a", "1": "b", "2": "c"}}
    (tmp_path / "config.json").write_text(json.dumps({**description, **kind}))
    (tmp_path / "dev.csv").write_text('sentence,label\nwa1,a\nwa2,"a,b"\nwa3,\n')
    task = LabelTask(settings(tmp_path, f"--eval-file {tmp_path}/dev.csv --do-eval"))
    (part,) = task.evaluated
    examples = task.read(part)
    features = Features(examples, *task.features(examples))
    logits = np.array([[3, -3, -3], [3, 3, -3], [-3, -3, -3]], "float32")
    assert task.score(part, features, logits)["eval_micro_f1"] == 1
    shown = [line.split("\t")[1] for line in task.render(part, features, logits)[0].decode().splitlines()]
    assert shown == ["a", "a, b", ""]


def test_classes_are_read_from_beside_the_weights(tmp_path):
    assert labels_beside(tmp_path) is None
    description = json.loads(tiny.MODEL.to_json())
    (tmp_path / "config.json").write_text(json.dumps({**description, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}}))
    assert labels_beside(tmp_path) is None
    (tmp_path / "config.json").write_text(json.dumps({**description, "id2label": {"1": "yes", "0": "no"}}))
    assert labels_beside(tmp_path) == ("no", "yes")
    (tmp_path / "labels.json").write_text('["maybe", "never"]')
    assert labels_beside(tmp_path) == ("maybe", "never")
    (tmp_path / "labels.json").write_text('{"a": 1}')
    with pytest.raises(ValueError, match="a list of the classes, in order"):
        labels_beside(tmp_path)

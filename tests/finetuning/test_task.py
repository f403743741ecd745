"""Shared code of fine-tuning, on tasks made of numbers: order, resuming, best weights, predictions, exit codes."""

import dataclasses
import json
import logging
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from bert.arrays.ragged import offsets_of
from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.config.command_line import parse_arguments, parser_of
from bert.config.setting_sources import resolve_config
from bert.conversion.task_file import read_usage
from bert.conversion.usage import Usage
from bert.exit_codes import INTERRUPTED
from bert.finetuning.config import FineTuningConfig, with_steps
from bert.finetuning.loader import FeatureTable, FineTuningLoader, prediction_batches
from bert.finetuning.ner.config import ENTRY as NER
from bert.finetuning.run import FineTuning, FineTuningEvaluation
from bert.finetuning.squad.config import ENTRY as SQUAD
from bert.finetuning.task import FineTuningTask, Part, ResultsFile
from bert.glue.config import ENTRY as GLUE
from bert.model.objectives import SequenceClassificationObjective
from bert.reporting.report import results
from bert.reporting.run_record import read_run
from bert.runtime.paddle_api import static
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.training import training_run
from bert.training.trainer import Trainer
from tests.support import tiny


class Config(FineTuningConfig):
    def stage(self) -> str:
        return "numbers"

    def needed_files(self) -> dict[str, str]:
        return {}


def table_of(num_samples: int, seed: int = 1) -> FeatureTable:
    """Return sequences of 4 to 9 words; the class is whether word 7 is among them."""
    rng = np.random.RandomState(seed)
    lengths = rng.randint(4, 10, num_samples)
    offsets = offsets_of(lengths)
    input_ids = rng.randint(5, 12, offsets[-1]).astype("uint16")
    counts = np.add.reduceat((input_ids == 7).astype("int64"), offsets[:-1])
    return FeatureTable(input_ids, offsets, lengths - 2, {"labels": (counts > 0).astype("int64")})


def config_of(directory: Path, **changes) -> Config:
    vocabulary = directory / "vocab.txt"
    vocabulary.write_text("[PAD]\n" + "".join(f"word{i}\n" for i in range(tiny.MODEL.vocab_size - 1)))
    run = {"do_train": True, "do_eval": True, "do_predict": True, "epochs": 3, "bert_model": "bert-test", "log_freq": 1}
    run |= {"output_dir": directory / "results", "report_file": directory / "report.json"}
    values = {
        "model": tiny.MODEL_WITH_DROPOUT,
        "data": {"vocab_file": vocabulary, "max_seq_length": 12},
        "batch": {"batch_size": 8, "predict_batch_size": 7},
        "optimizer": {"learning_rate": 1e-2},
        "run": run | {"num_steps_per_checkpoint": 5, **changes.pop("run", {})},
        "hardware": {"device": "cpu", "visualdl": False, "peak_tflops": 1.0},
    }
    return Config(**{**values, **changes})


class Numbers(FineTuningTask):
    """Tells whether word 7 is in a sequence; predictions are the logits."""

    unit, best_metric = "numbers", "eval_accuracy"

    def __init__(self, config: Config, objective=None, table: FeatureTable | None = None) -> None:
        self._objective = objective or SequenceClassificationObjective(config.model, num_labels=2)
        self._dev = table or table_of(60, seed=2)
        self.vocabulary = Vocabulary((*SPECIAL_TOKENS, *(f"word{number}" for number in range(5, 12))))
        logging.getLogger("bert.tests").info("numbers were read")
        if config.run.do_train:
            self.training, self.training_file = table or table_of(90), Path("numbers")
        self.evaluated = [Part("dev", Path("dev"))] * config.run.do_eval
        self.predicted = [Part("test", Path(__file__), {"logits": ResultsFile()})] * config.run.do_predict

    def objective(self):
        return self._objective

    def usage(self):
        return Usage("numbers", 12)

    def texts(self):
        return {"labels.json": '["few", "many"]'}

    def read(self, part):
        return self._dev

    def windows(self, part):
        yield self._dev

    def features(self, examples, training=False):
        return examples, {}

    def describe(self, path, counts):
        return []

    def decode(self, features, outputs):
        return outputs

    def score(self, part, features, outputs):
        is_right = outputs["logits"].argmax(1) == features.table.labels["labels"]
        return {"eval_accuracy": float(is_right.mean())}

    def render(self, part, features, outputs):
        return [outputs["logits"].tobytes() for name in part.results]


def scored(values):
    """Return `Numbers` whose evaluations have the given accuracies."""
    values = iter(values)

    class Scored(Numbers):
        def score(self, part, features, outputs):
            return {"eval_accuracy": next(values)}

    return Scored


def run(config: Config, task=Numbers) -> int:
    with static.scope_guard(static.Scope()):
        return training_run.run(config, lambda config, group: FineTuning(config, group, task(config)))


def weights(config: Config, step: int, directory: Path | None = None) -> dict:
    return checkpoint.load_parameters((directory or config.checkpoint_dir()) / str(step))


def rows(config: Config) -> list[dict]:
    return [json.loads(line) for line in (config.stage_dir() / "metrics.jsonl").read_text().splitlines()]


# ---- the order of samples ------------------------------------------------------------------------------------------


def test_every_epoch_has_every_sample_once_and_no_batch_is_short():
    loader = FineTuningLoader(table_of(13), global_batch_size=6, micro_batch_size=2)
    stream = np.concatenate([loader.sample_ids(step) for step in range(13)])
    for epoch in range(6):
        assert sorted(stream[epoch * 13 : (epoch + 1) * 13]) == list(range(13))
    assert len({tuple(stream[epoch * 13 : (epoch + 1) * 13]) for epoch in range(6)}) == 6


@pytest.mark.parametrize(("world_size", "micro_batch_size"), [(1, 12), (1, 3), (2, 2), (4, 3)])
def test_ranks_and_passes_share_one_order(world_size, micro_batch_size):
    table = table_of(40)
    whole = FineTuningLoader(table, global_batch_size=12, micro_batch_size=12, num_workers=0)
    sizes = {"global_batch_size": 12, "micro_batch_size": micro_batch_size, "world_size": world_size}
    ranks = [FineTuningLoader(table, rank=rank, **sizes) for rank in range(world_size)]
    for step in (0, 5):
        expected = [tuple(ids[ids > 0]) for ids in whole.micro_batch(step, 0).feed["input_ids"]]
        found = [
            tuple(ids[ids > 0])
            for micro_step in range(12 // (micro_batch_size * world_size))
            for rank in ranks
            for ids in rank.micro_batch(step, micro_step).feed["input_ids"]
        ]
        assert found == expected


def test_an_empty_training_set_is_refused():
    with pytest.raises(ValueError, match="has no samples; check the file"):
        FineTuningLoader(
            FeatureTable(np.zeros(0, "uint16"), np.zeros(1, "int64")), global_batch_size=2, micro_batch_size=2
        )


def test_a_feed_has_padding_types_and_labels():
    table = FeatureTable(
        np.array([9, 8, 7, 6, 5]),
        np.array([0, 2, 5]),
        np.array([2, 1]),
        {"classes": np.array([1, 0], "int32"), "labels": np.array([-1, 3, -1, -1, 2])},
        pad_id=11,
    )
    feed = table.feed(np.array([1, 0]), 4, with_labels=True)
    assert feed["input_ids"].tolist() == [[7, 6, 5, 11], [9, 8, 11, 11]]
    assert feed["token_type_ids"].tolist() == [[0, 1, 1, 0], [0, 0, 0, 0]]
    assert feed["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]
    assert feed["labels"].tolist() == [[-1, -1, 2, -1], [-1, 3, -1, -1]]
    assert feed["classes"].tolist() == [0, 1] and feed["classes"].dtype == np.int64
    assert table.labelled_tokens().tolist() == [1, 1]


@pytest.mark.parametrize("world_size", [1, 3])
def test_prediction_covers_every_sequence_once_with_little_padding(world_size):
    table = table_of(50)
    batches = [
        batch
        for rank in range(world_size)
        for batch in prediction_batches(
            table, 4, rank=rank, world_size=world_size, sequence_length_multiple=1, max_seq_length=12
        )
    ]
    assert sorted(np.concatenate([batch.rows for batch in batches])) == list(range(50))
    padded = sum(batch.feed["input_ids"].size for batch in batches)
    assert padded < 1.1 * table.lengths().sum()


def test_steps_follow_from_epochs_and_samples(tmp_path):
    config = with_steps(config_of(tmp_path), 45, 1)
    assert (config.run.max_steps, config.run.eval_freq) == (17, 6)  # 135 / 8 and 45 / 8, rounded up
    assert config.warmup_steps() == 1
    assert with_steps(config_of(tmp_path, run={"max_steps": 4}), 45, 2).run.max_steps == 4


# ---- whole runs ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Config:
    config = config_of(tmp_path_factory.mktemp("numbers"))
    assert run(config) == 0
    return config


def test_a_run_learns_scores_and_leaves_its_files(trained):
    summary = json.loads((trained.stage_dir() / "summary.json").read_text())
    assert summary["steps"] == 34
    assert summary["eval_accuracy"] > 0.7
    assert summary["inference_sequences_per_second"] > 0
    assert len((trained.stage_dir() / "logits").read_bytes()) == 60 * 2 * 4
    assert [row["step"] for row in rows(trained) if "eval_accuracy" in row] == [12, 24, 34]
    assert (trained.checkpoint_dir() / "34" / "labels.json").read_text() == '["few", "many"]'


def test_the_best_weights_are_kept_and_used_and_both_scores_told_apart(tmp_path, capsys):
    config = config_of(tmp_path)
    assert run(config, scored([0.9, 0.5, 0.4, 0.9])) == 0
    assert checkpoint_files.list_steps(config.checkpoint_dir()) == [12, 25, 30, 34]
    assert checkpoint_files.final_step(config.checkpoint_dir()) == 12
    shown = capsys.readouterr().out
    assert (
        "numbers, update 34 (last):  accuracy 40.0%" in shown and "numbers, update 12 (best):  accuracy 90.0%" in shown
    )
    scores = {"eval_accuracy": 0.9, "best_step": 12, "last_eval_accuracy": 0.4, "last_step": 34}
    reported = json.loads((tmp_path / "report.json").read_text().splitlines()[-1].removeprefix("DLLL "))["data"]
    for summary in (reported, json.loads((config.stage_dir() / "summary.json").read_text())):
        assert {name: summary[name] for name in scores} == scores
    rows_of_report = results([read_run(config.stage_dir(), "numbers")])
    assert ["accuracy, held out", "90.0%"] in rows_of_report and [
        "accuracy, held out, last update",
        "40.0%",
    ] in rows_of_report
    only = config_of(
        tmp_path,
        run={"do_train": False, "do_eval": False, "output_dir": tmp_path / "alone"},
        initialization={"from_pretrained_params": tmp_path / "results"},
    )
    assert run(only) == 0  # takes the best, not the newest
    assert (only.stage_dir() / "logits").read_bytes() == (config.stage_dir() / "logits").read_bytes()


def test_what_an_evaluation_adds_to_a_checkpoint_is_in_those_of_later_starts(tmp_path, capsys):
    """Checkpoints before the next evaluation have the addition too, as without an interruption."""

    evaluations = list[int]()

    class Counting(Numbers):
        known = "0"

        def learn_to_decode(self, features, outputs):
            evaluations.append(1)
            self.known = str(len(evaluations))

        def texts(self):
            return {"count.json": self.known}

    def counts(directory, *legs):
        evaluations.clear()
        for leg in legs:
            again = {"from_checkpoint": directory / "results", "last_step_of_checkpoint": "auto"}
            changes = {"run": {"keep_best": False, "keep_checkpoints": 9, "steps_this_run": leg}}
            changes |= {"initialization": again} if leg != legs[0] else {}
            assert run(config_of(directory, **changes), Counting) == 0
        parent = config_of(directory).checkpoint_dir()
        return {step: (parent / str(step) / "count.json").read_text() for step in checkpoint_files.list_steps(parent)}

    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole, parts = counts(tmp_path / "whole", 40), counts(tmp_path / "parts", 14, 15, 40)
    assert whole[10] == "0" and whole[15] == "1" and {whole[step] for step in (25, 30)} == {"2"}
    assert whole.items() <= parts.items() and parts[14] == "1" and parts[29] == "2"
    assert "no complete best weights" not in capsys.readouterr().out
    assert "best_step" not in json.loads((config_of(tmp_path / "whole").stage_dir() / "summary.json").read_text())


def test_best_weights_of_an_earlier_version_get_the_files_of_this_one(tmp_path):
    """The earlier version did not write these files; the run goes on, and a later evaluation is not the best."""

    class Later(scored([0.4, 0.4, 0.9])):
        def texts(self):
            return super().texts() | {"added.json": "{}"}

    assert run(config_of(tmp_path, run={"steps_this_run": 14}), scored([0.9])) == 0
    again = {"from_checkpoint": tmp_path / "results", "last_step_of_checkpoint": "auto"}
    config = config_of(tmp_path, initialization=again)
    assert run(config, Later) == 0
    assert checkpoint_files.final_step(config.checkpoint_dir()) == 12
    assert (config.checkpoint_dir() / "12/added.json").read_text() == "{}"


def test_best_weights_that_were_damaged_meanwhile_are_not_used(tmp_path, capsys, monkeypatch):
    config, finish = config_of(tmp_path, run={"epochs": 1}), FineTuningEvaluation.finish

    def damaging(task, last_step):
        for path in config.checkpoint_dir().glob("*/*.safetensors"):
            path.write_bytes(path.read_bytes()[:-1])
        return finish(task, last_step)

    monkeypatch.setattr(FineTuningEvaluation, "finish", damaging)
    assert run(config) == 0
    assert "no complete best weights" in capsys.readouterr().out
    assert (config.stage_dir() / "logits").exists()


@pytest.mark.parametrize("do_train", [True, False])
def test_a_signal_while_predictions_are_written_ends_the_run(tmp_path, trained, do_train):
    class Interrupted(Numbers):
        def render(self, part, features, outputs):
            if part.name == "dev":
                return []
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("it went on")

    config = config_of(
        tmp_path,
        run={"do_train": do_train, "do_eval": False, "epochs": 1},
        initialization={"from_pretrained_params": trained.run.output_dir},
    )
    with pytest.raises(SystemExit) as ended:
        run(config, Interrupted)
    assert ended.value.code == INTERRUPTED
    assert checkpoint_files.list_steps(config.checkpoint_dir()) == ([5, 10, 12] if do_train else [])
    if do_train:  # the figures of the training are not lost with the rest
        figures = json.loads((config.stage_dir() / "summary.json").read_text())
        assert (figures["steps"], figures["finished"]) == (12, True)


def test_a_benchmark_that_is_stopped_predicts_nothing(tmp_path, monkeypatch):
    config = config_of(tmp_path, run={"benchmark": True, "benchmark_steps": 5, "benchmark_warmup_steps": 1})
    monkeypatch.setattr(FineTuningEvaluation, "finish", lambda task, last_step: pytest.fail("it went on"))
    update = Trainer._update

    def interrupted(trainer, batch):
        os.kill(os.getpid(), signal.SIGTERM)
        return update(trainer, batch)

    monkeypatch.setattr(Trainer, "_update", interrupted)
    assert run(config) == INTERRUPTED
    figures = json.loads((config.stage_dir() / "benchmark" / "summary.json").read_text())
    assert (figures["steps"], figures["interrupted_by"]) == (1, "SIGTERM")


def test_prediction_needs_the_head(tmp_path, trained):
    encoder = {name: value for name, value in weights(trained, 34).items() if not name.startswith("classifier")}
    folder = tiny.write_weights(tmp_path / "encoder", encoder, trained.model, trained.data.vocab_file)
    config = config_of(tmp_path, run={"do_train": False}, initialization={"from_pretrained_params": folder})
    with pytest.raises(ValueError, match="does not fit this task and model:\n  missing: classifier.bias"):
        run(config)
    with pytest.raises(ValueError, match="no weights to use: pass --from-pretrained-params"):
        run(config_of(tmp_path, run={"do_train": False}))


def test_a_recipe_of_other_sizes_than_the_weights_is_refused_before_anything_is_built(trained, tmp_path):
    other = tiny.MODEL.model_copy(update={"num_hidden_layers": 3})
    config = config_of(tmp_path, model=other, initialization={"from_pretrained_params": trained.run.output_dir})
    with pytest.raises(ValueError, match=r"num_hidden_layers=3 \(bert_model=bert-test\) must be 2, as .*json"):
        config.check_files()


# ---- settings of the recipes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry, name", [(entry, name) for entry in (GLUE, NER) for name in entry.recipes])
def test_every_recipe_makes_settings(trained, tmp_path, entry, name):
    is_own = name.startswith(("quickstart", "small"))
    words = f"--config {name} --max-seq-length 12 --from-pretrained-params {trained.run.output_dir}"
    words += f" --data-dir {tmp_path}" * (entry is GLUE and not is_own) + " --device gpu" * ("large" in name)
    config = parse_arguments(entry, words.split())
    assert config.model.hidden_size == tiny.MODEL.hidden_size and config.run.do_train and config.run.do_eval
    if is_own:
        config.check_files()


@pytest.fixture
def settings_with(tmp_path):
    """Resolve the flags of an entry point for weights with a task.json beside them."""

    def resolve(entry, usage, *words):
        (tmp_path / "task.json").write_text(usage.to_json())
        assert read_usage(tmp_path) == usage
        named = ["--from-pretrained-params", str(tmp_path), "--vocab-file", "vocab.txt"]
        return resolve_config(parser_of(entry).read([*named, *words]), entry).data

    return resolve


@pytest.mark.parametrize("mode", ["--do-predict", "--do-eval"])
def test_sentences_are_read_as_in_the_training_of_the_weights(settings_with, mode):
    usage = Usage("custom", 77, ("a", "b"), regression=True)
    custom = ["--task-name", "custom"]
    found = settings_with(GLUE, usage, *custom, mode)
    assert (found.max_seq_length, found.text_column, found.text_pair_column) == (77, "a", "b") and found.regression
    given = ["--max-seq-length", "99", "--text-column", "c", "--no-regression"]
    found = settings_with(GLUE, usage, *custom, mode, *given)
    assert (found.max_seq_length, found.text_column, found.text_pair_column) == (99, "c", "b") and not found.regression
    for other in (dataclasses.replace(usage, name="phase2"), Usage("ner", 77)):
        found = settings_with(GLUE, other, *custom, mode)
        assert (found.max_seq_length, found.text_column, found.regression) == (128, "sentence", False)
    found = settings_with(GLUE, Usage("STS-B", 77, ("sentence1", "sentence2"), regression=True), *custom, mode)
    assert (found.max_seq_length, found.text_column, found.regression) == (77, "sentence", True)
    found = settings_with(GLUE, Usage("MNLI", 77, ("sentence1", "sentence2")), "--task-name", "AX", mode)
    assert found.max_seq_length == 77 and found.text_pair_column is None


DOORS = [
    (GLUE, "custom", "train.csv", "text,label\nŁódź śpi,a\nŻywiec śpi,b\n" * 3),
    (NER, "ner", "train.conll", "Łódź B-LOC\nśpi O\n"),
    (SQUAD, "squad", "train.json", '{"data": "Łódź śpi"}'),
]


@pytest.mark.parametrize(("entry", "task", "name", "text"), DOORS)
def test_a_training_files_code_page_is_found_and_later_files_are_decoded_alike(
    settings_with, tmp_path, entry, task, name, text
):
    (file := tmp_path / name).write_bytes(text.encode("cp1250"))
    usage = Usage(task, 77, encoding="auto:cp1251", language="ru")
    later, trained, given = (
        settings_with(entry, usage, *words.split(), *["--task-name", "custom"] * (entry is GLUE))
        for words in ("--do-predict", f"--do-train --train-file {file}", "--do-predict --encoding cp1252 --lang fr")
    )
    assert (later.encoding, later.language) == ("auto:cp1251", "ru")
    assert (trained.encoding, trained.language) == ("auto:cp1250", None)
    assert (given.encoding, given.language) == ("cp1252", "fr")


@pytest.mark.parametrize("mode", ["--do-predict", "--do-eval"])
def test_words_are_read_as_in_the_training_of_the_weights(settings_with, mode):
    usage = Usage("ner", 77, document_context=True)
    found = settings_with(NER, usage, mode)
    assert found.max_seq_length == 77 and found.document_context
    found = settings_with(NER, usage, mode, "--max-seq-length", "99", "--no-document-context")
    assert found.max_seq_length == 99 and not found.document_context
    assert settings_with(NER, dataclasses.replace(usage, name="custom"), mode).max_seq_length == 128


def test_a_training_has_its_own_settings(settings_with):
    found = settings_with(GLUE, Usage("custom", 77, ("a", "b"), True), "--task-name", "custom", "--do-train")
    assert (found.max_seq_length, found.text_column, found.regression) == (128, "sentence", False)
    assert settings_with(NER, Usage("ner", 77, document_context=True), "--do-train").max_seq_length == 128

"""The table of GLUE's tasks compared with the benchmark's page, recipes with papers and scripts; settings."""

import pytest

from bert.config.setting_sources import resolve_config
from bert.glue.config import ENTRY, GLUE_RECIPES, GlueDataSettings
from bert.glue.task_table import TASKS, find_task, task_name

WEIGHTS = {"from_pretrained_params": "x", "vocab_file": "v"}
BINARY, ENTAILMENT = ("0", "1"), ("entailment", "not_entailment")
THREE_WAY = ("entailment", "neutral", "contradiction")
# Wang et al. (2019), table 1, and https://gluebenchmark.com/tasks: classes in the order of their ids in Hugging Face's
# `glue`, metrics, texts, leaderboard files.
GLUE = {
    "CoLA": (BINARY, {"matthews"}, 1, ["CoLA"]),
    "SST-2": (BINARY, {"accuracy"}, 1, ["SST-2"]),
    "MRPC": (BINARY, {"f1", "accuracy"}, 2, ["MRPC"]),
    "STS-B": (None, {"pearson", "spearman"}, 2, ["STS-B"]),
    "QQP": (BINARY, {"f1", "accuracy"}, 2, ["QQP"]),
    "MNLI": (THREE_WAY, {"accuracy"}, 2, ["MNLI-m", "MNLI-mm"]),
    "QNLI": (ENTAILMENT, {"accuracy"}, 2, ["QNLI"]),
    "RTE": (ENTAILMENT, {"accuracy"}, 2, ["RTE"]),
    "WNLI": (BINARY, {"accuracy"}, 2, ["WNLI"]),
    "AX": (THREE_WAY, {"matthews"}, 2, ["AX"]),
}


def test_tasks_have_the_classes_metrics_and_leaderboard_files_of_the_benchmark():
    found = {
        name: (task.labels, set(task.metrics), len(next(iter(task.test.values())).texts), list(task.test))
        for name, task in TASKS.items()
    }
    assert found == GLUE
    assert {name for name, task in TASKS.items() if task.is_regression} == {"STS-B"}
    assert TASKS["STS-B"].value_range == (0, 5)
    assert {name: task.model_of for name, task in TASKS.items() if task.train is None} == {"AX": "MNLI"}
    assert {name: task.no_label for name, task in TASKS.items() if task.no_label} == {"MNLI": "-"}


@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.train], ids=lambda task: task.name)
def test_a_task_is_trained_evaluated_and_predicted_from_its_three_files(task):
    assert task.train.files[0] == "train.tsv" and task.train.label is not None
    names = {"dev": "dev.tsv"} if task.name != "MNLI" else {n: f"dev_{n}.tsv" for n in ("matched", "mismatched")}
    assert {name: split.files[0] for name, split in task.dev.items()} == names
    for split in task.dev.values():
        assert (split.texts, split.label, split.header) == (task.train.texts, task.train.label, task.train.header)
    for split in task.test.values():
        assert split.label is None and split.files[0].startswith("test") and split.header
        assert (split.index is None) == (task.name == "MRPC")


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("sst_2", "SST-2"), ("SST2", "SST-2"), ("qqp", "QQP"), ("mnli", "MNLI"), ("Custom", "custom"), ("sts-b", "STS-B")],
)
def test_a_task_may_be_spelt_without_its_hyphen(spelling, name):
    assert task_name(spelling) == name
    with pytest.raises(ValueError, match="task_name='sst' is not one of CoLA, SST-2"):
        find_task("sst")


# Sequences of an update and of a micro-batch, epochs, learning rate, warm-up: Devlin et al. (2019), A.3; NVIDIA's
# run_glue.sh and glue_config.sh.
RECIPES = {
    "cola": (32, 32, 5.0, 2e-5, 0.1),
    "mrpc": (32, 32, 5.0, 2e-5, 0.1),
    "rte": (32, 32, 5.0, 2e-5, 0.1),
    "sst-2": (32, 32, 3.0, 2e-5, 0.1),
    "mnli": (32, 32, 3.0, 2e-5, 0.1),
    "qnli": (32, 32, 3.0, 2e-5, 0.1),
    "qqp_large": (128, 16, 3.0, 2.4e-5, 0.1),
    "cola_large": (128, 16, 3.0, 2.4e-5, 0.1),
    "mrpc_large": (128, 16, 3.0, 1.8e-5, 0.3),
    "sst-2_large": (1024, 128, 3.0, 1e-5, 0.1),
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_those_of_the_paper_and_of_nvidias_scripts(tmp_path, name):
    config = resolve_config({"config": name, "data_dir": str(tmp_path), **WEIGHTS}, ENTRY)
    batch, optimizer = config.batch, config.optimizer
    found = (batch.global_batch_size, batch.batch_size, config.run.epochs, optimizer.learning_rate)
    assert (*found, optimizer.warmup_proportion) == RECIPES[name]
    task = name.removesuffix("_large")
    assert (config.data.task_name.lower(), config.stage()) == (task, f"glue-{task}")
    assert (config.data.max_seq_length, config.precision.amp) == (128, name.endswith("_large"))
    assert config.run.do_train and config.run.do_eval and not config.run.do_predict
    assert optimizer.optimizer == "AdamW"
    is_large = task in ("sst-2", "qqp", "mnli", "qnli")
    assert config.run.num_steps_per_checkpoint == (1000 if is_large else 100)


def test_every_task_that_is_trained_has_two_recipes():
    names = {name.lower() for name in GLUE if name != "AX"}
    assert names | {f"{name}_large" for name in names} <= GLUE_RECIPES.keys() and "ax" not in GLUE_RECIPES


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"task_name": "RTE", "train_file": "a.tsv"}, "train_file=a.tsv is for task_name=custom; RTE reads the files"),
        ({"task_name": "RTE", "encoding": "cp1250"}, "encoding=cp1250 is for task_name=custom"),
        ({"task_name": "RTE", "language": "pl"}, "language=pl is for task_name=custom"),
        ({"task_name": "custom", "data_dir": "a"}, "data_dir=a is for GLUE's tasks"),
        ({"task_name": "custom", "download": True}, "download=true is for GLUE's tasks"),
        ({"task_name": "x"}, "task_name='x' is not one of"),
    ],
)
def test_files_of_ones_own_are_for_a_task_of_ones_own(values, text):
    with pytest.raises(ValueError, match=text):
        GlueDataSettings(vocab_file="v", **values)


def test_the_diagnostics_cannot_be_trained(tmp_path):
    settings = {"task_name": "ax", "data_dir": str(tmp_path), **WEIGHTS}
    with pytest.raises(ValueError, match="task_name=AX has nothing to train on: train MNLI"):
        resolve_config({**settings, "do_train": "true", "epochs": "1"}, ENTRY)
    assert resolve_config({**settings, "do_predict": "true"}, ENTRY).label_schema() is TASKS["AX"]


def test_files_are_found_in_the_folder_of_the_task_and_fetched_only_if_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", str(tmp_path / "data"))
    fetched = []
    monkeypatch.setattr("bert.glue.config.download_task", lambda *arguments: fetched.append(arguments[:2]))
    common = {"config": "mnli", **WEIGHTS}
    own = resolve_config({**common, "data_dir": str(tmp_path)}, ENTRY)
    own.fetch_data()
    assert fetched == [] and own.needed_files().keys() == {"data_dir"}
    assert own.fetching() == ", or pass --download to fetch the task's files"
    for part, file in (("train", "train.tsv"), ("mismatched", "dev_mismatched.tsv"), ("MNLI-m", "test_matched.tsv")):
        (tmp_path / file).write_text("")
        assert own.file_of(part) == tmp_path / file
    fetching = resolve_config({**common, "download": "true"}, ENTRY)
    fetching.fetch_data()
    folder = fetching.data.data_dir
    assert fetched == [("MNLI", folder)] and folder.parts[-2:] == ("glue", "MNLI") and tmp_path in folder.parents
    resolve_config({**common, "download": "true", "data_dir": str(tmp_path)}, ENTRY).fetch_data()
    assert fetched[1:] == [("MNLI", tmp_path)]
    resolve_config({**common, "download": "true", "data_dir": "$NOT_SET/x"}, ENTRY).fetch_data()
    assert fetched[2:] == []  # the check of files names the variable


def test_files_of_ones_own_make_the_task_ones_own(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nso,1\nno,0\n")
    named = {"train_file": str(tmp_path / "a.csv"), "eval_file": str(tmp_path / "a.csv"), **WEIGHTS, "epochs": "1"}
    config = resolve_config(named, ENTRY)
    assert (config.data.task_name, config.stage(), config.fetching()) == ("custom", "glue-custom", "")
    assert config.run.do_train and config.run.do_eval and not config.run.do_predict
    assert config.file_of("train") == tmp_path / "a.csv" and "data_dir" not in config.needed_files()
    config.fetch_data()

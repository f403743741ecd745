"""Lines of NVIDIA's PyTorch and TensorFlow scripts: those of our meaning are read, others refused by name."""

from pathlib import Path

import pytest

from bert.config.architecture import BUILT_IN_MODELS
from bert.launching import finetuning, pretraining
from bert.launching.finetuning_tasks import TASKS
from tests.support.commands import refused

LARGE = BUILT_IN_MODELS["bert-large-uncased"]
WEIGHTS = "download/google_pretrained_weights/uncased_L-24_H-1024_A-16"


@pytest.fixture(autouse=True)
def image(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", "/prep")


def plan(task, line):
    """(settings, ranks) of a line; + stands for a space in an argument, as in quotes."""
    words = [word.replace("+", " ") for word in line.split()]
    found = finetuning.plan_of(TASKS[task], [*words, "--device", "cpu"])
    return found.phases[0], found.ranks


@pytest.mark.parametrize("config_file", ["/workspace/bert/bert_configs/large.json", "bert_configs/large.json"])
def test_the_14_arguments_of_pytorchs_run_squad(config_file):
    line = (
        f"ckpt.pt 2.0 32 4.6e-5 0.2 fp16 8 1 /prep/squad/v1.1 /prep/{WEIGHTS}/vocab.txt /o train+eval {config_file} -1"
    )
    config, ranks = plan("squad", line)
    assert config.model == LARGE and config.run.bert_model == "bert-large-uncased"
    assert (config.run.epochs, config.batch.batch_size, config.optimizer.learning_rate) == (2, 32, 4.6e-5)
    assert (config.optimizer.warmup_proportion, config.precision.amp, ranks.num_processes) == (0.2, True, 8)
    assert config.initialization.from_pretrained_params == Path("ckpt.pt")
    assert config.data.vocab_file == Path(f"/prep/{WEIGHTS}/vocab.txt") and config.run.output_dir == Path("/o")
    assert config.run.do_train and config.run.do_eval and config.run.do_predict


def test_the_16_arguments_of_pytorchs_run_glue():
    line = "ckpt.pt /d /v.txt bert_configs/large.json /o sst-2 8 128 4 1e-5 0.3 3 -1.0 tf32 7 train+prediction"
    config, ranks = plan("glue", line)
    assert config.model == LARGE and config.stage() == "glue-sst-2" and config.data.data_dir == Path("/d")
    assert config.batch.resolved_global_batch_size(ranks.num_processes) == 8 * 128, "a GPU has 128 in an update there"
    assert (config.batch.batch_size, ranks.num_processes, config.run.seed) == (32, 8, 7)
    assert (config.optimizer.learning_rate, config.optimizer.warmup_proportion) == (1e-5, 0.3)
    assert (config.run.epochs, config.run.max_steps, config.data.max_seq_length) == (3, -1, 128)
    assert (config.precision.amp, config.precision.tf32) == (False, "on")
    assert (config.run.do_train, config.run.do_eval, config.run.do_predict) == (True, False, True)
    assert config.run.report_file == Path("/o/dllogger.json")


def test_the_defaults_of_pytorchs_run_glue_are_mrpc_on_8_gpus():
    config, ranks = plan("glue", "ckpt.pt - /v.txt None")
    assert config.data.task_name == "MRPC" and config.data.data_dir == Path("/prep/download/glue/MRPC")
    assert config.batch.resolved_global_batch_size(ranks.num_processes) == 128 and config.precision.amp
    assert config.run.do_train and config.run.do_eval and not config.run.do_predict


def test_pytorchs_evaluation_alone_is_on_one_gpu():
    assert plan("glue", "ckpt.pt /d /v.txt None /o mrpc 8 16 1 - - - - - - eval")[1].num_processes == 1


@pytest.mark.parametrize(
    ("task", "line", "rule"),
    [
        (
            "squad",
            "10 5e-6 fp16 true 10 384 128 large 1.1 model.ckpt 1.1",
            "argument 3 .*TensorFlow 1 .*here the .* are ",
        ),
        (
            "squad",
            "8 12 5e-6 fp16 true large 1.1 2",
            "argument 4 is a precision .fp16., as in .*TensorFlow 2 run_squad.sh",
        ),
        ("squad", "ckpt.pt 2.0 24 3e-5 fp16 8 42 /squad", "argument 5 .*PyTorch .*init_checkpoint epochs batch_size"),
        ("glue", "MRPC 16 3e-6 fp16 true 8 128 64 large", "argument 4 .*TensorFlow run_glue.sh"),
        ("glue", "ckpt.pt /d /v.txt None /o mrpc 8 10 4", "batch_size=10 must be a multiple of gradient_acc.*=4"),
        ("glue", "ckpt.pt /d /v.txt None /o mrpc 8 many", "batch_size=many must be"),
        ("glue", "ckpt.pt /d /v.txt None /o mrpc 8 16 1 - - - - - - test", "mode=test must name train, eval or pred"),
        ("glue", "ckpt.pt /d /v.txt None /o mrpc 8 16 1 - - - - - - train+evl", "mode=train.evl must name train, eval"),
        ("glue", "ckpt.pt /d /v.txt None /o mrcp", "task_name='mrcp' is not one of"),
    ],
)
def test_other_lines_are_refused_with_whose_they_are(task, line, rule):
    with refused(rule):
        finetuning.main(task, line.split())


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("8192 6e-3 fp16 8 0.2843 7038 200 false", "batch_size=8192 .*PyTorch .*argument 9 .*--config large_pytorch"),
        ("8192 6e-3 amp 8", "batch_size=8192 .*PyTorch"),
        (
            "1024 6e-3 fp16 8 0.2843 7038 200 false true true 128",
            "batch_size=1024 is of NVIDIA's PyTorch run_pretraining",
        ),
        ("64 8 8 7.5e-4 5e-4 fp16 true 8 2000 200 7820 100 128 512 large", "argument 6 .*run_pretraining_lamb.sh"),
        ("14 8 1e-4 fp16 true 8", "argument 4 .*run_pretraining_adam.sh"),
    ],
)
def test_other_lines_of_pre_training_are_refused_with_whose_they_are(line, rule):
    with refused(rule):
        pretraining.main(line.split())


GLUON = {  # GluonNLP's flag -> ours
    "--data x": "--input-dir",
    "--data_eval x": "--eval-dir",
    "--num_steps 9": "--max-steps",
    "--lr 1e-4": "--learning-rate",
    "--warmup_ratio 0.1": "--warmup-proportion",
    "--accumulate 4": "--gradient-merge-steps",
    "--ckpt_dir x": "--output-dir",
    "--ckpt_interval 9": "--num-steps-per-checkpoint",
    "--start_step 9": "--from-checkpoint",
    "--dtype float16": "--amp",
    "--gpus 0,1": "--num-gpus",
    "--log_interval 9": "--log-freq",
}


@pytest.mark.parametrize("theirs", GLUON)
def test_gluonnlps_flags_name_ours(theirs):
    with refused(f"did you mean {GLUON[theirs]}|{GLUON[theirs]} "):
        pretraining.main(["--phase1", *theirs.split()])


def test_fp16_is_amp_where_the_rest_is_ours(capsys):
    assert pretraining.main(["256", "6e-3", "fp16", "8", "--dry-run"]) == 0
    assert "65,536" in capsys.readouterr().out

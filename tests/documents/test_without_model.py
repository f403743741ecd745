"""Documented commands that need no model: recipes, plans, doctor, package, self-test, Docker, Slurm."""

import sys

import pytest

from bert import REPOSITORY
from tests.documents.document import command, commands, offline, output_of
from tests.support.documents import FENCE, TEXTS

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("without a model")]


@pytest.mark.parametrize(
    "line",
    [
        command("bash scripts/run_pretraining.sh --config large --dry-run"),
        command("bash scripts/run_pretraining.sh --config dgxa100-80g_8gpu_amp"),
        command("bash scripts/run_pretraining.sh $(source"),
    ],
)
def test_the_published_recipes_resolve(line, clone):
    dry = line if line.endswith("--dry-run") else f"{line} --dry-run"
    output_of(dry, clone, "65,536 sequences an update", "32,768 sequences an update")


def resolves(line: str, clone, *parts: str) -> None:
    """Check that the settings of a command for fine-tuning are shown."""
    weights = clone / "results/bert-large-uncased/phase2/1563"  # what presets name, a pre-training away
    weights.mkdir(parents=True, exist_ok=True)
    (weights / "bert_paddle.safetensors").touch()  # only its name is read
    (clone / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    flags = "--vocab-file vocab.txt --device cpu --show-config"
    output_of(f"{line} {flags}", clone, *parts, **offline(clone), BERT_PREP_WORKING_DIR="/data")


@pytest.mark.parametrize(
    "line",
    [
        command("bash scripts/run_squad.sh --config squad_base"),
        command("bash scripts/run_squad.sh --config dgxa100-80g_8gpu_amp"),
        command("bash scripts/run_squad.sh $(source"),
    ],
)
def test_the_recipes_of_squad_resolve(line, clone):
    resolves(line, clone, "train_file: /data/download/squad/v", "max_seq_length: 384")


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        (command("bash scripts/run_glue.sh --config mnli_large"), "global_batch_size: 128"),
        (command("bash scripts/run_ner.sh --config conll2003"), "document_context: true"),
        (command(".venv/bin/python run_glue.py --task-name AX"), "do_predict: true"),
    ],
)
def test_the_recipes_of_glue_and_entities_resolve(line, setting, clone):
    resolves(line, clone, setting)


def test_all_tasks_of_glue_are_planned(clone):
    output_of(
        command("bash scripts/run_glue.sh all"),
        clone,
        "45 trainings in results/scores: 0 done, 45 left",
        **offline(clone),
    )


def test_published_models_are_kept_in_the_cache_and_copied(clone):
    for line in commands(".venv/bin/python -m data.download_model"):
        output_of(line, clone, "complete: --from-pretrained-params", **offline(clone))
    assert (clone / "results/downloaded/model.safetensors").is_file()


def test_the_evening_is_planned(clone):
    line = command("bash scripts/run_pretraining.sh --config evening") + " --dry-run"
    output_of(line, clone, "documentation", "mini: 4 layers", timeout=900)  # which it reads, all of the machine


def test_plans_are_printed(clone):
    shown = TEXTS["docs/howto/plan.md"]
    quoted = next(block for language, block in FENCE.findall(shown) if language == "text").splitlines()
    line = command(".venv/bin/python run_pretraining.py --plan")
    printed = output_of(line, clone, "--batch-size 512", "at 32 an hour").splitlines()
    assert len(quoted) == 10 and [line for line in quoted if line not in printed] == []
    output_of(command("bash scripts/run_pretraining.sh --config large --plan"), clone, "together")
    modern = command(".venv/bin/python run_pretraining.py --config phase1_modernbert_base")
    output_of(modern, clone, "phase1 of modernbert-base")
    checked = output_of(command(".venv/bin/python -m tests.benchmarks.planner_check"), clone)
    document = "tests/research/planning.md"
    assert checked in TEXTS[document], f"the table of {document} is not what the planner says"


def test_stop_files_are_made(clone):
    (clone / "results/quickstart").mkdir(parents=True, exist_ok=True)
    for line in (command("touch results/quickstart/STOP"), command("touch results/quickstart/FINISH")):
        output_of(line, clone)
        (clone / line.removeprefix("touch ")).unlink()


def test_help_and_doctor_are_readable(clone):
    output_of(command(".venv/bin/python run_pretraining.py --help"), clone, "--gradient-merge-steps")
    output_of(command(".venv/bin/python -m bert.doctor"), clone, "\nfit to train: 0 failure(s)")


def test_the_package_is_installed_with_its_dependencies(clone):
    for line in (command("python3 -m venv env"), command("env/bin/pip install .")):
        output_of(line, clone, timeout=1800)
    output_of("env/bin/bert-on-paddle doctor", clone, "\nfit to train: 0 failure(s)")


def test_the_self_test_of_gpus_lists_its_checks_and_runs_some_on_a_cpu(clone):
    lines = commands("bash scripts/run_gpu_selftest.sh")
    on_cpu = "bash scripts/run_gpu_selftest.sh --device cpu"
    assert {"bash scripts/run_gpu_selftest.sh", "bash scripts/run_gpu_selftest.sh --list", on_cpu} < set(lines)
    for line in lines:
        output_of(line if line.endswith(" --list") else f"{line} --list", clone, "test_ranks[accumulated]")
    output_of(f"{on_cpu} --only doctor --only fused", clone, "5 passed")


def test_docker_commands_and_several_nodes_resolve(clone):
    assert output_of(command("bash scripts/docker/build.sh") + " --dry-run", clone).startswith("docker build ")
    line = command("bash scripts/docker/launch.sh").replace("launch.sh ", "launch.sh --dry-run ", 1)
    assert output_of(line, clone).strip().endswith("bash scripts/run_pretraining.sh --config large")
    line = command("bash scripts/run_pretraining.sh --config dgxa100-80g_2x8gpu_amp") + " --dry-run"
    output_of(line, clone, "x 16 ranks")


def test_slurm_accepts_the_submissions(clone, tmp_path):
    """A cluster of two nodes accepts them in held state; tests/cluster lets such jobs run."""
    lines = [command("sbatch -N2"), command("PHASE=2 sbatch")]
    sys.path.insert(0, str(REPOSITORY / "tests/cluster"))
    import slurm_cluster

    if reason := slurm_cluster.why_not():
        pytest.skip(f"no Slurm: {reason}")
    with slurm_cluster.SlurmCluster(tmp_path / "slurm") as cluster:
        for line in lines:
            cluster.run(["bash", "-c", line], cwd=clone, env={"SBATCH_HOLD": "1"}, check=True)
        jobs = cluster.output("squeue", "--noheader", "--format=%i %T %l %D %E").splitlines()
        assert [job.split()[1:4] for job in jobs] == [["PENDING", "4:00:00", "2"]] * 3
        assert sum("afterok:2" in job for job in jobs) == 1, jobs

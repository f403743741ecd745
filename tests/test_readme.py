"""The documents (README.md, CONTRIBUTING.md and a README.md beside the code) are true.

Fast tests: links, files, modules and flags that they name exist. Slow tests run each command as a newcomer would, in a
fresh clone. What needs eight GPUs is run with `--dry-run`, which resolves and checks the same settings. `run_tests.sh`
runs this file, so it is not run again from inside.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from functools import cache
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.exit_codes import BAD_INPUT
from tests.faults.table import ROWS
from tests.support import suggestions as suggested
from tests.support.documents import FENCE, commands, fresh_clone
from tests.support.fake_hub import put_in_cache, tiny_model
from tests.support.writable_hub import ACCOUNT, TOKEN, writable_hub

README = REPOSITORY / "README.md"
README_LINES = 190
HOW_TO_WORDS = 12_000  # of what a user reads to do something; figures and reasons are in MEASUREMENTS.md and tests/
FOLDERS = ("bert", "data", "scripts", "tests", ".ci")
DOCUMENTS = sorted(
    [*REPOSITORY.glob("*.md"), *(path for name in FOLDERS for path in (REPOSITORY / name).rglob("*.md"))]
)
TEXTS = {str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8") for path in DOCUMENTS}
ALL_TEXT = "\n".join(TEXTS.values())
# tests/newcomer/test_afternoon.py runs those of that page.
COMMANDS = list(
    dict.fromkeys(line for name, text in TEXTS.items() if name != "scripts/AFTERNOON.md" for line in commands(text))
)
QUICKSTART = "bash scripts/run_pretraining.sh"
# The gate divides the quickstart's updates by BERT_DIVIDE_UPDATES. Then its model has learned too little to be judged,
# and the quickstarts of fine-tuning from it are short as well.
DIVISOR = int(os.environ.get("BERT_DIVIDE_UPDATES", "1"))
SHORT = " --epochs 2" if DIVISOR > 1 else ""
NOT_FROM_INSIDE = ("bash scripts/run_tests.sh", "bash scripts/run_gpu_record.sh", "bash .ci/run")  # .ci/run runs them


def command(start: str) -> str:
    """The documents' command that starts so; the test fails if they no longer have it, or have two."""
    (found,) = [line for line in COMMANDS if line.startswith(start)]
    TRIED.add(found)
    return found


def example(start: str) -> str:
    """The documents' Python block that starts so."""
    blocks = [block for language, block in FENCE.findall(ALL_TEXT) if language == "python"]
    (found,) = [block for block in blocks if block.startswith(start)]
    return found


TRIED: set[str] = set()
OUTPUTS: list[str] = []  # of the entry points and their scripts, which suggest what to do next
SUGGESTING = re.compile(r"(bash scripts/|\S*python )run_(pretraining|squad|glue|ner|convert|export|predict)\b")


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return fresh_clone(tmp_path_factory.mktemp("readme") / "clone")


def run(line: str, folder: Path, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess:
    """The line in a shell whose `python` is the one of these tests."""
    variables = suggested.environment(**environment)
    words = ["bash", "-c", line]
    done = subprocess.run(
        words, cwd=folder, timeout=timeout, capture_output=True, text=True, env=variables, check=False
    )
    if SUGGESTING.match(line) and not line.endswith("--help"):
        OUTPUTS.append(done.stdout)
    return done


def output_of(line: str, folder: Path, *parts: str, timeout: float = 300, **environment: str) -> str:
    """The standard output of a command that succeeds; the `parts` are in it."""
    done = run(line, folder, timeout, **environment)
    assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    missing = [part for part in parts if part not in done.stdout]
    assert not missing, f"{line}\n{missing} are not in\n{done.stdout[-3000:]}"
    return done.stdout


@pytest.mark.slow
def test_the_quickstart_learns_leaves_its_files_and_says_when_it_is_done(clone):
    TRIED.add(QUICKSTART)
    assert QUICKSTART in COMMANDS
    shorter = [f"--phase{phase}-max-steps {steps // DIVISOR}" for phase, steps in ((1, 2500), (2, 500))]
    line = " ".join([QUICKSTART, *shorter]) if DIVISOR > 1 else QUICKSTART
    output_of(line, clone, "Next, try:", "unigram entropy", timeout=1500)
    results = clone / "results/quickstart"
    summary = json.loads((results / "summary.json").read_text())
    for phase in ("phase1", "phase2"):
        figures = summary[phase]
        assert figures["finished"] and figures["skipped_steps"] == 0
        assert figures["eval_masked_lm_loss"] < (0.85 if DIVISOR == 1 else 1.5) * figures["unigram_entropy"], figures
        assert (results / phase / "config.yaml").is_file()
        assert any((results / phase / "visualdl").iterdir())
        lines = (results / phase / "log.jsonl").read_text().splitlines()
        assert all(json.loads(line.removeprefix("DLLL "))["data"] is not None for line in lines)
        steps = [int(path.name) for path in (results / "bert-quickstart" / phase).iterdir() if path.name.isdecimal()]
        assert steps and max(steps) == figures["steps"]
        if DIVISOR == 1:
            assert len(steps) == 3 and figures["eval_next_sentence_accuracy"] > 0.66, figures
    assert (results / "loss.png").read_bytes().startswith(b"\x89PNG")
    output_of(line, clone, "Already done")


@pytest.mark.slow
def test_a_phase_by_hand_continues(clone):
    launch = (
        ".venv/bin/python -m paddle.distributed.launch --nproc_per_node 2 run_pretraining.py --config "
        "results/quickstart/phase1.yaml --output-dir results/by_hand --report-file results/by_hand/report.json"
    )
    for last in (20, 40):
        shown = output_of(command(f"{launch} --max-steps {last}"), clone)
        assert (clone / f"results/by_hand/bert-quickstart/phase1/{last}/manifest.json").is_file()
    assert "at step 20" in shown
    measured = output_of(command(".venv/bin/python -m tests.benchmarks.measure_loader"), clone)
    assert json.loads(measured)["slowest_rank"] < 1.1


@pytest.mark.slow
def test_the_quickstarts_model_goes_out_and_comes_back(clone):
    to_served = (
        ".venv/bin/python run_export.py --checkpoint results/quickstart/bert-quickstart/phase2 --to results/served"
    )
    for start, written in (
        (".venv/bin/python run_convert.py --from results/quickstart/", "for_transformers/model.safetensors"),
        (".venv/bin/python run_convert.py --from results/for_transformers", "converted/manifest.json"),
        (f"{to_served} -", "served/model.pdmodel"),
        (f"{to_served}_onnx", "served_onnx/model.onnx"),
        (f"{to_served}_int8", "served_int8/model.onnx"),
    ):
        output_of(command(start), clone, "changes:")
        assert (clone / "results" / written).is_file()
    output_of(f".venv/bin/python -c {shlex.quote(example('from bert.inference.predictor'))}", clone, "(2, 128)")
    with writable_hub() as hub:
        line = command(".venv/bin/python run_convert.py --from results/quickstart --to-hub")
        output_of(line, clone, "pushed: ", HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN)
    card = hub.repositories[f"{ACCOUNT}/bert-of-the-documentation"].files["README.md"].decode()
    assert "| time |" in card and ", last | " in card


@pytest.mark.slow
def test_visualdl_serves_the_curves(clone):
    command(
        ".venv/bin/visualdl --disable-telemetry --language en --logdir results --port"
    )  # the same with another folder
    line = command(".venv/bin/visualdl --disable-telemetry --language en --logdir results/quickstart").split()
    tags, port = "", "8741"
    nothing = subprocess.DEVNULL
    words = [str(clone / line[0]), *line[1:], "--port", port]
    server = subprocess.Popen(words, cwd=clone, stdout=nothing, stderr=nothing, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while "masked_lm_loss" not in tags and time.monotonic() < deadline:
            time.sleep(1)
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://localhost:{port}/app/api/scalar/tags", timeout=5) as answer:
                    tags = answer.read().decode()
        assert "train/masked_lm_loss" in tags and "eval/masked_lm_loss" in tags
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.mark.slow
def test_own_text_to_shards_and_a_plan(clone):
    """The user's text here is the held-out corpus, which the quickstart collected: a file for each document."""
    documents = (clone / "results/quickstart/data/corpus/held_out/source/en/0.txt").read_text().splitlines()
    (clone / "mine/raw").mkdir(parents=True)
    for number, document in enumerate(documents):
        (clone / f"mine/raw/{number}.txt").write_text(document.split(" ", 1)[1])
    preprocess = ".venv/bin/python -m data.preprocess_bert_pretrain --text mine/"
    for start in (
        ".venv/bin/python -m data.import_text",
        ".venv/bin/python -m data.train_vocabulary",
        *(f"{preprocess}{part}/source --sink mine/phase{phase}" for phase in (1, 2) for part in ("train", "held_out")),
    ):
        output_of(command(start), clone)
    inspected = run(command(".venv/bin/python -m data.inspect"), clone)
    assert "padding to the longest" in inspected.stdout and "masked: 1" in inspected.stdout, inspected.stderr
    assert inspected.returncode == (0 if "no problem found" in inspected.stdout else BAD_INPUT)
    output_of(command("bash scripts/run_pretraining.sh --config base") + " --dry-run", clone, "x 8 ranks")


@pytest.mark.slow
def test_own_text_in_one_command(clone):
    """Runs after the test above, which made the text; updates stand for the hours."""
    line = command("bash scripts/run_pretraining.sh --text mine/raw --hours 8").replace("--hours 8", "--max-steps 20")
    output_of(line, clone, "learned: held-out masked-LM loss", "Next, try:", timeout=600)
    line = command("bash scripts/run_pretraining.sh --text mine/raw --hours 2")
    output_of(line.replace("bert-base-uncased", "results/mine") + " --dry-run", clone, "the weights given")
    output_of(
        command("bash scripts/run_pretraining.sh --text mine/raw --model-type") + " --dry-run", clone, "ModernBERT"
    )
    line = command("bash scripts/run_pretraining.sh --config evening") + " --dry-run"
    output_of(line, clone, "documentation", "mini: 4 layers", timeout=900)  # which it reads, all of the machine


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        "bash scripts/run_pretraining.sh --config large --dry-run",
        "bash scripts/run_pretraining.sh --config dgxa100-80g_8gpu_amp",
        "bash scripts/run_pretraining.sh $(source",
    ],
)
def test_the_published_recipes_resolve(start, clone):
    line = command(start).removesuffix(" --dry-run")
    output_of(f"{line} --dry-run", clone, "65,536 sequences an update", "32,768 sequences an update")


@pytest.mark.slow
def test_questions_are_answered(clone):
    """Runs after the quickstart of pre-training, and starts from what it left."""
    TRIED.add("bash scripts/run_squad.sh")
    line = f"bash scripts/run_squad.sh{SHORT}"
    output_of(line, clone, "starting from the pre-trained weights", "  F1  ", timeout=1500)
    summary = json.loads((clone / "results/squad_quickstart/squad/summary.json").read_text())
    assert (summary["F1"] > 4 or DIVISOR > 1) and summary["exact_match"] <= summary["F1"]
    output_of(command(".venv/bin/python run_squad.py --do-predict"), clone)
    assert len(json.loads((clone / "results/answers/squad/predictions.json").read_text())) == 107
    typed = "Anna Lindqvist opened her bakery in 1987.\n\nWho opened the bakery?\n"
    output_of(f"printf '{typed}' | {command('.venv/bin/python run_squad.py --interactive')}", clone, "%]")
    output_of(f".venv/bin/python -c {shlex.quote(example('from bert.inference.heads'))}", clone)


def offline(clone: Path) -> dict[str, str]:
    """An environment without network, in whose cache is a small model under each published name of the documents."""
    cache = clone.parent / "cache"
    for name in ("bert-base-uncased", "bert-base-cased"):
        if not (cache / "models/google-bert" / name).exists():
            put_in_cache(cache, name, tiny_model(positions=512))
    return {"BERT_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}


@pytest.mark.slow
def test_published_models_are_kept_in_the_cache_and_copied(clone):
    for end in ("bert-base-uncased", "bert-base-uncased --output-dir results/downloaded"):
        line = f".venv/bin/python -m data.download_model {end}"
        assert line in COMMANDS
        TRIED.add(line)
        output_of(line, clone, "complete: --from-pretrained-params", **offline(clone))
    assert (clone / "results/downloaded/model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        "bash scripts/run_squad.sh --config squad_base",
        "bash scripts/run_squad.sh --config dgxa100-80g_8gpu_amp",
        "bash scripts/run_squad.sh $(source",
    ],
)
def test_the_recipes_of_squad_resolve(start, clone):
    weights = clone / "results/bert-large-uncased/phase2/1563"  # what the preset names, a pre-training away
    weights.mkdir(parents=True, exist_ok=True)
    resolves(start, clone, "train_file: /data/download/squad/v", "max_seq_length: 384")


def resolves(start: str, clone: Path, *parts: str) -> None:
    """The settings of a command for fine-tuning are shown."""
    flags = f"--vocab-file {clone}/results/quickstart/data/vocab.txt --device cpu --show-config"
    output_of(f"{command(start)} {flags}", clone, *parts, **offline(clone), BERT_PREP_WORKING_DIR="/data")


@pytest.mark.slow
def test_sentences_are_judged_and_entities_found(clone):
    """Runs after the quickstart of pre-training, and starts from what it left."""
    for line, stage in (
        ("bash scripts/run_glue.sh", "sentiment/glue-custom"),
        ("bash scripts/run_ner.sh", "entities/ner"),
    ):
        TRIED.add(line)
        output_of(line + SHORT, clone, "starting from the pre-trained weights", "  f1  ", timeout=900)
        summary = json.loads((clone / "results/glue_quickstart" / stage / "summary.json").read_text())
        assert summary["finished"] and 0 <= summary["eval_f1"] <= 1
    output_of(command(".venv/bin/python run_glue.py --task-name custom"), clone)
    assert len((clone / "results/judged/glue-custom/predictions.tsv").read_text().splitlines()) == 101


@pytest.mark.slow
def test_several_tasks_are_scored(clone):
    line = command("bash scripts/run_glue.sh quickstart_pairs")
    output_of(line, clone, "4 runs:", "| average of 2 tasks |", timeout=900)
    assert "0 left" in output_of(f"{line} --dry-run", clone)
    output_of(command("bash scripts/run_glue.sh all"), clone, "135 runs: rates 2e-05", **offline(clone))


@pytest.mark.slow
def test_labelled_lines_become_a_classifier(clone):
    """After the quickstart of pre-training. The predictions come later, with those of the other models."""
    for line in [line for line in COMMANDS if line.startswith("bash scripts/run_classify.sh")]:
        TRIED.add(line)
        part = "held out: 48 of 240" if "--dry-run" in line else "recall" if "--cross" in line else "  accuracy  "
        output_of(line, clone, part, timeout=1800)
    scores = json.loads((clone / "results/labels/glue-custom/scores.json").read_text())
    assert scores["classes"]["negative"]["recall"] >= 0.9 and "negative" in scores["threshold"]
    assert (clone / "results/parts/cross_validation.md").read_text().count("| positive | 0.") == 1


@pytest.mark.slow
def test_words_and_questions_of_ones_own(clone):
    """After the quickstarts of pre-training and of questions."""
    for start in ("bash scripts/run_ner.sh --train-file", "bash scripts/run_squad.sh --config squad_small"):
        output_of(f"{command(start)} --epochs 2", clone, "  f1  " if "ner" in start else "  F1  ", timeout=900)


@pytest.mark.slow
def test_every_model_is_used_with_one_command(clone):
    """After the quickstarts above: each line of the documents with run_predict.py, without a terminal."""
    outputs = ""
    for line in [line for line in COMMANDS if "run_predict.py" in line and "localhost" not in line]:
        TRIED.add(line)
        outputs += output_of(line if "|" in line else f"{line} < /dev/null", clone)
    for part in ('"filled": "Returns a ', '"answers": [', '"probabilities": {', '"entities": [', "true word: "):
        assert part in outputs, part
    neighbours = [json.loads(line) for line in (clone / "results/neighbours.jsonl").read_text().splitlines()]
    assert len(neighbours) > 100 and sum("nearest" in record for record in neighbours) > 100


@pytest.mark.slow
def test_a_model_is_served(clone):
    """After the quickstarts above, with the documents' address."""
    output_of(command("bash scripts/setup.sh serve"), clone)
    start = command(".venv/bin/python -m bert.serving results/glue_quickstart/sentiment")
    server = subprocess.Popen(["bash", "-c", f"exec {start}"], cwd=clone, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None and any(" is ready: " in line for line in server.stderr)
        shown = {}
        for line in [line for line in COMMANDS if line.startswith("curl -s localhost:8000")]:
            TRIED.add(line)
            shown[line.split("localhost:8000")[1].split()[0]] = run(line, clone).stdout
        assert json.loads(shown["/predict"])["results"][0]["label"]
        assert json.loads(shown["/ready"]) == {"status": "ready"} and "bert_requests_total" in shown["/metrics"]
        output_of(command(".venv/bin/python run_predict.py http://localhost:8000"), clone)
        rows = (clone / "results/scored.csv").read_text().splitlines()
        assert len(rows) == 101 and rows[0].startswith("sentence,label,predicted_label,probability,")
        assert output_of(f".venv/bin/python -c {shlex.quote(example('import requests'))}", clone).startswith("['")
    finally:
        server.terminate()
    assert server.wait(60) == 0
    line = command("bash scripts/benchmark_serving.sh").replace("--seconds 8", "--seconds 2")
    output_of(line, clone, "| 64 | one at a time |", timeout=600)


@pytest.mark.slow
def test_the_recipes_of_glue_resolve(clone):
    for start, data in (
        ("bash scripts/run_glue.sh --task-name mrpc", "global_batch_size: 32"),
        ("bash scripts/run_glue.sh --config mnli_large", "global_batch_size: 128"),
        ("bash scripts/run_ner.sh --config conll2003", "document_context: true"),
        (".venv/bin/python run_glue.py --task-name AX", "do_predict: true"),
    ):
        resolves(start, clone, data)


@pytest.mark.slow
def test_plans_are_printed(clone):
    shown = TEXTS["bert/planning/README.md"]
    quoted = next(block for language, block in FENCE.findall(shown) if language == "text").splitlines()
    line = command(".venv/bin/python run_pretraining.py --plan")
    printed = output_of(line, clone, "--batch-size 256", "at 32 an hour").splitlines()
    assert len(quoted) == 8 and [line for line in quoted if line not in printed] == []
    output_of(command("bash scripts/run_pretraining.sh --config large --plan"), clone, "together")
    modern = command(".venv/bin/python run_pretraining.py --config phase1_modernbert_base")
    output_of(modern, clone, "phase1 of modernbert-base")
    checked = output_of(command(".venv/bin/python -m tests.benchmarks.planner_check"), clone)
    document = "bert/planning/MEASUREMENTS.md"
    assert checked in TEXTS[document], f"the table of {document} is not what the planner says"


@pytest.mark.slow
def test_reports_of_the_quickstart_are_written(clone):
    """Runs after the quickstart."""
    for line in [line for line in COMMANDS if line.startswith(".venv/bin/python -m bert.reporting")]:
        TRIED.add(line)
        output_of(line, clone)
    assert (clone / "results/quickstart/report.html").stat().st_size > 100_000
    assert "data:image/png" in (clone / "results/both.md").read_text()


@pytest.mark.slow
def test_the_benchmark_of_training_compares_four(clone):
    """The README's command with a model that takes seconds."""
    start = command("bash scripts/benchmark_training.sh")
    if "BERT_TORCH_VENV" not in os.environ:
        pytest.skip("PyTorch is gigabytes: name an environment for it (made if it is not there), BERT_TORCH_VENV=DIR")
    output_of(f"{start} --cases bert-tiny --rounds 2 --updates 2 --warmup-steps 1", clone, timeout=2400)
    (case,) = json.loads((clone / ".benchmark/training/results.json").read_text())["cases"]
    assert len(case["rows"]) == 4


@pytest.mark.slow
def test_a_stop_file_and_the_fault_rows(clone):
    (clone / "results/quickstart").mkdir(parents=True, exist_ok=True)
    for name in ("STOP", "FINISH"):
        output_of(command(f"touch results/quickstart/{name}"), clone)
        (clone / "results/quickstart" / name).unlink()
    plain = "bash scripts/run_fault_tests.sh --rows 4,5,6"
    TRIED.add(plain)
    assert plain in COMMANDS
    output_of(plain, clone, "272 tried, 0 lost")
    assert output_of(command(plain + " --broken"), clone).count("it loses, as it must") == 3


@pytest.mark.slow
def test_help_and_doctor_are_readable(clone):
    output_of(command(".venv/bin/python run_pretraining.py --help"), clone, "--gradient-merge-steps")
    output_of(command(".venv/bin/python -m bert.doctor"), clone, "\nfit to train: 0 failure(s)")


@pytest.mark.slow
def test_the_package_is_installed_with_its_dependencies(clone):
    for start in ("python3 -m venv env", "env/bin/pip install ."):
        output_of(command(start), clone, timeout=1800)
    output_of("env/bin/bert-on-paddle doctor", clone, "\nfit to train: 0 failure(s)")


@pytest.mark.slow
def test_the_self_test_of_gpus_lists_its_checks_and_runs_some_on_a_cpu(clone):
    plain = "bash scripts/run_gpu_selftest.sh"
    lines = [line for line in COMMANDS if line.startswith(plain)]
    TRIED.update(lines)
    assert {plain, f"{plain} --list", f"{plain} --device cpu"} < set(lines)
    for line in lines:
        output_of(line if line.endswith(" --list") else f"{line} --list", clone, "ranks-accumulated")
    output_of(f"{plain} --device cpu --only doctor --only fused", clone, "0 of 5 failed. Send back ")


@pytest.mark.slow
def test_docker_commands_and_several_nodes_resolve(clone):
    assert output_of(command("bash scripts/docker/build.sh") + " --dry-run", clone).startswith("docker build ")
    launched = output_of(
        command("bash scripts/docker/launch.sh").replace("launch.sh ", "launch.sh --dry-run ", 1), clone
    )
    assert launched.strip().endswith("bash scripts/run_pretraining.sh --config large")
    line = command("bash scripts/run_pretraining.sh --config dgxa100-80g_2x8gpu_amp") + " --dry-run"
    output_of(line, clone, "x 16 ranks")


@pytest.mark.slow
def test_slurm_accepts_the_submissions(clone, tmp_path):
    """A cluster of two nodes takes them, held; tests/cluster lets such jobs run."""
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


@pytest.mark.slow
def test_every_printed_suggestion_runs(clone):
    """After the tests above, whose outputs made them: the quickstarts, own text, exports ..."""
    known = [line for line in TRIED if line.startswith("bash scripts/")]
    tried = suggested.try_all(OUTPUTS, clone, known)[len(known) :]
    for part in ("visualdl --logdir", "run_predict.py", "run_export.py", "run_glue.sh --from", "--phase1-max-steps"):
        assert any(part in line for line in tried), (part, tried)


@pytest.mark.slow
def test_no_command_was_left_out():
    """Last of the slow tests: all the tests above have noted what they ran."""
    assert sorted(line for line in set(COMMANDS) - TRIED if not line.startswith(NOT_FROM_INSIDE)) == []


def test_what_the_slow_tests_run_is_in_a_document():
    """So that a command which left the documents is noticed without running the others."""
    literal = re.findall(r'\bcommand\("([^"]+)"\)', Path(__file__).read_text(encoding="utf-8"))
    assert literal and [start for start in literal if len([c for c in COMMANDS if c.startswith(start)]) != 1] == []
    assert QUICKSTART in COMMANDS


# What the documents name exists


def without_fences(text: str) -> str:
    return FENCE.sub("", text)


def passages(text: str) -> list[str]:
    """Rows of tables, paragraphs, and commands."""
    return [*re.split(r"\n\n+|\n(?=[|])", without_fences(text)), *commands(text)]


def code_spans(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", without_fences(text))


def anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_fences(path.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def exists(name: str, bases: list[Path]) -> bool:
    """NAME in capitals stands for any name."""
    pattern = name.replace("NAME", "*").rstrip("/")
    return any(any(base.glob(pattern)) for base in bases)


@cache
def sources() -> str:
    """The text of everything that may define a flag."""
    files = [*REPOSITORY.glob("*.py"), REPOSITORY / "run.sub"]
    files += [path for name in FOLDERS for path in (REPOSITORY / name).rglob("*") if path.suffix in (".py", ".sh")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path != Path(__file__).resolve())


def test_the_readme_is_for_a_newcomer():
    assert len(TEXTS["README.md"].splitlines()) <= README_LINES


def test_how_to_and_evidence_are_apart():
    evidence = ("tests/", "CONTRIBUTING.md", "MEASUREMENTS.md", "COST.md")
    how_to = {
        name: sum(any(map(str.isalnum, word)) for word in text.split())  # the bars of tables are no words
        for name, text in TEXTS.items()
        if not any(part in name for part in evidence)
    }
    assert sum(how_to.values()) <= HOW_TO_WORDS, how_to


@pytest.mark.parametrize("name", TEXTS)
def test_relative_links_lead_somewhere(name):
    folder = (REPOSITORY / name).parent
    for target in re.findall(r"\]\(([^)]+)\)", without_fences(TEXTS[name])):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = (folder / path).resolve() if path else REPOSITORY / name
        assert linked.exists(), f"{name} links to {target}"
        assert not anchor or anchor in anchors(linked), (
            f"{name} links to {target}; {path} has {sorted(anchors(linked))}"
        )


@pytest.mark.parametrize("name", TEXTS)
def test_named_files_exist(name):
    """From the root, from the document's folder, or from a room that the same paragraph or row of a table names."""
    missing = []
    for passage in passages(TEXTS[name]):
        rooms = [REPOSITORY / room for room in re.findall(r"`((?:bert|data|tests|scripts)/[\w/]*)`", passage)]
        bases = [REPOSITORY, (REPOSITORY / name).parent, *rooms]
        spans = [passage] if passage in COMMANDS else code_spans(passage)
        for word in re.findall(r"[\w./*-]+", " ".join(spans)):
            is_ours = word.startswith(tuple(f"{folder}/" for folder in FOLDERS))
            is_code = re.fullmatch(r"[\w./*-]*[\w*]\.(py|sh|sub|md)", word) and not word.startswith(
                ("results/", "mine/")
            )
            if (is_ours or is_code) and not exists(word, bases):
                missing.append(word)
    assert not missing, f"{name} names {missing}"


@pytest.mark.parametrize("name", TEXTS)
def test_named_modules_exist(name):
    """A module, or a name that the module defines; `bert.encoder...` are tensors."""
    for module in re.findall(r"\b(?!bert\.encoder\.)(?:bert|data|tests)(?:\.[a-z_]+)+\b(?!\.\w)", TEXTS[name]):
        path = REPOSITORY / module.replace(".", "/")
        if path.is_dir() or path.with_suffix(".py").is_file():
            continue
        parent = (
            path.parent.with_suffix(".py") if path.parent.with_suffix(".py").is_file() else path.parent / "__init__.py"
        )
        assert parent.is_file() and path.name in parent.read_text(encoding="utf-8"), f"{name} names {module}"


@pytest.mark.parametrize("name", TEXTS)
def test_named_flags_exist(name):
    """A flag is written out in some source, or made from the name of a field."""
    modules = tuple(f".venv/bin/python -m {package}" for package in ("bert", "data", "tests"))
    ours = ("bash scripts/", "bash data/", ".venv/bin/python run_", *modules)
    words = " ".join([*code_spans(TEXTS[name]), *(line for line in commands(TEXTS[name]) if line.startswith(ours))])
    missing = []
    for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", words):
        field = re.sub(r"^(phase[12]-)?(no-)?", "", flag[2:]).replace("-", "_")
        if not re.search(rf"(?<![\w-]){flag}(?![\w-])|\b{field}: ", sources()):
            missing.append(flag)
    assert not missing, f"{name} names {missing}"


def test_every_block_says_its_language():
    assert {language for text in TEXTS.values() for language, _ in FENCE.findall(text)} <= {"bash", "python", "text"}


def test_the_map_shows_every_room():
    rooms = {
        path.parent
        for path in [*(REPOSITORY / "bert").glob("*/__init__.py"), *(REPOSITORY / "data").glob("*/__init__.py")]
    }
    assert [room for room in rooms if f"`{room.relative_to(REPOSITORY)}/`" not in TEXTS["README.md"]] == []


def test_the_fault_matrix_shows_every_row():
    shown = {int(number) for number in re.findall(r"^\| (\d+) \|", TEXTS["tests/README.md"], re.M)}
    assert shown == {row.number for row in ROWS} - {29}, "29 compares exports; it is said below the table"

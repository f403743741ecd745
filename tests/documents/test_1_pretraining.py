"""The quickstart of pre-training, what is done with its model, and own text."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
import urllib.request

import pytest

from bert.exit_codes import BAD_INPUT
from tests.documents.document import DIVISOR, QUICKSTART, TRIED, command, example, output_of, run
from tests.support.documents import COMMANDS
from tests.support.writable_hub import ACCOUNT, TOKEN, writable_hub


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

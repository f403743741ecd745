"""Documented commands of pre-training: the quickstart, and exporting, sharing and using its model."""

import json
import re
import shlex

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.documents.document import DIVISOR, command, example, note, output_of, try_suggestions
from tests.support.launching import free_ports
from tests.support.shell import started
from tests.support.suggestions import answer_of
from tests.support.warm_python import COLD
from tests.support.writable_hub import ACCOUNT, TOKEN, writable_hub

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("pretraining")]


def test_the_quickstart_is_stopped_after_a_save_and_the_same_command_ends_with_the_table(quickstart):
    assert "starting with " in quickstart["seen"]
    (stopped,) = re.findall(r"saved step (\d+); the same command resumes", quickstart["rest"])
    continued = quickstart["continued"]
    assert "collecting text" in quickstart["seen"] and "collecting text" not in continued
    for part in (f"step {stopped}", "phase 2", "unigram entropy", "next-sentence accuracy", "Next, try:"):
        assert part in continued, continued
    assert "Already done" in quickstart["again"]


def test_the_quickstart_learns_and_leaves_its_files(clone, quickstart):
    results = clone / "results/quickstart"
    summary = json.loads((results / "summary.json").read_text())
    for phase, updates in (("phase1", 2500), ("phase2", 500)):
        figures = summary[phase]
        assert figures["finished"] and figures["skipped_steps"] == 0
        assert figures["eval_masked_lm_loss"] < (0.85 if DIVISOR == 1 else 1.5) * figures["unigram_entropy"], figures
        assert (results / phase / "config.yaml").is_file()
        assert any((results / phase / "visualdl").iterdir())
        lines = (results / phase / "log.jsonl").read_text().splitlines()
        assert all(json.loads(line.removeprefix("DLLL "))["data"] is not None for line in lines)
        steps = [int(path.name) for path in (results / "bert-quickstart" / phase).iterdir() if path.name.isdecimal()]
        assert max(steps) == figures["steps"] == updates // DIVISOR
        if DIVISOR == 1:
            assert len(steps) == 3 and figures["eval_next_sentence_accuracy"] > 0.66, figures
    assert (results / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_phase_by_hand_continues(clone, quickstart):
    first = command(
        ".venv/bin/python -m paddle.distributed.launch --nproc_per_node 2 run_pretraining.py --config "
        "results/quickstart/phase1.yaml --output-dir results/by_hand --report-file results/by_hand/report.json "
        "--max-steps 20"
    )
    second = command(
        ".venv/bin/python -m paddle.distributed.launch --nproc_per_node 2 run_pretraining.py --config "
        "results/quickstart/phase1.yaml --output-dir results/by_hand --report-file results/by_hand/report.json "
        "--max-steps 40"
    )
    for line, last in ((first, 20), (second, 40)):
        shown = output_of(line, clone)
        assert (clone / f"results/by_hand/bert-quickstart/phase1/{last}/manifest.json").is_file()
    assert "at step 20" in shown


def test_the_loader_is_measured(clone, quickstart):
    measured = output_of(command(".venv/bin/python -m tests.benchmarks.measure_loader"), clone)
    assert json.loads(measured)["slowest_rank"] < 1.1


def test_the_model_goes_to_hugging_faces_format_and_comes_back(clone, quickstart):
    for line, written in (
        (command(".venv/bin/python run_convert.py --model results/quickstart/"), "for_transformers/model.safetensors"),
        (command(".venv/bin/python run_convert.py --model results/for_transformers"), "converted/manifest.json"),
    ):
        output_of(line, clone, "changes:")
        assert (clone / "results" / written).is_file()
    steps = clone / "results/quickstart/bert-quickstart/phase2"
    newest = max((path for path in steps.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    original, returned = (
        load_file(folder / "bert_paddle.safetensors") for folder in (newest, clone / "results/converted")
    )
    assert original.keys() == returned.keys()
    assert not [name for name, tensor in original.items() if not np.array_equal(tensor, returned[name])]


def test_the_model_is_exported_and_used(clone, quickstart):
    for line, written in (
        (
            command(
                ".venv/bin/python run_export.py --model results/quickstart/bert-quickstart/phase2 "
                "--output-dir results/served --output-format paddle-inference --task encoder"
            ),
            "served/model.pdmodel",
        ),
        (
            command(
                ".venv/bin/python run_export.py --model results/quickstart/bert-quickstart/phase2 "
                "--output-dir results/served_onnx"
            ),
            "served_onnx/model.onnx",
        ),
        (
            command(
                ".venv/bin/python run_export.py --model results/quickstart/bert-quickstart/phase2 "
                "--output-dir results/served_int8"
            ),
            "served_int8/model.onnx",
        ),
    ):
        output_of(line, clone, "changes:")
        assert (clone / "results" / written).is_file()
    output_of(f".venv/bin/python -c {shlex.quote(example('from bert.inference.predictor'))}", clone, "(2, 128)")


def test_the_model_is_pushed_to_a_hub_with_a_card(clone, quickstart):
    with writable_hub() as hub:
        line = command(".venv/bin/python run_convert.py --model results/quickstart --to-hub")
        output_of(line, clone, "pushed: ", HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN)
    card = hub.repositories[f"{ACCOUNT}/bert-of-the-documentation"].files["README.md"].decode()
    assert "| time |" in card and ", last | " in card


def test_visualdl_serves_the_curves(clone, quickstart):
    of_all_runs = command(".venv/bin/visualdl --disable-telemetry --language en --logdir results --port")
    assert of_all_runs.endswith(" --port 8040")  # the same with another folder, as the suggestions have it
    line = command(".venv/bin/visualdl --disable-telemetry --language en --logdir results/quickstart")
    (port,) = free_ports(1)
    with started(f"{line} --port {port}", clone) as server:
        tags = answer_of(f"http://127.0.0.1:{port}/app/api/scalar/tags", server, "masked_lm_loss")
    assert "train/masked_lm_loss" in tags and "eval/masked_lm_loss" in tags


def test_words_are_guessed_and_the_nearest_lines_found(clone, quickstart):
    filled = output_of(command("echo 'Returns a [MASK] of strings.'"), clone, **COLD)
    shown = output_of(command(".venv/bin/python run_predict.py results/quickstart --show"), clone)
    output_of(command(".venv/bin/python run_predict.py results/quickstart data/examples/sample_questions.txt"), clone)
    output_of(command(".venv/bin/python run_predict.py results/quickstart"), clone)
    assert '"filled": "Returns a ' in filled and "true word: " in shown
    neighbours = [json.loads(line) for line in (clone / "results/neighbours.jsonl").read_text().splitlines()]
    assert len(neighbours) > 100 and sum("nearest" in record for record in neighbours) > 100


def test_reports_are_written(clone, quickstart):
    output_of(command(".venv/bin/python -m bert.reporting results"), clone)
    output_of(command(".venv/bin/python -m bert.reporting results/quickstart"), clone)
    output_of(command(".venv/bin/python -m bert.reporting results/quickstart/phase1"), clone)
    assert (clone / "results/quickstart/report.html").stat().st_size > 100_000
    assert "data:image/png" in (clone / "results/both.md").read_text()


def test_what_the_outputs_suggest_runs(clone, quickstart):
    """The outputs come from the tests above; if this test runs alone, from the quickstart alone."""
    note(quickstart["line"], clone, quickstart["continued"])
    tried = try_suggestions(clone)
    parts = ("visualdl --logdir results/quickstart", "-max-steps", "run_squad.sh", "run_predict.py results/squad_small")
    missing = [part for part in parts if not any(part in line for line in tried)]
    assert not missing, tried

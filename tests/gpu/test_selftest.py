"""The self-test of a machine with GPUs runs checks, keeps results and writes its report: injected checks, this CPU."""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from bert.config.training_settings import derive
from bert.doctor.facts import Gpu
from bert.planning.hardware import Hardware, load_parts
from bert.planning.planner import make_plan
from bert.pretraining.recipes import RECIPES
from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import PretrainingLoader
from bert.tokenization.vocabulary_files import read_vocabulary
from tests.gpu.cases import distinct, pretraining
from tests.gpu.selftest import __main__ as selftest
from tests.gpu.selftest import machine as machines
from tests.gpu.selftest import recipe_checks, trainings
from tests.gpu.selftest.__main__ import all_checks, chosen, listing, main
from tests.gpu.selftest.answers import FIRST_CHECKS, answers
from tests.gpu.selftest.checks import Bench, Check, Failed, Result, Skipped, Verdict, json_in
from tests.gpu.selftest.kernel_checks import judge_doctor, judge_fused_kernels, judge_kernels
from tests.gpu.selftest.machine import Machine, find_machine, part_name
from tests.gpu.selftest.recipe_checks import write_shards
from tests.gpu.selftest.report import report
from tests.gpu.selftest.trainings import compared, fusion_problem, judge_all_reduce, loss_problem

CPU = Machine("cpu", 2)


def check(name, action=lambda bench: Verdict("fine", {"answer": 42}), unable=lambda machine: ""):
    return Check(name, f"the check {name}", action, {"gpu": 10, "cpu": 10}, unable)


def failing(bench):
    raise Failed("it is wrong", {"loss": 3.5}, output="last line of the rank")


def broken(bench):
    raise ZeroDivisionError("no such thing")


def skipping(bench):
    raise Skipped("the card is too small")


def start(folder, checks, *arguments):
    return main(["--device", "cpu", "--output-dir", str(folder), *arguments], checks)


def statuses(folder):
    return {row["name"]: row["status"] for row in json.loads((folder / "results.json").read_text())["results"]}


# ---- running ---------------------------------------------------------------------------------------------------------


def test_a_failed_check_stops_no_other(tmp_path, capsys):
    checks = [check("first", failing), check("second", broken), check("third", skipping), check("fourth")]
    assert start(tmp_path, checks) == 1
    assert statuses(tmp_path) == {"first": "failed", "second": "failed", "third": "skipped", "fourth": "passed"}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[0].startswith("[ 1/4] first") and "failed" in lines[0] and "left" in lines[0]
    assert lines[3].endswith("passed, 0 seconds: fine") and lines[4].startswith(
        "2 of 4 failed: first, second. Send back"
    )


def test_finished_checks_are_kept_unless_they_are_asked_for_again(tmp_path, capsys):
    ran = []

    def noting(name, end):
        return check(name, lambda bench: ran.append((name, bench.again)) or end(bench))

    checks = [noting("good", lambda bench: Verdict("fine")), noting("bad", failing), noting("small", skipping)]
    for arguments, expected in (
        ((), [("good", False), ("bad", False), ("small", False)]),
        ((), [("small", True)]),
        (("--again", "failed"), [("bad", True), ("small", True)]),
        (("--again", "--only", "good"), [("good", True)]),
    ):
        ran.clear()
        assert start(tmp_path, checks, *arguments) == ("--only" not in arguments)
        assert ran == expected
    assert set(statuses(tmp_path)) == {"good", "bad", "small"}, "results of checks that were not chosen are kept"
    assert "passed, kept: fine" in capsys.readouterr().out


def test_an_interrupted_check_is_run_by_the_next_start(tmp_path, capsys):
    def interrupted(bench):
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        start(tmp_path, [check("first"), check("second", interrupted)])
    assert ended.value.code == 130 and "the same command continues" in capsys.readouterr().err
    assert statuses(tmp_path) == {"first": "passed"}
    assert start(tmp_path, [check("first", failing), check("second")]) == 0, "the first is not run again"


def test_results_of_another_machine_and_damaged_ones_are_not_kept(tmp_path):
    skipped = check("second", unable=lambda machine: "there is one GPU")
    assert start(tmp_path, [check("first"), skipped]) == 0
    assert statuses(tmp_path) == {"first": "passed", "second": "skipped"}
    record = json.loads((tmp_path / "results.json").read_text())
    record["machine"]["ranks"] = 8
    for content in (json.dumps(record), '{"machine"'):
        (tmp_path / "results.json").write_text(content)
        assert start(tmp_path, [check("first", failing)]) == 1


def test_the_report_has_all_for_people_and_the_record_all_for_programs(tmp_path):
    start(tmp_path, [check("first", failing), check("second")])
    text = (tmp_path / "report.md").read_text()
    assert "1 passed, 1 failed, 0 skipped" in text and "- `first` failed (the check first): it is wrong" in text
    assert "Not covered: the speed of training on packed tokens" in text
    everything = json.loads((tmp_path / "results.json").read_text())
    assert everything["machine"]["packages"]["numpy"] and everything["machine"]["device"] == "cpu"
    assert [(row["name"], row["figures"], row["output"]) for row in everything["results"]] == [
        ("first", {"loss": 3.5}, "last line of the rank"),
        ("second", {"answer": 42}, ""),
    ]


def test_names_choose_checks():
    checks = [check(name) for name in ("kernels", "train-fp32", "train-fp32-more", "train-amp")]
    assert [found.name for found in chosen(checks, ["train-fp32", "kern"])] == ["kernels", "train-fp32"]
    assert [found.name for found in chosen(checks, ["train"])] == ["train-fp32", "train-fp32-more", "train-amp"]
    assert chosen(checks, []) == checks
    with pytest.raises(ValueError, match="only=trian must be the name of a check or its beginning; --list shows them"):
        chosen(checks, ["trian"])


# ---- commands of checks ----------------------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path):
    return Bench(CPU, tmp_path, tmp_path / "logs/check.log")


def test_a_command_that_fails_is_shown_by_its_last_lines(bench):
    command = [sys.executable, "-c", "import sys; [print(f'line {n}') for n in range(100)]; sys.exit(3)"]
    with pytest.raises(Failed, match="exit code 3: ") as failed:
        bench.run(command, 60)
    assert failed.value.output.splitlines()[0] == "line 60" and failed.value.output.endswith("line 99")
    assert "line 0\n" in bench.log_file.read_text()
    assert bench.run(command, 60, allowed_codes=(0, 3)).startswith("line 0\n")


def test_a_command_that_hangs_is_ended_with_its_children(bench):
    """The child leads a group of its own, as the ranks of Paddle's launcher do."""
    child = f"import time; time.sleep(60)  # {bench.folder}"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    begin = time.monotonic()
    with pytest.raises(Failed, match="not finished after 2 s"):
        bench.run([sys.executable, "-c", parent], 2)
    assert time.monotonic() - begin < 20
    running = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert [words for words in running if child in words] == []


def test_json_is_found_among_other_output():
    assert json_in('warning: {bad}\n{"a": 1}\nnoise\n{\n "b": {"c": 2}\n}\nend') == {"b": {"c": 2}}
    with pytest.raises(Failed, match="printed no JSON"):
        json_in("nothing {}")


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("NCCL error: no route\n", "exit code 1: python"),
        ("step 1\nerror: device=gpu needs a GPU\n", "error: device=gpu needs a GPU"),
    ],
)
def test_a_training_that_fails_shows_the_output_of_its_ranks(bench, monkeypatch, printed, reason):
    def run(command, timeout_seconds, **environment):
        (Path(command[command.index("--log_dir") + 1]) / "workerlog.1").write_text(printed)
        raise Failed("exit code 1: python")

    monkeypatch.setattr(bench, "run", run)
    with pytest.raises(Failed, match=f"training name: {reason}") as failed:
        trainings.train(bench, "name", trainings.quickstart(bench, "name"), num_ranks=2)
    assert failed.value.output == f"workerlog.1:\n{printed.strip()}"


def test_a_finished_training_is_read_again_unless_its_settings_differ(bench, monkeypatch):
    ran = []
    monkeypatch.setattr(bench, "run", lambda command, timeout_seconds, **environment: ran.append(command))
    for changes, number in (({}, 1), ({}, 1), ({"amp": True}, 2)):
        trainings.train(bench, "name", trainings.quickstart(bench, "name", **changes))
        assert len(ran) == number
    bench.again = True
    trainings.train(bench, "name", trainings.quickstart(bench, "name", amp=True))
    assert len(ran) == 3


EIGHT_A100 = Machine("gpu", 8, (Gpu("NVIDIA A100-SXM4-80GB", "8.0", 81920, "535.104"),) * 8)
V100 = Machine("gpu", 1, (Gpu("Tesla V100-SXM2-16GB", "7.0", 16160, "470.1"),))
FALLING = [9.0 - 0.04 * step for step in range(20)]


# ---- verdicts --------------------------------------------------------------------------------------------------------


def test_losses_must_be_finite_fall_and_be_near_those_of_float32():
    assert loss_problem(FALLING, None) == loss_problem(FALLING, FALLING) == ""
    assert loss_problem([*FALLING[:-1], None], None).startswith("19 losses are finite, there must be 20")
    assert loss_problem([*FALLING[:-1], float("nan")], None).startswith("19 losses are finite")
    assert loss_problem(FALLING[:-1], None).startswith("19 losses are finite")
    assert loss_problem([9.0] * 20, None).startswith("the loss does not fall")
    assert loss_problem([loss + 0.1 for loss in FALLING], FALLING).startswith(
        "the first loss is 9.1000, in float32 9.0"
    )
    slow = [9.0 - 0.01 * step for step in range(20)]
    assert loss_problem(slow, FALLING).startswith("the mean of the last five losses is 8.8300")


def series(losses, norms):
    values = {"loss": losses, "gradient_norm": norms}
    return SimpleNamespace(of_updates=lambda name: values[name])


def test_losses_and_gradient_norms_are_compared_update_by_update():
    one = series([9.0, 8.0], [2.0, 1.0])
    near = compared(series([9.0, 8.004], [2.0, 1.004]), one, 1e-3)
    assert near.text == "loss differs by 5.0e-04, at most 1e-03, gradient norm differs by 4.0e-03, at most 1e-02"
    for other in (
        series([9.0, 8.016], [2.0, 1.0]),
        series([9.0, 8.0], [4.0, 2.0]),
        series([9.0], [2.0]),
        series([9.0, None], [2.0, 1.0]),
    ):
        with pytest.raises(Failed, match="differs by"):
            compared(other, one, 1e-3)
    assert compared(one, one, 0.0).figures["loss"]["largest difference"] == 0


def test_an_update_that_both_skipped_has_no_norm_and_one_that_one_skipped_differs():
    skipped = series([9.0, 8.0], [None, 1.0])
    assert compared(skipped, skipped, 0.0).figures["gradient_norm"]["largest difference"] == 0
    with pytest.raises(Failed, match="gradient norm differs by inf"):
        compared(skipped, series([9.0, 8.0], [2.0, 1.0]), 1e-3)


def test_fused_kernels_that_were_not_used_are_noticed():
    used = "x\nfused kernels: linear, dropout_add, attention\n"
    assert fusion_problem(used, EIGHT_A100) == fusion_problem("", CPU) == ""
    assert fusion_problem("fused kernels: linear, dropout_add\n", V100) == ""
    assert fusion_problem("fused kernels: linear\n", EIGHT_A100).endswith("the log has: fused kernels: linear")
    assert fusion_problem("", EIGHT_A100).endswith("the log has: no fused kernels")


def test_the_kernels_self_test_is_judged_by_the_card():
    def judged(machine, **reasons):
        reasons = {"linear": "", "dropout_add": "", "attention": "", **reasons}
        usable = {name: "2 ms" for name, reason in reasons.items() if not reason or "slower" in reason}
        return judge_fused_kernels({"reasons": reasons, "times": usable}, machine).text

    old = "flash_attn needs compute capability 8.0, this card has 7.0"
    assert judged(EIGHT_A100) == "agree: linear (2 ms), dropout_add (2 ms), attention (2 ms)"
    assert judged(EIGHT_A100, linear="it is slower: 2 ms").startswith("agree: linear (2 ms)")
    assert judged(V100, attention=old) == "agree: linear (2 ms), dropout_add (2 ms)"
    with pytest.raises(Failed, match="attention: flash_attn needs"):
        judged(EIGHT_A100, attention=old)
    with pytest.raises(Failed, match="linear: its self-test differs"):
        judged(V100, attention=old, linear="its self-test differs")
    with pytest.raises(Failed, match="without a GPU, and yet usable: linear, dropout_add, attention"):
        judged(CPU)


def test_a_missing_kernel_fails_and_another_program_is_reported():
    good, bad = {"training": [], "evaluation": []}, {"evaluation": ["flash_attn: no kernel on gpu for float32 x 24"]}
    assert judge_kernels({"a": good, "b": good}, ["b"]).text == "none is missing in 2 programs; not as recorded: b"
    with pytest.raises(Failed, match="b, evaluation: flash_attn: no kernel on gpu for float32 x 24"):
        judge_kernels({"a": good, "b": bad}, [])


def test_failures_of_the_doctor_are_named_with_their_remedy():
    def finding(level, name):
        return {"level": level, "name": name, "found": "1 GiB", "advice": "get more"}

    ok = {"fit": True, "facts": {"python": "3.11.7"}, "findings": [finding("ok", "disk"), finding("warning", "memory")]}
    assert judge_doctor(ok).text == "fit; warnings: memory: 1 GiB (get more)"
    with pytest.raises(Failed, match=r"NCCL: 1 GiB \(get more\)") as failed:
        judge_doctor({**ok, "fit": False, "findings": [finding("failure", "NCCL")]})
    assert failed.value.figures["python"] == "3.11.7"


# ---- machines and recipes --------------------------------------------------------------------------------------------


def test_a_card_is_found_in_the_planners_table():
    for name, mebibytes, part in (
        ("NVIDIA A100-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", 40960, "A100-40GB"),
        ("NVIDIA A10", 23028, "A10"),
        ("NVIDIA GeForce RTX 4090", 24564, "RTX-4090"),
        ("NVIDIA Something 9", 81920, None),
    ):
        assert part_name(Gpu(name, "8.0", mebibytes, "535"), load_parts()) == part


def test_without_a_gpu_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(machines, "num_gpus", lambda: 0)
    with pytest.raises(ValueError, match="device=auto needs a GPU, and nvidia-smi lists none; .*pass --device cpu"):
        find_machine("auto", None)
    with pytest.raises(ValueError, match="gpus=2 is for GPUs"):
        find_machine("cpu", 2)
    assert find_machine("cpu", None) == CPU


def test_the_visible_gpus_are_described(monkeypatch):
    cards = tuple(Gpu(f"card {number}", "8.0", 81920, "535") for number in range(4))
    monkeypatch.setattr(machines, "gpus", lambda: cards)
    monkeypatch.setattr(machines, "num_gpus", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert [gpu.name for gpu in find_machine("auto", None).gpus] == ["card 3", "card 1"]
    assert find_machine("gpu", 1) == Machine("gpu", 1, (cards[3],))
    with pytest.raises(ValueError, match="gpus=3 must be from 1 to the 2 visible GPUs"):
        find_machine("auto", 3)


def test_every_machine_has_its_list():
    names = [found.name for found in all_checks()]
    assert len(set(names)) == len(names)
    on = {machine: listing(all_checks(), machine) for machine in (CPU, EIGHT_A100, V100)}
    assert all(text.count("\n") + 1 == len(names) for text in on.values())
    assert on[EIGHT_A100].count("not here") == 0
    assert on[V100].count("bfloat16 needs compute capability 8.0, this card has 7.0") == 4
    assert on[V100].count("there is one GPU") == 3 and on[CPU].count("not here") == 0


def test_every_published_recipe_is_measured():
    """Those that are one program once."""
    recipes = {name: pretraining(recipe()) for name, recipe in RECIPES.items() if not name.startswith("quickstart")}
    measured = {found.name.removeprefix("throughput-") for found in recipe_checks.recipe_checks()}
    assert set(distinct(recipes).values()) | set(recipe_checks.VARIANTS) == measured


def test_a_recipe_is_measured_with_its_micro_batch(tmp_path):
    one_a100 = Machine("gpu", 1, EIGHT_A100.gpus[:1])
    for machine, recipe, micro_steps, batch_size in (
        (EIGHT_A100, "phase1_large", 8, 256),
        (EIGHT_A100, "phase1_base_adamw", 1, 32),
        (one_a100, "phase2_large", 8, 64),
    ):
        bench, published = Bench(machine, tmp_path, tmp_path / "log"), RECIPES[recipe]()
        config = recipe_checks.shortened(published, bench, "name", machine.hardware(machine.num_ranks))
        assert (config.batch.gradient_merge_steps, config.batch.batch_size) == (micro_steps, batch_size)
        assert config.model == published.model and config.optimizer == published.optimizer and config.run.benchmark


def test_a_small_card_takes_a_smaller_micro_batch_or_none(tmp_path):
    bench = Bench(V100, tmp_path, tmp_path / "log")
    config = recipe_checks.shortened(RECIPES["phase1_large"](), bench, "name", V100.hardware(1))
    assert 0 < config.batch.batch_size < 256 and make_plan(config, V100.hardware(1)).fits
    tiny = Machine("gpu", 1, (Gpu("NVIDIA Something 9", "8.0", 81920, "535"),))
    unknown = recipe_checks.shortened(RECIPES["phase1_large"](), bench, "name", tiny.hardware(1))
    assert tiny.hardware(1) is None and unknown.batch.batch_size == 256


UNJUDGED = {"speed is judged": False}


def measured(speed, gigabytes, planned, **more):
    figures = {"sequences per second": speed, "planned sequences per second": planned, "speed is judged": True}
    return figures | {"peak bytes": {"allocated": gigabytes * 1e9}, "estimated bytes": {"total": 40e9}} | more


def test_much_slower_than_planned_or_much_more_memory_fails():
    config = derive(RECIPES["phase1_large"](), gradient_merge_steps=8, global_batch_size=None)
    plan = make_plan(config, EIGHT_A100.hardware(8))
    planned = plan.sequences_per_second()
    h100 = make_plan(config, Hardware("H100-80GB", load_parts()["H100-80GB"], 1, 8))
    assert [recipe_checks.judges_speed(each) for each in (plan, h100, None)] == [True, False, False]

    def problems(speed, gigabytes, device="gpu", **more):
        return recipe_checks.shortfalls(measured(speed, gigabytes, planned, **more), device)

    assert problems(0.8 * planned, 43) == problems(2 * planned, 10) == problems(1.0, 90, "cpu") == {}
    assert problems(1.0, 43, **UNJUDGED) == {} and list(problems(1.0, 90, **UNJUDGED)) == ["memory"]
    assert problems(0.7 * planned, 43) == {"speed": "below 75% of the planned speed"}
    assert problems(planned, 45) == {"memory": "more than 110% of the estimated memory"}
    assert list(problems(0.7 * planned, 45)) == ["memory", "speed"]
    assert problems(None, 43) == {"speed": "no update was measured"}


def test_the_run_is_planned_with_the_kernels_that_it_chose():
    config = derive(RECIPES["phase1_large"](), gradient_merge_steps=8, global_batch_size=None)
    training = SimpleNamespace(messages=lambda: "fused kernels: linear, attention\nfuse_dropout_add=auto: plain\n")
    used = recipe_checks.as_it_ran(config, training).hardware.fusions()
    assert used == {"linear": "on", "dropout_add": "off", "attention": "on"}


def test_synthetic_shards_are_full_and_masked(tmp_path):
    config = recipe_checks.shortened(RECIPES["phase1_large"](), Bench(CPU, tmp_path, tmp_path / "log"), "name", None)
    write_shards(config, 64)
    data = config.data
    vocabulary = read_vocabulary(data.vocab_file)
    dataset = PretrainingDataset(data.input_dir, vocabulary, data, seed=1)
    loader = PretrainingLoader(dataset, global_batch_size=8, micro_batch_size=8, rank=0, world_size=1)
    batches = loader.batches()
    (batch,) = next(batches).micro_batches
    assert len(vocabulary) == config.model.vocab_size and dataset.num_samples == 64
    assert batch.num_tokens == batch.num_padded_tokens == 8 * 128 and batch.num_masked == 8 * 20
    ids, positions = batch.feed["input_ids"].ravel(), batch.feed["masked_lm_positions"]
    weighted = positions[batch.feed["masked_lm_weights"] > 0]
    assert len(set(weighted)) == 160 and set(ids[weighted]) == {vocabulary.id_of("[MASK]")}


SPEED_FIGURES = {"model": "bert-large-uncased", "ranks x micro-batches x sequences": [8, 8, 256]}
SPEED_FIGURES |= {"fused kernels": ["linear"]}
FACTS = {**EIGHT_A100.identity(), "packages": {}, **dict.fromkeys(("python", "system", "commit", "date"), "x")}


def test_the_table_of_speeds_has_a_row_for_each_recipe():
    figures = measured(5000.0, 43.2, 4000.0, **SPEED_FIGURES) | {"estimated bytes": {"total": 42.9e9}}
    result = Result("throughput-phase1_large-plain", "", "passed", 1.0, "", figures)
    text = report(FACTS, [result])
    row = (
        "| phase1_large-plain | bert-large-uncased | 8 x 8 x 256 | linear | 5,000.0 | 4,000.0 (+25%) | 43.20 | 42.90 |"
    )
    assert row in text and "Machine: 8 x NVIDIA A100-SXM4-80GB, 81920 MiB, driver 535.104; gpu, 8 ranks" in text


# ---- the first five minutes ------------------------------------------------------------------------------------------

GPU_FINDING = {"level": "ok", "name": "GPU", "found": "8 x A100, driver 535.104", "advice": ""}
PADDLE_FINDING = {"level": "ok", "name": "Paddle", "found": "2.6.2, CUDA 11.8", "advice": ""}
GOOD = {
    "doctor": Result("doctor", "", "passed", 9.0, "fit", {"findings": [GPU_FINDING, PADDLE_FINDING]}),
    "nccl": Result("nccl", "", "passed", 9.0, "8 ranks sum 150.0 GB/s"),
    "fused-kernels-float16": Result("fused-kernels-float16", "", "passed", 9.0, "agree: linear (2 ms)"),
    "throughput-phase1_large": Result("throughput-phase1_large", "", "passed", 9.0, "", measured(4100.0, 39, 4000.0)),
}
TRAINING, OLD_DRIVER = "throughput-phase1_large", "Paddle sees 0 of them: is the driver new enough"


def failed(name, text, figures=None, output=""):
    return GOOD | {name: Result(name, "", "failed", 9.0, text, figures or {}, output)}


@pytest.mark.parametrize(
    ("topic", "results", "figure", "command"),
    [
        (
            "driver",
            failed("doctor", "GPU", {"findings": [{**GPU_FINDING, "level": "warning", "advice": OLD_DRIVER}]}),
            f"8 x A100, driver 535.104: {OLD_DRIVER}",
            "nvidia-smi; ",
        ),
        (
            "driver",  # a GPU's Paddle, and no card is listed
            failed("doctor", "", {"findings": [{**GPU_FINDING, "found": "none; training runs on the CPU"}]}),
            "none; training runs on the CPU: nvidia-smi lists no GPU",
            "nvidia-smi; ",
        ),
        ("NCCL", failed("nccl", "not finished after 120 s"), "not finished after 120 s", "NCCL_DEBUG=INFO NCCL_P2P"),
        (
            "kernels",
            failed("fused-kernels-float16", "attention: its self-test differs"),
            "attention: its self-test differs",
            "bash scripts/run_gpu_selftest.sh --again --only train-amp --only throughput-phase1_large-plain",
        ),
        (
            "memory",
            failed(TRAINING, "exit code 1", output="ResourceExhaustedError: Out of memory error on GPU 0"),
            "exit code 1",
            "run_pretraining.sh --config large --fit-batch-size",
        ),
        (
            "memory",
            failed(TRAINING, "", measured(4100.0, 45, 4000.0, shortfalls={"memory": "more than 110%"})),
            "peak 45.00 GB, estimated 40.00: more than 110%",
            "run_pretraining.sh --config large --fit-batch-size",
        ),
        (
            "speed",
            failed(TRAINING, "", measured(1000.0, 39, 4000.0, shortfalls={"speed": "below 75%"})),
            "1,000.0 sequences/s, planned 4,000.0: below 75%",
            "nvidia-smi -q -d PERFORMANCE",
        ),
    ],
)
def test_each_of_the_likely_failures_is_told_by_its_row_with_what_to_type(topic, results, figure, command):
    found = answers(results, "gpu")
    assert [answer.topic for answer in found] == ["driver", "NCCL", "kernels", "memory", "speed"]
    (failing,) = [answer for answer in found if answer.verdict == "FAILS"]
    assert failing.topic == topic and failing.figure == figure and command in failing.command
    text = report(FACTS, list(results.values()))
    assert text.startswith(f"# Self-test of BERT on Paddle: {topic} failed\n")
    assert f"| FAILS | {figure} | `{failing.command}` |" in text


def test_what_works_is_not_needed_or_was_not_measured_is_said():
    found = answers(GOOD, "gpu")
    assert [answer.verdict for answer in found] == ["works"] * 5
    assert [answer.figure for answer in found[3:]] == [
        "peak 39.00 GB, estimated 40.00",
        "4,100.0 sequences/s, planned 4,000.0",
    ]
    assert [bool(answer.command) for answer in found] == [False] * 4 + [True], "the training is next"
    unknown_card = GOOD | {TRAINING: Result(TRAINING, "", "passed", 9.0, "", measured(9.0, 39, None, **UNJUDGED))}
    memory, speed = answers(unknown_card, "gpu")[3:]
    assert (memory.verdict, speed.verdict, bool(speed.command)) == ("works", "not judged", True)
    assert report(FACTS, list(unknown_card.values())).startswith("# Self-test of BERT on Paddle: speed not judged\n")
    assert [answer.verdict for answer in answers(GOOD, "cpu")[3:]] == ["not judged"] * 2
    one_gpu = GOOD | {"nccl": Result("nccl", "", "skipped", 0.0, "there is one GPU")}
    assert answers(one_gpu, "gpu")[1].verdict == "not needed"
    crashed = answers(failed(TRAINING, "training: NCCL error"), "gpu")
    assert [(answer.verdict, answer.figure) for answer in crashed[3:]] == [("not measured", "training: NCCL error")] * 2
    nothing = answers({}, "gpu")
    assert {answer.verdict for answer in nothing} == {"not measured"}
    assert nothing[1].command == "bash scripts/run_gpu_selftest.sh --again --only nccl"


def test_the_report_is_a_page_whatever_failed():
    long = "word " * 500
    rows = [Result(f"check-{number}", "its title", "failed", 1.0, long, {"much": long}, long) for number in range(40)]
    speeds = [
        Result(f"throughput-{number}", "", "failed", 1.0, long, measured(1.0, 1, 2.0, **SPEED_FIGURES))
        for number in range(16)
    ]
    text = report(FACTS, [*failed("doctor", long).values(), *rows, *speeds])
    assert text.count("\n") <= 60 and max(map(len, text.splitlines())) < 700 and "more in results.json" in text


def test_the_first_five_minutes_answer_them():
    first = all_checks()[: len(FIRST_CHECKS)]
    assert tuple(found.name for found in first) == FIRST_CHECKS
    assert sum(found.seconds["gpu"] for found in first) <= 300


def test_without_a_card_the_report_says_so_before_the_error(tmp_path, monkeypatch, capsys):
    for module in (machines, selftest):
        monkeypatch.setattr(module, "num_gpus", lambda: 0)
    figures = {"findings": [{**GPU_FINDING, "level": "warning", "found": "none", "advice": "install the driver"}]}
    checks = [check("doctor", lambda bench: Verdict("fit", figures)), check("second")]
    (tmp_path / "results.json").write_text("of an earlier start")
    with pytest.raises(SystemExit) as ended:
        main(["--output-dir", str(tmp_path)], checks)
    shown = capsys.readouterr()
    assert ended.value.code == 2 and "nvidia-smi lists none" in shown.err and shown.out == ""
    assert (tmp_path / "results.json").read_text() == "of an earlier start"
    text = (tmp_path / "report.md").read_text()
    assert "driver failed" in text and "| FAILS | none: install the driver | `nvidia-smi; " in text


def test_a_wrong_sum_over_the_ranks_fails():
    figures = {"ranks": 8, "bytes": 2**28, "seconds": 0.002, "least": 4.5, "largest": 4.5, "expected": 4.5}
    assert judge_all_reduce(figures).text == "8 ranks sum 134.2 GB/s"
    for wrong in (0.0, float("nan")):
        with pytest.raises(Failed, match="wrongly"):
            judge_all_reduce({**figures, "least": wrong})

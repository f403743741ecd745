"""What the self-test of a machine with GPUs accepts, and how it measures the recipes: decided without a GPU."""

from types import SimpleNamespace

import pytest

from bert.config.training_settings import derive
from bert.doctor.facts import Gpu
from bert.planning.hardware import load_parts
from bert.planning.planner import make_plan
from bert.pretraining.recipes import RECIPES
from bert.samples.loader import PretrainingDataset, PretrainingLoader
from bert.tokenization.vocabulary import Vocabulary
from tests.gpu.cases import distinct, pretraining
from tests.gpu.selftest import machine as machines
from tests.gpu.selftest import recipe_checks
from tests.gpu.selftest.__main__ import all_checks, listing
from tests.gpu.selftest.checks import Bench, Failed
from tests.gpu.selftest.kernel_checks import judge_doctor, judge_fused_kernels, judge_kernels
from tests.gpu.selftest.machine import Machine, find_machine, part_name
from tests.gpu.selftest.report import report
from tests.gpu.selftest.synthetic_shards import write_shards
from tests.gpu.selftest.training_checks import compared, fusion_problem, loss_problem

CPU = Machine("cpu", 2)
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


def test_fused_kernels_that_were_not_used_are_noticed():
    used = "x\nfused kernels: linear, dropout_add, attention\n"
    assert fusion_problem(used, EIGHT_A100) == fusion_problem("", CPU) == ""
    assert fusion_problem("fused kernels: linear, dropout_add\n", V100) == ""
    assert fusion_problem("fused kernels: linear\n", EIGHT_A100).endswith("the log has: fused kernels: linear")
    assert fusion_problem("", EIGHT_A100).endswith("the log has: no fused kernels")


def test_the_kernels_self_test_is_judged_by_the_card():
    agree = {"linear": "", "dropout_add": "", "attention": ""}
    old = {**agree, "attention": "flash_attn needs compute capability 8.0, this card has 7.0"}
    assert judge_fused_kernels(agree, EIGHT_A100).text == "agree: linear, dropout_add, attention"
    assert judge_fused_kernels(old, V100).text == "agree: linear, dropout_add"
    with pytest.raises(Failed, match="attention: flash_attn needs"):
        judge_fused_kernels(old, EIGHT_A100)
    with pytest.raises(Failed, match="linear: its self-test differs"):
        judge_fused_kernels({**old, "linear": "its self-test differs"}, V100)
    with pytest.raises(Failed, match="without a GPU, and yet usable: linear, dropout_add, attention"):
        judge_fused_kernels(agree, CPU)


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


@pytest.mark.parametrize(
    ("name", "mebibytes", "part"),
    [
        ("NVIDIA A100-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", 40960, "A100-40GB"),
        ("NVIDIA A10", 23028, "A10"),
        ("NVIDIA GeForce RTX 4090", 24564, "RTX-4090"),
        ("Tesla V100-SXM2-32GB", 32510, "V100-32GB"),
        ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB"),
        ("NVIDIA Something 9", 81920, None),
    ],
)
def test_a_card_is_found_in_the_planners_table(name, mebibytes, part):
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
    assert on[V100].count("there is one GPU") == 2 and on[CPU].count("parameters in float16 need a GPU") == 4


def test_every_published_recipe_is_measured():
    """Those that are one program once."""
    recipes = {name: pretraining(recipe()) for name, recipe in RECIPES.items() if not name.startswith("quickstart")}
    measured = {found.name.removeprefix("throughput-") for found in recipe_checks.recipe_checks()}
    assert set(distinct(recipes).values()) | set(recipe_checks.VARIANTS) == measured


@pytest.mark.parametrize(
    ("machine", "recipe", "micro_steps", "batch_size"),
    [
        (EIGHT_A100, "phase1_large", 8, 256),
        (EIGHT_A100, "phase1_base_adamw", 1, 32),
        (Machine("gpu", 1, EIGHT_A100.gpus[:1]), "phase2_large", 8, 64),
    ],
)
def test_a_recipe_is_measured_with_its_micro_batch(tmp_path, machine, recipe, micro_steps, batch_size):
    bench = Bench(machine, tmp_path, tmp_path / "log")
    published, hardware = RECIPES[recipe](), machine.hardware(machine.num_ranks)
    config = recipe_checks.shortened(published, bench, "name", hardware)
    assert (config.batch.gradient_merge_steps, config.batch.batch_size) == (micro_steps, batch_size)
    assert config.model == published.model and config.optimizer == published.optimizer and config.run.benchmark


def test_a_small_card_takes_a_smaller_micro_batch_or_none(tmp_path):
    bench = Bench(V100, tmp_path, tmp_path / "log")
    config = recipe_checks.shortened(RECIPES["phase1_large"](), bench, "name", V100.hardware(1))
    assert 0 < config.batch.batch_size < 256 and make_plan(config, V100.hardware(1)).fits
    tiny = Machine("gpu", 1, (Gpu("NVIDIA Something 9", "8.0", 81920, "535"),))
    unknown = recipe_checks.shortened(RECIPES["phase1_large"](), bench, "name", tiny.hardware(1))
    assert tiny.hardware(1) is None and unknown.batch.batch_size == 256


def test_much_slower_than_planned_or_much_more_memory_fails():
    config = derive(RECIPES["phase1_large"](), gradient_merge_steps=8, global_batch_size=None)
    plan = make_plan(config, EIGHT_A100.hardware(8))
    planned = plan.sequences_per_second()

    def problem(speed, gigabytes, plan=plan):
        estimated = {"total": 40e9}
        return recipe_checks.shortfall(
            {
                "sequences per second": speed,
                "planned sequences per second": planned,
                "peak bytes": {"allocated": gigabytes * 1e9},
                "estimated bytes": estimated,
            },
            plan,
        )

    assert problem(0.8 * planned, 43) == problem(2 * planned, 10) == problem(1.0, 90, None) == ""
    assert problem(0.7 * planned, 43).endswith("below 75% of the planned speed")
    assert problem(planned, 45).endswith("more than 110% of the estimated memory")
    assert problem(None, 43) == "no update was measured"


def test_the_run_is_planned_with_the_kernels_that_it_chose():
    config = derive(RECIPES["phase1_large"](), gradient_merge_steps=8, global_batch_size=None)
    training = SimpleNamespace(messages=lambda: "fused kernels: linear, attention\nfuse_dropout_add=auto: plain\n")
    assert recipe_checks.as_it_ran(config, training).hardware.fusions() == {
        "linear": "on",
        "dropout_add": "off",
        "attention": "on",
    }


def test_synthetic_shards_are_full_and_masked(tmp_path):
    config = recipe_checks.shortened(RECIPES["phase1_large"](), Bench(CPU, tmp_path, tmp_path / "log"), "name", None)
    write_shards(config, 64)
    data = config.data
    vocabulary = Vocabulary.from_file(data.vocab_file)
    dataset = PretrainingDataset(data.input_dir, vocabulary, data, seed=1)
    loader = PretrainingLoader(dataset, global_batch_size=8, micro_batch_size=8, rank=0, world_size=1)
    batches = loader.batches()
    (batch,) = next(batches).micro_batches
    assert len(vocabulary) == config.model.vocab_size and dataset.num_samples == 64
    assert batch.num_tokens == batch.num_padded_tokens == 8 * 128 and batch.num_masked == 8 * 20
    ids, positions = batch.feed["input_ids"].ravel(), batch.feed["masked_lm_positions"]
    weighted = positions[batch.feed["masked_lm_weights"] > 0]
    assert len(set(weighted)) == 160 and set(ids[weighted]) == {vocabulary.id_of("[MASK]")}


def test_the_table_of_speeds_has_a_row_for_each_recipe():
    figures = {
        "model": "bert-large-uncased",
        "ranks x micro-batches x sequences": [8, 8, 256],
        "fused kernels": ["linear"],
        "sequences per second": 5000.0,
        "planned sequences per second": 4000.0,
        "peak bytes": {"allocated": 43.2e9},
        "estimated bytes": {"total": 42.9e9},
    }
    result = SimpleNamespace(
        name="throughput-phase1_large", title="", status="passed", seconds=1.0, text="", figures=figures, output=""
    )
    facts = {**EIGHT_A100.identity(), "packages": {}, "links between GPUs": "GPU0 NV12"}
    text = report({**facts, **dict.fromkeys(("python", "system", "commit", "date"), "x")}, [result])
    assert (
        "| phase1_large | bert-large-uncased | 8 x 8 x 256 | linear | 5,000.0 | 4,000.0 (+25%) | 43.20 | 42.90 |"
        in text
    )
    assert "8 x NVIDIA A100-SXM4-80GB, 81920 MiB, driver 535.104" in text and "GPU0 NV12" in text

"""The records of the GPU recipes are complete and satisfy rules; run_gpu_record.sh compares them with programs."""

import json

import pytest

from bert.config.automatic import OPERATORS
from bert.config.training_settings import derive
from bert.model.objectives import PretrainingObjective
from bert.pretraining.recipes import RECIPES
from bert.training import training_run as runs
from tests.gpu import kernel_coverage
from tests.gpu.cases import all_cases, distinct
from tests.gpu.recipe_records import COMBINATIONS, GOLDEN, INFERENCE, record_of, table
from tests.support import tiny

CASES = all_cases()
HOLDERS = sorted(set(distinct(CASES).values()))
OWN_ACCUMULATION = [
    name for name in HOLDERS if CASES[name].micro_steps > 1 and CASES[name].optimizer.fleet_strategies == "none"
]
GIGABYTES = 80  # of an A100


def for_all(names):
    """Make one test of a check of records; it lists all records that fail."""

    def decorate(check):
        def test():
            problems = []
            for name in names:
                try:
                    check(name)
                except AssertionError as error:
                    problems.append(f"{name}: {error}")
            assert not problems, "\n".join(problems)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def facts(name):
    return json.loads(record_of(name).read_text())


def test_every_recipe_has_a_record_and_every_record_a_recipe():
    assert {path.stem for path in GOLDEN.glob("*.json")} == {*HOLDERS, COMBINATIONS, INFERENCE}
    assert {name for name in RECIPES if not name.startswith("quickstart")} <= CASES.keys()


@for_all(HOLDERS)
def test_the_loss_is_float32_where_the_loss_scale_passes(name):
    assert facts(name)["loss scaling"]["gradients of scalars in a short type"] == []


@for_all(HOLDERS)
def test_gradients_are_reduced_once_per_update(name):
    """Every gradient is reduced once, before any check or norm; with accumulation only in the conditional block."""
    case, found = CASES[name], facts(name)
    reduces = {key: text for key, text in found["communication"].items() if "c_allreduce_sum" in key}
    where = {key.split(":")[0] for key in reduces}
    assert where == ({"update"} if case.micro_steps > 1 else {"backward"})
    order = found["order of the update"]["operators"]
    last = max(i for i, text in enumerate(order) if text.startswith("c_allreduce_sum"))
    readers = ("check_finite_and_unscale", "squared_l2_norm", "lamb", "adamw")
    assert last < min(i for i, text in enumerate(order) if text.startswith(readers))
    if case.micro_steps > 1:
        mean = next(i for i, text in enumerate(order) if text.startswith("scale"))
        first_sum = next(i for i, text in enumerate(order) if text.startswith("c_allreduce_sum"))
        assert mean < first_sum, "the mean over the micro-batches, before the sum over the ranks"
        assert found["update"]["scale float32"] >= 1


@for_all(OWN_ACCUMULATION)
def test_accumulated_gradients_are_one_buffer_and_nothing_waits_for_the_host(name):
    found = facts(name)
    assert found["startup"]["coalesce_tensor"] == 1
    order = found["order of the update"]["operators"]
    for operator in ("scale", "c_allreduce_sum", "elementwise_mul"):
        assert [text for text in order if text.split()[0] == operator]
        assert not [text for text in order if text.startswith(operator) and " x " in text]
    assert sum(key.startswith("c_allreduce_sum") * count for key, count in found["update"].items()) == 1
    # AdamW's kernel reads the flag of an overflow on the host.
    assert found["the host waits"] == ({} if CASES[name].optimizer.optimizer == "Lamb" else {"update: memcpy": 1})
    parameters = found["memory in MB"]["parameters"]
    assert found["memory in MB"]["accumulated gradients"] == pytest.approx(parameters, rel=0.01)


@for_all(HOLDERS)
def test_what_a_micro_step_is_fed_is_small(name):
    inputs = {key: text for key, text in facts(name)["inputs"].items() if key != "bytes"}
    assert not [key for key, text in inputs.items() if text.endswith("64")]
    assert {inputs[key].split()[-1] for key in inputs.keys() & {"token_type_ids", "attention_mask"}} == {"uint8"}


@for_all([name for name in HOLDERS if CASES[name].precision.amp])
def test_products_are_short_and_sums_are_not(name):
    forward, short = facts(name)["forward"], CASES[name].precision.amp_dtype
    products = [key for key in forward if key.split()[0] in ("matmul_v2", "fused_gemm_epilogue", "softmax", "gelu")]
    assert products and {key.split()[1] for key in products} == {short}
    sums = [key.split() for key in forward if key.startswith(("softmax_with", "reduce_"))]  # integers have no type here
    assert {found[1] for found in sums if len(found) > 1} == {"float32"}


@for_all(HOLDERS)
def test_the_wheel_has_a_kernel_for_every_operator(name):
    """The programs are training, start-up, evaluation and prediction; kernels are by place and type of data."""
    found = facts(name)["operators without a kernel"]
    kinds = {"evaluation"} if CASES[name].predictions else {"prediction", "start-up of prediction"}
    assert found.keys() == {"training", "start-up"} | kinds
    assert not any(found.values())


def test_the_wheel_has_a_kernel_for_every_operator_of_every_combination_of_settings():
    found = facts(COMBINATIONS)["operators without a kernel"]
    assert list(found) == [kernel_coverage.named(*combination) for combination in kernel_coverage.combinations()]
    assert not any(found.values())


@for_all(HOLDERS)
def test_evaluation_and_prediction_compute_as_the_training(name):
    """The training's fused kernels may have half precision only."""
    case, found = CASES[name], facts(name)
    forward = found["evaluation" if case.predictions else "prediction"]
    types = {key.split()[1] for key in forward if key.split()[0] in ("matmul_v2", "fused_gemm_epilogue", "flash_attn")}
    assert types == {case.precision.amp_dtype if case.precision.amp else "float32"}
    attention = "flash_attn_unpadded float16" if case.kernels.unpad else "flash_attn float16"
    assert forward.get(attention, 0) == (case.model.num_hidden_layers if case.kernels.attention else 0)


@for_all([name for name in HOLDERS if CASES[name].kernels.unpad])
def test_packed_tokens_have_no_scores(name):
    """No variable is length x length: neither scores nor a mask for them."""
    found = facts(name)
    assert found["fused operators"]["flash_attn_unpadded"] == found["fused operators"]["flash_attn_unpadded_grad"] == 24
    assert not [key for part in ("forward", "backward") for key in found[part] if key.split()[0] == "softmax"]
    assert not {"attention_mask"} & found["inputs"].keys() and "transpose2 float16" not in found["forward"]


@for_all(HOLDERS)
def test_a_skipped_update_holds_the_beta_powers(name):
    """LAMB's kernel reads the flag on the card; AdamW's reads it on the host before anything else."""
    (place,) = facts(name)["skipped update"]
    where = "card" if CASES[name].optimizer.optimizer == "Lamb" else "host"
    assert place.endswith(f": flag on {where}, beta powers on {where}")


@for_all([name for name in OWN_ACCUMULATION if CASES[name].precision.amp])
def test_parameters_are_cast_once_an_update_and_their_gradients_summed_in_float32(name):
    found = facts(name)
    parameters = {key: text for key, text in found["casts"].items() if key.endswith("parameters")}
    half = CASES[name].precision.amp_dtype
    assert parameters.keys() == {f"update: float32 to {half}, parameters", f"backward: {half} to float32, parameters"}
    assert len(set(parameters.values())) == 1
    assert {key for key in found["communication"] if "allreduce" in key} == {"update: c_allreduce_sum float32, ring 0"}


def test_pure_fp16_is_the_program_of_mixed_precision_with_a_lower_scale():
    pure, mixed = facts("phase1_large_pure_fp16"), facts("phase1_large")
    assert pure["loss scaling"].pop("initial scale") == 2**15 < mixed["loss scaling"].pop("initial scale")
    assert pure == mixed


def test_bfloat16_is_summed_over_ranks_in_float32_also_without_accumulation():
    """With float16, only the gradients of the word embeddings are summed in float32."""
    reduces = {
        name: {key.split(",")[0].split()[-1] for key in facts(name)["communication"] if "allreduce" in key}
        for name in ("phase1_large_32_nodes", "phase1_large_32_nodes_bfloat16")
    }
    assert list(reduces.values()) == [{"float16", "float32"}, {"float32"}]


@for_all([name for name in HOLDERS if CASES[name].precision.tf32 == "on"])
def test_tf32_recipes_cast_nothing(name):
    assert list(facts(name)["casts"]) == ["forward: float32 to float64, activations"]


@for_all(HOLDERS)
def test_every_recipe_fits(name):
    assert facts(name)["memory in MB"]["total at the worst moment"] < 0.9 * GIGABYTES * 1000


@for_all(["phase1_large", "phase2_large", "phase1_large_tf32", "phase2_large_tf32"])
def test_the_micro_batch_of_a_recipe_is_the_largest_that_fits_with_plain_operators(name):
    """The next one is twice as large, as it divides a power of two. 8 GB of a card are left to CUDA and fragments."""
    memory = facts(name)["memory in MB"]
    twice = memory["total at the worst moment"] + memory["activations kept for the backward pass"]
    assert memory["total at the worst moment"] < 72_000 < twice


def test_exports_use_the_gpu_in_their_precision():
    found = facts(INFERENCE)
    assert not any(row["GPU"] for name, row in found.items() if name.startswith("cpu"))
    for device, precisions in (("gpu", ("fp32", "fp16", "bf16")), ("tensorrt", ("Float32", "Half", "Bfloat16"))):
        rows = [found[f"{device}, {name}"] for name in ("float32", "fp16", "bfloat16")]
        assert all(row["GPU"] and row["TensorRT"] == (device == "tensorrt") for row in rows)
        assert [row["precision"] for row in rows] == list(precisions) and {row["pool in MB"] for row in rows} == {256}


def test_the_document_shows_these_records():
    readme = (GOLDEN.parents[1] / "README.md").read_text(encoding="utf-8")
    missing = [line for line in table().splitlines() if line not in readme]
    assert not missing, "run: bash scripts/run_gpu_record.sh --table"


def test_flash_attention_without_a_short_type_is_refused():
    with pytest.raises(ValueError, match="fuse_attention=on needs amp=true: .*pass --amp"):
        derive(RECIPES["phase1_large_tf32"](), fuse_attention="on")


@pytest.mark.long
def test_settings_for_gpu_kernels_leave_the_program_on_a_cpu_as_it_is(tmp_path):
    """The programs are equal operator by operator, so to the last bit, dropout included."""
    programs = []
    for fused in ("off", "on"):
        config = tiny.pretraining_config(
            tmp_path,
            model=tiny.MODEL_WITH_DROPOUT,
            amp=True,
            fuse_linear=fused,
            fuse_dropout_add=fused,
            fuse_attention=fused,
        )
        tiny.join(tiny.ONE_RANK)
        programs.append(runs.build(config, PretrainingObjective(config.model, fuse_mha=True), tiny.ONE_RANK)[0])
    plain, with_settings = (
        [
            (op.type, sorted(op.input_arg_names), sorted(op.output_arg_names))
            for block in program.main.blocks
            for op in block.ops
        ]
        for program in programs
    )
    assert plain == with_settings
    assert not any(kind.startswith((*OPERATORS.values(), "flash_")) for kind, _, _ in plain)

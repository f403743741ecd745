"""Speed and memory of the published recipes, beside the planner's figures."""

import dataclasses
from typing import Any

import pytest

from bert.config.architecture import BUILT_IN_MODELS
from bert.config.automatic import AMPERE, CPU, DeviceFeatures, resolve_auto
from bert.config.training_settings import derive
from bert.planning.estimates import memory_per_rank
from bert.planning.hardware import Hardware
from bert.planning.planner import Plan, make_plan
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.recipes import RECIPES
from bert.samples.manifest import MANIFEST_NAME
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests.gpu.cases import distinct, pretraining
from tests.gpu.selftest.bench import Bench
from tests.gpu.selftest.training_runs import PLAIN, Training, run_folder, train
from tests.support import corpora

pytestmark = pytest.mark.gpu
TIMEOUT_SECONDS = 1800.0
SLOWER = 0.75  # of the planned speed: slower than that fails
MORE_MEMORY = 1.1  # of the estimate: tensors that need more fail
GPU_MICRO_STEPS, CPU_MICRO_STEPS = 8, 2  # of an update, at most: the recipes have up to 32 on 8 ranks


def measured_recipes() -> dict[str, tuple[str, dict[str, Any]]]:
    """Map names to recipes and changes of them; of recipes that are one program, only the first."""
    recipes = {name: pretraining(recipe()) for name, recipe in RECIPES.items() if not name.startswith("quickstart")}
    found: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in distinct(recipes).values()}
    return found | {f"{name}-plain": (name, PLAIN) for name in ("phase1_large", "phase2_large")}


@pytest.mark.parametrize("name", measured_recipes())
def test_throughput(bench, name):
    """Speed and memory on synthetic shards are as planned."""
    recipe, changes = measured_recipes()[name]
    machine, name = bench.machine, f"throughput-{name}"
    hardware = machine.hardware(machine.num_ranks)
    config = shortened(derive(RECIPES[recipe](), **changes), bench, name, hardware)
    write_shards(config, config.batch.resolved_global_batch_size(machine.num_ranks))
    training = train(bench, name, config, num_ranks=machine.num_ranks, timeout_seconds=TIMEOUT_SECONDS)
    used = as_it_ran(config, training)
    plan = make_plan(used, hardware) if hardware and machine.device == "gpu" else None
    bench.figures |= {
        **measured(used, training, machine.num_ranks),
        **({"planned sequences per second": plan.sequences_per_second()} if plan else {}),
        "speed is judged": judges_speed(plan),
    }
    bench.text = text_of(bench.figures)
    problems = shortfalls(bench.figures, machine.device)
    assert not problems, "; ".join([bench.text, *problems])


def shortened(config: PretrainingConfig, bench: Bench, name: str, hardware: Hardware | None) -> PretrainingConfig:
    """Return a few updates of the recipe with its micro-batch or the largest that fits; on a CPU with a tiny model.

    Skips the check if not one sequence fits.
    """
    ranks = bench.machine.num_ranks
    if bench.machine.device == "cpu":
        config = derive(config, model=BUILT_IN_MODELS["bert-tiny"], bert_model="bert-tiny", tf32=False, peak_tflops=1.0)
        batch_size, most = 2, CPU_MICRO_STEPS
    else:
        batch_size, most = config.batch.batch_size, GPU_MICRO_STEPS
    micro_steps = max(1, min(most, (config.batch.global_batch_size or 1) // (batch_size * ranks)))
    config = derive(config, batch_size=batch_size, gradient_merge_steps=micro_steps, global_batch_size=None)
    if hardware and bench.machine.device == "gpu":
        largest = make_plan(config, hardware).batch_size
        if largest is None:
            pytest.skip(f"not one sequence fits into the {hardware.part.memory_gb:g} GB of this card")
        config = derive(config, batch_size=largest)
    length, folder = config.data.max_seq_length, run_folder(bench, name)
    num_samples = config.batch.resolved_global_batch_size(ranks)
    return derive(
        config,
        input_dir=bench.folder / f"synthetic/{num_samples}x{length}-{config.model.vocab_size}",
        vocab_file=bench.folder / f"synthetic/vocab-{config.model.vocab_size}.txt",
        output_dir=folder,
        report_file=folder / "report.json",
        device=bench.machine.device,
        visualdl=False,
        benchmark=True,
        benchmark_warmup_steps=3,
        benchmark_steps=5 if bench.machine.device == "gpu" else 2,
    )


def as_it_ran(config: PretrainingConfig, training: Training) -> PretrainingConfig:
    """Return the settings with the fused kernels that the run chose where they are automatic."""
    lines = [line for line in training.messages().splitlines() if line.startswith("fused kernels: ")]
    used = lines[0].removeprefix("fused kernels: ").split(", ") if lines else []
    return derive(config, **{f"fuse_{name}": "on" if name in used else "off" for name in config.hardware.fusions()})


def measured(config: PretrainingConfig, training: Training, num_ranks: int) -> dict[str, Any]:
    features = CPU if config.hardware.device == "cpu" else DeviceFeatures("gpu", AMPERE)  # its kernels are on or off
    summary, memory = training.summary, memory_per_rank(resolve_auto(config, features), num_ranks)
    return {
        "model": config.run.bert_model,
        "sequence length": config.data.max_seq_length,
        "ranks x micro-batches x sequences": [
            num_ranks,
            config.batch.gradient_accumulation_steps(num_ranks),
            config.batch.batch_size,
        ],
        "fused kernels": [name for name, value in config.hardware.fusions().items() if value == "on"],
        "sequences per second": summary["training_sequences_per_second"],
        "model FLOPs utilisation": summary["mfu"],
        "loss": summary["final_loss"],
        "skipped updates": summary["skipped_steps"],
        "peak bytes": training.peak_bytes(),
        "estimated bytes": {**dataclasses.asdict(memory), "total": memory.total()},
    }


def judges_speed(plan: Plan | None) -> bool:
    """Tell whether the figures of the card were compared with any measurement."""
    return plan is not None and not plan.hardware.part.checked.startswith("nothing")


def text_of(figures: dict[str, Any]) -> str:
    planned, speed = figures.get("planned sequences per second"), figures["sequences per second"] or 0.0
    peak, estimate = figures["peak bytes"]["allocated"] / 1e9, figures["estimated bytes"]["total"] / 1e9
    text = f"{speed:,.1f} sequences/s" + (f", planned {planned:,.1f}" if planned else "")
    return f"{text}; peak {peak:.2f} GB, estimated {estimate:.2f}"


def shortfalls(figures: dict[str, Any], device: str) -> list[str]:
    """Return how memory and speed miss the plan; nothing is judged on a CPU."""
    speed, found = figures["sequences per second"], []
    if not speed:
        return ["no update was measured"]
    if device == "cpu":
        return []
    if figures["peak bytes"]["allocated"] > MORE_MEMORY * figures["estimated bytes"]["total"]:
        found.append(f"more than {MORE_MEMORY:.0%} of the estimated memory")
    if figures["speed is judged"] and speed < SLOWER * figures["planned sequences per second"]:
        found.append(f"below {SLOWER:.0%} of the planned speed")
    return found


NUM_SHARDS = 8


def write_shards(config: PretrainingConfig, num_samples: int) -> None:
    """Write the shards that the settings name, with at least `num_samples` full sequences, unless they are there."""
    data, size = config.data, -(-num_samples // NUM_SHARDS)
    if (data.input_dir / MANIFEST_NAME).exists():
        return
    words = Vocabulary((*SPECIAL_TOKENS, *(f"word{n}" for n in range(config.model.vocab_size - len(SPECIAL_TOKENS)))))
    data.vocab_file.parent.mkdir(parents=True, exist_ok=True)
    data.vocab_file.write_text("".join(f"{token}\n" for token in words.tokens))
    length, num_masked = data.max_seq_length, data.max_predictions_per_seq
    masks = {"masked": True, "num_masked": num_masked, "least_first": num_masked}
    lengths = {"longest": length, "shortest": length}
    tables = [corpora.random_table(size, seed, words=words, **masks, **lengths) for seed in range(NUM_SHARDS)]
    corpora.write_shards(data.input_dir, tables, kind="arrow", words=words)

"""What a pre-training on own text ends with: what was chosen and learned, what the model can do, what to do next."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert.files import read_json
from bert.interpreter import shell_command
from bert.launching.process_runner import Runner
from bert.own_text.plan import TextPlan
from bert.pretraining.config import PretrainingConfig
from bert.reporting.curves import curves_command
from bert.training.guards import TOLERANCE


def result_lines(plan: TextPlan, configs: Mapping[int, PretrainingConfig], samples: Mapping[int, int]) -> list[str]:
    """What was chosen, what was learned, and where a better model is, if the last updates made it worse.

    Args:
        samples: of the shards of each phase, which hold the text `plan.duplicate_factor` times.
    """
    last = configs[max(configs)]
    model, summary = last.model, read_json(last.stage_dir() / "summary.json")
    passes, updates = 0.0, 0
    for phase, config in configs.items():
        steps = read_json(config.stage_dir() / "summary.json").get("steps", 0)
        batch = config.batch.resolved_global_batch_size(plan.candidate.ranks)
        passes, updates = passes + steps * batch * plan.duplicate_factor / samples[phase], updates + steps
    chosen = (
        f"chosen: {plan.candidate.name}, {model.num_hidden_layers} layers of {model.hidden_size}, "
        f"{model.vocab_size:,} tokens; {updates:,} updates, {passes:,.3g} epochs over {plan.text.extent()}"
    )
    stopped = [line for config in configs.values() for line in _stopped_early(config)]
    return [chosen, *stopped, f"learned: {_learned(summary, _initial_loss(configs))}", *_better(summary, last)]


def _initial_loss(configs: Mapping[int, PretrainingConfig]) -> float | None:
    """The held-out loss of given weights, before the first update of the first phase."""
    first = configs[min(configs)]
    return read_json(first.stage_dir() / "summary.json").get("initial_eval_masked_lm_loss")


def _stopped_early(config: PretrainingConfig) -> list[str]:
    summary = read_json(config.stage_dir() / "summary.json")
    if not summary.get("stopped_early"):
        return []
    stopped = f"stopped early: phase {config.run.phase} after update {summary['steps']:,} of {config.run.max_steps:,}; "
    if "best_step" not in summary:
        return [f"{stopped}its held-out loss was never finite: lower --learning-rate, in another --output-dir"]
    return [
        f"{stopped}its held-out loss was lowest after update {summary['best_step']:,}. More text would help; "
        "--early-stopping 0 goes on without"
    ]


def _better(summary: Mapping[str, Any], config: PretrainingConfig) -> list[str]:
    """A line about a model before the last that is better, unless it is the result."""
    loss, best = summary.get("eval_masked_lm_loss"), summary.get("best_eval_masked_lm_loss")
    if summary.get("ends_with_best") or loss is None or best is None or loss <= best * (1 + TOLERANCE):
        return []
    step = summary["best_step"]
    folder = config.checkpoint_dir() / str(step)
    return [
        f"better before: {best:.3f} nats after update {step:,}, kept in {folder}; pass that folder instead of the "
        "run's to use it, and train with --early-stopping 5 to end with the best"
    ]


def _learned(summary: Mapping[str, Any], initial: float | None) -> str:
    loss, entropy = summary.get("eval_masked_lm_loss"), summary.get("unigram_entropy")
    if loss is None:
        return "nothing was held out to measure it on"
    found = f"held-out masked-LM loss {loss:.3f} nats"
    if summary.get("ends_with_best"):
        last, loss = loss, summary["best_eval_masked_lm_loss"]
        found = f"held-out masked-LM loss {loss:.3f} nats after update {summary['best_step']:,}, which is the result"
        found += f" (the last had {last:.3f})"
    elif summary.get("eval_masked_lm_accuracy") is not None:
        found += f", {summary['eval_masked_lm_accuracy']:.1%} of masked tokens right"
    if initial is not None:
        return f"{found}; {initial:.3f} before the training"
    if entropy is None:
        return found
    if loss < entropy:
        return f"{found}; {entropy - loss:.3f} below the unigram entropy of {entropy:.3f}"
    return f"{found}; not yet below the unigram entropy of {entropy:.3f}: train longer, or on more text"


def demonstrate(output_dir: Path, text: Path, script: Path, runner: Runner) -> None:
    """Show masked words filled in and the nearest sentences of a text. Failing is not a failed run.

    Args:
        text: a folder of the run's data: the held-out text, or all text if nothing was held out.
    """
    kind = "held-out" if "held_out" in text.parts else "training"
    print(f"What the model can do now, with the {kind} text:\n", flush=True)
    if runner.run([sys.executable, str(script), str(output_dir), "--show", str(text)]):
        print("(that failed, for the reason above; the training is complete)", flush=True)


def next_commands(output_dir: Path, again: str) -> list[tuple[str, str]]:
    """(purpose, command).

    Args:
        again: the command line that trains longer.
    """
    folder = str(output_dir)
    fine_tuning = ["--from-pretrained-params", folder, "--output-dir", f"{folder}/sentiment"]
    export = ["--checkpoint", folder, "--to", f"{folder}/served", "--format", "paddle-inference"]
    commands = [
        ("use it: one text after the other, with [MASK]", shell_command("run_predict.py", output_dir)),
        ("vectors of sentences", shell_command("run_predict.py", output_dir, "--encode")),
        ("fine-tune it, here on example sentences", shell_command("scripts/run_glue.sh", *fine_tuning)),
        ("export it", shell_command("run_export.py", *export)),
        curves_command(output_dir),
    ]
    return [("train on, twice as long in all", again), *commands]

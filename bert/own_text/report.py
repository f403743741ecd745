"""The final report of a pre-training on the user's text: scores, examples of predictions, next commands."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert.files import read_json
from bert.interpreter import shell_command
from bert.launching.start_training import Runner
from bert.own_text.plan import TextPlan
from bert.own_text.sources import REPLAY
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.epochs import sample_set
from bert.pretraining.expectation import ERROR, expected_loss
from bert.reporting.curves import curves_command
from bert.training.loss_guards import TOLERANCE

_LITTLE = 0.3  # nats below the unigram entropy


def result_lines(plan: TextPlan, config: PretrainingConfig) -> Iterator[str]:
    """Lines about choices and scores, and where a better checkpoint is, if the last updates made it worse."""
    model, summary = config.model, read_json(config.stage_dir() / "summary.json")
    samples = sample_set(config.data.input_dir)
    updates, batch = summary.get("steps", 0), config.batch.resolved_global_batch_size(plan.ranks)
    passes = f", {updates * batch * plan.duplicate_factor / samples.num_samples:,.2f} epochs" if samples else ""
    yield (
        f"chosen: {plan.model}, {model.num_hidden_layers} layers of {model.hidden_size}, "
        f"{model.vocab_size:,} tokens; {updates:,} updates{passes} over {plan.extent}"
    )
    if summary.get("stopped_early"):
        yield _stopped_early(summary)
    yield f"learned: {_loss_sentence(summary, config)}"
    name = f"eval_{REPLAY}_masked_lm_loss"
    before, after = summary.get(f"initial_{name}"), summary.get(name)
    if before is not None and after is not None:
        change = f"{abs(after - before):.3f} {'forgotten' if after > before else 'gained'}"
        yield f"on general text (--replay), held out: {before:.3f} nats before, {after:.3f} after: {change}"
    loss, best = summary.get("eval_masked_lm_loss"), summary.get("best_eval_masked_lm_loss")
    if not (summary.get("ends_with_best") or loss is None or best is None or loss <= best * (1 + TOLERANCE)):
        step = summary["best_step"]
        yield (
            f"better before: {best:.3f} nats after update {step:,}, kept in {config.checkpoint_dir() / str(step)}; "
            "pass that folder instead of the run's to use it, and train with --early-stopping 5 to end with the best"
        )


def _stopped_early(summary: Mapping[str, Any]) -> str:
    stopped = f"stopped early: after update {summary['steps']:,}; "
    if "best_step" not in summary:
        return f"{stopped}its held-out loss was never finite: lower --learning-rate, in another --output-dir"
    return (
        f"{stopped}its held-out loss was lowest after update {summary['best_step']:,}. More text would help; "
        "--early-stopping 0 goes on without"
    )


def _result_loss(summary: Mapping[str, Any]) -> float | None:
    """Held-out loss of the resulting weights."""
    loss: float | None = summary.get("eval_masked_lm_loss")
    return summary.get("best_eval_masked_lm_loss", loss) if summary.get("ends_with_best") else loss


def _loss_sentence(summary: Mapping[str, Any], config: PretrainingConfig) -> str:
    last, loss, entropy = summary.get("eval_masked_lm_loss"), _result_loss(summary), summary.get("unigram_entropy")
    if last is None or loss is None:
        return "nothing was held out to measure it on"
    sentence = f"held-out masked-LM loss {loss:.3f} nats"
    if loss != last and summary.get("ends_with_best"):
        sentence += f" after update {summary['best_step']:,}, which is the result (the last had {last:.3f})"
    elif (accuracy := summary.get("eval_masked_lm_accuracy")) is not None:
        sentence += f", {accuracy:.1%} of masked tokens right"
    if (initial := summary.get("initial_eval_masked_lm_loss")) is not None:
        sentence += f"; {initial:.3f} before the training"
    if entropy is None:
        return sentence
    verdict = f"it uses what stands around a word, which is worth {entropy - loss:.2f} nats"
    if not loss < entropy:
        verdict = "it has learned nothing more yet. Train longer (--hours), or on more text"
    elif entropy - loss < _LITTLE:
        verdict = "it has learned little yet. More --hours or more text bring most now"
    now, later = (expected_loss(config, entropy, n * summary["steps"], config.warmup_steps()) for n in (1, 2))
    if now is not None and later is not None and not summary.get("stopped_early"):
        if loss - now <= ERROR and (longer := loss - now + later) > 0:
            verdict += f". Twice as long brings about {longer:.1f}"
    return f"{sentence}. Guessing by frequency alone: {entropy:.2f}; your model: {loss:.2f}: {verdict}"


def demonstrate(output_dir: Path, text: Path, script: Path, runner: Runner) -> None:
    """Print filled masks and the nearest sentences of a text. If this fails, the run still succeeds.

    Args:
        text: a folder of the run's data: the held-out text, or all text if nothing was held out.
    """
    summary = read_json(output_dir / "phase1/summary.json")
    loss, entropy = _result_loss(summary), summary.get("unigram_entropy")
    kind = "held-out" if "held_out" in text.parts else "training"
    print(f"What the model can do now, with the {kind} text:")
    if loss is not None and entropy is not None and not entropy - loss >= _LITTLE:
        print("This model is poor: it has learned little more than how frequent words are, as what follows shows.")
    print(flush=True)
    if runner.run([sys.executable, str(script), str(output_dir), "--show", str(text)]):
        print("(that failed, for the reason above; the training is complete)", flush=True)


def next_commands(output_dir: Path, again: str) -> list[tuple[str, str]]:
    """The next commands as (purpose, command).

    Args:
        again: the command line that trains longer.
    """
    folder = str(output_dir)
    labels = shell_command("scripts/run_classify.sh", "--train", "YOUR.csv", "--model", folder)
    export = ["--model", folder, "--output-dir", f"{folder}/served", "--output-format", "paddle-inference"]
    commands = [
        ("use it: one text after the other, with [MASK]", shell_command("run_predict.py", output_dir)),
        ("vectors of sentences", shell_command("run_predict.py", output_dir, "--encode")),
        ("sort texts by your labels: a table with a column of texts and one of labels", labels),
        ("export it", shell_command("run_export.py", *export)),
        curves_command(output_dir),
    ]
    return [("train on, twice as long in all", again), *commands]

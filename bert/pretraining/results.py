"""The last step of a pre-training: shows the scores of its phases, a plot of the losses, and the next commands."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

from bert.exit_codes import BAD_INPUT, OK
from bert.files import read_json
from bert.help_parser import wrapped
from bert.interpreter import shell_command
from bert.jobs.job import Execution, Step
from bert.jobs.training import Train
from bert.launching.previous_run import kept_start, without_effect
from bert.pretraining.config import PretrainingConfig
from bert.reporting.curves import curves_command
from bert.reporting.results import next_commands, show_figures
from bert.standard_output import discard_output


@dataclass(frozen=True)
class PretrainingResults(Step):
    """The step that shows the scores of the phases, the plot and the next commands.

    Attributes:
        words: of the command, which its longer form repeats.
    """

    takes_time: ClassVar[bool] = False
    preset: str
    phases: tuple[Train, ...]
    words: tuple[str, ...]

    @property
    def title(self) -> str:
        return "showing the results"

    def run(self, execution: Execution) -> int:
        configs = [cast(PretrainingConfig, step.settled(execution).config) for step in self.phases]
        if not execution.has_worked:
            output_dir = configs[0].run.output_dir
            print(wrapped(f"Already done: {output_dir} (delete it, or pass another --output-dir, to train again)"))
            print("".join(map(without_effect, configs)), end="")
        if not execution.job.is_first_node():
            return OK
        if configs[0].run.benchmark:
            rates = [read_json(c.log_dir() / "summary.json").get("training_sequences_per_second") for c in configs]
            for config, rate in zip(configs, rates, strict=True):
                measured = "nothing was measured" if rate is None else f"training_sequences_per_second {rate:,.1f}"
                print(wrapped(f"phase {config.run.phase}: {measured} ({config.log_dir()})"))
            return BAD_INPUT if None in rates else OK
        try:
            show_figures(self.preset, configs, execution.seconds() if execution.has_worked else None)
            print(next_commands(_next_commands(self.preset, configs, self.words)))
            for config in configs[1:]:
                if notice := kept_start(config, configs[0]):
                    print(notice)
            sys.stdout.flush()
        except BrokenPipeError:  # no reader (`| head`); the files are written
            discard_output()
        return OK


def _next_commands(preset: str, phases: Sequence[PretrainingConfig], words: Sequence[str]) -> list[tuple[str, str]]:
    """The next commands as (purpose, command); `words` is this command, which the longer training repeats."""
    pretrain, first, last = "scripts/run_pretraining.sh", phases[0], phases[-1]
    longer = [f"--phase{first.run.phase}-max-steps", str(2 * first.run.max_steps), "--output-dir", "results/longer"]
    weights: list[str | Path] = ["--from-pretrained-params", last.checkpoint_dir()]
    on_squad = ["--config", "squad_large", "--download"] if first.model.hidden_size >= 768 else []
    large = shell_command(pretrain, "--config", "large", "--dry-run")
    commands = [curves_command(first.run.output_dir)]
    if not any("epochs" in word or "hours" in word for word in words):  # which go with no number of steps
        twice = f"the same, phase {first.run.phase} twice as long"
        commands.append((twice, shell_command(pretrain, *words, *longer)))
    commands.append(("fine-tune it on questions", shell_command("scripts/run_squad.sh", *on_squad, *weights)))
    if preset == "quickstart":
        commands.append(("what BERT-large on 8 GPUs would take", large))
    return commands

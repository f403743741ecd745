"""Learning-rate schedule of a run, including one extended by a larger --max-steps.

An extended run has the schedule of a run of the new length, from its current update on, with the warm-up that it has
had: the warm-up keeps its number of updates and is not repeated, the decay is spread over the new length. The rate
therefore rises once, at the current update, to the point of the new decay: with linear decay to 0, a finished run of
2,500 updates that is extended to 5,000 continues at about half its peak.
"""

import logging

from bert.checkpoints.progress import Progress
from bert.config.training_settings import TrainingConfig
from bert.files import read_json
from bert.model.learning_rate_schedule import Schedule
from bert.model.optimization import APPLIED_UPDATES, load_schedule
from bert.training.devices import Device

logger = logging.getLogger(__name__)


def schedule_of(config: TrainingConfig, warmup_steps: int | None = None, max_steps: int | None = None) -> Schedule:
    """The schedule of the settings; an extended run keeps its earlier warm-up and length."""
    warmup_steps = config.warmup_steps() if warmup_steps is None else warmup_steps
    return Schedule(config.optimizer, warmup_steps, max_steps or config.run.max_steps)


def resume_schedule(config: TrainingConfig, device: Device, progress: Progress) -> None:
    """Load the schedule of a resumed run and log a changed length. An extended run restarts early stopping.

    A run that lasts longer than its decay forgets it: the rate is stable again.
    """
    if progress.step == 0:
        return
    if config.optimizer.lr_schedule != "wsd" or outlasts_decay(config, progress):
        progress.carried.decay = None
    run_before = progress.settings["run"]
    state, before, now = progress.carried, int(run_before["max_steps"]), config.run.max_steps
    share = progress.settings["optimizer"]["warmup_proportion"]
    warmup_steps = config.warmup_steps()
    if share == config.optimizer.warmup_proportion:  # the same warm-up as before: that which the run has had
        first_warmup = int((run_before.get("expected_steps") or before) * share)
        warmup_steps = first_warmup if state.warmup_steps is None else state.warmup_steps
    schedule = schedule_of(config, warmup_steps)
    load_schedule(device.scope, schedule, device.place)
    applied = progress.counters.get(APPLIED_UPDATES, progress.step)
    if before != now and progress.step < now and not config.run.benchmark:
        last = schedule_of(config, warmup_steps, before).learning_rate_at(applied - 1)
        logger.info(
            f"{'extended' if now > before else 'shortened'} from {before:,} to {now:,} updates; learning rate "
            f"continues at {schedule.learning_rate_at(applied):.3g} (the last update had {last:.3g})"
        )
    state.warmup_steps = warmup_steps if warmup_steps != config.warmup_steps() else None
    if now > before:
        state.evaluations.since_best = state.evaluations.above = 0


def outlasts_decay(config: TrainingConfig, resumed: Progress) -> bool:
    """Whether the run should continue after its decay, by more updates or more time."""
    decay, run = resumed.carried.decay, config.run
    if decay is None or config.optimizer.lr_schedule != "wsd":
        return False
    is_complete = read_json(config.stage_dir() / "summary.json").get("steps") == resumed.step >= decay.last
    has_new_time = run.finish_in is not None and (resumed.step == decay.first or is_complete)
    resumes_before_decay = config.initialization.last_step_of_checkpoint == decay.first  # more updates than time gave
    before = decay.last if resumes_before_decay else int(resumed.settings["run"]["max_steps"])
    return has_new_time or run.max_steps > before

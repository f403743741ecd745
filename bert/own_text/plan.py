"""Facts of a text, of a machine and of its measured speed -> the plan of a pre-training on it.

Pure: nothing is read or measured here. `rules` has the constants, `choices` explains the plan.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from bert.own_text import rules
from bert.own_text.candidates import Candidate, layer_parameters, text_tokens
from bert.own_text.facts import MachineFacts, TextFacts, Wishes
from bert.planning.estimates import training_flops_per_sequence
from bert.reporting.progress import duration

Speeds = Mapping[tuple[str, int], float]  # (name of the candidate, phase) -> sequences per second of all ranks


@dataclasses.dataclass(frozen=True)
class PhasePlan:
    """One phase.

    Attributes:
        seconds: of the updates and evaluations.
        evaluated: sequences of one evaluation.
        evaluations: how many there are.
        settings: of the phase, by the flat names of the training's settings; without paths.
    """

    phase: int
    steps: int
    global_batch: int
    seconds: float
    sequences_per_second: float
    evaluated: int
    evaluations: int
    settings: dict[str, Any]

    def steps_in(self, seconds: float, speed: float | None = None) -> int:
        """Updates that can be made in so many seconds, evaluations included."""
        speed = speed or self.sequences_per_second
        return max(1, int((seconds - self._evaluation_seconds(speed)) * speed / self.global_batch))

    def seconds_of(self, steps: int, speed: float | None = None) -> float:
        """Time of so many updates, with evaluations."""
        speed = speed or self.sequences_per_second
        return steps * self.global_batch / speed + self._evaluation_seconds(speed)

    def _evaluation_seconds(self, speed: float) -> float:
        return self.evaluations * self.evaluated * rules.EVALUATION_COST / speed


@dataclasses.dataclass(frozen=True)
class TextPlan:
    """The choices for one text on one machine.

    Attributes:
        tokens: of the text.
        epochs: passes over the text, of all phases.
        preparation_seconds: of import, vocabulary and shards.
    """

    text: TextFacts
    machine: MachineFacts
    wishes: Wishes
    candidate: Candidate
    phases: dict[int, PhasePlan]
    tokens: float
    epochs: float
    preparation_seconds: float
    duplicate_factor: int
    held_out_fraction: float

    def seconds(self) -> float:
        """Time of everything."""
        starts = rules.START_SECONDS * len(self.phases)
        phases = sum(phase.seconds for phase in self.phases.values())
        return self.preparation_seconds + starts + phases + rules.END_SECONDS

    def segmenter(self) -> str | None:
        """What finds the words that masks cover whole; None: masks cover single tokens."""
        wanted = self.machine.segmenter if self.text.is_chinese else ""
        chosen = wanted if self.wishes.segmenter is None else self.wishes.segmenter
        return chosen if chosen not in ("", "none") else None

    def wants_whole_words(self, phase: int) -> bool:
        """Whether the masks of a phase cover whole words if a segmenter finds them."""
        return bool(self.wishes.setting(phase, "whole_word_masking", True))

    def held_out_masked_tokens(self) -> float:
        """Predictions that the held-out loss is a mean of, in the first phase."""
        first = next(iter(self.phases.values()))
        return first.evaluated * self.candidate.predictions(first.phase)

    def samples(self, phase: int) -> float:
        """Estimated samples of one pass over the training text."""
        return self.tokens * (1 - self.held_out_fraction) / tokens_of_sample(self.candidate, phase, self.wishes)


def make_plan(
    text: TextFacts, machine: MachineFacts, wishes: Wishes, found: tuple[Candidate, ...], speeds: Speeds
) -> TextPlan:
    """The plan of the best of the candidates.

    Args:
        found: `candidates.candidates`.
        speeds: of every candidate in every phase.
    """
    held_out = wishes.held_out_fraction
    if held_out is None:
        share = rules.HELD_OUT_BYTES / max(text.num_bytes, 1)
        held_out = round(min(rules.LARGEST_HELD_OUT, max(rules.SMALLEST_HELD_OUT, share)), 3)
    duplicates = wishes.duplicate_factor
    if duplicates is None:
        duplicates = rules.DUPLICATE_FACTOR if text.num_bytes <= rules.LARGEST_DUPLICATED_TEXT else 1
    preparation = preparation_seconds(text, machine, duplicates, len(wishes.phases))
    candidate = choose_model(text, wishes, found, speeds, preparation)
    tokens = text_tokens(text, candidate.model.vocab_size)
    plan = TextPlan(text, machine, wishes, candidate, {}, tokens, 0.0, preparation, duplicates, held_out)
    plan = _with_phases(plan, speeds)
    if dropout(plan.epochs) and candidate.rule and candidate.rule.dropout is None and candidate.device == "cpu":
        slower = {key: speed / rules.DROPOUT_COST for key, speed in speeds.items()}
        slowed = _with_phases(plan, slower)
        plan = slowed if dropout(slowed.epochs) else plan
    return plan


def on_devices(plan: TextPlan, wishes: Wishes, machine: MachineFacts, here: Candidate) -> TextPlan:
    """The plan of a run that was begun, perhaps elsewhere, on the devices that it has now.

    What decides the result stays: model, batches, rates, updates. Without a wish the ranks are so many as divide the
    batches.

    Args:
        here: the plan's model as it would be trained on `machine`.
    """
    ranks = here.ranks
    if wishes.num_processes is None:
        passes = [(made.global_batch, wishes.setting(phase, "batch_size", 1)) for phase, made in plan.phases.items()]
        fitting = (number for number in range(ranks, 0, -1) if all(b % (number * micro) == 0 for b, micro in passes))
        ranks = next(fitting, ranks)
    threads = wishes.setting(1, "cpu_threads") or max(1, machine.cores // ranks)
    candidate = dataclasses.replace(
        plan.candidate,
        device=here.device,
        ranks=ranks,
        threads=threads if here.device == "cpu" else 0,
        most_sequences=here.most_sequences,
    )
    phases = {
        phase: dataclasses.replace(
            made, settings=made.settings | _device_settings(candidate, phase, made.global_batch, wishes)
        )
        for phase, made in plan.phases.items()
    }
    machine = dataclasses.replace(machine, segmenter=plan.machine.segmenter)
    return dataclasses.replace(plan, wishes=wishes, machine=machine, candidate=candidate, phases=phases)


def preparation_seconds(text: TextFacts, machine: MachineFacts, duplicates: int, num_phases: int) -> float:
    """Estimated time of import, vocabulary and the shards of all phases."""
    made = text.num_bytes * duplicates * num_phases
    processes = min(machine.cores, 1 + text.num_bytes // (4 << 20))
    return (
        20.0
        + text.num_bytes / rules.IMPORT_BYTES_PER_SECOND
        + text.num_bytes / rules.VOCABULARY_BYTES_PER_SECOND
        + made / (rules.SHARD_BYTES_PER_SECOND * processes)
    )


def choose_model(
    text: TextFacts, wishes: Wishes, found: tuple[Candidate, ...], speeds: Speeds, preparation: float
) -> Candidate:
    """The largest candidate that reads enough tokens for its parameters in the time; the smallest if none does."""
    hours = rules.MOST_HOURS if wishes.hours is None else wishes.hours
    seconds = hours * 3600 - preparation
    fitting = [found[0]]
    for candidate in found[1:]:
        read = sum(
            tokens_of_sample(candidate, phase, wishes) * seconds * share * speeds[candidate.name, phase]
            for phase, share in phase_shares(wishes).items()
        )
        if wishes.epochs is not None:
            read = min(read, wishes.epochs * text_tokens(text, candidate.model.vocab_size))
        if read >= rules.TOKENS_PER_PARAMETER * layer_parameters(candidate.model):
            fitting.append(candidate)
    return fitting[-1]


def phase_shares(wishes: Wishes) -> dict[int, float]:
    """The share of the training's time that each phase has."""
    return {1: rules.PHASE_1_SHARE, 2: 1 - rules.PHASE_1_SHARE} if len(wishes.phases) > 1 else {wishes.phases[0]: 1.0}


def num_evaluations(seconds: float, evaluated: int, speed: float) -> int:
    """Evaluations of a phase: as many as take a twentieth of the time, from 2 to `rules.EVALUATIONS`."""
    one = max(evaluated, 1) * rules.EVALUATION_COST / speed
    return min(rules.EVALUATIONS, max(2, int(0.05 * seconds / one)))


def tokens_of_sample(candidate: Candidate, phase: int, wishes: Wishes) -> float:
    """Tokens of the text that a sample of a phase uses."""
    is_packed = wishes.setting(phase, "objective") == "mlm"
    share = rules.USED_BY_A_PACKED_SAMPLE if is_packed else rules.USED_BY_A_SAMPLE
    return candidate.lengths[phase] * share


def _phase_seconds(
    candidate: Candidate, tokens: float, wishes: Wishes, speeds: Speeds, plan: TextPlan
) -> dict[int, float]:
    """Seconds of each phase: of the hours given, otherwise of the epochs given, otherwise of `rules.EPOCHS`."""
    shares = phase_shares(wishes)
    rate = sum(
        tokens_of_sample(candidate, phase, wishes) * share * speeds[candidate.name, phase]
        for phase, share in shares.items()
    )
    other = plan.preparation_seconds + rules.START_SECONDS * len(shares) + rules.END_SECONDS
    if wishes.epochs is not None:
        return {phase: wishes.epochs * tokens / rate * share for phase, share in shares.items()}
    if wishes.hours is not None:
        seconds = wishes.hours * 3600 - other
    else:
        seconds = min(rules.EPOCHS * tokens / rate, rules.MOST_HOURS * 3600 - other)
    has_steps = all(wishes.setting(phase, "max_steps") for phase in wishes.phases)
    if seconds < 5 and wishes.hours is not None and not has_steps:
        raise ValueError(
            f"hours={wishes.hours:g} leave no time for training: import, vocabulary, shards and start take about "
            f"{duration(other)}; pass at least --hours {math.ceil(other * 2 / 36) / 100:g}"
        )
    return {phase: max(seconds, 5) * share for phase, share in shares.items()}


def _with_phases(plan: TextPlan, speeds: Speeds) -> TextPlan:
    """The plan with its phases, their steps and epochs."""
    candidate, wishes = plan.candidate, plan.wishes
    times = _phase_seconds(candidate, plan.tokens * (1 - plan.held_out_fraction), wishes, speeds, plan)
    sequences = {phase: times[phase] * speeds[candidate.name, phase] for phase in wishes.phases}
    for phase in wishes.phases:
        if (steps := wishes.setting(phase, "max_steps")) and (batch := wishes.setting(phase, "global_batch_size")):
            sequences[phase] = steps * batch
    phases = {}
    for phase in wishes.phases:
        most = min(sequences[phase] / 200, plan.samples(phase) * plan.duplicate_factor / 8)
        batch = global_batch(candidate, phase, sum(sequences.values()), most, wishes)
        phases[phase] = _phase(plan, phase, batch, times[phase], speeds[candidate.name, phase])
    epochs = sum(made.steps * made.global_batch / plan.samples(phase) for phase, made in phases.items())
    phases = {
        phase: dataclasses.replace(
            made,
            settings={
                **_settings(candidate, phase, made.global_batch, epochs, wishes),
                **_whole_words(plan, phase),
                **({} if plan.held_out_fraction else {"early_stopping": 0}),
                **step_settings(made.steps, made.evaluations),
            },
        )
        for phase, made in phases.items()
    }
    return dataclasses.replace(plan, phases=phases, epochs=epochs)


def _phase(plan: TextPlan, phase: int, batch: int, seconds: float, speed: float) -> PhasePlan:
    wishes, usual = plan.wishes, rules.EVALUATED_SEQUENCES[plan.candidate.device]
    held_out = plan.samples(phase) * plan.held_out_fraction / (1 - plan.held_out_fraction)
    evaluated = min(wishes.setting(phase, "eval_samples", usual), max(1, int(held_out))) if held_out else 0
    made = PhasePlan(phase, 1, batch, seconds, speed, evaluated, num_evaluations(seconds, evaluated, speed), {})
    by_time = made.steps_in(seconds) if wishes.hours is not None else max(1, round(seconds * speed / batch))
    steps = wishes.setting(phase, "max_steps") or by_time
    return dataclasses.replace(made, steps=steps, seconds=made.seconds_of(steps))


def global_batch(candidate: Candidate, phase: int, sequences: float, most: float, wishes: Wishes) -> int:
    """Sequences of an update: what was given, otherwise by the sequences of the whole training.

    Args:
        most: sequences of which the phase would make fewer than 200 updates, or its text fewer than 8 batches.
    """
    ranks, given = candidate.ranks, wishes.setting(phase, "global_batch_size")
    micro = wishes.setting(phase, "batch_size") or 1
    if given:
        return given
    wanted = rules.BATCH_ANCHOR * math.sqrt(sequences / rules.SEQUENCES_ANCHOR)
    least = 8 if candidate.device == "cpu" else rules.LEAST_MICRO_BATCH["gpu"] * ranks
    wanted = min(max(wanted, rules.SHORT_TRAINING_BATCH, least), max(most, rules.LEAST_BATCH), rules.LARGEST_BATCH)
    share = max(1, 1 << round(math.log2(max(wanted / ranks, 1))))
    return ranks * max(share, micro if share % micro == 0 else -(-share // micro) * micro)


def step_settings(steps: int, evaluations: int) -> dict[str, int]:
    """The settings that follow from the number of updates."""
    every = -(-steps // evaluations)
    return {"max_steps": steps, "eval_freq": every, "num_steps_per_checkpoint": every}


def _settings(candidate: Candidate, phase: int, batch: int, epochs: float, wishes: Wishes) -> dict[str, Any]:
    """The settings of a phase; those that were given are laid over them by the caller."""
    model, rule, length = candidate.model.model_dump(), candidate.rule, candidate.lengths[phase]
    if rule is not None:
        rate = rule.dropout if rule.dropout is not None else dropout(epochs)
        model |= {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
    optimizer = wishes.setting(phase, "optimizer") or ("Lamb" if rule is not None else "AdamW")
    return {
        **model,
        **_device_settings(candidate, phase, batch, wishes),
        "bert_model": rule.built_in if rule is not None else "bert-continued",
        "max_seq_length": length,
        "max_predictions_per_seq": candidate.predictions(phase),
        "masked_lm_ratio": candidate.masked_shares[phase],
        "masking": "dynamic",
        "global_batch_size": batch,
        "optimizer": optimizer,
        "learning_rate": learning_rate(candidate, optimizer, phase, batch, wishes),
        "warmup_proportion": rules.WARMUP_OF_LARGE_BATCHES if batch >= rules.WARMUP_LARGE_BATCH else rules.WARMUP,
        "eval_samples": rules.EVALUATED_SEQUENCES[candidate.device],
        "early_stopping": rules.EARLY_STOPPING,
        "early_stopping_from": rules.EARLY_STOPPING_FROM,
        "amp": candidate.precision.amp,
    }


def _device_settings(candidate: Candidate, phase: int, batch: int, wishes: Wishes) -> dict[str, Any]:
    """The settings that depend on devices and ranks, and do not decide what is learned."""
    share = max(1, batch // candidate.ranks)
    fits = max(1, min(candidate.most_sequences[phase], share))
    micro = wishes.setting(phase, "batch_size") or next(size for size in range(fits, 0, -1) if share % size == 0)
    return {
        "batch_size": micro,
        "device": candidate.device,
        "cpu_threads": candidate.threads,
        "num_workers": 0 if candidate.device == "cpu" else 4,
    }


def _whole_words(plan: TextPlan, phase: int) -> dict[str, bool]:
    """Static masks cover whole words since the shards were made."""
    is_dynamic = plan.wishes.setting(phase, "masking", "dynamic") == "dynamic"
    return {"whole_word_masking": True} if plan.segmenter() and is_dynamic else {}


def probe_settings(candidate: Candidate, phase: int) -> dict[str, Any]:
    """The settings with which the speed is measured: one micro-batch for each update, as large as takes a second."""
    length = candidate.lengths[phase]
    flops = training_flops_per_sequence(candidate.model, length, candidate.predictions(phase))
    usual = 64 if candidate.device == "gpu" else 32 if 32 * flops < rules.FLOPS_OF_A_SECOND else 16
    most = min(candidate.most_sequences[phase], usual)
    settings = _settings(candidate, phase, most * candidate.ranks, 0.0, Wishes())
    return {**settings, "batch_size": most, "optimizer": "Lamb"}


def dropout(epochs: float) -> float:
    """Of the small models."""
    return rules.DROPOUT if epochs >= rules.DROPOUT_FROM_EPOCHS else 0.0


def learning_rate(candidate: Candidate, optimizer: str, phase: int, batch: int, wishes: Wishes) -> float:
    """Peak rate: that of the rule's anchor, scaled by the square root of the batch; less in phase 2."""
    rule, weights = candidate.rule, wishes.weights
    if rule is None or optimizer == "AdamW":
        rate, anchor = rules.CONTINUED_RATE, rules.CONTINUED_BATCH
        if rule is not None:  # random weights; Devlin et al. (2019) at width 768, more for narrower models
            rate *= max(1.0, 768 / candidate.model.hidden_size)
    else:
        rate, anchor = rule.rate, rule.batch
    scaled = min(rate * math.sqrt(batch / anchor), rules.MOST_RATE)
    if phase == 1 and weights is not None and "masked-LM head" not in weights.heads:
        scaled = max(scaled, rules.NEW_HEAD_RATE)
    return float(f"{scaled * (rules.PHASE_2_RATE if phase == 2 else 1.0):.2g}")

"""Starts a training on the user's text: reads or makes its record, and derives the settings."""

import dataclasses
import time
from pathlib import Path
from typing import Any

from bert.checkpoints.directories import list_steps
from bert.config.plain_yaml import read_yaml
from bert.config.setting_sources import resolve_config
from bert.config.training_settings import derive
from bert.jobs.record import JobRecord
from bert.launching.previous_run import settings_asked_for
from bert.own_text import constants, corpus
from bert.own_text.candidates import affordable, list_candidates, place
from bert.own_text.decisions import Speeds
from bert.own_text.facts import TextFacts, machine_facts, text_facts
from bert.own_text.plan_table import make_plan, on_devices
from bert.own_text.record import TextRecord, read_record
from bert.own_text.request import TextRequest
from bert.own_text.rules import decide, expected_batches
from bert.own_text.sources import REPLAY, quoted_words, refuse_shared_groups
from bert.own_text.speed import estimate_speeds, measure_speeds
from bert.own_text.words import normalization_of, with_tokens
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.recipes import evening
from data.text.code_pages import base_language
from data.text.readers import Reading


def checkpoint_steps(output_dir: Path) -> list[int]:
    """The checkpoints of all models in the output folder."""
    return [step for folder in output_dir.glob("*/phase1") for step in list_steps(folder)]


def record_of(request: TextRequest, job: JobRecord, begun: float | None = None, may_measure: bool = True) -> TextRecord:
    """A new plan before the first checkpoint; afterwards the recorded plan, on this machine's devices.

    Args:
        job: the record of earlier starts.
        begun: when the hours began to count (time.monotonic); None: now.
        may_measure: start ranks that measure the speed, which is estimated otherwise.
    """
    before = read_record(job, request.output_dir)
    if before is None or not checkpoint_steps(request.output_dir):
        return _new_record(request, job.used(), begun or time.monotonic(), may_measure)
    if request.model not in (None, before.plan.model):
        raise ValueError(
            f"config={request.model} differs from {before.plan.model} of the run in {request.output_dir}; pass "
            "another --output-dir, or delete that one"
        )
    plan, machine = before.plan, machine_facts(request.output_dir)
    batch = plan.settings["global_batch_size"]
    if (asked := request.setting("global_batch_size", batch)) != batch:  # before it is divided among ranks
        raise ValueError(
            f"global_batch_size={asked} differs from {batch} of the run in {request.output_dir}; drop "
            "--global-batch-size, or pass another --output-dir"
        )
    request.length.refuse_schedule(plan.settings["lr_schedule"])
    placement = place(plan.network(), machine, request, batch)
    before.plan = on_devices(plan, placement, machine, request)
    corpus.check_data(before.data, corpus.data_facts(request, before.plan), request.output_dir)
    return before


def _new_record(request: TextRequest, used: float, begun: float, may_measure: bool) -> TextRecord:
    text, machine = read_text(request), machine_facts(request.output_dir)
    candidates = list_candidates(text, machine, request)
    speeds = estimate_speeds(candidates, machine)
    if may_measure:
        print("measuring the speed of this machine ...", flush=True)
        seconds = constants.MOST_FASTER * request.length.seconds()
        candidates = affordable(candidates, text, request.length, seconds, speeds)
        batches = expected_batches(candidates, text, machine, request, Speeds(speeds))
        speeds, slowness = measure_speeds(candidates, batches)
        text = dataclasses.replace(text, slowness=slowness)
    else:
        print("estimated speed; the real run measures it, so its plan may differ", flush=True)
    used_seconds = used + time.monotonic() - begun
    plan = make_plan(decide(text, machine, request, Speeds(speeds, may_measure), used_seconds))
    return TextRecord(text, machine, speeds, plan, corpus.data_facts(request, plan))


def read_text(request: TextRequest) -> TextFacts:
    """Read the facts of all sources; with --words assume the facts of typical English text."""
    if (words := request.assumed_words) is not None:
        size = constants.CHARACTERS_OF_A_WORD * words
        documents = max(1, words // constants.WORDS_OF_A_DOCUMENT)
        return TextFacts(1, documents, words, size, evening.USUAL_CHARACTERS, size, is_estimate=True)
    if request.documentation is not None and not request.paths()[0].exists():
        words, size = evening.USUAL_WORDS, evening.USUAL_BYTES
        print(
            "the documentation of this machine is collected when the run starts; this plan assumes about "
            f"{size / 1e6:.0f} MB of text"
        )
        return TextFacts(1, size // 5_000, words, size, evening.USUAL_CHARACTERS, size, is_estimate=True)
    reading = Reading(
        request.lang or "en",
        request.encoding or "auto",
        request.document_separator or "file",
        request.text_field,
        group_by=request.group_by,
        source_code=request.source_code,
        strip_log_stamps=request.strip_log_stamps,
    )
    facts, groups, sample = dict[str, TextFacts](), dict[str, set[str]](), list[str]()
    for source in request.sources:
        of_name = f"{source.name}: " if source.name else ""
        print(f"reading {of_name}{quoted_words(source.paths)} ...", flush=True)
        of_source = dataclasses.replace(reading, group_by=source.group_by(request.group_by))
        read = text_facts(source.paths, of_source, request.follow_links)
        facts[source.name], groups[source.name] = read[:2]
        sample += read[2] if source.name != REPLAY else []
    if reading.folders() is None:  # the folders of a source are its own
        refuse_shared_groups(request.group_by, groups)
    text = TextFacts.of(facts)
    if request.lang is not None:  # of characters that Chinese and Japanese share, or of a mixed text
        text = dataclasses.replace(text, is_chinese=base_language(request.lang) == "zh")
    return with_tokens(text, sample, request, normalization_of(request, text))


def training_config(request: TextRequest, record: TextRecord) -> PretrainingConfig:
    """Settings of the training, from the plan, the run's paths, this command's flags and the updates."""
    plan, output_dir, length = record.plan, request.output_dir, request.length
    steps = length.updates(plan.updates, plan.seconds, lambda passes: corpus.updates_of(request, plan, passes))
    settings: dict[str, Any] = {
        "classifier_pooling": "cls",  # of a plan of an earlier version, which does not name it
        **plan.settings,
        "phase": 1,
        "output_dir": output_dir,
        "report_file": output_dir / "phase1/report.json",
        "epochs_of": "text",
        "input_dir": corpus.shards(request, "train"),
        "eval_dir": corpus.shards(request, "held_out") if plan.held_out_fraction else None,
        "vocab_file": corpus.vocabulary_file(request),
        "from_pretrained_params": None if request.weights is None else request.weights.path,
        **request.settings,
        "max_steps": steps,
        "finish_in": length.finish_in,
    }
    expected = min(plan.updates, record.expected_updates or plan.updates)
    if plan.is_timed() and length.is_by_time():
        settings["expected_steps"] = min(expected, steps)
    config: PretrainingConfig = resolve_config(settings, ENTRY)
    if (request.tokens is None or request.add_words) and config.data.vocab_file.exists():
        return derive(config, vocab_size=len(config.data.vocab_file.read_bytes().splitlines()))
    if checkpoint_steps(output_dir) and (asked_for := settings_asked_for(config)).exists():
        # The data were deleted, and the vocabulary is made again.
        return derive(config, vocab_size=read_yaml(asked_for)["vocab_size"])
    return config

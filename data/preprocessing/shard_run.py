"""Makes the shards of a job: blocks of samples, shard files, manifest. A stopped run is resumed."""

import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from bert.files import write_atomically
from bert.help_parser import wrapped
from bert.reporting.progress import progress
from bert.samples.manifest import (
    MANIFEST_NAME,
    UNFINISHED_NAME,
    Manifest,
    ShardRecord,
    read_manifest,
    shard_totals,
    write_manifest,
)
from data.preprocessing.pipeline import (
    ShardJob,
    ShardPlan,
    cut_one,
    make_block,
    make_shards,
    plan_shards,
    remove_other_shards,
)
from data.preprocessing.problems import problems_of_counts
from data.preprocessing.request import SourceText
from data.preprocessing.workers import Run
from data.text.lddl_writer import counts_line

_RUN_KEY = ".run_key"  # cache key of a finished run; not in the manifest, as it depends on names and times


def preprocess(job: ShardJob, source: SourceText, vocabulary_sha256: str, num_shards: int | None, run: Run) -> Manifest:
    """Make all shards of a job, the manifest last; finished work of an earlier run is kept."""
    sink = job.sink
    settings = {
        **job.settings.record(),
        "num_shards": num_shards,
        "output_format": job.output_format,
        "compression": job.compression,
    }
    finished = read_manifest(sink)
    if finished is not None and finished.settings == settings and _is_whole(sink, finished, job.key):
        _remove_leftovers(sink)
        _warn(finished.counts, Counter())
        return finished
    _check_sink(job)
    job.folder.mkdir(parents=True, exist_ok=True)
    tasks = [(job, block) for block in source.blocks]
    make_block(*tasks[0])  # in this process, so that forked processes share the compiled loops and the cached words
    blocks = list(progress("samples", len(tasks), "blocks", run(make_block, tasks)))
    counts: Counter = Counter()
    for block in blocks:
        counts.update(block["counts"])
    samples = [block["samples"] for block in blocks]
    plans = plan_shards(samples, job.settings.bin_size is not None, num_shards, job.output_format)
    if not plans:
        raise ValueError(
            f"{len(source.files)} source files with {counts['documents read']} documents gave no sample; "
            f"a pair needs two sentences or a second document: {counts_line(counts)}"
        )
    files = Counter(plan.bin_id for plan in plans).values()
    if num_shards is not None and min(files) < num_shards:
        small = sum(number < num_shards for number in files)
        counts["bins of fewer samples, thus of fewer files, than --num-shards"] = small
    remove_other_shards(job, plans)
    results = _make_shards(job, plans, run)
    shards = {plan.name: ShardRecord(**results[plan.name]["shard"]) for plan in plans}
    written = sum(record.num_samples for record in shards.values())
    if written != counts["samples"]:
        raise RuntimeError(
            f"{sink}: its shards hold {written} samples, its blocks {counts['samples']}; a file changed "
            "while they were made: remove the folder and start again"
        )
    if job.settings.masking == "static":
        counts["masked tokens"] = sum(result["masked tokens"] for result in results.values())
    counts.update(source.others)
    totals = {"source files": len(source.files), "blocks": len(source.blocks), **shard_totals(shards)}
    manifest = Manifest(shards, vocabulary_sha256, settings, dict(sorted(counts.items())) | totals)
    write_manifest(sink, manifest)
    write_atomically(sink / _RUN_KEY, job.key.encode())
    _remove_leftovers(sink)
    _warn(counts, sum((Counter(block.get("unknown words")) for block in blocks), Counter()))
    return manifest


def _warn(counts: Mapping[str, int], unknown: Counter[str]) -> None:
    for problem in problems_of_counts(counts, unknown):
        print(wrapped(f"warning: {problem}"), file=sys.stderr)


def _make_shards(job: ShardJob, plans: list[ShardPlan], run: Run) -> dict[str, dict]:
    groups: dict[int, list[ShardPlan]] = defaultdict(list)
    for plan in plans:
        groups[plan.number].append(plan)
    cut_one(job, plans[0])
    finished = run(make_shards, [(job, tuple(group)) for group in groups.values()])
    results = zip(chain.from_iterable(groups.values()), chain.from_iterable(finished), strict=True)
    return {plan.name: record for plan, record in progress("shards", len(plans), "files", results)}


def _remove_leftovers(sink: Path) -> None:
    """Remove files of an unfinished run, and temporary files of killed ones."""
    shutil.rmtree(sink / UNFINISHED_NAME, ignore_errors=True)
    for path in sink.glob(".*.tmp"):
        path.unlink()


def _is_whole(sink: Path, manifest: Manifest, key: str) -> bool:
    """Whether the run with this key has written all its shards, and they all exist."""
    run_key = sink / _RUN_KEY
    return (run_key.exists() and run_key.read_text() == key) and all(
        (sink / name).is_file() and (sink / name).stat().st_size == record.num_bytes
        for name, record in manifest.shards.items()
    )


def _check_sink(job: ShardJob) -> None:
    """Refuse a sink with shards that this run did not begin."""
    if job.folder.exists() or not job.sink.is_dir():
        return
    names = sorted(path.name for path in job.sink.iterdir())
    others = [name for name in names if name == MANIFEST_NAME or ".parquet" in name or ".arrow" in name]
    if others:
        raise ValueError(
            f"{job.sink}: holds {len(others)} files of other shards, e.g. {others[0]}, made of other text, with other "
            "settings or by another version; a sink holds the shards of one run: give an empty --sink, or remove them"
        )

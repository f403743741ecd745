"""Make the shards of BERT's pre-training from a folder of text.

    python -m data.preprocess_bert_pretrain --wikipedia D/wikipedia/source --output-dir OUT --vocab-file vocab.txt \\
        --max-seq-length 128 --num-shards 64

The shards depend only on the source, the settings and the seed, not on the number of workers or their speed.
"""

import argparse
import gc
import os
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from bert.command_errors import command
from bert.files import only_writer, write_atomically
from bert.help_parser import HelpParser, wrapped
from bert.reporting.progress import megabytes, progress
from bert.samples.manifest import (
    MANIFEST_NAME,
    UNFINISHED_NAME,
    Manifest,
    ShardRecord,
    read_manifest,
    shard_totals,
    write_manifest,
)
from bert.samples.masking import MASKED_SHARE
from bert.tokenization.segmentation import SEGMENTERS
from bert.tokenization.vocabulary import Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary
from data.preprocessing.pipeline import (
    COMPRESSION_FLAG,
    FORMATS,
    Job,
    ShardPlan,
    cut_one,
    make_block,
    make_shards,
    plan_shards,
    remove_other_shards,
    samples_key,
)
from data.preprocessing.problems import problems_of_counts
from data.preprocessing.settings import MASKING, OBJECTIVES, PairSettings, SampleSettings
from data.preprocessing.workers import SCHEDULERS, Run, scheduler
from data.text.lddl_reader import Block, SourceFile, list_sources, numbered_documents, plan_blocks
from data.text.lddl_writer import counts_line, print_counts
from data.text.script_facts import ScriptFacts, segmenter_of

_CORPORA = ("text", "wikipedia", "books", "common_crawl", "open_webtext")
_NAMES_OF_LDDL = {
    "--sink": "--output-dir",
    "--target-seq-length": "--max-seq-length",
    "--local-n-workers": "--num-processes",
    "--lang": "--language",
}
_DEFAULT_BLOCK_BYTES = 4 << 20
_MEASURED_BLOCKS, _MEASURED_DOCUMENTS, _MEASURED_CHARACTERS = 16, 50, 2_000  # to choose a segmenter by
_RUN_KEY = ".run_key"  # cache key of a finished run; not in the manifest, as it depends on names and times


class Source(NamedTuple):
    """The *.txt files, the blocks into which they are cut, and the number of other files beside them."""

    files: tuple[SourceFile, ...]
    blocks: tuple[Block, ...]
    others: Counter


def preprocess(job: Job, source: Source, vocabulary_sha256: str, num_shards: int | None, run: Run) -> Manifest:
    """Make all shards of a job in its sink, the manifest last; finished work of an earlier, killed run is kept."""
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


def _make_shards(job: Job, plans: list[ShardPlan], run: Run) -> dict[str, dict]:
    groups: dict[int, list[ShardPlan]] = defaultdict(list)
    for plan in plans:
        groups[plan.number].append(plan)
    cut_one(job, plans[0])
    finished = run(make_shards, [(job, tuple(group)) for group in groups.values()])
    results = zip(chain.from_iterable(groups.values()), chain.from_iterable(finished), strict=True)
    return {plan.name: record for plan, record in progress("shards", len(plans), "files", results)}


def _remove_leftovers(sink: Path) -> None:
    """Remove the files of an unfinished run and the temporary files of killed ones."""
    shutil.rmtree(sink / UNFINISHED_NAME, ignore_errors=True)
    for path in sink.glob(".*.tmp"):
        path.unlink()


def _is_whole(sink: Path, manifest: Manifest, key: str) -> bool:
    """Whether the run with this key has written the shards, and all of them are there."""
    run_key = sink / _RUN_KEY
    return (run_key.exists() and run_key.read_text() == key) and all(
        (sink / name).is_file() and (sink / name).stat().st_size == record.num_bytes
        for name, record in manifest.shards.items()
    )


def _check_sink(job: Job) -> None:
    """Refuse a sink with shards that this run did not begin."""
    if job.folder.exists() or not job.sink.is_dir():
        return
    names = sorted(path.name for path in job.sink.iterdir())
    others = [name for name in names if name == MANIFEST_NAME or ".parquet" in name or ".arrow" in name]
    if others:
        raise ValueError(
            f"{job.sink}: holds {len(others)} files of other shards, e.g. {others[0]}, made of other text, with other "
            "settings or by another version; a folder holds the shards of one run: give an empty --output-dir, or "
            "remove them"
        )


def _parser() -> HelpParser:
    parser = HelpParser(description=__doc__)
    for name in _CORPORA:
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="DIR",
            action="append",
            default=[],
            help="source folder: DIR/<language>/N.txt, one document per line, id first",
        )
    parser.add_argument("--output-dir", dest="sink", required=True, metavar="DIR", help="gets the shards")
    parser.add_argument("--vocab-file", required=True)
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        help="lower-case the text (default: unless the vocabulary has capitals)",
    )
    parser.add_argument(
        "--strip-accents",
        action=argparse.BooleanOptionalAction,
        help="strip accents (default: if the text is lower-cased, unless the vocabulary has them)",
    )
    parser.add_argument("--language", default="en", help="of the sentence splitter")
    parser.add_argument(
        "--max-seq-length", dest="target_seq_length", type=int, default=128, help="in tokens (default: 128)"
    )
    parser.add_argument(
        "--objective",
        choices=OBJECTIVES,
        default="mlm_nsp",
        help="mlm_nsp: sentence pairs, as BERT; mlm: documents packed to the full length, for masked LM alone, as "
        "RoBERTa (default: mlm_nsp)",
    )
    parser.add_argument(
        "--separate-documents",
        action="store_true",
        help="with --objective mlm: attention and positions are of each document alone, of which a sequence holds "
        "several whole ones (default: the text runs on from document to document)",
    )
    parser.add_argument("--short-seq-prob", type=float, help="share of shorter pairs or sequences (default: 0.1)")
    parser.add_argument("--block-size", type=int, metavar="BYTES", help="source bytes per block (default: 4 MiB)")
    parser.add_argument("--num-blocks", type=int, help="instead of --block-size: cut the source into this many blocks")
    parser.add_argument("--bin-size", type=int, help="bin samples by number of tokens (default: no bins)")
    parser.add_argument("--masking", nargs="?", const="static", default="dynamic", choices=MASKING)
    parser.add_argument("--whole-word-masking", action="store_true", help="static masks cover whole words")
    parser.add_argument(
        "--word-segmenter",
        choices=("auto", *SEGMENTERS, "none"),
        default="auto",
        help="jieba finds the words of Chinese text for --whole-word-masking (extra chinese); icu, the default for "
        "text in Thai, Lao, Khmer or Burmese, cuts it into words (extra segmentation), syllables Javanese",
    )
    parser.add_argument("--masked-lm-ratio", type=float, default=MASKED_SHARE)
    parser.add_argument("--max-predictions-per-seq", type=int, help="limit of static masks per sample (default: none)")
    parser.add_argument("--duplicate-factor", type=int, default=1, help="times each document is used")
    parser.add_argument("--sample-ratio", type=float, default=1.0, help="share of the documents to use")
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--num-shards", type=int, help="balanced shards (per bin); default: one part per block")
    parser.add_argument("--output-format", choices=FORMATS, default="parquet")
    parser.add_argument("--compression", **COMPRESSION_FLAG)
    parser.add_argument(
        "--num-processes",
        dest="local_n_workers",
        type=int,
        default=os.cpu_count() or 1,
        help="processes, or Slurm jobs (default: all cores)",
    )
    parser.add_argument("--scheduler", choices=SCHEDULERS, default="local", help="see data/preprocessing/workers.py")
    parser.add_argument("--scheduler-address", help="of a Dask scheduler that runs already")
    parser.add_old_names(_NAMES_OF_LDDL)
    return parser


def _source_of(arguments: argparse.Namespace) -> Source:
    """The source of a command line; ValueError names a bad value."""
    folders = [os.path.abspath(folder) for name in _CORPORA for folder in getattr(arguments, name)]
    others: Counter = Counter()
    files = list_sources(folders, others)
    if not files:
        raise ValueError(f"no source given; name at least one of --{' --'.join(_CORPORA).replace('_', '-')}")
    for name in ("num_blocks", "block_size", "num_shards", "local_n_workers", "max_predictions_per_seq"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')}={value} must be at least 1")
    if arguments.num_blocks and arguments.block_size:
        raise ValueError(
            f"--num-blocks={arguments.num_blocks} and --block-size={arguments.block_size} both set the "
            "size of blocks; give one of them"
        )
    arguments.block_bytes = arguments.block_size or _DEFAULT_BLOCK_BYTES
    if arguments.num_blocks:
        arguments.block_bytes = -(-sum(file.num_bytes for file in files) // arguments.num_blocks)
    return Source(files, plan_blocks(files, arguments.block_bytes), others)


def _segmenter_of(arguments: argparse.Namespace, blocks: Sequence[Block]) -> str | None:
    """As given; "auto": by the beginning of some blocks."""
    if arguments.word_segmenter != "auto":
        return None if arguments.word_segmenter == "none" else arguments.word_segmenter
    facts = ScriptFacts()
    for block in blocks[:: -(-len(blocks) // _MEASURED_BLOCKS)]:
        for _, text in islice(numbered_documents(block, Counter()), _MEASURED_DOCUMENTS):
            facts.add(text[:_MEASURED_CHARACTERS])
    return segmenter_of(facts.cutter(), "auto")


def _settings_of(arguments: argparse.Namespace, vocabulary: Vocabulary, blocks: Sequence[Block]) -> SampleSettings:
    """The settings of a command line; ValueError names a bad value."""
    values = vars(arguments)
    if arguments.short_seq_prob is None:
        values["short_seq_prob"] = 0.0 if arguments.objective == "mlm" else 0.1
    case = vocabulary.normalization(arguments.lowercase, arguments.strip_accents)
    values["lowercase"], values["strip_accents"] = case.lowercase, case.strip_accents
    if vocabulary.is_wordpiece():
        values["word_segmenter"] = _segmenter_of(arguments, blocks)
    elif arguments.word_segmenter in ("auto", "none"):
        values["word_segmenter"] = None
    else:
        raise ValueError(
            f"--word-segmenter={arguments.word_segmenter}: the tokens of {vocabulary.source} may span its words, which "
            "are for a WordPiece; leave it out"
        )
    values["pairs"] = PairSettings(**{field.name: values[field.name] for field in fields(PairSettings)})
    return SampleSettings(**{field.name: values[field.name] for field in fields(SampleSettings)})


def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    start = time.monotonic()
    os.environ.setdefault(
        "TOKENIZERS_PARALLELISM", "false"
    )  # each process tokenises alone; the library warns otherwise
    gc.freeze()  # so that the garbage collector does not copy the modules' memory in forked processes
    with (
        command(arguments.sink, "interrupted; the same command resumes"),
        scheduler(arguments.scheduler, arguments.local_n_workers, arguments.scheduler_address) as run,
    ):
        source, vocabulary = _source_of(arguments), read_vocabulary(arguments.vocab_file)
        settings = _settings_of(arguments, vocabulary, source.blocks)
        key = samples_key(settings, vocabulary.sha256, source.files)
        paths = os.path.abspath(arguments.vocab_file), Path(os.path.abspath(arguments.sink))
        job = Job(settings, *paths, arguments.output_format, arguments.compression, key)
        with only_writer(job.sink):
            manifest = preprocess(job, source, vocabulary.sha256, arguments.num_shards, run)
    seconds = time.monotonic() - start
    with command():
        print(
            f"{manifest.counts['samples']} samples in {len(manifest.shards)} shards in {arguments.sink}, "
            f"{megabytes(manifest.counts['input bytes'])} of text in {seconds:.1f} s"
        )
        print_counts(manifest.counts)


if __name__ == "__main__":
    main()

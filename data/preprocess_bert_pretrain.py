"""Make the shards of BERT's pre-training from a folder of text.

The shards depend only on the source, the settings and the seed, not on the number of workers or their speed.
"""

import gc
import os
import time
from pathlib import Path

from bert.command_errors import command
from bert.config.plain_commands import read_flags
from bert.files import only_writer
from data.preprocessing.request import ShardRequest

_EXAMPLES = (
    "--wikipedia D/wikipedia/source --output-dir SHARDS --vocab-file vocab.txt --num-shards 64",
    "--text D/source --output-dir SHARDS --vocab-file vocab.txt --max-seq-length 512 --objective mlm",
)


def main(argv: list[str] | None = None) -> None:
    request = read_flags(ShardRequest, argv, description=__doc__, examples=_EXAMPLES)
    from bert.reporting.progress import megabytes  # these load pyarrow and other packages, which --help does not need
    from bert.tokenization.vocabulary_files import read_vocabulary
    from data.preprocessing.pipeline import ShardJob, samples_key
    from data.preprocessing.shard_run import preprocess
    from data.preprocessing.workers import scheduler
    from data.text.lddl_writer import print_counts

    start = time.monotonic()
    os.environ.setdefault(
        "TOKENIZERS_PARALLELISM", "false"
    )  # each process tokenises alone; the library warns otherwise
    gc.freeze()  # so that the garbage collector does not copy the modules' memory in forked processes
    with (
        command(request.sink, "interrupted; the same command resumes"),
        scheduler(request.scheduler, request.local_n_workers, request.scheduler_address) as run,
    ):
        source, vocabulary = request.read_source(), read_vocabulary(request.vocab_file)
        settings = request.sample_settings(vocabulary, source)
        key = samples_key(settings, vocabulary.sha256, source.files)
        paths = os.path.abspath(request.vocab_file), Path(os.path.abspath(request.sink))
        job = ShardJob(settings, *paths, request.output_format, request.compression, key)
        with only_writer(job.sink):
            manifest = preprocess(job, source, vocabulary.sha256, request.num_shards, run)
    seconds = time.monotonic() - start
    with command():
        print(
            f"{manifest.counts['samples']} samples in {len(manifest.shards)} shards in {request.sink}, "
            f"{megabytes(manifest.counts['input bytes'])} of text in {seconds:.1f} s"
        )
        print_counts(manifest.counts)


if __name__ == "__main__":
    main()

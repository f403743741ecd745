"""Redistribute shards into files of equal size: the sample counts of a bin's files differ by at most one.

It reads part.N.parquet files, LDDL's or ours (data.preprocess_bert_pretrain --num-shards balances at once). The input
is never changed or deleted.
"""

from pydantic import Field

from bert.config.plain_commands import InputDir, OutputDir, read_flags
from bert.config.settings_base import Settings
from data.preprocessing.settings import COMPRESSION_HELP, Compression


class BalanceRequest(Settings):
    """The settings of this command, read from its flags."""

    indir: InputDir = Field(description="folder of the shards to read")
    outdir: OutputDir = Field(description="new folder of the balanced shards")
    num_shards: int = Field(ge=1, description="files per bin")
    compression: Compression = Field("snappy", description=COMPRESSION_HELP)


_EXAMPLES = (
    "--input-dir PARTS --output-dir SHARDS --num-shards 64",
    "--input-dir PARTS --output-dir SHARDS --num-shards 64 --compression zstd",
)


def main(argv: list[str] | None = None) -> None:
    request = read_flags(BalanceRequest, argv, description=__doc__, examples=_EXAMPLES)
    from data.preprocessing.balancing import balance, rewrite  # not for --help

    folders = request.indir, request.outdir
    rewrite(*folders, lambda: balance(*folders, request.num_shards, request.compression))


if __name__ == "__main__":
    main()

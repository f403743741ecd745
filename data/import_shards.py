"""Convert shards between formats, so that a team keeps its samples.

Reads the HDF5 files of NVIDIA's PyTorch trainer, the TFRecord files of its TensorFlow trainers, LDDL's parquet files
and our own, and checks every checksum and value. Training reads all of them as they are, too; converted shards have a
manifest with checksums and are read faster. `--output-format hdf5` writes files for NVIDIA's PyTorch trainer.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from bert.config.flags import Flag
from bert.config.plain_commands import InputDir, OutputDir, read_flags
from bert.config.settings_base import Settings
from bert.samples.manifest import Manifest


class ImportShardsRequest(Settings):
    """The settings of this command, read from its flags."""

    indir: InputDir = Field(description="folder of the shards to read")
    outdir: OutputDir = Field(description="new folder of the converted shards")
    vocab_file: Path = Field(description="the vocabulary the shards were made with")
    output_format: Literal["parquet", "arrow", "hdf5"] = Field(
        "parquet", description="parquet, as LDDL's; arrow; or hdf5, as NVIDIA's PyTorch trainer reads"
    )
    num_shards: Annotated[int | None, Flag(default_text="as many as are read")] = Field(
        None, ge=1, description="files to write"
    )
    max_seq_length: Annotated[int, Flag(unit="TOKENS")] = Field(
        512, description="no sample may be longer; the width of HDF5 rows"
    )
    max_predictions_per_seq: int = Field(80, description="masks in a row of HDF5")


_EXAMPLES = (
    "--input-dir hdf5_lower_case_1_seq_len_128 --output-dir phase1 --vocab-file vocab.txt",
    "--input-dir phase1 --output-dir for_pytorch --vocab-file vocab.txt --output-format hdf5",
)


def main(argv: list[str] | None = None) -> None:
    request = read_flags(ImportShardsRequest, argv, description=__doc__, examples=_EXAMPLES)
    from bert.samples.shards import ShardDirectory  # not for --help
    from bert.tokenization.vocabulary_files import read_vocabulary
    from data.preprocessing.balancing import rewrite
    from data.preprocessing.importing import import_shards

    def make() -> Manifest:
        source = ShardDirectory(request.indir, read_vocabulary(request.vocab_file), request.max_seq_length)
        limits = request.num_shards, request.max_predictions_per_seq
        return import_shards(source, request.outdir, request.output_format, *limits)

    rewrite(request.indir, request.outdir, make)


if __name__ == "__main__":
    main()

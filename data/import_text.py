"""Import your own text into LDDL's source layout, from which shards are made.

Reads plain text, Markdown, HTML, mails, notebooks, subtitles, jsonl, json, csv, tsv and parquet, also as .gz, .bz2,
.zst and .xz, in any encoding and language; docx, odt, epub, and with the extra `office` pdf, rtf and xlsx. Writes
D/source/<lang>/N.txt, or with --held-out-fraction D/train/... and D/held_out/..., one document per line, its id first.
D/report.json and the last lines printed name what was read, left out and dropped, and why. A killed run leaves no
text: start it again.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from bert.command_errors import command
from bert.config.flags import Flag
from bert.config.plain_commands import read_flags
from bert.files import only_writer
from bert.reporting.progress import announce
from data.text.import_settings import ImportSettings


class ImportRequest(ImportSettings):
    """The settings of this command, read from its flags."""

    input: Annotated[tuple[Path, ...], Flag(placeholder="PATH")] = Field(description="files and folders")
    output_dir: Path = Field(description="folder of the imported text and its report")


_EXAMPLES = (
    "--input my_texts --output-dir D",
    "--input articles.txt --output-dir D --document-separator line --deduplicate near",
)


def main(argv: list[str] | None = None) -> None:
    request = read_flags(ImportRequest, argv, description=__doc__, examples=_EXAMPLES)
    announce("reading", request.input)
    from data.text.importing import import_files, print_report  # loads packages that --help does not need

    settings = ImportSettings(**{name: getattr(request, name) for name in ImportSettings.model_fields})
    with command(request.output_dir, "interrupted; no text was written, start again"):
        with only_writer(request.output_dir):
            report = import_files(request.input, request.output_dir, settings)
    print_report(report, request.output_dir)


if __name__ == "__main__":
    main()

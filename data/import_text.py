"""Import your own text into LDDL's source layout, from which shards are made.

    python -m data.import_text --input DIR_OR_FILES... --output-dir D [--document-separator line] [--deduplicate near]

Reads plain text, Markdown, HTML, mails, jsonl, json, csv, tsv and parquet, also as .gz, .bz2, .zst and .xz, in any
encoding and language; docx, odt, epub, and with the extra `office` pdf, rtf and xlsx. Writes D/source/<lang>/N.txt, or
with --held-out-fraction D/train/... and D/held_out/..., one document per line, its id first. D/report.json and the last
lines printed name what was read, left out and dropped, and why. A killed run leaves no text: start it again.
"""

from dataclasses import fields
from pathlib import Path

from bert.command_errors import command
from bert.files import only_writer
from bert.help_parser import HelpParser
from data.text.file_formats import FORMATS
from data.text.importing import ImportSettings, import_files, print_report
from data.text.readers import SEPARATORS, Reading
from data.text.same_text import MODES


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--input", type=Path, nargs="+", required=True, metavar="PATH", help="files and folders")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument(
        "--input-format", dest="format", choices=("auto", *FORMATS), default="auto", help="default: by the files' names"
    )
    parser.add_argument(
        "--document-separator",
        choices=SEPARATORS,
        default="file",
        help="of txt: a document is a file (default), a line, or the text between blank lines",
    )
    parser.add_argument(
        "--encoding", default="auto", help="of text, HTML, JSON, csv and tsv (default: detected, file by file)"
    )
    parser.add_argument(
        "--text-column",
        dest="text_field",
        metavar="NAME[,NAME...]",
        help="column or field of tables and JSON, also fields.description or items[].text: the first of these that a "
        "table has (default: text, otherwise the longest text)",
    )
    parser.add_argument(
        "--id-column", dest="id_field", help="of the same (default: the file's name and the row's number)"
    )
    parser.add_argument(
        "--group-by",
        metavar="folder|folder:N|COLUMN",
        help="hold out whole groups, such as all notes of a patient: the files of a folder (folder:N: of the first N "
        "folders of a path), or the rows with the same value of a column",
    )
    parser.add_argument(
        "--language", dest="lang", default="en", help="language code, the name of the folder below source/"
    )
    parser.add_argument("--deduplicate", choices=MODES, help="drop documents that were seen before, or nearly so")
    parser.add_argument(
        "--held-out-fraction", type=float, default=0.0, help="share of the text for D/held_out, e.g. 0.05"
    )
    parser.add_argument(
        "--source-code",
        action="store_true",
        help="also the source code in folders (.py, .js ...), with its line breaks",
    )
    parser.add_argument(
        "--strip-log-stamps", action="store_true", help="remove times and levels from the beginning of lines of *.log"
    )
    parser.add_argument("--min-characters", type=int, default=1, help="drop shorter documents")
    parser.add_argument("--follow-links", action="store_true", help="also links that lead out of a folder of --input")
    old_names = {"--text-field": "--text-column", "--id-field": "--id-column"}
    parser.add_old_names(old_names | {"--format": "--input-format", "--lang": "--language"})
    options = parser.parse_args(argv)
    names = {"language": options.lang, "separator": options.document_separator, "kind": options.format}
    values = {**vars(options), **names}
    with command(options.output_dir, "interrupted; no text was written, start again"):
        values["reading"] = Reading(**{field.name: values[field.name] for field in fields(Reading)})
        settings = ImportSettings(**{field.name: values[field.name] for field in fields(ImportSettings)})
        with only_writer(options.output_dir):
            report = import_files(options.input, options.output_dir, settings)
    print_report(report, options.output_dir)


if __name__ == "__main__":
    main()

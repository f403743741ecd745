"""The flags of a pre-training on own text (`--text FOLDER`), beside those of every training."""

from collections.abc import Mapping
from typing import Any

from bert.pretraining.recipes import evening

# name -> (metavar, help)
_VALUES: dict[str, tuple[str, str]] = {
    "hours": ("H", "time for everything, data included (default: 40 epochs, at most 8 hours)"),
    "held_out_fraction": ("R", "share of the text to measure on (default: by the size of the text)"),
    "duplicate_factor": ("N", "sentence pairs made of each document (default: 5; of much text 1)"),
    "lang": ("CODE", "language of the text (default: zh for Chinese text, else en)"),
    "word_segmenter": (
        "jieba|none",
        "finds the words of Chinese text, which masks then cover whole (default: jieba, if it is installed)",
    ),
    "encoding": ("NAME", "of text, HTML, JSON and CSV (default: detected, file by file)"),
    "document_separator": ("file|line|blank-line", "of txt: what separates documents (default: file)"),
    "text_field": (
        "NAME[,NAME...]",
        "column or field of tables and JSON: the first of these that there is (default: text, else the longest text)",
    ),
    "group_by": (
        "folder|folder:N|COLUMN",
        "hold out whole groups, such as all notes of a patient: the files of a folder (of the first N of its path), or "
        "the rows of a column's value",
    ),
    "add_words": (
        "N",
        "with --from-pretrained-params: words of the text to add to its vocabulary, such as 500 (default: none)",
    ),
    "replay_share": ("R", "with --replay: its share of the samples (default: 0.1)"),
    "deduplicate": ("exact|near|none", "drop repeated documents (default: exact)"),
}
TEXT_FLAGS = ("text", "replay", *_VALUES, "lowercase", "follow_links")
IMPORT_FLAGS = (
    "encoding",
    "document_separator",
    "text_field",
    "follow_links",
    "group_by",
)  # of data.import_text, passed on as they are


def is_evening(flags: Mapping[str, Any]) -> bool:
    """Whether the flags of a launch name the recipe."""
    return flags.get("config") == evening.NAME


def is_about_own_text(flags: Mapping[str, Any]) -> bool:
    """Whether the flags of a launch name the recipe or text."""
    return is_evening(flags) or "text" in flags


def add_text_flags(parser: Any) -> None:
    """Add them to a launcher's parser."""
    group = parser.add_argument_group("text")
    several = {"nargs": "+", "action": "extend"}
    text = "train on the files of these folders, or NAME=WEIGHT:PATH; see --hours"
    parser.add_argument("--text", **several, metavar="PATH", help=text)
    group.add_argument(
        "--replay", **several, metavar="PATH", help="with --from-pretrained-params: general text, against forgetting"
    )
    for name, (metavar, text) in _VALUES.items():
        group.add_argument("--" + name.replace("_", "-"), metavar=metavar, help=f"with --text: {text}")
    add = group.add_argument
    add("--follow-links", action="store_true", help="with --text: also links that lead out of its folders")
    add("--lowercase", action="store_true", help="with --text: lower-case it (default, if no vocabulary is given)")
    add("--no-lowercase", dest="lowercase", action="store_false", help="with --text: keep its case")


def refuse_without_text(flags: Mapping[str, Any]) -> None:
    """Raises ValueError for a flag of own text where there is no --text."""
    for name in TEXT_FLAGS:
        if name in flags:
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{flag} is for own text; pass --text FOLDER with it, or drop it")

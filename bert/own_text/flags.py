"""Settings and flags that only a pre-training on the user's text has (`--text FOLDER`)."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from bert.config.flags import Flag, flat_fields, name_on_command_line
from bert.config.settings_base import Settings
from bert.pretraining.recipes import evening
from bert.tokenization.segmentation import Segmenter


class TextSettings(Settings):
    """Settings of how the user's text becomes data."""

    held_out_fraction: float | None = Field(
        None,
        ge=0,
        le=0.5,
        description="share of the text to measure on, 0 for nothing (default: by the size of the text)",
    )
    duplicate_factor: int | None = Field(
        None, ge=1, description="sentence pairs made of each document (default: 5; 1 if there is much text)"
    )
    lang: Annotated[str | None, Flag(name="--language", hidden_aliases=("--lang",))] = Field(
        None, description="language of the text, such as de (default: inferred from its script; en for Latin letters)"
    )
    word_segmenter: Literal["auto", Segmenter, "none"] = Field(
        "auto",
        description="jieba finds the words of Chinese text, which masks then cover whole; icu cuts Thai, Lao, Khmer, "
        "Burmese and Javanese into words, syllables Javanese alone; auto: by the text, jieba if it is installed",
    )
    encoding: str | None = Field(
        None, description="encoding of text, HTML, JSON and CSV (default: detected, file by file)"
    )
    document_separator: Literal["file", "line", "blank-line"] | None = Field(
        None, description="what separates the documents of a txt file (default: file)"
    )
    text_field: str | None = Field(
        None,
        description="column or field of tables and JSON, or several with commas: the first that exists "
        "(default: text, otherwise the longest text)",
    )
    group_by: str | None = Field(
        None,
        description="hold out whole groups, such as all notes of a patient. folder, folder:N: the files of a folder, "
        "of the first N of its path; COLUMN: the rows of a column's value (default: off)",
    )
    source_code: bool = Field(
        False, description="also the source code in the folders (.py, .js ...), with its line breaks"
    )
    strip_log_stamps: bool = Field(False, description="remove times and levels from the beginning of lines of *.log")
    add_words: int | None = Field(
        None,
        ge=1,
        description="with --from-pretrained-params: words of the text to add to its vocabulary, such as 500 (default: "
        "0)",
    )
    replay_share: float | None = Field(
        None, gt=0, le=0.9, description="with --replay: its share of the samples (default: 0.1)"
    )
    deduplicate: Literal["exact", "near", "none"] = Field("exact", description="drop repeated documents")
    follow_links: bool = Field(False, description="also links that lead out of the folders")
    lowercase: bool | None = Field(
        None,
        description="lower-case the text (default: as in the vocabulary that you pass; otherwise unless it strips "
        "marks "
        "of over 1% of the words, or the script has no case)",
    )
    strip_accents: bool | None = Field(None, description="strip accents (default: if the text is lower-cased)")

    def import_options(self) -> dict[str, Any]:
        """Flags of data.import_text with these settings."""
        names = tuple(
            "encoding document_separator text_field follow_links group_by source_code strip_log_stamps".split()
        )
        return {name: getattr(self, name) or None for name in names} | {
            "deduplicate": None if self.deduplicate == "none" else self.deduplicate
        }


class OwnText(Settings):
    """The section of a command line about the user's text."""

    text: TextSettings = TextSettings()


TEXT_FLAGS = ("text", "words", "replay", *flat_fields(OwnText))


def is_evening(flags: Mapping[str, Any]) -> bool:
    """Whether the flags of a launch name the recipe `evening`."""
    return flags.get("config") == evening.NAME


def is_about_own_text(flags: Mapping[str, Any]) -> bool:
    """Whether the flags of a launch name a text, or the recipe `evening`."""
    return is_evening(flags) or "text" in flags or "words" in flags


def add_text_flags(parser: Any) -> None:
    """Add the flags of --text to a launcher's parser."""
    group = parser.add_argument_group("text")
    several = {"nargs": "+", "action": "extend", "metavar": "PATH"}
    text = "train on the files of these folders, or NAME=WEIGHT:PATH"
    parser.add_argument("--text", **several, help=text)
    text = "plan for so much English text (120M, 1.5B) without reading any; with --plan or --dry-run"
    group.add_argument("--words", metavar="NUMBER", help=text)
    text = "with --from-pretrained-params: general text, against forgetting"
    group.add_argument("--replay", **several, help=text)
    for name, (_, field) in flat_fields(OwnText).items():
        parser.add_setting(group, name, field)


def refuse_without_text(flags: Mapping[str, Any]) -> None:
    """Raise ValueError if a flag that needs --text is passed without it."""
    fields = flat_fields(OwnText)
    for name in TEXT_FLAGS:
        if name in flags:
            typed = name_on_command_line(name, fields[name][1]) if name in fields else f"--{name}"
            raise ValueError(f"{typed} is for own text; pass --text FOLDER with it, or drop it")

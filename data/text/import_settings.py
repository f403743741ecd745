"""Settings of a text import: which files are read, and which documents are kept or held out."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bert.config.flags import Flag
from bert.config.plain_commands import Language
from bert.config.settings_base import Settings
from data.text.encodings import Decoding
from data.text.file_formats import FORMATS
from data.text.readers import SEPARATORS, Reading
from data.text.same_text import MODES


class ImportSettings(Settings):
    """Settings that decide the corpus made from the files."""

    format: Annotated[
        Literal["auto", *FORMATS],  # type: ignore[valid-type]
        Flag(name="--input-format", hidden_aliases=("--format",)),
    ] = Field("auto", description="auto: by the names of the files")
    document_separator: Literal[*SEPARATORS] = Field(  # type: ignore[valid-type]
        Reading.separator, description="document in a txt file: the whole file, a line, or the text between blank lines"
    )
    encoding: Annotated[str, Flag(default_text="detected, file by file")] = Field(
        Reading.encoding, description="encoding of text, HTML, JSON, csv and tsv"
    )
    text_field: Annotated[
        str | None, Flag(placeholder="NAME[,NAME...]", default_text="text, otherwise the longest text")
    ] = Field(
        None,
        description="column or field of tables and JSON, also fields.description or items[].text: the first of these "
        "that a table has",
    )
    id_field: Annotated[
        str | None,
        Flag(
            name="--id-column",
            hidden_aliases=("--id-field",),
            placeholder="NAME",
            default_text="the name of the file and the number of the row",
        ),
    ] = Field(None, description="column or field of the document's id")
    group_by: Annotated[str | None, Flag(placeholder="folder|folder:N|COLUMN")] = Field(
        None,
        description="hold out whole groups, such as all notes of a patient: the files of a folder (folder:N: of the "
        "first N folders of a path), or the rows with the same value of a column (default: off)",
    )
    lang: Language = Field(Reading.language, description="language code, the name of the folder below source/")
    deduplicate: Literal[*MODES] | None = Field(  # type: ignore[valid-type]
        None, description="drop documents that were seen before, or nearly so (default: off)"
    )
    held_out_fraction: float = Field(0.0, ge=0, lt=1, description="share of the text for D/held_out, e.g. 0.05")
    source_code: bool = Field(False, description="also the source code in folders (.py, .js ...), with its line breaks")
    strip_log_stamps: bool = Field(False, description="remove times and levels from the beginning of lines of *.log")
    min_characters: int = Field(1, ge=0, description="drop shorter documents")
    follow_links: bool = Field(False, description="also links that lead out of a folder of --input")

    @model_validator(mode="after")
    def _check(self) -> Self:
        Decoding(self.encoding, self.lang)
        return self

    def reading(self) -> Reading:
        """The settings for reading the files."""
        return Reading(
            language=self.lang,
            encoding=self.encoding,
            separator=self.document_separator,
            text_field=self.text_field,
            id_field=self.id_field,
            group_by=self.group_by,
            source_code=self.source_code,
            strip_log_stamps=self.strip_log_stamps,
        )

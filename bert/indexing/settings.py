"""The settings of `python -m bert.indexing`. This module loads no Paddle."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bert.config.flags import Flag
from bert.config.setting_errors import SettingsWithRules
from bert.config.settings_base import Settings
from bert.inference.settings import ModelSettings
from data.text.encodings import Decoding

if TYPE_CHECKING:  # it takes a second to load, and numpy a tenth
    from bert.inference.trained_model import TrainedModel
    from bert.search.documents import TableColumns


class DocumentSettings(Settings):
    """Settings of how documents are read from files: columns of tables, encoding, language."""

    text_column: str | None = Field(
        None, description="column of the text in a table (default: a usual name, otherwise the longest text)"
    )
    id_column: str | None = Field(None, description="column of the ids in a table (default: id, otherwise row numbers)")
    columns: str | None = Field(
        None, description="columns of a table to keep and filter by, with commas between them (default: all)"
    )
    header: bool | None = Field(
        None, description="the first line of a CSV or TSV names the columns (default: as in the training)"
    )
    encoding: str | None = Field(
        None, description="encoding of the files, such as cp1250 (default: UTF-8, otherwise detected)"
    )
    language: Annotated[str | None, Flag(hidden_aliases=("--lang",))] = Field(
        None, description="language of the text, which decides where sentences end (default: as in the training)"
    )


class QuestionSettings(Settings):
    """Settings of a search and of a deletion of passages."""

    query: str | None = Field(None, description="print the passages that answer this text")
    ranking: Literal["hybrid", "vectors", "words"] = Field(
        "hybrid", description="what ranks passages: words (BM25), vectors, or both"
    )
    reranker: str | None = Field(
        None,
        description="folder of a reranker that sorts the first hits again, or none (default: MODEL/reranker, if any)",
    )
    delete: Path | None = Field(None, description="file of ids, one on each line, whose passages are deleted")


class IndexRequest(QuestionSettings, DocumentSettings, ModelSettings, SettingsWithRules):
    """All settings of `python -m bert.indexing`, checked."""

    files: Annotated[
        tuple[Path, ...], Flag(is_positional=True, placeholder="FILE", default_text="none: use the index as it is")
    ] = Field((), description="files or folders to read into the index")
    task: Annotated[Literal["encoder"] | None, Flag(is_hidden=True)] = Field("encoder", description="vectors alone")
    index: Path = Field(description="folder of the index; it is made if it does not exist")
    batch_size: int = Field(32, ge=1, description="sequences that run at a time")

    def decoding(self, model: "TrainedModel") -> Decoding:
        """How files are decoded: by the flags, otherwise as in the training of the model."""
        return Decoding.of(self, model.opened.usage)

    def table_columns(self) -> "TableColumns":
        """The names of the table columns that the flags give."""
        from bert.search.documents import TableColumns  # not for --help

        return TableColumns(self.text_column, self.id_column, self._kept_columns())

    def _kept_columns(self) -> tuple[str, ...] | None:
        """The names of the columns to filter by; None: all columns."""
        if self.columns is None:
            return None
        return tuple(name.strip() for name in self.columns.split(",") if name.strip())

    def _mistakes(self) -> Iterator[str]:
        for path in self.files:
            if not path.exists():
                yield f"FILE {path} must be an existing file or folder; check the path"
        if self.delete is not None and not self.delete.is_file():
            yield f"--delete {self.delete} must be an existing file of ids, one on each line; check the path"
        if not self.files and self.delete is None and self.query is None:
            yield "nothing to do; name files to read, or pass --query TEXT or --delete FILE"
        if self.query is not None and not self.query.strip():
            yield f"--query {self.query!r} must be a text; write what you search for"
        if not self.files and not (self.index / "manifest.json").is_file():
            yield f"--index {self.index} is no index; name the files to make it of"

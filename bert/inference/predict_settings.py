"""Settings of run_predict.py: the input, the kind of prediction or search, and the output. Loads no Paddle."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from bert.config.flags import Flag
from bert.config.setting_errors import SettingsWithRules
from bert.config.settings_base import Settings
from bert.inference.rows import RowForm
from bert.inference.settings import ModelSettings
from bert.search import Ranking
from data.text.encodings import Decoding

if TYPE_CHECKING:  # Paddle takes a second to load
    from bert.inference.trained_model import TrainedModel

_LAYERS = re.compile(r"-?\d{1,4}(,-?\d{1,4})*")


class InputSettings(Settings):
    """Settings of the input: files of texts, their format, columns and encoding."""

    files: Annotated[tuple[Path, ...], Flag(is_positional=True, placeholder="FILE", default_text="standard input")] = (
        Field((), description="files of lines")
    )
    input_format: Annotated[Literal["auto", "text", "tsv", "csv", "jsonl"], Flag(group="input")] = Field(
        "auto", description="format of the lines; auto: by name and first line"
    )
    text_column: Annotated[str | None, Flag(group="input")] = Field(
        None, description="column of the text in a table (default: as in the training)"
    )
    text_pair_column: Annotated[str | None, Flag(group="input")] = Field(
        None, description="column of the second text, if there are two (default: as in the training)"
    )
    header: Annotated[bool | None, Flag(group="input")] = Field(
        None, description="the first line of a CSV or TSV names the columns (default: as in the training)"
    )
    encoding: Annotated[str | None, Flag(group="input")] = Field(
        None,
        description="encoding of the files, such as cp1250 (default: UTF-8, otherwise as in the training, or detected)",
    )
    language: Annotated[str | None, Flag(group="input", hidden_aliases=("--lang",))] = Field(
        None, description="language of the text, which decides between code pages (default: inferred)"
    )

    def is_resumable(self) -> bool:
        """Whether the inputs are files, which a resumed command can read again."""
        return bool(self.files) and all(path.is_file() for path in self.files)

    def row_form(self, model: "TrainedModel") -> RowForm:
        """The description of where the texts are in the rows of the files."""
        columns = tuple(name for name in (self.text_column, self.text_pair_column) if name is not None)
        decoding = Decoding.of(self, model.opened.usage)
        return model.row_form(self.input_format, [columns] if columns else (), decoding)

    def input_mistakes(self) -> Iterator[str]:
        for path in self.files:
            if not _is_file_or_pipe(path):
                yield f"FILE {path} must be an existing file; check the path"
        if self.text_pair_column and not self.text_column:
            yield f"text_pair_column={self.text_pair_column} needs text_column; pass --text-column"
        try:
            Decoding.of(self)
        except ValueError as error:
            yield str(error)


class PredictionSettings(Settings):
    """Settings of the prediction or search; by default the model's head predicts."""

    nearest: Annotated[str | None, Flag(group="vectors and search")] = Field(
        None,
        description="query text: print its nearest texts in --in. Without --in: a file, searched by each input line",
    )
    in_: Annotated[Path | None, Flag(group="vectors and search")] = Field(
        None, description="file that each line of the input searches: lines, a table, or a .npy of --encode"
    )
    ranking: Annotated[Ranking | None, Flag(group="vectors and search")] = Field(
        None,
        description="with --nearest: rank by vectors, by words (BM25) or by both (default: hybrid if the model was "
        "trained for search, otherwise vectors)",
    )
    reranker: Annotated[str | None, Flag(group="vectors and search")] = Field(
        None,
        description="with --nearest: folder of a reranker that sorts the first hits again, or none (default: the one "
        "in the model's folder, if any)",
    )
    show: Annotated[Path | None, Flag(group="vectors and search")] = Field(
        None,
        description="show what the model can do with a text, a file or a folder: masked words and nearest sentences",
    )
    layers: Annotated[str | None, Flag(group="vectors and search")] = Field(
        None,
        description="with --encode: layers whose states are joined, such as -1,-2; 0 are the embeddings (default: the "
        "last)",
    )
    pooling: Annotated[Literal["none", "mean", "cls", "max"] | None, Flag(group="vectors and search")] = Field(
        None,
        description="with --encode: how the tokens' states become a vector; none: print each token and its vector "
        "(default: as "
        "the model was trained, otherwise mean)",
    )


class OutputSettings(Settings):
    """Settings of the output: the file, its format, and the batch size."""

    output: Annotated[Path | None, Flag(group="output")] = Field(
        None,
        description="write to a file; the same command resumes. A .csv, .tsv or .parquet gets the columns of the input "
        "and of the results, a .npy vectors (and a .npy.json that describes them), any other name JSON lines "
        "(default: standard output)",
    )
    escape_formulas: Annotated[bool, Flag(group="output")] = Field(
        False, description="in a CSV or TSV, put ' before what a spreadsheet would run as a formula (=, +, -, @)"
    )
    batch_size: int = Field(32, ge=1, description="sequences that run at a time")

    def output_mistakes(self) -> Iterator[str]:
        if self.output is None:
            return
        if not self.output.absolute().parent.is_dir():
            yield f"--output {self.output}: the folder does not exist; make it first"
        if self.output.is_dir():
            yield f"--output {self.output} is a folder; name a file in it"


class PredictRequest(OutputSettings, PredictionSettings, InputSettings, ModelSettings, SettingsWithRules):
    """All settings of run_predict.py, checked."""

    def output_format(self) -> str:
        """The output format, csv, tsv, parquet, npy or jsonl, by the name of --output, otherwise by the input."""
        if self.output is not None:
            suffix = self.output.suffix.lower().removeprefix(".")
            return suffix if suffix in ("csv", "tsv", "parquet", "npy") else "jsonl"
        is_csv = self.input_format == "csv" or (self.input_format == "auto" and self.files)
        return "csv" if is_csv and all(".csv" in path.suffixes for path in self.files) else "jsonl"

    def writes_vectors(self) -> bool:
        """Whether the results are vectors of the texts; the results of a search are texts."""
        return self.task == "encoder" and self.in_ is None

    def vector_arguments(self) -> dict[str, Any]:
        """The arguments of `load_model` that decide how vectors are made; empty for another task."""
        if self.task != "encoder":
            return {}
        layers = [int(layer) for layer in self.layers.split(",")] if self.layers else []
        return {"layers": layers, "pooling": self.pooling}

    def _mistakes(self) -> Iterator[str]:
        yield from self.input_mistakes()
        yield from self._search_mistakes()
        if self.show and (self.files or self.in_ or self.output):
            yield "--show prints what the model can do; omit FILE, --nearest and --output"
        yield from self.output_mistakes()
        if self.output and self.output.resolve() in (path.resolve() for path in self.files):
            yield f"--output {self.output} is an input, which it would replace; name another file"
        yield from self._vector_mistakes()

    def _search_mistakes(self) -> Iterator[str]:
        if self.in_ and not _is_file_or_pipe(self.in_):
            flag = "--in" if self.nearest else "--nearest"  # --nearest FILE alone is --in FILE
            more = "" if self.nearest else ", or name what to search for this text: --in FILE"
            yield f"{flag} {self.in_} must be an existing file; check the path{more}"
        if self.nearest is not None and (not self.nearest.strip() or not self.in_ or self.files or self.output):
            yield f"--nearest {self.nearest!r} needs a text and --in FILE, without another FILE and --output"
        if self.ranking is not None and not self.in_:
            yield f"--ranking {self.ranking} ranks what --nearest finds; pass --nearest too, or omit it"
        if self.reranker is not None and not self.in_:
            yield f"--reranker {self.reranker} sorts what --nearest finds; pass --nearest too, or omit it"
        if self.in_ and self.task != "encoder":
            yield f"--nearest compares sentence vectors; omit --task {self.task}"

    def _vector_mistakes(self) -> Iterator[str]:
        if self.layers and not _LAYERS.fullmatch(self.layers):
            yield f"layers={self.layers} must be numbers with commas between them; pass --layers -1,-2"
        if (self.layers or self.pooling) and not self.writes_vectors():
            yield "--layers and --pooling are for vectors; pass --encode, and omit --nearest"
        if self.output_format() == "npy" and not self.writes_vectors():
            yield f"--output {self.output} is for vectors; pass --encode, or name a .jsonl file"
        if self.output_format() == "npy" and self.pooling == "none":
            yield f"--output {self.output} has a vector for each line; name a .jsonl, or another --pooling"


def _is_file_or_pipe(path: Path) -> bool:
    return path.exists() and not path.is_dir()

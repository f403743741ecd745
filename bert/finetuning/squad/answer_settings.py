"""Settings of windows and answers that are saved with fine-tuned weights."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from bert.config.settings_base import MayDiffer, ReadWith
from bert.files import json_of
from bert.finetuning.normalization_settings import NormalizationSettings

_WINDOWS = ("max_seq_length", "doc_stride", "max_query_length", *NormalizationSettings.model_fields)
_NAMES_IN_FILE = {"do_lower_case": "lowercase", "version_2_with_negative": "version_2"}


class ReaderSettings(NormalizationSettings):
    max_seq_length: int = Field(384, ge=8, description="longest sequence, in tokens with [CLS] and [SEP]")
    doc_stride: int = Field(
        128, ge=1, description="tokens between the starts of consecutive windows of a long paragraph"
    )
    max_query_length: int = Field(64, ge=1, description="longest question, in tokens; longer ones are truncated")
    n_best_size: MayDiffer[int] = Field(
        20, ge=1, description="answers listed for each question; for SQuAD 2.0 at least 2"
    )
    max_answer_length: MayDiffer[int] = Field(30, ge=1, description="longest answer, in tokens")
    version_2_with_negative: bool = Field(False, description="questions may have no answer, as in SQuAD 2.0")
    null_score_diff_threshold: Annotated[MayDiffer[float], ReadWith("version_2_with_negative")] = Field(
        0.0, description="predict no answer if its score exceeds the best answer's by more than this"
    )

    @model_validator(mode="after")
    def _windows_can_be_built(self) -> "ReaderSettings":
        if self.max_seq_length < self.max_query_length + 4:
            raise ValueError(
                f"max_seq_length={self.max_seq_length} must leave room for a question of max_query_length="
                f"{self.max_query_length}, three special tokens and some paragraph; raise "
                "--max-seq-length, or lower --max-query-length"
            )
        return self

    def file_content(self) -> str:
        """Content of the file READER_FILE."""
        parts = {"windows": _WINDOWS, "answers": _ANSWERS}
        content = {
            part: {_NAMES_IN_FILE.get(name, name): getattr(self, name) for name in names}
            for part, names in parts.items()
        }
        return json.dumps(content, indent=1) + "\n"


_ANSWERS = tuple(name for name in ReaderSettings.model_fields if name not in _WINDOWS)


def read_reader_settings(path: Path) -> ReaderSettings:
    """Read a file that `ReaderSettings.file_content` wrote."""
    try:
        content: dict[str, Any] = json_of(path.read_text(encoding="utf-8"))
        values = {**content["windows"], **content["answers"]}
        return ReaderSettings(**{name: values[_NAMES_IN_FILE.get(name, name)] for name in ReaderSettings.model_fields})
    except (ValueError, KeyError, TypeError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ValueError(
            f"{path} does not hold the settings of a fine-tuned model ({reason}); remove it to use the default "
            "settings, or use another checkpoint"
        ) from error

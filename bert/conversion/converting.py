"""Converts a source of any known format to a directory of another, with a report of every change."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.conversion import downloading, vocabularies, writing
from bert.conversion.model_usage import kept_texts
from bert.conversion.raw_tensors import ConversionError
from bert.conversion.reading import PretrainedWeights, read_pretrained
from bert.conversion.shapes import heads_of
from bert.conversion.tensor_names import with_question_answering_head


@dataclass(frozen=True)
class Request:
    """A conversion to do, from the flags of run_convert.py."""

    source: str  # a path, or a name that PaddleNLP knows
    target: Path
    to_format: str  # one of writing.FORMATS, or a serving format
    task: str | None = None
    config_file: Path | None = None
    vocab_file: Path | None = None
    do_lower_case: bool | None = None
    fused_qkv: str | None = None
    allow_unknown: bool = False
    keep_padding: bool = False


@dataclass
class Source:
    """A model that was read, with a note for each change so far. Writers add to the notes."""

    path: Path
    format: str
    model: writing.Model
    notes: list[str]

    def report(self, to_format: str) -> dict[str, Any]:
        """The content of conversion.json."""
        sizes = [array.size for array in self.model.parameters.values()]
        return {
            "source": str(self.path),
            "source_format": self.format,
            "to_format": to_format,
            "task": self.model.task,
            "tensors": len(sizes),
            "parameters": sum(sizes),
            "notes": list(self.notes),
        }


def convert(request: Request) -> dict[str, Any]:
    """Read, map and write; returns the report.

    Raises:
        ConversionError, CheckpointError: the source cannot be read as a BERT or the target cannot be written; nothing
            partial is left.
    """
    source = read(request)
    writing.write_model(
        request.target, request.to_format, source.model, source.notes, lambda: source.report(request.to_format)
    )
    return source.report(request.to_format)


def read(request: Request) -> Source:
    """Find and read the source, and choose what is written. Refuses a target that exists before anything is read."""
    writing.check_target(request.target)
    path = downloading.resolve(request.source)
    pretrained = read_pretrained(
        path, config_file=request.config_file, fused_qkv=request.fused_qkv, allow_unknown=request.allow_unknown
    )
    notes = list(pretrained.notes)
    return Source(path, pretrained.format, _model_of(pretrained, request, path, notes), notes)


def _model_of(pretrained: PretrainedWeights, request: Request, source: Path, notes: list[str]) -> writing.Model:
    """The model to write: the heads of one task, a vocabulary, a model description."""
    if pretrained.config is None:
        raise ConversionError(
            f"{source} has no model description beside it, and the number of attention heads cannot "
            "be inferred from weights; name the bert_config.json: --config-file"
        )
    parameters, from_paddlenlp = pretrained.parameters, pretrained.format == "paddlenlp"
    if from_paddlenlp and request.task == "question-answering":
        parameters = with_question_answering_head(parameters)
    heads = heads_of(parameters)
    task = writing.choose_task(heads, pretrained.task, request.task, every_model_has_a_pooler=from_paddlenlp)
    parameters = writing.parameters_for(task, parameters, notes)
    vocab_file = request.vocab_file or pretrained.vocab_file
    tokens = vocabularies.find_tokens(pretrained.folder, vocab_file, request.do_lower_case, notes)
    if tokens is not None:
        vocabularies.check_ids(tokens, pretrained.config.vocab_size, notes)
    texts = kept_texts(pretrained.folder)
    return writing.Model(parameters, pretrained.config, task, pretrained.labels, tokens, texts, request.keep_padding)


def table(report: dict[str, Any]) -> str:
    """A report as a table for the terminal."""
    rows = [
        ("from", f"{report['source']} ({report['source_format']})"),
        ("to", report["to_format"]),
        ("for", report["task"]),
        ("tensors", f"{report['tensors']:,}"),
        ("parameters", f"{report['parameters']:,}"),
    ]
    lines = [f"{name:<12}{value}" for name, value in rows]
    return "\n".join([*lines, "changes:", *(f"  {note}" for note in report["notes"])])

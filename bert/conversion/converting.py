"""From a source of any known format to a directory of another, with a report of all that was changed on the way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bert.conversion import downloading, vocabularies, writing
from bert.conversion.raw import ConversionError
from bert.conversion.reading import PretrainedWeights, read_pretrained


@dataclass(frozen=True)
class Request:
    """What run_convert.py was asked for."""

    source: str  # a path, or a name that PaddleNLP knows
    target: Path
    to_format: str  # one of writing.FORMATS
    task: str | None = None
    config_file: Path | None = None
    vocab_file: Path | None = None
    lowercase: bool | None = None
    fused_qkv: str | None = None
    allow_unknown: bool = False
    keep_padding: bool = False


@dataclass(frozen=True)
class Report:
    """What happened, for the table and for conversion.json."""

    source: Path
    source_format: str
    to_format: str
    task: str
    num_tensors: int
    num_parameters: int
    notes: tuple[str, ...]

    def as_json(self) -> dict:
        return {
            "source": str(self.source),
            "source_format": self.source_format,
            "to_format": self.to_format,
            "task": self.task,
            "tensors": self.num_tensors,
            "parameters": self.num_parameters,
            "notes": list(self.notes),
        }


def convert(request: Request) -> Report:
    """Read, map, write.

    Raises:
        ConversionError, CheckpointError: the source cannot be read as a BERT or the target cannot be written; nothing
            is left half-written.
    """
    source, pretrained, model, notes = read(request)
    report = report_of(source, pretrained, request.to_format, model)
    writing.write_model(request.target, request.to_format, model, lambda final: report(final).as_json(), notes)
    return report(notes)


def read(request: Request) -> tuple[Path, PretrainedWeights, writing.Model, list[str]]:
    """(where the source was found, what was read, what shall be written, what there is to say so far)."""
    writing.check_target(request.target)
    source = downloading.resolve(request.source)
    pretrained = read_pretrained(
        source, config_file=request.config_file, fused_qkv=request.fused_qkv, allow_unknown=request.allow_unknown
    )
    notes = list(pretrained.notes)
    return source, pretrained, model_of(pretrained, request, source, notes), notes


def report_of(
    source: Path, pretrained: PretrainedWeights, to_format: str, model: writing.Model
) -> Callable[[Sequence[str]], Report]:
    """The report once the last notes are known."""
    sizes = [array.size for array in model.parameters.values()]
    return lambda notes: Report(source, pretrained.format, to_format, model.task, len(sizes), sum(sizes), tuple(notes))


def model_of(pretrained: PretrainedWeights, request: Request, source: Path, notes: list[str]) -> writing.Model:
    """What was read, as what shall be written: the heads of one task, a vocabulary, a model description."""
    if pretrained.config is None:
        raise ConversionError(
            f"{source} has no model description beside it, and the number of attention heads cannot "
            "be told from weights; name the bert_config.json: --config-file"
        )
    parameters, heads, from_paddlenlp = dict(pretrained.parameters), pretrained.heads, pretrained.format == "paddlenlp"
    if from_paddlenlp and request.task == "question-answering" and "classifier.weight" in parameters:
        heads = tuple("question-answering head" if head == "classifier" else head for head in heads)
        for kind in ("weight", "bias"):
            parameters[f"qa_outputs.{kind}"] = parameters.pop(f"classifier.{kind}")
    task = writing.choose_task(heads, pretrained.task, request.task, every_model_has_a_pooler=from_paddlenlp)
    parameters = writing.parameters_for(task, parameters, notes)
    tokens = vocabularies.find_tokens(
        pretrained.folder, request.vocab_file or pretrained.vocab_file, request.lowercase, notes
    )
    if tokens is not None:
        vocabularies.check_ids(tokens, pretrained.config.vocab_size, notes)
    texts = vocabularies.read_reader_settings(pretrained.folder) if task == "question-answering" else {}
    return writing.Model(parameters, pretrained.config, task, pretrained.labels, tokens, texts, request.keep_padding)


def table(report: Report) -> str:
    """The report as people read it."""
    rows = [
        ("from", f"{report.source} ({report.source_format})"),
        ("to", report.to_format),
        ("for", report.task),
        ("tensors", f"{report.num_tensors:,}"),
        ("parameters", f"{report.num_parameters:,}"),
    ]
    lines = [f"{name:<12}{value}" for name, value in rows]
    return "\n".join([*lines, "what changed on the way:", *(f"  {note}" for note in report.notes)])

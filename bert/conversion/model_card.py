"""Writes the model card (README.md) of an export: its trainings, scores and limits, and how to use the model.

What no record says is left out. A README.md beside the weights is the card of whoever wrote it: it is kept.
"""

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bert.checkpoints.chosen_weights import chosen_weights
from bert.checkpoints.directories import CARD_FILE
from bert.conversion.card_examples import Examples, examples_in
from bert.conversion.card_facts import language_of, training_rows
from bert.conversion.locating import published_model
from bert.conversion.lost_on_export import what_is_lost
from bert.conversion.model import Model
from bert.conversion.settings import CardRequest
from bert.conversion.task_file import read_usage
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import VectorForm
from bert.model.head_specs import HEADS
from bert.reporting.report import ReportBlock, heading, table, text, to_markdown
from bert.reporting.run_record import CONFIG_FILE, VERDICTS, RunRecord, read_run
from bert.reporting.spread import NO_METRICS
from data.fetching.published_models import GOOGLE, known_names

_LARGEST = 1 << 20  # bytes of a card
_LIBRARIES = {"hf": "transformers", "paddlenlp": "paddlenlp", "onnx": "onnx", "triton": "onnx", "openvino": "openvino"}
_NETWORKS = {"modernbert": "ModernBERT", "roberta": "RoBERTa"}
_MOST_LABELS, _MOST_RUNS = 50, 8


def write_card(folder: Path, model: Model, to_format: str, request: CardRequest, name: str) -> None:
    """Write the card of an export, or copy an existing card beside the weights; `name` is the model's name."""
    own, said = model.folder / CARD_FILE, {"license": request.license, "language": list(request.languages)}
    stated: dict[str, Any] = {key: value for key, value in said.items() if value}
    if own.is_file():
        _copy(own, folder / CARD_FILE, stated)
    elif to_format != "native":  # which is no export
        from huggingface_hub import ModelCardData  # here: it loads slowly

        runs, pipeline, library = runs_of(model.folder), HEADS[model.task].pipeline, _LIBRARIES.get(to_format)
        tags = [*([model.task] if model.task != pipeline else [])]
        examples = examples_in([*request.languages, language_of(runs)][0])
        if is_reranker(model):
            tags, pipeline = ["sentence-transformers", "cross-encoder", pipeline], "text-ranking"
            library = "sentence-transformers" if to_format == "hf" else library
        if form := read_usage(model.folder).vectors if model.task == "encoder" else None:
            if examples:
                stated["widget"] = [{"source_sentence": examples.query, "sentences": list(examples.passages)}]
            tags, pipeline = ["sentence-transformers", pipeline], "sentence-similarity"
            library = "sentence-transformers" if to_format == "hf" else library
        metadata = ModelCardData(
            library_name=library or "paddlepaddle",
            pipeline_tag=pipeline or None,
            base_model=_published_name(_beginning(runs[0])) if runs else None,
            tags=[model.config.model_type, "bert-on-paddle", *tags],
            **stated,
        )
        use = _use(model, to_format, name, form, examples)
        content = f"---\n{metadata.to_yaml()}\n---\n\n" + to_markdown(name, _blocks(model, to_format, runs, use, form))
        (folder / CARD_FILE).write_text(content, encoding="utf-8")


def is_reranker(model: Model) -> bool:
    """Whether the one output of the model is the score of a query and a passage."""
    return model.task == "sequence-classification" and read_usage(model.folder).reranking is not None


def _copy(own: Path, target: Path, stated: Mapping[str, Any]) -> None:
    """Copy the user's card, and add the license and languages that this command names to its metadata."""
    if own.stat().st_size > _LARGEST:
        raise ConversionError(f"{own} must have at most {_LARGEST >> 20} MB to be a model card; shorten or remove it")
    shutil.copyfile(own, target)
    from huggingface_hub.repocard import metadata_load, metadata_save  # here: it loads slowly

    try:
        if stated:
            metadata_save(target, {**(metadata_load(target) or {}), **stated})
    except (yaml.YAMLError, TypeError, ValueError, RecursionError):
        raise ConversionError(f"{own} begins with what is not YAML of names and values; correct or remove it") from None


def runs_of(weights: Path) -> list[RunRecord]:
    """The trainings that led to a checkpoint's weights, oldest first, as far as their folders exist."""
    runs: list[RunRecord] = []
    while len(runs) < _MOST_RUNS and len(weights.absolute().parents) > 3:
        directory = weights.absolute().parents[2] / weights.absolute().parent.name
        if not (directory / CONFIG_FILE).is_file() or any(run.directory == directory for run in runs):
            break
        try:
            runs.insert(0, read_run(directory, directory.name))
            weights = chosen_weights(Path(_beginning(runs[0]))).path
        except (OSError, TypeError, ValueError):  # not readable, figures of a wrong type, a CheckpointError
            break
    return runs


def _beginning(run: RunRecord) -> str:
    """The initial weights of a training; empty: random weights."""
    return str(run.settings.get("from_phase1_final_params") or run.settings.get("from_pretrained_params") or "")


def _published_name(source: str) -> str | None:
    """The hub model that a source names, if it is a known one; other names may be a user's paths."""
    try:
        name = None if not source or Path(source).exists() else published_model(source)
    except (OSError, ValueError):  # no name of a file, from a damaged record
        return None
    is_known = name is not None and name.repository.removeprefix(f"{GOOGLE}/") in known_names()
    return name.repository if name is not None and is_known else None


def _blocks(
    model: Model, to_format: str, runs: Sequence[RunRecord], use: ReportBlock, form: VectorForm | None
) -> list[ReportBlock]:
    config, labels = model.config, model.labels or ()
    cased = "" if model.tokens is None else f" ({model.tokens.normalization})"
    num_parameters = sum(array.size for array in model.parameters.values())
    sizes = (
        f"A {_NETWORKS.get(config.model_type, 'BERT')} for {model.task}, with {config.num_hidden_layers} layers of "
        f"hidden size {config.hidden_size} and {num_parameters:,} parameters. Its vocabulary has {config.vocab_size:,} "
        f"tokens{cased}. A text has at most {config.max_position_embeddings:,} tokens."
    )
    if is_reranker(model):
        labels = ()
        sizes += " It is a reranker: its one output is the score of a query and a passage, read together."
    classes = f"Classes: {', '.join(labels[:_MOST_LABELS])}{' ...' * (len(labels) > _MOST_LABELS)}"
    if form:
        sizes += f" The vector of a text is made by {form.pooling} pooling."
        prefixes = {"query": form.query_prefix, "passage": form.passage_prefix}
        stated = [f"The prefix of a {kind} is {prefix!r}." for kind, prefix in prefixes.items() if prefix]
        if form.hybrid_weight is not None:
            weight = f"{form.hybrid_weight:.0%} vectors and {1 - form.hybrid_weight:.0%} BM25"
            stated.append(
                f"A ranking by both is best with {weight}, if the scores of each are standardised for a query."
            )
        sizes = " ".join([sizes, *stated])
    sizes = " ".join([sizes, *what_is_lost(model, to_format)])
    warnings = [text(f"Warning: {warning}") for warning in map(_above_unigram_entropy, runs[-1:]) if warning]
    blocks = [*warnings, text(sizes), *([text(classes)] if labels else []), heading("Use"), use]
    for run in runs:
        source, damaged = _beginning(run), list[str]()
        begins_with = (_published_name(source) or "own weights") if source else "random weights"
        rows = training_rows(run, begins_with, damaged)
        blocks += [heading(f"Training: {run.name}"), table(["", ""], rows), *_evaluations(run)]
        if damaged:
            names = ", ".join(damaged)
            model.notes.append(f"model card: {run.name}: left out, as its records are damaged: {names}")
    limits = ["Nothing was measured beyond what stands above: no other text, language, domain or group of people."]
    if not runs:
        limits = ["How it was trained is not recorded beside its weights, and nothing of it was measured here."]
    limits.append(
        "A model can repeat its training text: names and sentences that stand in it can be drawn out of it. Share it "
        "only with whom you would show the text."
    )
    return [*blocks, heading("Limits"), ReportBlock("", "\n".join(f"- {limit}" for limit in limits))]


def _above_unigram_entropy(run: RunRecord) -> str:
    """A warning if the lowest held-out loss of a pre-training is above the unigram entropy; else empty."""
    entropy, losses = run.summary.get("unigram_entropy"), run.curve("eval_masked_lm_loss")
    loss = min((value for _, value in losses), default=None)
    if loss is None or not isinstance(entropy, int | float) or loss < entropy:
        return ""
    return (
        f"this model has not learned to use context. It predicts a hidden token no better than the frequencies of the "
        f"tokens do: its held-out loss is {loss:.2f} nats, their unigram entropy {entropy:.2f}. Train it longer."
    )


_CUT_FIRST = "# Texts must be cut into words first; BERT on Paddle does so itself."
_CUTTING = {  # segmenter -> lines of code
    "icu": (
        _CUT_FIRST,
        "from icu4py.breakers import WordBreaker  # pip install icu4py",
        'text = " ".join(WordBreaker(text.replace("\\u200b", " "), "en")).replace("[ MASK ]", "[MASK]")',
    ),
    "syllables": (_CUT_FIRST,),
}


# Arguments in an example where no sentence of the language is known.
_PLACEHOLDERS = {"fill-mask": '"TEXT [MASK] TEXT"', "question-answering": 'question="QUESTION", context="TEXT"'}
_EXTRAS = {"onnx": "onnx", "triton": "onnx", "openvino": "openvino"}  # format -> extra of our package that reads it


def _use(model: Model, to_format: str, name: str, form: VectorForm | None, examples: Examples | None) -> ReportBlock:
    """Commands and code for users: first with the library of the export, then with BERT on Paddle."""
    pipeline = HEADS[model.task].pipeline
    example = examples.arguments(pipeline) if examples else _PLACEHOLDERS.get(pipeline, '"TEXT"')
    if model.tokens is not None:
        example = example.replace("[MASK]", model.tokens.vocabulary.name_of("[MASK]"))
    said, lines, packages = json.dumps(name, ensure_ascii=False), list[str](), ""
    query, passages = (examples.query, examples.passages) if examples else ("QUERY", ("PASSAGE", "ANOTHER"))
    if to_format == "hf" and is_reranker(model):
        packages = "sentence-transformers"
        lines = ["from sentence_transformers import CrossEncoder", "", f"model = CrossEncoder({said})"]
        pairs = json.dumps([[query, passage] for passage in passages], ensure_ascii=False)
        lines += [f"print(model.predict({pairs}))  # the higher, the better the answer"]
    elif to_format == "hf" and form:
        packages = "sentence-transformers"
        lines = ["from sentence_transformers import SentenceTransformer", "", f"model = SentenceTransformer({said})"]
        lines += [f'query = model.encode({json.dumps(query, ensure_ascii=False)}, prompt_name="query")']
        listed = json.dumps(passages, ensure_ascii=False)
        lines += [f'print(model.similarity(query, model.encode({listed}, prompt_name="document")))']
    elif to_format == "hf" and pipeline:
        call = f'pipeline("{pipeline}", {said})'
        packages = "transformers torch"
        lines = ["from transformers import pipeline", "", f"model = {call}", f"print(model({example}))"]
    elif to_format == "paddlenlp":
        kind = model.description(model.config, -1)["architectures"][0]
        packages = "paddlenlp==2.8.1 paddlepaddle==2.6.2"
        lines = ["import zlib  # before Paddle, whose own zlib other packages, such as scipy, would get", ""]
        lines += [f"from paddlenlp.transformers import {kind}", "", f"model = {kind}.from_pretrained({said})"]
    if lines and model.tokens is not None and (segmenter := model.tokens.normalization.word_segmenter):
        lines += ["", *_CUTTING[segmenter]]
    code = ["```bash", f"pip install {packages}", "```", "", "```python", *lines, "```", ""] if lines else []
    where = f"pip install '.[{_EXTRAS[to_format]}]'" if to_format in _EXTRAS else "pip install ."
    ours = f"With BERT on Paddle, which `{where}` in its checkout installs. It reads lines of text from standard input:"
    typed = f"bert-on-paddle predict {shlex.quote(name)}"
    return ReportBlock("", "\n".join([*code, ours, "", "```bash", typed, "```"]))


def _evaluations(run: RunRecord) -> list[ReportBlock]:
    """Metrics of the first, the best and the last evaluation; damaged values are left out."""
    names = [name for row in run.held_out[-1:] for name in row if name.startswith("eval_")]
    names = [name for name in names if not name.endswith(NO_METRICS)]
    steps = {row["step"]: "" for row in run.held_out[:1]}
    best_step = run.summary.get("best_step")
    if isinstance(best_step, int):
        steps[best_step] = ", best"
    steps |= {row["step"]: ", last" for row in run.held_out[-1:]}
    rows = [
        [f"update {row['step']:,}{steps[row['step']]}", *(_metric(row.get(name)) for name in names)]
        for row in run.held_out
        if row["step"] in steps
    ]
    words = text("On the evaluation set that chose the best weights, of one seed, so without a spread:")
    titles = [name.removeprefix("eval_").replace("_", " ") for name in names]
    verdicts = [text(run.summary[name]) for name in VERDICTS if isinstance(run.summary.get(name), str)]
    return [words, table(["", *titles], rows), *verdicts] if names else verdicts


def _metric(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "-"

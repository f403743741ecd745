"""The model card, README.md of every export: what the runs of the weights have recorded, and how to use the model.

What no record says is left out. A README.md beside the weights is the card of whoever wrote it: it is kept.
"""

import json
import math
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, field_validator

from bert.checkpoints.directories import CARD_FILE, weights_folder
from bert.config.flags import Flag
from bert.config.settings_base import Settings
from bert.conversion.locating import published_model
from bert.conversion.model import Model
from bert.conversion.model_description import VectorForm, read_usage
from bert.conversion.raw_tensors import ConversionError
from bert.model.head_specs import HEADS, TOKEN_WEIGHTS
from bert.reporting.job_file import job_facts
from bert.reporting.progress import duration
from bert.reporting.report import Block, heading, table, text, to_markdown
from bert.reporting.run_record import CONFIG, VERDICTS, RunRecord, read_run
from bert.reporting.spread import NO_METRICS
from bert.samples.manifest import read_manifest
from data.fetching.published_models import GOOGLE, known_names
from data.text.code_pages import check_language

_GROUP = "model card (README.md)"
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")  # as Hugging Face writes it, with hyphens
_LARGEST = 1 << 20  # bytes of a card
_LIBRARIES = {"hf": "transformers", "paddlenlp": "paddlenlp", "onnx": "onnx", "triton": "onnx", "openvino": "openvino"}
_FACTS = {  # row -> settings and figures of a run
    "objective": "{objective}",
    "masks": "{masked_lm_ratio:.0%}, {masking}",
    "longest sequence": "{max_seq_length:,} tokens",
    "batch": "{global_batch_size:,} sequences",
    "dropout": "{hidden_dropout_prob:g} of the layers, {attention_probs_dropout_prob:g} of the attention",
    "optimizer": "{optimizer}, weight decay {weight_decay:g}",
    "learning rate": "{learning_rate:g} at its peak, {lr_schedule}, warm-up of {warmup_steps:,} updates",
    "updates": "{updates:,}",
    "seed": "{seed}",
    "processor": "{world_size} x {processor}",
    "time": "{time}",
}
_COUNTS = ("{documents used:,} documents", "{sentences:,} sentences", "{tokens:,} tokens", "{samples:,} samples")
_NETWORKS = {"modernbert": "ModernBERT", "roberta": "RoBERTa"}
_DAMAGE = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
_MOST_LABELS, _MOST_RUNS = 50, 8


class CardRequest(Settings):
    """What the user says about a model, from the flags of the commands that export."""

    license: Annotated[str | None, Flag(group=_GROUP)] = Field(
        None, description="of the model, as the hub spells it: apache-2.0, cc-by-4.0, other"
    )
    languages: Annotated[
        tuple[str, ...], Flag(name="--language", aliases=("--lang",), placeholder="CODE", group=_GROUP)
    ] = Field((), description="of its text: en de")

    @field_validator("license")
    @classmethod
    def _is_license(cls, license: str | None) -> str | None:
        if license and not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", license):
            raise ValueError(f"license={license} must be a name as apache-2.0, mit or other; change --license")
        return license

    @field_validator("languages")
    @classmethod
    def _are_languages(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        for language in languages:
            if not _LANGUAGE.fullmatch(language):
                raise ValueError(f"language={language} must be a code as en or de; change --language")
            check_language(language)
        return languages


def write_card(folder: Path, model: Model, to_format: str, request: CardRequest, name: str) -> None:
    """Write the card of an export, or copy the one beside the weights; `name` is what users call the model."""
    own, said = model.folder / CARD_FILE, {"license": request.license, "language": list(request.languages)}
    stated: dict[str, Any] = {key: value for key, value in said.items() if value}
    if own.is_file():
        _copy(own, folder / CARD_FILE, stated)
    elif to_format != "native":  # which is no export
        from huggingface_hub import ModelCardData  # here: it loads slowly

        runs, pipeline, library = runs_of(model.folder), HEADS[model.task].pipeline[0], _LIBRARIES.get(to_format)
        tags = [*([model.task] if model.task != pipeline else [])]
        if form := read_usage(model.folder).vectors if model.task == "encoder" else None:
            stated["widget"] = [{"source_sentence": _QUERY, "sentences": list(_PASSAGES)}]
            tags, pipeline = ["sentence-transformers", pipeline], "sentence-similarity"
            library = "sentence-transformers" if to_format == "hf" else library
        metadata = ModelCardData(
            library_name=library or "paddlepaddle",
            pipeline_tag=pipeline or None,
            base_model=_published(_beginning(runs[0])) if runs else None,
            tags=[model.config.model_type, "bert-on-paddle", *tags],
            **stated,
        )
        content = f"---\n{metadata.to_yaml()}\n---\n\n" + to_markdown(name, _blocks(model, to_format, runs, name, form))
        (folder / CARD_FILE).write_text(content, encoding="utf-8")


def what_is_lost(model: Model, to_format: str) -> list[str]:
    """A sentence if a classifier has token weights, for which other libraries' networks have no place."""
    weights = model.parameters.get(TOKEN_WEIGHTS)
    if to_format not in ("hf", "paddlenlp") or weights is None:
        return []
    library = {"hf": "transformers", "paddlenlp": "PaddleNLP"}[to_format]
    number = weights[: model.config.vocab_size].size
    return [
        f"{library} ignores the {number:,} token weights of this classifier, so it gives other logits than this "
        "project's programs, and the scores of the training are not its scores. For a model that both compute alike, "
        "train with --no-token-weights."
    ]


def _copy(own: Path, target: Path, stated: Mapping[str, Any]) -> None:
    """Copy the user's card, with what is stated now in its metadata."""
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
    """The trainings that led to the weights of a checkpoint, as far as their folders are there, the first one first."""
    runs: list[RunRecord] = []
    while len(runs) < _MOST_RUNS and len(weights.absolute().parents) > 3:
        directory = weights.absolute().parents[2] / weights.absolute().parent.name
        if not (directory / CONFIG).is_file() or any(run.directory == directory for run in runs):
            break
        try:
            runs.insert(0, read_run(directory, directory.name))
            weights = weights_folder(Path(_beginning(runs[0])))
        except _DAMAGE:  # a CheckpointError is one
            break
    return runs


def _beginning(run: RunRecord) -> str:
    """The weights that a training began with; empty: random ones."""
    return str(run.settings.get("from_phase1_final_params") or run.settings.get("from_pretrained_params") or "")


def _published(source: str) -> str | None:
    """The model of the hub that a source names, if it is a known one; any other name may be a user's path."""
    name = None if not source or Path(source).exists() else published_model(source)
    is_known = name is not None and name.repository.removeprefix(f"{GOOGLE}/") in known_names()
    return name.repository if name is not None and is_known else None


def _blocks(model: Model, to_format: str, runs: Sequence[RunRecord], name: str, form: VectorForm | None) -> list[Block]:
    config, labels = model.config, model.labels or ()
    cased = "" if model.tokens is None else f", {model.tokens.normalization}"
    sizes = (
        f"A {_NETWORKS.get(config.model_type, 'BERT')} of {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {config.vocab_size:,} tokens{cased}, at most {config.max_position_embeddings:,} tokens "
        f"in a text, {sum(array.size for array in model.parameters.values()):,} parameters, for {model.task}."
    )
    classes = f"Classes: {', '.join(labels[:_MOST_LABELS])}{' ...' * (len(labels) > _MOST_LABELS)}"
    if form:
        prefixes = f"{form.query_prefix!r} before a query, {form.passage_prefix!r} before a passage"
        sizes += f" A text's vector is by {form.pooling} pooling, with the prefixes {prefixes}."
    sizes = " ".join([sizes, *what_is_lost(model, to_format)])
    blocks = [text(sizes), *([text(classes)] if labels else []), heading("Use"), _use(model, to_format, name, form)]
    for run in runs:
        try:
            section = [heading(f"Training: {run.name}"), table(["", ""], _facts(run)), *_evaluations(run)]
        except _DAMAGE as error:
            model.notes.append(f"model card: {run.name} is left out, its records are damaged ({str(error)[:200]})")
            continue
        blocks += section
    limits = ["Nothing was measured beyond what stands above: no other text, language, domain or group of people."]
    if not runs:
        limits = ["How it was trained is not recorded beside its weights, and nothing of it was measured here."]
    limits.append(
        "A model can repeat its training text: names and sentences that stand in it can be drawn out of it. Share it "
        "only with whom you would show the text."
    )
    return [*blocks, heading("Limits"), Block("", "\n".join(f"- {limit}" for limit in limits))]


_CUT_FIRST = "# Texts must be cut into words first; run_predict.py does so itself."
_CUTTING = {  # segmenter -> lines of code
    "icu": (
        _CUT_FIRST,
        "from icu4py.breakers import WordBreaker  # pip install icu4py",
        'text = " ".join(WordBreaker(text.replace("\\u200b", " "), "en")).replace("[ MASK ]", "[MASK]")',
    ),
    "syllables": (_CUT_FIRST,),
}


_QUERY = "How is a commit undone?"
_PASSAGES = ("A new commit reverses the changes.", "The library opens at nine.")


def _use(model: Model, to_format: str, name: str, form: VectorForm | None) -> Block:
    pipeline, example = HEADS[model.task].pipeline
    if model.tokens is not None:
        example = example.replace("[MASK]", model.tokens.vocabulary.name_of("[MASK]"))
    said, lines = json.dumps(name, ensure_ascii=False), []
    if to_format == "hf" and form:
        lines = ["from sentence_transformers import SentenceTransformer", "", f"model = SentenceTransformer({said})"]
        lines += [f'query = model.encode("{_QUERY}", prompt_name="query")']
        lines += [f'print(model.similarity(query, model.encode({json.dumps(_PASSAGES)}, prompt_name="document")))']
    elif to_format == "hf" and pipeline:
        call = f'pipeline("{pipeline}", {said})'
        lines = ["from transformers import pipeline", "", f"model = {call}", f"print(model({example}))"]
    elif to_format == "paddlenlp":
        kind = model.description(model.config, -1)["architectures"][0]
        lines = [f"from paddlenlp.transformers import {kind}", f"model = {kind}.from_pretrained({said})"]
    if lines and model.tokens is not None and (segmenter := model.tokens.normalization.word_segmenter):
        lines += ["", *_CUTTING[segmenter]]
    code = ["```python", *lines, "```", ""] if lines else []
    return Block("", "\n".join([*code, "```bash", f".venv/bin/python run_predict.py {shlex.quote(name)}", "```"]))


def _facts(run: RunRecord) -> list[list[str]]:
    """What a run read and how, without the names of files and folders."""
    values = {**run.settings, **run.summary, "updates": run.last_step()}
    sizes = [values.get(name) for name in ("batch_size", "gradient_merge_steps", "world_size")]
    if values.get("global_batch_size") is None and all(sizes):
        values["global_batch_size"] = math.prod(sizes)
    if values.get("e2e_train_time"):
        values["time"] = duration(float(values["e2e_train_time"]))
    source, factor = _beginning(run), values.get("embedding_rate_factor") or 1
    rows = {
        "text": _text(run),
        "labels": {None: "", "custom": "own labels"}.get(values.get("task_name"), str(values.get("task_name"))),
        "begins with": (_published(source) or "own weights") if source else "random weights",
        **{name: _filled(form, values) for name, form in _FACTS.items()},
        "rate of embeddings": "" if factor == 1 else f"{factor:g} times the learning rate",
        "arithmetic": f"mixed {values.get('amp_dtype')}" if values.get("amp") else "float32",
    }
    return [[name, value] for name, value in rows.items() if value]


def _text(run: RunRecord) -> str:
    own = job_facts(run.directory.parent, "own_text")
    if own.get("text"):
        about = "about " if own["text"].get("is_estimate") else ""
        counts = _filled("{words:,} words, {characters:,} characters, {documents:,} documents", own["text"])
        return f"own text, {about}{counts}" + _filled("; {held_out_fraction:.1%} held out", own.get("data") or {})
    folder = run.settings.get("input_dir")
    manifest = read_manifest(folder) if folder and Path(folder).is_dir() else None
    return ", ".join(filter(None, (_filled(form, manifest.counts) for form in _COUNTS))) if manifest else ""


def _filled(form: str, values: Mapping[str, Any]) -> str:
    """The form with its values; empty where one is not known."""
    try:
        return "" if any(values[name] is None for name in re.findall(r"{([^:}]*)", form)) else form.format(**values)
    except (KeyError, TypeError, ValueError):
        return ""


def _evaluations(run: RunRecord) -> list[Block]:
    """The metrics of the first, the best and the last evaluation."""
    names = [name for row in run.held_out[-1:] for name in row if name.startswith("eval_")]
    names = [name for name in names if not name.endswith(NO_METRICS)]
    steps = {row["step"]: "" for row in run.held_out[:1]} | {run.summary.get("best_step"): ", best"}
    steps |= {row["step"]: ", last" for row in run.held_out[-1:]}
    rows = [
        [f"update {row['step']:,}{steps[row['step']]}", *(f"{row[name]:.4f}" if name in row else "-" for name in names)]
        for row in run.held_out
        if row["step"] in steps
    ]
    words = text("On the evaluation set that chose the best weights, of one seed, so without a spread:")
    titles = [name.removeprefix("eval_").replace("_", " ") for name in names]
    verdicts = [text(run.summary[name]) for name in VERDICTS if name in run.summary]
    return [words, table(["", *titles], rows), *verdicts] if names else verdicts

"""The model card, README.md of every export: what the runs of the weights have recorded, and how to use the model.

What no record says is left out. A README.md beside the weights is the card of whoever wrote it: it is kept.
"""

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bert.checkpoints.directories import CARD_FILE, weights_folder
from bert.conversion.locating import published_model
from bert.conversion.raw_tensors import ConversionError
from bert.files import read_json
from bert.model.head_specs import HEADS
from bert.planning.hardware import load_parts, part_of
from bert.reporting.progress import duration, metric_form
from bert.reporting.report import Block, heading, table, text, to_markdown
from bert.reporting.run_record import CONFIG, SUMMARY, RunRecord, read_run
from bert.reporting.spread import MEASURED, NO_METRICS, markdown, metric_rows, metrics_of
from bert.samples.manifest import read_manifest
from data.fetching.published_models import GOOGLE, ModelName, known_names

if TYPE_CHECKING:
    from bert.conversion.converting import Model

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")
_USE = re.compile(r"^## Use\n.*?(?=^## )", re.DOTALL | re.MULTILINE)
_LARGEST = 1 << 20  # bytes of a card
_LIBRARY = "paddlepaddle"
_LIBRARIES = {"hf": "transformers", "paddlenlp": "paddlenlp", "onnx": "onnx", "triton": "onnx", "openvino": "openvino"}
_RECIPE = {  # row -> settings
    "objective": "{objective}",
    "masks": "{masked_lm_ratio:.0%}, {masking}",
    "longest sequence": "{max_seq_length:,} tokens",
    "batch": "{global_batch_size:,} sequences",
    "optimizer": "{optimizer}, weight decay {weight_decay:g}",
    "learning rate": "{learning_rate:g} at its peak, {lr_schedule}, warm-up {warmup_proportion:.1%}",
    "seed": "{seed}",
}
_COUNTS = ("{documents used:,} documents", "{sentences:,} sentences", "{tokens:,} tokens", "{samples:,} samples")
_NETWORKS = {"modernbert": "ModernBERT", "roberta": "RoBERTa"}
_DAMAGE = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
_MOST_LABELS = 50
_MOST_RUNS = 8  # of a chain: phase 1, phase 2, own text, fine-tuning
Rows = list[list[str]]


@dataclass(frozen=True)
class CardRequest:
    """What the user says about a model, from the flags of the commands that export."""

    license: str | None = None
    languages: Sequence[str] = ()
    watts: float | None = None  # of everything that trained; None: the guess of the table of parts

    def __post_init__(self) -> None:
        if self.license and not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", self.license):
            raise ValueError(f"license={self.license} must be a name as apache-2.0, mit or other; change --license")
        for language in self.languages:
            if not _LANGUAGE.fullmatch(language):
                raise ValueError(f"language={language} must be a code as en or de; change --language")
        if self.watts is not None and not 0 < self.watts < 1e9:
            raise ValueError(f"watts={self.watts:g} must be a positive number; change --watts")


def write_card(folder: Path, model: "Model", to_format: str, request: CardRequest, name: str) -> None:
    """Write the card of an export; `name` is what users call the model."""
    kept = model.folder / CARD_FILE
    if kept.is_file():
        content = _kept(kept, model, to_format, request, name)
    elif to_format == "native":  # no export
        return
    else:
        weights = runs_of(model.folder)
        body = to_markdown(name, _blocks(model, to_format, request, weights, name))
        content = _yaml(_front_matter(model, to_format, request, [*weights.values()])) + body
    (folder / CARD_FILE).write_text(content, encoding="utf-8")


def _kept(file: Path, model: "Model", to_format: str, request: CardRequest, name: str) -> str:
    """The card beside the weights with what is stated now; in one of ours the use follows the format."""
    if file.stat().st_size > _LARGEST:
        raise ConversionError(f"{file} must have at most {_LARGEST >> 20} MB to be a model card; shorten or remove it")
    content = file.read_text(encoding="utf-8-sig", errors="replace")
    stated, body = _split(content, file)
    front = stated | _stated(request)
    if "bert-on-paddle" in str(stated.get("tags")):
        front["library_name"] = _LIBRARIES.get(to_format, _LIBRARY)
        use = "\n\n".join(block.markdown for block in [heading("Use"), *_use(model, to_format, name)])
        body = _USE.sub(lambda _: f"{use}\n\n", body)
    return (_yaml(front) if front else "") + body


def runs_of(weights: Path) -> dict[Path, RunRecord]:
    """The trainings that led to the weights of a checkpoint, as far as their folders are there, the first one first.

    The keys are the checkpoints that were taken from them.
    """
    runs: dict[Path, RunRecord] = {}
    while len(runs) < _MOST_RUNS and len(weights.absolute().parents) > 3:
        directory = weights.absolute().parents[2] / weights.absolute().parent.name
        if not (directory / CONFIG).is_file() or any(run.directory == directory for run in runs.values()):
            break
        try:
            runs[weights] = read_run(directory, directory.name)
            weights = _beginning(weights, runs[weights])
        except _DAMAGE:  # a CheckpointError is one
            break
    return dict(reversed(runs.items()))


def _beginning(weights: Path, run: RunRecord) -> Path:
    """The weights that a run began with: as its checkpoint says, since their run may have gone on; else the last."""
    for progress in weights.glob("*_progress.json"):
        if started_from := read_json(progress).get("carried", {}).get("started_from"):
            return Path(started_from)
    return weights_folder(Path(_source(run)))  # a published name is no folder, and ends the chain


# ---- front matter ----------------------------------------------------------------------------------------------------


def _stated(request: CardRequest) -> dict[str, Any]:
    languages = {"language": list(request.languages)} if request.languages else {}
    return {**languages, **({"license": request.license} if request.license else {})}


def _front_matter(model: "Model", to_format: str, request: CardRequest, runs: Sequence[RunRecord]) -> dict[str, Any]:
    pipeline, known = HEADS[model.task].pipeline[0], _languages(runs)
    base = _published(_source(runs[0])) if runs else None
    values = {
        **({"language": known} if known else {}),
        **_stated(request),
        "library_name": _LIBRARIES.get(to_format, _LIBRARY),
        "pipeline_tag": pipeline or None,
        "base_model": base.repository if base and not base.is_paddlenlp else None,
        "tags": [model.config.model_type, "bert-on-paddle", *([model.task] if model.task != pipeline else [])],
    }
    return {name: value for name, value in values.items() if value}


def _yaml(values: Mapping[str, Any]) -> str:
    return f"---\n{yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)}---\n\n"


class _Loader(yaml.SafeLoader):
    """Takes `no` for a language, as YAML 1.2 and the hub do."""

    yaml_implicit_resolvers = {
        first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:bool"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), "tf")


def _split(content: str, file: Path) -> tuple[dict[str, Any], str]:
    """The front matter of a card, and the text after it."""
    match = _FRONT_MATTER.match(content)
    try:
        values = yaml.load(match[1], _Loader) or {} if match else {}
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ConversionError(f"{file} begins with what is not YAML of names and values; correct or remove it")
    return values, content[match.end() :].lstrip("\n") if match else content


def _languages(runs: Sequence[RunRecord]) -> list[str]:
    """The languages of own texts. English is also what the plan takes where none was given, so it is not known."""
    codes = [str(_own_text(run, "data").get("lang")) for run in runs]
    return list(dict.fromkeys(code for code in codes if code != "en" and _LANGUAGE.fullmatch(code)))


def _own_text(run: RunRecord, part: str) -> dict[str, Any]:
    values = read_json(run.directory.parent / "own_text.json").get(part)
    return values if isinstance(values, dict) else {}


def _source(run: RunRecord) -> str:
    """The weights that a training began with; empty: random ones."""
    return str(run.settings.get("from_phase1_final_params") or run.settings.get("from_pretrained_params") or "")


def _published(source: str) -> ModelName | None:
    """The published model that a source names: one that is known, or in the cache; any other name may be a path."""
    from data.fetching.model_cache import cached_model  # loads huggingface_hub

    name = None if not source or Path(source).exists() else published_model(source)
    if name is None:
        return None
    is_known = name.repository.removeprefix(f"{GOOGLE}/").removeprefix("paddlenlp/") in known_names()
    return name if is_known or cached_model(name) else None


# ---- sections --------------------------------------------------------------------------------------------------------


def _blocks(
    model: "Model", to_format: str, request: CardRequest, weights: Mapping[Path, RunRecord], name: str
) -> list[Block]:
    config, runs = model.config, [*weights.values()]
    cased = "" if model.tokens is None else ", lower-cased" if model.tokens.lowercase else ", cased"
    sizes = (
        f"A {_NETWORKS.get(config.model_type, 'BERT')} of {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {config.vocab_size:,} tokens{cased}, at most {config.max_position_embeddings:,} tokens "
        f"in a text, {sum(array.size for array in model.parameters.values()):,} parameters, for {model.task}."
    )
    blocks = [text(sizes)]
    if model.labels:
        more = " ..." * (len(model.labels) > _MOST_LABELS)
        blocks.append(text(f"Classes: {', '.join(model.labels[:_MOST_LABELS])}{more}"))
    blocks += [heading("Use"), *_use(model, to_format, name)]
    parts: list[tuple[str, int, Callable[[], list[Block]]]] = [("Text", 2, lambda: _texts(runs))]
    if runs:
        parts.append(("Training", 2, lambda: _training(weights, request)))
    parts += [(f"Held out: {run.name}", 3, partial(_held_out, run)) for run in runs]
    parts += [("Scores", 2, partial(_scores, run)) for run in runs[-1:]]
    for title, level, part in parts:
        try:
            section = part()
        except _DAMAGE as error:
            model.notes.append(f"model card: {title} is left out, its records are damaged ({str(error)[:200]})")
            continue
        blocks += [heading(title, level), *section] if section else []
    return [*blocks, heading("Limits"), *_limits(runs)]


def _use(model: "Model", to_format: str, name: str) -> list[Block]:
    pipeline, example = HEADS[model.task].pipeline
    if model.tokens is not None:
        example = example.replace("[MASK]", model.tokens.vocabulary.name_of("[MASK]"))
    said = json.dumps(name, ensure_ascii=False)
    ours = ["from bert.inference.predictor import Predictor", "", f'print(Predictor({said}).texts(["A text."]))']
    if to_format == "hf":
        ours = ["from transformers import pipeline", ""]
        ours += [f'model = pipeline("{pipeline}", {said})', f"print(model({example}))"] if pipeline else []
    elif to_format == "paddlenlp":
        kind = model.description(model.config, -1)["architectures"][0]
        ours = [f"from paddlenlp.transformers import AutoTokenizer, {kind}", ""]
        if model.tokens is not None and not model.tokens.vocabulary.is_wordpiece():
            ours = [f"from paddlenlp.transformers import {kind}", "from transformers import AutoTokenizer", ""]
        ours.append(f"tokenizer, model = AutoTokenizer.from_pretrained({said}), {kind}.from_pretrained({said})")
    blocks = ["\n".join(["```python", *ours, "```"])] if len(ours) > 2 else []
    return [
        Block("", block) for block in (*blocks, f"```bash\n.venv/bin/python run_predict.py {shlex.quote(name)}\n```")
    ]


def _texts(runs: Sequence[RunRecord]) -> list[Block]:
    rows = [row for run in runs for row in _text_rows(run)]
    return [table(["", ""], rows)] if rows else []


def _text_rows(run: RunRecord) -> Rows:
    """What the training read, without the names of its files."""
    if facts := _own_text(run, "text"):
        about = "about " if facts.get("is_estimate") else ""
        rows = [
            ["own text", about + _filled("{words:,} words, {characters:,} characters, {documents:,} documents", facts)],
            ["languages", ", ".join(_languages([run]))],
            ["held out", _filled("{held_out_fraction:.1%} of the text, never trained on", _own_text(run, "data"))],
        ]
        return [row for row in rows if row[1]]
    folder, name = run.settings.get("input_dir"), run.settings.get("task_name")
    try:
        manifest = read_manifest(folder) if folder else None
    except ValueError:
        manifest = None
    counts = ", ".join(filter(None, (_filled(form, manifest.counts) for form in _COUNTS))) if manifest else ""
    if name in (None, "custom"):
        name = "own labels" if run.settings.get("train_file") else ""
    return [[f"text of {run.name}", counts]] * bool(counts) + [[f"labels of {run.name}", name]] * bool(name)


def _training(weights: Mapping[Path, RunRecord], request: CardRequest) -> list[Block]:
    runs = [*weights.values()]
    columns = [{**_recipe(run), "weights taken": f"after update {path.name}"} for path, run in weights.items()]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [[name, *(column.get(name, "") for column in columns)] for name in names]
    blocks = [table(["", *(run.name for run in runs)], rows)]
    return [*blocks, *([text(energy)] if (energy := _energy(runs, request)) else [])]


def _recipe(run: RunRecord) -> dict[str, str]:
    """Row -> value, of what the settings and the summary say."""
    values, source, updates = {**run.settings, **run.summary}, _source(run), run.last_step()
    if values.get("global_batch_size") is None:
        sizes = [values.get(name) for name in ("batch_size", "gradient_merge_steps", "world_size")]
        values["global_batch_size"] = math.prod(sizes) if all(isinstance(size, int) for size in sizes) else None
    seconds = _seconds(run)
    rows = {
        "begins with": str(_published(source) or "own weights") if source else "random weights",
        **{name: _filled(form, values) for name, form in _RECIPE.items()},
        "arithmetic": _filled("mixed {amp_dtype}" if values.get("amp") else "float32", values),
        "updates": f"{updates:,}" if updates else "",
        "processor": str(values.get("processor") or ""),
        "ranks": _filled("{world_size}", values),
        "time": duration(seconds) if seconds else "",
    }
    return {name: value for name, value in rows.items() if value}


def _seconds(run: RunRecord) -> float:
    seconds = run.summary.get("e2e_train_time")
    return float(seconds) if isinstance(seconds, (int, float)) and 0 < seconds < math.inf else 0.0


def _filled(form: str, settings: Mapping[str, Any]) -> str:
    """The form with its settings; empty where one is not known."""
    try:
        return form.format(**settings)
    except (KeyError, TypeError, ValueError):
        return ""


def _energy(runs: Sequence[RunRecord], request: CardRequest) -> str:
    """The energy of all trainings, with the power that it assumes; empty where neither is known."""
    hours, kilowatt_hours, assumed = sum(map(_seconds, runs)) / 3600, 0.0, set[str]()
    if request.watts is not None and hours:
        return f"Energy: {request.watts * hours / 1e3:.3g} kWh, at {request.watts:g} W as stated by who exported it."
    for run in runs:
        facts, is_gpu = run.summary, run.summary.get("device") == "gpu"
        part = part_of(str(facts.get("processor"))) if is_gpu else "CPU-core"
        devices = (facts.get("world_size") or 0) * (1 if is_gpu else facts.get("cpu_threads_per_rank") or 0)
        watts = load_parts()[part].watts if part and facts.get("device") else None
        if not watts or not devices or not _seconds(run):
            return ""
        kilowatt_hours += watts * devices * _seconds(run) / 3.6e6
        assumed.add(f"{watts:g} W for each of {devices} {f'{part} cards' if is_gpu else 'processor cores'}")
    if not assumed:
        return ""
    return f"Energy: about {kilowatt_hours:.2g} kWh, assuming {' and '.join(sorted(assumed))}; it was not measured."


def _held_out(run: RunRecord) -> list[Block]:
    """A table of the first, the best and the last evaluation; empty without evaluations."""
    names = [name for row in run.held_out[-1:] for name in row if name.startswith("eval_")]
    names = [name for name in names if not name.endswith(NO_METRICS)]
    if not names:
        return []
    best, last = run.summary.get("best_step"), run.held_out[-1]["step"]
    titles, rows = ["", *(name.removeprefix("eval_").replace("_", " ") for name in names)], []
    for row in run.held_out:
        marks = [mark for mark, step in ((", best", best), (", last", last)) if step == row["step"]]
        if marks or row is run.held_out[0]:
            title = f"update {row['step']:,}{''.join(marks)}"
            rows.append([title, *(_number(name, row.get(name), names) for name in names)])
    return [table(titles, rows)]


def _number(name: str, value: Any, names: Sequence[str]) -> str:
    return f"{value:{metric_form(name, dict.fromkeys(names))}}" if isinstance(value, (int, float)) else "-"


def _scores(run: RunRecord) -> list[Block]:
    """The scores of a fine-tuning, over all its seeds where there are several; none of a pre-training."""
    output = run.directory.parent
    if run.settings.get("masking"):
        return []
    folders = {int(path.name[5:]): path for path in sorted(output.parent.glob("seed-*")) if path.name[5:].isdecimal()}
    ended = {n: p for n, p in folders.items() if read_json(p / run.directory.name / SUMMARY).get("finished")}
    runs = ended if output in ended.values() else {0: output}
    metrics = {
        number: {name: value for name, value in metrics_of(path).items() if not name.endswith(MEASURED)}
        for number, path in sorted(runs.items())
    }
    if len(runs) > 1:
        words = f"The weights are of {output.name}. All seeds, on the evaluation set that chose the best weights:"
        return [text(words), Block("", "\n".join(markdown(metric_rows(metrics, "seed"))))]
    values = [*metrics.values()][0]
    rows = [[name, _number(name.rpartition(" ")[2], value, list(values))] for name, value in values.items()]
    words = "On the evaluation set that chose the best weights, of one seed, so without a spread:"
    return [text(words), table(["metric", "value"], rows)] if rows else []


def _limits(runs: Sequence[RunRecord]) -> list[Block]:
    limits = ["Nothing was measured beyond what stands above: no other text, language, domain or group of people."]
    if not runs:
        limits = ["How it was trained is not recorded beside its weights, and nothing of it was measured here."]
    limits.append(
        "A model can repeat its training text: names and sentences that stand in it can be drawn out of it. Share it "
        "only with whom you would show the text."
    )
    return [Block("", "\n".join(f"- {limit}" for limit in limits))]

"""The model card, README.md of every export: what the runs of the weights have recorded, and how to use the model.

What no record says is left out. A README.md beside the weights is the card of whoever wrote it: it is kept.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bert.checkpoints.directories import CheckpointError, weights_folder
from bert.conversion.raw_tensors import ConversionError
from bert.files import read_json
from bert.planning.hardware import load_parts, part_of
from bert.reporting.progress import duration, metric_form
from bert.reporting.report import Block, heading, table, text, to_markdown
from bert.reporting.run_record import CONFIG, SUMMARY, RunRecord, read_run
from bert.reporting.spread import metric_table, metrics_of
from bert.samples.manifest import read_manifest
from data.fetching.published_models import parse_name

if TYPE_CHECKING:
    from bert.conversion.converting import Model

CARD_FILE = "README.md"
_FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_USE = re.compile(r"^## Use\n.*?(?=^## )", re.DOTALL | re.MULTILINE)
_LARGEST = 1 << 20  # bytes of a card
_LIBRARY = "paddlepaddle"
_LIBRARIES = {"hf": "transformers", "paddlenlp": "paddlenlp", "onnx": "onnx", "triton": "onnx"}
_PIPELINES = {  # task -> pipeline of transformers, its example
    "pretraining": ("fill-mask", '"The [MASK] was late again."'),
    "masked-lm": ("fill-mask", '"The [MASK] was late again."'),
    "question-answering": ("question-answering", 'question="Who opened it?", context="Anna opened it in 1987."'),
    "sequence-classification": ("text-classification", '"What a great film!"'),
    "token-classification": ("token-classification", '"Anna Lindqvist visited Malmo."'),
    "encoder": ("feature-extraction", '"A text."'),
}
_METRICS_LEFT_OUT = ("_sequences", "_total", "thresh")
_NO_SCORES = ("final_loss", "skipped_steps")
_RECIPE = {  # row -> settings
    "objective": "{objective}",
    "masks": "{masked_lm_ratio:.0%}, {masking}",
    "longest sequence": "{max_seq_length:,} tokens",
    "optimizer": "{optimizer}, weight decay {weight_decay:g}",
    "learning rate": "{learning_rate:g} at its peak, {lr_schedule}, warm-up {warmup_proportion:.1%}",
    "seed": "{seed}",
}
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
            if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]+)*", language):
                raise ValueError(f"language={language} must be a code as en or de; change --language")
        if self.watts is not None and not 0 < self.watts < 1e9:
            raise ValueError(f"watts={self.watts:g} must be a positive number; change --watts")


@dataclass(frozen=True)
class Stage:
    """A training that led to the weights: its record, and the facts of its text."""

    run: RunRecord
    own_text: Mapping[str, Any] = field(default_factory=dict)

    def setting(self, name: str) -> Any:
        return self.run.settings.get(name)

    def seconds(self) -> float:
        return float(self.run.summary.get("e2e_train_time") or 0)


def write_card(folder: Path, model: "Model", to_format: str, request: CardRequest, name: str) -> None:
    """Write the card of an export; `name` is what users call the model."""
    kept = model.folder / CARD_FILE
    if kept.is_file():
        content = _kept(kept, model, to_format, request, name)
    elif to_format == "native":  # no export
        return
    else:
        stages = stages_of(model.folder)
        body = to_markdown(name, _blocks(model, to_format, request, stages, name))
        content = _yaml(_front_matter(model, to_format, request, stages)) + body
    (folder / CARD_FILE).write_text(content, encoding="utf-8")


def _kept(file: Path, model: "Model", to_format: str, request: CardRequest, name: str) -> str:
    """The card beside the weights with what is stated now; in one of ours the use follows the format."""
    if file.stat().st_size > _LARGEST:
        raise ConversionError(f"{file} must have at most {_LARGEST >> 20} MB to be a model card; shorten or remove it")
    content = file.read_text(encoding="utf-8", errors="replace")
    stated, body = _split(content, file)
    front = stated | _stated(request)
    if "bert-on-paddle" in (stated.get("tags") or []):
        front["library_name"] = _LIBRARIES.get(to_format, _LIBRARY)
        use = "\n\n".join(block.markdown for block in [heading("Use"), *_use(model, to_format, name)])
        body = _USE.sub(lambda _: f"{use}\n\n", body)
    return (_yaml(front) if front else "") + body


def stages_of(weights: Path) -> list[Stage]:
    """The trainings that led to the weights of a checkpoint, the first one first, as far as their folders are there."""
    stages: list[Stage] = []
    while len(stages) < _MOST_RUNS and len(weights.absolute().parents) > 3:
        directory = weights.absolute().parents[2] / weights.absolute().parent.name
        if not (directory / CONFIG).is_file() or any(stage.run.directory == directory for stage in stages):
            break
        stages.insert(
            0,
            Stage(
                read_run(directory, f"{directory.parent.name}: {directory.name}"),
                read_json(directory.parent / "own_text.json"),
            ),
        )
        try:
            weights = weights_folder(Path(str(_source(stages[0]))))  # a name is no folder, and ends the chain
        except CheckpointError:
            break
    return stages


# ---- front matter ----------------------------------------------------------------------------------------------------


def _stated(request: CardRequest) -> dict[str, Any]:
    languages = {"language": list(request.languages)} if request.languages else {}
    return {**languages, **({"license": request.license} if request.license else {})}


def _front_matter(model: "Model", to_format: str, request: CardRequest, stages: Sequence[Stage]) -> dict[str, Any]:
    pipeline, known = _PIPELINES.get(model.task, ("", ""))[0], _languages(stages)
    base = parse_name(str(_source(stages[0]) or "")) if stages and not _is_folder(stages[0]) else None
    values = {
        **({"language": known} if known else {}),
        **_stated(request),
        "library_name": _LIBRARIES.get(to_format, _LIBRARY),
        "pipeline_tag": pipeline or None,
        "base_model": base.repository if base else None,
        "tags": [model.config.model_type, "bert-on-paddle", *([model.task] if model.task != pipeline else [])],
    }
    return {name: value for name, value in values.items() if value}


def _yaml(values: Mapping[str, Any]) -> str:
    return f"---\n{yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)}---\n\n"


def _split(content: str, file: Path) -> tuple[dict[str, Any], str]:
    """The front matter of a card, and the text after it."""
    match = _FRONT_MATTER.match(content)
    try:
        values = yaml.safe_load(match[1]) if match else {}
    except (yaml.YAMLError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ConversionError(f"{file} begins with what is not YAML of names and values; correct or remove it")
    return values, content[match.end() :].lstrip("\n") if match else content


def _languages(stages: Sequence[Stage]) -> list[str]:
    """The languages of own texts. English is also what the plan takes where none was given, so it is not known."""
    codes = [stage.own_text.get("data", {}).get("lang") for stage in stages]
    return list(dict.fromkeys(str(code) for code in codes if code and code != "en"))


def _source(stage: Stage) -> Any:
    return stage.setting("from_phase1_final_params") or stage.setting("from_pretrained_params")


def _is_folder(stage: Stage) -> bool:
    return bool(_source(stage)) and Path(_source(stage)).exists()


# ---- sections --------------------------------------------------------------------------------------------------------


def _blocks(model: "Model", to_format: str, request: CardRequest, stages: Sequence[Stage], name: str) -> list[Block]:
    config = model.config
    cased = "" if model.tokens is None else ", lower-cased" if model.tokens.lowercase else ", cased"
    sizes = (
        f"A {'ModernBERT' if config.is_modern() else 'BERT'} of {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {config.vocab_size:,} tokens{cased}, at most {config.max_position_embeddings:,} tokens "
        f"in a text, {sum(array.size for array in model.parameters.values()):,} parameters, for {model.task}."
    )
    blocks = [text(sizes)]
    if model.labels:
        blocks.append(
            text(f"Classes: {', '.join(model.labels[:_MOST_LABELS])}{' ...' * (len(model.labels) > _MOST_LABELS)}")
        )
    blocks += [heading("Use"), *_use(model, to_format, name)]
    if rows := [row for stage in stages for row in _text_rows(stage)]:
        blocks += [heading("Text"), table(["", ""], rows)]
    if stages:
        blocks += [heading("Training"), *_training(stages, request)]
    for stage in stages:
        if rows := _held_out(stage.run):
            blocks += [heading(f"Held out: {stage.run.name}", 3), table(rows[0], rows[1:])]
    if stages and (scores := _scores(stages[-1])):
        blocks += [heading("Scores"), *scores]
    return [*blocks, heading("Limits"), *_limits(model, stages)]


def _use(model: "Model", to_format: str, name: str) -> list[Block]:
    pipeline, example = _PIPELINES.get(model.task, ("", ""))
    lines = {
        "hf": [
            "from transformers import pipeline",
            "",
            f"model = pipeline({pipeline!r}, {name!r})".replace("'", '"'),
            f"print(model({example}))",
        ],
        "paddlenlp": [
            "from paddlenlp.transformers import AutoTokenizer, "
            f"{model.description(model.config, -1)['architectures'][0]} as Model",
            "",
            f'tokenizer, model = AutoTokenizer.from_pretrained("{name}"), Model.from_pretrained("{name}")',
        ],
    }.get(
        to_format,
        ["from bert.inference.predictor import Predictor", "", f'print(Predictor("{name}").texts(["A text."]))'],
    )
    code = "" if to_format == "hf" and not pipeline else "\n".join(["```python", *lines, "```"])
    ours = f"```bash\n.venv/bin/python run_predict.py {name}\n```"
    return [Block("", block) for block in (code, ours) if block]


def _text_rows(stage: Stage) -> Rows:
    """What the training read, without the paths of its files."""
    facts, data = stage.own_text.get("text", {}), stage.own_text.get("data", {})
    if facts:
        about = "about " if facts.get("is_estimate") else ""
        sources = [f"{name}: {part['words']:,} words" for name, part in facts.get("parts", {}).items()]
        counts = (
            f"{about}{facts['words']:,} words, {facts['characters']:,} characters in {facts['documents']:,} documents"
        )
        rows = [["own text", counts], ["sources", ", ".join(sources)], ["languages", ", ".join(_languages([stage]))]]
        rows.append(["held out", f"{data.get('held_out_fraction') or 0:.1%} of the text, never trained on"])
        return [row for row in rows if row[1]]
    folder, name = stage.setting("input_dir"), stage.setting("task_name") or stage.setting("train_file")
    try:
        manifest = read_manifest(folder) if folder else None
    except ValueError:
        manifest = None
    if manifest is not None:
        names = ("documents used", "sentences", "tokens", "samples")
        counts = ", ".join(f"{manifest.counts[name]:,} {name}" for name in names if name in manifest.counts)
        return [[f"text of {stage.run.name}", counts]] if counts else []
    if name and stage.setting("task_name") == "custom" and stage.setting("train_file"):
        name = Path(stage.setting("train_file")).name
    return [[f"labels of {stage.run.name}", Path(str(name)).name]] if name else []


def _training(stages: Sequence[Stage], request: CardRequest) -> list[Block]:
    columns = [_recipe(stage) for stage in stages]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [[name, *(column.get(name, "") for column in columns)] for name in names]
    blocks = [table(["", *(stage.run.name for stage in stages)], rows)]
    return [*blocks, *([text(energy)] if (energy := _energy(stages, request)) else [])]


def _recipe(stage: Stage) -> dict[str, str]:
    """Row -> value, of what the settings and the summary say."""
    setting, summary, source = stage.setting, stage.run.summary, _source(stage)
    batch = setting("global_batch_size")
    if batch is None and summary.get("world_size"):
        batch = summary["world_size"] * (setting("batch_size") or 0) * (setting("gradient_merge_steps") or 1)
    updates, processor = stage.run.last_step(), summary.get("processor")
    values = {
        "begins with": Path(str(source)).name if _is_folder(stage) else str(source or "random weights"),
        **{name: _filled(form, stage.run.settings) for name, form in _RECIPE.items()},
        "arithmetic": f"mixed {setting('amp_dtype')}" if setting("amp") else "float32",
        "batch": f"{batch:,} sequences" if batch else "",
        "updates": f"{updates:,}" if updates else "",
        "processor": f"{summary.get('world_size') or 1} x {processor}" if processor else "",
        "time": duration(stage.seconds()) if stage.seconds() else "",
    }
    return {name: value for name, value in values.items() if value}


def _filled(form: str, settings: Mapping[str, Any]) -> str:
    """The form with its settings; empty where one is not known."""
    try:
        return form.format(**settings)
    except (KeyError, TypeError, ValueError):
        return ""


def _energy(stages: Sequence[Stage], request: CardRequest) -> str:
    """The energy of all trainings, with the power that it assumes; empty where neither is known."""
    hours, joules, assumed = sum(stage.seconds() for stage in stages) / 3600, 0.0, set[str]()
    if not hours:
        return ""
    if request.watts is not None:
        return f"Energy: {request.watts * hours / 1e3:.3g} kWh, at {request.watts:g} W as stated by who exported it."
    parts = load_parts()
    for stage in stages:
        summary, processor = stage.run.summary, stage.run.summary.get("processor")
        if not processor or not stage.seconds():
            return ""
        part = part_of(processor)
        threads = 1 if part else summary.get("cpu_threads_per_rank")
        watts = parts[part or "CPU-core"].watts
        if not watts or not threads or (part is None and stage.setting("device") == "gpu"):
            return ""
        devices = (summary.get("world_size") or 1) * threads
        joules += watts * devices * stage.seconds()
        assumed.add(f"{watts:g} W for each of {devices} {f'{part} cards' if part else 'processor cores'}")
    return f"Energy: about {joules / 3.6e6:.2g} kWh, assuming {' and '.join(sorted(assumed))}; it was not measured."


def _held_out(run: RunRecord) -> Rows:
    """A table of the first, the best and the last evaluation, its titles first; empty without evaluations."""
    names = [name for row in run.held_out[-1:] for name in row if name.startswith("eval_")]
    names = [name for name in names if not name.endswith(_METRICS_LEFT_OUT)]
    if not names:
        return []
    best, last = run.summary.get("best_step"), run.held_out[-1]["step"]
    rows = [["", *(name.removeprefix("eval_").replace("_", " ") for name in names)]]
    for row in run.held_out:
        marks = [mark for mark, step in ((", best", best), (", last", last)) if step == row["step"]]
        if marks or row is run.held_out[0]:
            title = f"update {row['step']:,}{''.join(marks)}"
            rows.append([title, *(_number(name, row.get(name), names) for name in names)])
    return rows


def _number(name: str, value: Any, names: Sequence[str]) -> str:
    return f"{value:{metric_form(name, dict.fromkeys(names))}}" if isinstance(value, (int, float)) else "-"


def _scores(stage: Stage) -> list[Block]:
    """The scores of a fine-tuning, over all its seeds where there are several; none of a pre-training."""
    output, stage_name = stage.run.directory.parent, stage.run.directory.name
    seed = re.fullmatch(r"seed-(\d+)", output.name)
    if stage.setting("masking"):
        return []
    folders = {int(path.name[5:]): path for path in output.parent.glob("seed-*") if path.name[5:].isdecimal()}
    finished = [n for n, path in folders.items() if read_json(path / stage_name / SUMMARY).get("finished")]
    if seed and len(finished) > 1:
        words = f"The weights are of seed {seed[1]}. All seeds, on the evaluation set that chose the best weights:"
        lines = metric_table({number: metrics_of(folders[number]) for number in sorted(finished)}, "seed")
        return [text(words), Block("", "\n".join(lines))]
    metrics = {name: value for name, value in metrics_of(output).items() if not name.endswith(_NO_SCORES)}
    rows = [[name, _number(name.rpartition(" ")[2], value, list(metrics))] for name, value in metrics.items()]
    words = "On the evaluation set that chose the best weights, of one seed, so without a spread:"
    return [text(words), table(["metric", "value"], rows)] if rows else []


def _limits(model: "Model", stages: Sequence[Stage]) -> list[Block]:
    limits = ["Nothing was measured beyond what stands above: no other text, language, domain or group of people."]
    if not stages:
        limits = ["How it was trained is not recorded beside its weights, and nothing of it was measured here."]
    limits.append(
        "A model can repeat its training text: names and sentences that stand in it can be drawn out of it. Share it "
        "only with whom you would show the text."
    )
    if model.config.max_position_embeddings:
        limits.append(f"Longer texts than {model.config.max_position_embeddings:,} tokens are cut by transformers.")
    return [Block("", "\n".join(f"- {limit}" for limit in limits))]

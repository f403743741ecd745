"""The command line of a pre-training on own text -> what the user asked for; contradictions are refused."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, InstanceOf, TypeAdapter, ValidationError, model_validator

from bert.config.architecture import BertConfig
from bert.config.command_line import resolve_config, suggest
from bert.config.flags import flat_fields, is_optional
from bert.config.setting_sources import read_settings
from bert.conversion.locating import resolve
from bert.conversion.model_description import tokenizer_warnings
from bert.conversion.reading import read_pretrained
from bert.conversion.tensor_names import heads_of
from bert.conversion.vocabularies import Tokens, find_tokens
from bert.interpreter import shell_command
from bert.launching.arguments import CommandLine
from bert.own_text.constants import MODEL_NAMES, MODELS
from bert.own_text.facts import Weights
from bert.own_text.flags import OwnText, TextSettings, is_evening
from bert.own_text.sources import Source, read_sources
from bert.planning.planner import PLAN_FLAGS
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.labelled_lines import read_labelled_lines
from bert.pretraining.launch_settings import JobSettings, PretrainingLaunch
from bert.pretraining.recipes import evening
from data.examples import documentation
from data.preprocessing.settings import check_language
from data.text.encodings import check_encoding
from data.text.word_boundaries import version_of

_WIKIPEDIA = "wikipedia_source num_dask_workers num_shards_per_worker sample_ratio phase1_bin_size phase2_bin_size"
_CHECKPOINTS = ("from_checkpoint", "last_step_of_checkpoint", "from_phase1_final_params")
_BATCHES = ("batch_size_warmup_min_size", "batch_size_warmup_sequences")
_ON_SHARDS = "drop it, or train on the shards with --config NAME"
_CONTRADICTIONS = (  # flags, what --text does, the remedy
    (("input_dir", "eval_dir"), "makes its own shards", "drop one of the two"),
    (_WIKIPEDIA.split(), "makes its own shards", "drop it"),
    (_CHECKPOINTS, "resumes by itself", "drop it, and repeat the first command"),
    (("num_nodes", "node_rank", "master"), "trains on one machine", _ON_SHARDS),
    (PLAN_FLAGS, "measures this machine", "pass --dry-run, which shows memory and time"),
    (_BATCHES, "counts its updates by one batch", _ON_SHARDS),
    (("benchmark",), "measures the speed itself", "pass --dry-run, which shows it"),
)
_OF_WEIGHTS = {
    "replay": "pass --text NAME=WEIGHT:PATH for each source",
    "add_words": "without weights the whole vocabulary is made of the text, so drop it",
}


class TextRequest(TextSettings):
    """A command line with --text. None and absent names leave the choice to the plan.

    Attributes:
        epochs: passes over the text.
        model: a name of `constants.MODELS`.
        settings: of the training, by their flat names, typed.
        probe_lines: labelled lines of --probe-file.
        tokens: the vocabulary that was given, by a file or by pre-trained weights; None: it will be trained.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    sources: tuple[Source, ...] = (Source("", ()),)
    output_dir: Path = Path("results/text")
    epochs: float | None = None
    model: str | None = None
    num_processes: int | None = None
    settings: dict[str, Any] = {}
    probe_lines: int = 0
    tokens: Tokens | None = None
    weights: Weights | None = None
    job: JobSettings = JobSettings()
    line: InstanceOf[CommandLine] = CommandLine((), (), {}, {}, {})

    @model_validator(mode="after")
    def _known(self) -> "TextRequest":
        check_encoding(self.encoding or "auto")
        check_language(self.lang or "en")
        if self.word_segmenter not in ("auto", "none"):
            version_of(self.word_segmenter)  # raises ValueError if it is not installed
        return self

    def paths(self) -> tuple[Path, ...]:
        """Of all sources."""
        return tuple(path for source in self.sources for path in source.paths)

    def setting(self, name: str, default: Any = None) -> Any:
        """The setting that was given, `default` if none was."""
        return self.settings.get(name, default)

    def vocab_size(self) -> int | None:
        """Tokens of the vocabulary that was given, or that its size was."""
        return len(self.tokens.vocabulary) if self.tokens and not self.weights else self.setting("vocab_size")

    def longer(self, hours: float) -> str:
        """The command line that trains twice as long; hours: that were planned or used."""
        words = [re.sub("^--[^=]+", lambda flag: flag[0].replace("_", "-"), word) for word in self.line.words]
        flag, value = "--hours", f"{2 * max(self.hours or 0, hours):.2g}"
        if self.epochs is not None:
            flag, value = "--epochs", f"{2 * self.epochs:g}"
        elif any(word.startswith("--max-steps") for word in words):
            flag, value = "--max-steps", str(2 * self.setting("max_steps"))
        replaced, kept = (flag, "--finish-in", "--steps-this-run"), list[str]()
        for word in words:
            if kept and kept[-1] in replaced:  # the word is its value
                kept.pop()
            elif "=" not in word or word.partition("=")[0] not in replaced:
                kept.append(word)
        return shell_command("scripts/run_pretraining.sh", *kept, flag, value)


def read_text_request(line: CommandLine) -> TextRequest:
    """What a command line with --text, or with --config evening, asks for."""
    line = line._replace(training={name: _expanded(value) for name, value in line.training.items()})
    with line.notices_aside():
        line = _of_evening(line) if is_evening(line.launch) else line
    if line.positional:
        raise ValueError(
            f"--text contradicts the positional argument {line.positional[0]}; drop it, and set what you need by flags"
        )
    launcher, common = dict(line.launch), dict(line.training)
    one_phase = "contradicts --text, which trains in one phase, with all lengths from the first update on"
    for phase, flag in ((phase, name.replace("_", "-")) for phase, flags in line.phases.items() for name in flags):
        raise ValueError(f"--phase{phase}-{flag} {one_phase}; pass --{flag}")
    if common.pop("phase", None) == 2:
        raise ValueError(f"--phase2 {one_phase}; drop it")
    _refuse_contradictions(launcher, common)
    model = _model(launcher, common)
    options = read_settings(OwnText, launcher).text
    sources = read_sources(launcher["text"], launcher.get("replay"), options.replay_share)
    output_dir = Path(common.pop("output_dir", None) or _output_dir(sources[0].paths[0]))
    _refuse_output_in_text(output_dir, sources)
    tokens, weights = _tokens(common.pop("from_pretrained_params", None), common.pop("vocab_file", None))
    launch = read_settings(PretrainingLaunch, {"job_name": "bert_own_text", **launcher})
    settings = typed(common)
    stopping, by_probe = settings.get("early_stopping", 0), settings.get("best_by") == "probe"
    if stopping and options.held_out_fraction == 0 and not by_probe:
        raise ValueError(
            f"early_stopping={stopping} needs held-out text, of which --held-out-fraction 0 leaves none; drop one of "
            "the two, or pass --probe-file with --best-by probe"
        )
    if (steps := settings.get("max_steps")) is not None and steps < 1:
        raise ValueError(f"max_steps={steps} must be at least 1; change --max-steps")
    lines = settings.get("probe_file")
    return TextRequest(
        **options.model_dump(exclude={"lowercase"}),
        lowercase=options.lowercase if "lowercase" in launcher or not tokens else tokens.lowercase,
        sources=sources,
        output_dir=output_dir,
        epochs=settings.pop("epochs", None),
        model=model,
        num_processes=launch.nodes.num_processes if "num_processes" in launcher else None,
        settings=settings,
        probe_lines=0 if lines is None else len(read_labelled_lines(lines).texts),
        tokens=tokens,
        weights=weights,
        job=launch.start,
        line=line,
    )


def _expanded(value: Any) -> Any:
    """As paths among settings are read; no other setting has ~ or $ in it."""
    return os.path.expanduser(os.path.expandvars(value)) if isinstance(value, str) else value


def _of_evening(line: CommandLine) -> CommandLine:
    """The command line that `--config evening` stands for; without --text the documentation is collected first."""
    launch = {name: value for name, value in line.launch.items() if name != "config"}
    has_length = not {*launch, *line.training}.isdisjoint(("hours", "epochs", "max_steps"))
    if "text" in launch:
        return line._replace(launch={**({} if has_length else {"hours": evening.HOURS}), **launch})
    output_dir = Path(line.training.get("output_dir", evening.OUTPUT_DIR))
    folder = output_dir / "documentation"
    if not (file := folder / documentation.FILE_NAME).exists():
        print("collecting the documentation of this machine ...", flush=True)
        report = documentation.build(folder, documentation.default_roots(), num_workers=os.cpu_count() or 1)
        print(documentation.summary(report), flush=True)
    training: dict[str, Any] = {"output_dir": str(output_dir), **evening.FLAGS}
    if "vocab_file" in line.training:
        del training["vocab_size"]
    if not has_length:
        training["max_steps"] = evening.MAX_STEPS
    launch = {"config": evening.MODEL, "text": [str(file)], **launch}
    return line._replace(launch=launch, training={**training, **line.training})


def typed(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags as values of their fields."""
    fields, values = flat_fields(PretrainingConfig), dict[str, Any]()
    for name, value in flags.items():
        section, field = fields[name]
        if is_optional(field) and isinstance(value, str) and value.lower() in ("none", "null", ""):
            value = None
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(Annotated[field.annotation, field])  # type: ignore[arg-type]
            values[name] = adapter.validate_python(value)
        except ValidationError:  # a form that its settings understand, such as 10m, or an error in their words
            config = resolve_config({"config": "quickstart_phase1", "lr_schedule": "wsd", name: value}, ENTRY)
            values[name] = getattr(getattr(config, section), name)
    return values


def _refuse_contradictions(launcher: Mapping[str, Any], common: Mapping[str, Any]) -> None:
    given = {**launcher, **common}
    for names, rule, remedy in _CONTRADICTIONS:
        _refuse(given, names, rule, remedy)
    for one, other in (("hours", "epochs"), ("hours", "max_steps"), ("epochs", "max_steps")):
        if one in given and other in given:
            raise ValueError(
                f"--{one}={given[one]} and --{other.replace('_', '-')}={given[other]} both decide how long to train; "
                "give one of them"
            )
    if "from_pretrained_params" in given:
        brought = ("config", "bert_model", "config_file", "vocab_file", "vocab_size", "lowercase")
        sizes = tuple(name for name in BertConfig.model_fields if "dropout" not in name)
        _refuse(given, (*brought, *sizes), "continues --from-pretrained-params, which bring it", "drop it")
    for name, other in _OF_WEIGHTS.items() if "from_pretrained_params" not in given else ():
        if name in given:
            raise ValueError(f"--{name.replace('_', '-')} is for --from-pretrained-params; {other}")
    if "vocab_file" in given and "vocab_size" in given:
        raise ValueError(
            f"--vocab-size={given['vocab_size']} is read from --vocab-file={given['vocab_file']}; drop --vocab-size"
        )


def _refuse(given: Iterable[str], names: Iterable[str], rule: str, remedy: str) -> None:
    for name in names:
        if name in given:
            raise ValueError(f"--{name.replace('_', '-')} contradicts --text, which {rule}; {remedy}")


def _model(launcher: dict[str, Any], common: dict[str, Any]) -> str | None:
    """The model that was named by --config or --bert-model; sizes of a --config-file become single settings."""
    name, built_in = launcher.get("config"), common.pop("bert_model", None)
    if name is not None and name not in MODEL_NAMES:
        close = suggest(name, MODEL_NAMES, f"they are {', '.join(MODEL_NAMES)}")
        raise ValueError(f"config={name} with --text must be the size of a model; {close}")
    if built_in is not None:
        names = {rule.built_in: rule.name for rule in MODELS}
        if built_in not in names or name not in (None, names[built_in]):
            raise ValueError(
                f"bert_model={built_in} with --text must be one of {', '.join(names)}; pass --config "
                f"{'|'.join(MODEL_NAMES)}, or --config-file with other sizes"
            )
        name = names[built_in]
    if "config_file" in common:
        sizes = BertConfig.from_json_file(common.pop("config_file")).model_dump(exclude={"vocab_size"})
        common |= sizes | common
    return name


def _tokens(weights: str | None, vocab_file: str | None) -> tuple[Tokens | None, Weights | None]:
    """The vocabulary that was given, and what pre-trained weights bring."""
    if weights is not None:
        pretrained = read_pretrained(resolve(weights))
        tokens = find_tokens(pretrained.folder, pretrained.vocab_file, None, [])
        if pretrained.config is None or tokens is None:
            missing = "vocab.txt or tokenizer.json" if pretrained.config else "config.json with the model's sizes"
            raise ValueError(f"from_pretrained_params={weights} must come with a {missing}; add it beside the weights")
        heads = tuple(heads_of(pretrained.parameters))
        ignored = tuple(tokenizer_warnings(pretrained.folder, tokens.lowercase))
        return tokens, Weights(Path(weights), pretrained.config, tokens.lowercase, heads, ignored)
    if vocab_file is None:
        return None, None
    if not Path(vocab_file).is_file():
        raise ValueError(f"vocab_file={vocab_file} must be an existing vocabulary; correct it, or drop it to train one")
    return find_tokens(Path(vocab_file).parent, Path(vocab_file), None, []), None


def _refuse_output_in_text(output_dir: Path, sources: Iterable[Source]) -> None:
    """Refuse results inside of the text, which would be read as text at the next start."""
    place = output_dir.resolve()
    for path in (path for source in sources for path in source.paths):
        if path.is_dir() and path.resolve() in (place, *place.parents):
            raise ValueError(
                f"output_dir={output_dir} lies in --text {path}, whose files are all read; pass --output-dir with a "
                "folder outside of it"
            )


def _output_dir(text: Path) -> Path:
    """results/NAME, by the name of the folder or file."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.resolve().name.partition(".")[0]).strip("-.")
    return Path("results") / (name or "text")

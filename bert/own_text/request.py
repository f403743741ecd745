"""Turns a command line with --text into the user's request, and refuses contradictions.

No file is opened here but a --config-file; `given_files` reads vocabulary and weights when the run starts.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, model_validator

from bert.config.architecture import BertConfig
from bert.config.flags import flag_name
from bert.config.setting_errors import Mistakes, suggest
from bert.config.setting_sources import read_settings
from bert.conversion.vocabularies import Tokens
from bert.interpreter import shell_command
from bert.launching.arguments import CommandLine
from bert.own_text.constants import MODEL_NAMES, MODELS
from bert.own_text.facts import Weights
from bert.own_text.flags import OwnText, TextSettings, is_evening
from bert.own_text.length import Length
from bert.own_text.sources import TextSource, quoted_words, read_sources
from bert.own_text.typed_settings import typed_settings
from bert.planning.plan_inquiry import PlanFlags, take_plan_flags
from bert.pretraining.launch_settings import JobSettings, PretrainingLaunch
from bert.pretraining.recipes import evening
from bert.tokenization.segmentation import version_of
from data.examples.documentation import FILE_NAME
from data.text.encodings import Decoding

_WIKIPEDIA = "wikipedia_source num_dask_workers num_shards_per_worker sample_ratio phase1_bin_size phase2_bin_size"
_CHECKPOINTS = ("from_checkpoint", "last_step_of_checkpoint", "from_phase1_final_params")
_LENGTH_FLAGS = ("--hours", "--epochs", "--max-steps", "--finish-in", "--steps-this-run")
_BATCHES = ("batch_size_warmup_min_size", "batch_size_warmup_sequences")
_ONE_PHASE = "contradicts --text, which trains in one phase, with all lengths from the first update on"
_ON_SHARDS = "drop it, or train on the shards with --config NAME"
_CONTRADICTIONS = (  # flags, what --text does, the remedy
    (("input_dir", "eval_dir"), "makes its own shards", "drop one of the two"),
    (_WIKIPEDIA.split(), "makes its own shards", "drop it"),
    (_CHECKPOINTS, "resumes by itself", "drop it, and repeat the first command"),
    (("num_nodes", "node_rank", "master"), "trains on one machine", _ON_SHARDS),
    (_BATCHES, "counts its updates by one batch", _ON_SHARDS),
    (("benchmark",), "measures the speed itself", "drop it; the plan shows the speed"),
)
_ONE_MACHINE = {"num_nodes": "1", "node_rank": "0"}  # values with which these flags contradict nothing
_MULTIPLES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}  # of --words
_NEEDS_WEIGHTS = {
    "replay": "pass --text NAME=WEIGHT:PATH for each source",
    "add_words": "without weights the whole vocabulary is made of the text, so drop it",
}


class TextRequest(TextSettings):
    """The request of a command line with --text. The plan chooses values that are None or absent.

    Attributes:
        model: a name of `constants.MODELS`.
        documentation: folder for the documentation of this machine, if that is the text; None: the sources are.
        settings: of the training, by their flat names, typed; the length is not among them.
        pretrained: weights to continue: a path, or the name of a published model.
        tokens: the vocabulary of --vocab-file or of the weights, read by `given_files`; None: it will be trained.
        weights: what the pre-trained weights bring, read by `given_files`.
        shows_config: whether --show-config was passed: only the settings of the training are printed.
        words: the command line without the flags of its length.
        assumed_words: words of text that a plan assumes instead of reading text; None: the text is read.
        elsewhere: the hardware that --plan asks about; None: this machine.
        has_recipe_length: whether --max-steps comes from the recipe `evening`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    sources: tuple[TextSource, ...] = (TextSource("", ()),)
    output_dir: Path = Path("results/text")
    documentation: Path | None = None
    length: Length = Length()
    model: str | None = None
    num_processes: int | None = None
    settings: dict[str, Any] = {}
    pretrained: str | None = None
    vocab_file: Path | None = None
    tokens: Tokens | None = None
    weights: Weights | None = None
    job: JobSettings = JobSettings()
    shows_config: bool = False
    words: tuple[str, ...] = ()
    has_recipe_length: bool = False
    assumed_words: int | None = None
    elsewhere: PlanFlags | None = None

    @model_validator(mode="after")
    def _known(self) -> "TextRequest":
        Decoding(self.encoding or "auto", self.lang or "en")
        if self.word_segmenter not in ("auto", "none"):
            version_of(self.word_segmenter)  # raises ValueError if it is not installed
        return self

    def paths(self) -> tuple[Path, ...]:
        """The files and folders of all sources."""
        return tuple(path for source in self.sources for path in source.paths)

    def setting(self, name: str, default: Any = None) -> Any:
        """The requested setting, or `default`."""
        return self.settings.get(name, default)

    def vocab_size(self) -> int | None:
        """Size of the vocabulary from --vocab-file, else from --vocab-size; None if neither was passed."""
        return len(self.tokens.vocabulary) if self.tokens and not self.weights else self.setting("vocab_size")

    def longer(self, hours: float) -> str:
        """The command line for a training twice as long.

        Args:
            hours: of the whole command, planned or used.
        """
        length = Length() if self.has_recipe_length else self.length
        words = quoted_words([*self.words, *length.doubled(hours)])
        return f"{shell_command('scripts/run_pretraining.sh')} {words}"


def read_text_request(line: CommandLine) -> TextRequest:
    """Read the request of a command line with --text or --config evening.

    Raises:
        ValueError: with a line for each mistake.
    """
    mistakes, settings = Mistakes(line.mistakes), dict[str, Any]()
    model, own, launch = None, OwnText(), PretrainingLaunch()
    with mistakes.noted():
        _refuse_positional_and_phases(line)
    expanded = {  # as paths among settings are read; no other setting has ~ or $ in it
        name: os.path.expanduser(os.path.expandvars(value)) if isinstance(value, str) else value
        for name, value in line.training.items()
    }
    launcher, common, documentation = _with_recipe(line.launch, expanded)
    elsewhere, words = None, None
    with mistakes.noted():
        _refuse(launcher, ("mean_padded_length",), "knows the lengths of its samples", "drop it")
        elsewhere = take_plan_flags(launcher)
    with mistakes.noted():
        words = _assumed_words(line.launch)
    if common.pop("phase", None) == 2:
        mistakes.add(f"--phase2 {_ONE_PHASE}; drop it")
    with mistakes.noted():
        _refuse_contradictions(launcher, common)
    with mistakes.noted():
        model = _model(launcher, common)
    with mistakes.noted():
        own = read_settings(OwnText, launcher)
    with mistakes.noted():
        launch = read_settings(PretrainingLaunch, {"job_name": "bert_own_text", **launcher})
    places = {name: common.pop(name, None) for name in ("output_dir", "from_pretrained_params", "vocab_file")}
    with mistakes.noted():
        settings = typed_settings(common)
    if (steps := settings.get("max_steps")) is not None and steps < 1:
        mistakes.add(f"max_steps={steps} must be at least 1; change --max-steps")
    mistakes.refuse()
    sources: tuple[TextSource, ...] = (TextSource("", ()),)
    if words is None:
        sources = read_sources(launcher["text"], launcher.get("replay"), own.text.replay_share)
    output_dir = Path(places["output_dir"] or (_output_dir(sources[0].paths[0]) if words is None else "results/text"))
    _refuse_output_in_text(output_dir, sources)
    lengths = {name: settings.pop(name, None) for name in ("epochs", "max_steps", "finish_in")}
    _refuse_unmeasured_stopping(settings, own.text.held_out_fraction)
    return TextRequest(
        **own.text.model_dump(),
        sources=sources,
        output_dir=output_dir,
        documentation=documentation,
        length=Length(launch.time.hours, **lengths),
        model=model,
        num_processes=launch.nodes.num_processes if "num_processes" in launcher else None,
        settings=settings,
        pretrained=places["from_pretrained_params"],
        vocab_file=None if places["vocab_file"] is None else Path(places["vocab_file"]),
        job=launch.start,
        shows_config="show_config" in line.launch,
        words=_without_length(line.words),
        has_recipe_length=lengths["max_steps"] is not None and "max_steps" not in line.training,
        assumed_words=words,
        elsewhere=elsewhere,
    )


def _assumed_words(launch: Mapping[str, Any]) -> int | None:
    """Number of words from --words, such as 120M."""
    typed = launch.get("words")
    if typed is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmb]?)", str(typed).lower().replace(",", "").replace("_", ""))
    if match is None or not float(match[1]):
        raise ValueError(f"words={typed} must be a number of words above 0, such as 120M or 1.5B; change --words")
    if "text" in launch or is_evening(launch):
        source = "--text names some" if "text" in launch else f"--config {launch['config']} collects some"
        raise ValueError(f"--words {typed} stands for text that is not there, and {source}; drop one of the two")
    if not {"plan", "dry_run", "show_config"}.intersection(launch):
        raise ValueError(f"--words {typed} is for a plan; pass --plan --hardware 8xA100-80GB, or --dry-run, with it")
    return round(float(match[1]) * _MULTIPLES[match[2]])


def _without_length(words: Iterable[str]) -> tuple[str, ...]:
    """The command line without the flags for the length of this start, and without their values."""
    words_left, remaining = list[str](), iter(words)
    for word in remaining:
        flag, equals, _ = word.partition("=")
        if flag.replace("_", "-") not in _LENGTH_FLAGS:
            words_left.append(word)
        elif not equals:
            next(remaining)  # its value
    return tuple(words_left)


def _with_recipe(
    launch: Mapping[str, Any], training: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], Path | None]:
    """The flags, completed by the flags that `--config evening` stands for.

    Returns:
        Flags of the launch, flags of the training, and the folder of the documentation if that is the text.
    """
    if not is_evening(launch):
        return dict(launch), dict(training), None
    flags = {name: value for name, value in launch.items() if name != "config"}
    has_length = not {*flags, *training}.isdisjoint(("hours", "epochs", "max_steps"))
    if "text" in flags:
        return {**({} if has_length else {"hours": evening.HOURS}), **flags}, dict(training), None
    output_dir = Path(training.get("output_dir", evening.OUTPUT_DIR))
    folder = output_dir / "documentation"
    recipe = {
        "output_dir": str(output_dir),
        **evening.FLAGS,
        **({} if has_length else {"max_steps": evening.MAX_STEPS}),
    }
    if "vocab_file" in training:
        del recipe["vocab_size"]
    return {"config": evening.MODEL, "text": [str(folder / FILE_NAME)], **flags}, {**recipe, **training}, folder


# ---- refusals --------------------------------------------------------------------------------------------------------


def _refuse_positional_and_phases(line: CommandLine) -> None:
    if line.positional:
        raise ValueError(
            f"--text contradicts the positional argument {line.positional[0]}; drop it, and set what you need by flags"
        )
    mistakes = Mistakes()
    for phase, flags in line.phases.items():
        for flag in (name.replace("_", "-") for name in flags):
            mistakes.add(f"--phase{phase}-{flag} {_ONE_PHASE}; pass --{flag}")
    mistakes.refuse()


def _refuse_contradictions(launcher: Mapping[str, Any], common: Mapping[str, Any]) -> None:
    flags = {name: value for name, value in {**launcher, **common}.items() if value != _ONE_MACHINE.get(name)}
    for names, rule, remedy in _CONTRADICTIONS:
        _refuse(flags, names, rule, remedy)
    if "from_pretrained_params" in flags:
        brought = ("config", "bert_model", "config_file", "vocab_file", "vocab_size", "lowercase", "strip_accents")
        sizes = tuple(name for name in BertConfig.model_fields if "dropout" not in name)
        _refuse(flags, (*brought, *sizes), "continues --from-pretrained-params, which bring it", "drop it")
    for name, other in _NEEDS_WEIGHTS.items() if "from_pretrained_params" not in flags else ():
        if name in flags:
            raise ValueError(f"{flag_name(name)} is for --from-pretrained-params; {other}")
    if "vocab_file" in flags and "vocab_size" in flags:
        raise ValueError(
            f"--vocab-size={flags['vocab_size']} is read from --vocab-file={flags['vocab_file']}; drop --vocab-size"
        )


def _refuse(given: Iterable[str], names: Iterable[str], rule: str, remedy: str) -> None:
    for name in names:
        if name in given:
            raise ValueError(f"{flag_name(name)} contradicts --text, which {rule}; {remedy}")


def _refuse_unmeasured_stopping(settings: Mapping[str, Any], held_out_fraction: float | None) -> None:
    stopping = settings.get("early_stopping", 0)
    if stopping and held_out_fraction == 0:
        raise ValueError(
            f"early_stopping={stopping} needs held-out text, of which --held-out-fraction 0 leaves none; drop one of "
            "the two"
        )


def _refuse_output_in_text(output_dir: Path, sources: Iterable[TextSource]) -> None:
    """Refuse an output folder inside the text folder: results would be read as text next time."""
    place = output_dir.resolve()
    for path in (path for source in sources for path in source.paths):
        if path.is_dir() and path.resolve() in (place, *place.parents):
            raise ValueError(
                f"output_dir={output_dir} lies in --text {path}, whose files are all read; pass --output-dir with a "
                "folder outside of it"
            )


def _model(launcher: dict[str, Any], common: dict[str, Any]) -> str | None:
    """The model that --config or --bert-model names; the sizes of a --config-file become single settings."""
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


def _output_dir(text: Path) -> Path:
    """Default output folder: results/NAME, by the name of the folder or file."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text.resolve().name.partition(".")[0]).strip("-.")
    return Path("results") / (name or "text")

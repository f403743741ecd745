"""Makes the data of a pre-training on the user's text: import, vocabulary, shards; each step once."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from bert.conversion.vocabularies import write_vocabulary
from bert.jobs.making import REPORT_NAME, Products, Run
from bert.launching.processes import module_command
from bert.own_text import constants
from bert.own_text.facts import fingerprint
from bert.own_text.plan import TextPlan
from bert.own_text.request import TextRequest
from bert.own_text.sources import REPLAY, TextSource, held_out_mix, pass_over
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.preparation import preprocessing_command
from bert.samples.manifest import MANIFEST_NAME
from bert.samples.mixture import MIXTURE_NAME, write_mixture
from bert.samples.shards import count_samples
from bert.tokenization.normalization import Normalization

NUM_SHARDS = 8
SEED = 42  # of the data, whatever the seed of the training
_LARGE_TEXT = 500e6  # bytes; the vocabulary of more text is trained on this much of it
Step = tuple[str, Sequence[str], Path]  # title, command, product


def vocabulary_file(request: TextRequest) -> Path:
    """Path of the run's vocabulary: a trained one, or a copy of the user's file."""
    return request.output_dir / "data" / (request.tokens.vocabulary.file_name() if request.tokens else "vocab.txt")


def _given_vocabulary(request: TextRequest) -> Path:
    """Path of the copy of the user's vocabulary; another file than the run's if words are added to it."""
    file = vocabulary_file(request)
    return file.parent / "given" / file.name if request.add_words else file


def shards(request: TextRequest, part: str) -> Path:
    """Folder of the shards of a part (train or held_out); each named source has a folder in it."""
    return request.output_dir / "data/shards" / part


def text_folder(request: TextRequest, plan: TextPlan, part: str, source: TextSource | None = None) -> Path:
    """Folder of the imported text of a part; one folder for all text if nothing is held out."""
    name = (source or request.sources[0]).name
    return request.output_dir / "data/text" / name / (part if plan.held_out_fraction else "") / "source"


def updates_of(request: TextRequest, plan: TextPlan, epochs: float) -> int | None:
    """Number of updates in so many passes over the text; None before the samples are made."""
    try:
        samples = count_samples(shards(request, "train"))
    except FileNotFoundError:
        return None
    return max(1, round(epochs / plan.duplicate_factor * samples / plan.settings["global_batch_size"]))


def check_samples(request: TextRequest, global_batch: int) -> None:
    """Refuse fewer samples than one update needs."""
    if (samples := count_samples(shards(request, "train"))) < global_batch:
        raise ValueError(
            f"the text gave {samples} samples and must give at least one update's, global_batch_size={global_batch}; "
            f"add text, or pass --global-batch-size {max(1, samples // 2)}"
        )


def data_facts(request: TextRequest, plan: TextPlan) -> dict[str, Any]:
    """Facts that decide the data, by the names of the flags; `files` is a fingerprint."""
    tokens, fraction, several = request.tokens, request.held_out_fraction, len(request.sources) > 1
    segmenter = plan.word_segmenter() if request.word_segmenter == "auto" else request.word_segmenter
    case = plan.normalization
    return {
        "text": [word for source in request.sources for word in source.words()],
        "files": fingerprint(request.paths(), request.follow_links, request.source_code),
        "add_words": request.add_words,
        "weights": {source.name: round(source.share, 6) for source in request.sources} if several else {},
        "held_out_fraction": plan.held_out_fraction if fraction is None else fraction,
        "duplicate_factor": request.duplicate_factor or plan.duplicate_factor,
        "vocab_size": request.vocab_size() or plan.settings["vocab_size"],
        "lang": request.lang or plan.language,
        "word_segmenter": None if segmenter == "none" else segmenter,
        "lowercase": case.lowercase if request.lowercase is None else request.lowercase,
        "strip_accents": case.strip_accents if request.strip_accents is None else request.strip_accents,
        **request.import_options(),
        "vocab_file": None if tokens is None else hashlib.sha256(repr(tokens.vocabulary.tokens).encode()).hexdigest(),
    }


def check_data(made: Mapping[str, Any], now: Mapping[str, Any], output_dir: Path) -> None:
    """Refuse flags that differ from the flags that made a run's data; warn if the files changed since.

    Args:
        made, now: `data_facts` of then and now.
    """
    if made and now["vocab_file"] != made["vocab_file"]:  # a fingerprint; its size differs too
        raise ValueError(
            f"the vocabulary differs from that with which the data of the run in {output_dir} were made; repeat the "
            "first command (without --vocab-file, if it was trained), or pass another --output-dir"
        )
    for name, value in {"weights": {}, "add_words": None, "strip_accents": None, **made}.items() if made else ():
        if name not in ("text", "files", "labelled_lines") and now[name] != value:  # the last: of 88b30792
            raise ValueError(
                f"{name}={_short(now[name])} differs from {_short(value)}, with which the data of the run in "
                f"{output_dir} were made; repeat that, or pass another --output-dir"
            )
    if not made or made["files"] == now["files"]:  # also of a folder that was moved
        return
    text, instead = " ".join(now["text"]), _continuing_elsewhere(output_dir)
    if made["text"] != now["text"]:
        raise ValueError(
            f"text={text} differs from {' '.join(made['text'])} of the run in {output_dir}; pass another --output-dir "
            f"({instead} this text)"
        )
    print(
        f"warning: the files of {text} are not those that were imported; the training goes on with the text that it "
        f"has ({instead} the new text)",
        flush=True,
    )


def _continuing_elsewhere(output_dir: Path) -> str:
    """Flags that continue the model of a run on another text."""
    return f"--from-pretrained-params {shlex.quote(str(output_dir))} --output-dir NEW continues the model on"


def _short(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name or 'text'}={share:g}" for name, share in value.items()) or "unset"
    return "unset" if value is None else str(value)[:20]


def prepare(
    request: TextRequest, plan: TextPlan, config: PretrainingConfig, run: Run, *, files: str, keep_existing: bool
) -> int:
    """Make missing data; returns the exit code of the first command that failed, else 0.

    Args:
        files: fingerprint of the imported files; "" after several imports.
        keep_existing: checkpoints exist, so only missing products are made.
    Raises:
        ValueError: data of a training that has begun are gone, and the files that they were made of too.
    """
    vocabulary, source = _given_vocabulary(request), files
    if request.tokens is not None:
        content = request.tokens.vocabulary.file_content()
        if not vocabulary.exists() or (not keep_existing and vocabulary.read_bytes() != content):
            vocabulary.parent.mkdir(parents=True, exist_ok=True)
            write_vocabulary(vocabulary.parent, request.tokens)
        source += f" vocabulary {hashlib.sha256(content).hexdigest()[:16]} {request.add_words or 0}"
    todo = commands(request, plan, config)
    needed = [product for _, _, product in todo if product.name != REPORT_NAME]  # not the imported text itself
    lost = [product for product in needed if not product.exists()]
    if keep_existing and not lost:
        return 0
    if keep_existing and files != fingerprint(request.paths(), request.follow_links, request.source_code):
        raise ValueError(
            f"the data of the run in {request.output_dir} are gone ({lost[0].parent}), and files of --text are not as "
            "they were, so they cannot be made again; restore one of the two "
            f"({_continuing_elsewhere(request.output_dir)} the new text)"
        )
    products = Products(request.output_dir / "data", source)  # with another vocabulary all is made again
    for title, command, product in todo:
        if keep_existing and product.exists():
            continue
        if code := products.make(title, command, product, run):
            return code
    if keep_existing:
        return 0
    for part in ("train", "held_out"):  # of a start with other sources
        (shards(request, part) / MIXTURE_NAME).unlink(missing_ok=True)
    if len(request.sources) > 1:
        counts = {source.name: count_samples(shards(request, "train") / source.name) for source in request.sources}
        write_mixture(shards(request, "train"), pass_over(request.sources, counts))
        if plan.held_out_fraction:
            write_mixture(shards(request, "held_out"), held_out_mix(request.sources))
    return 0


def commands(request: TextRequest, plan: TextPlan, config: PretrainingConfig) -> list[Step]:
    """The commands that make the data, in order. Vocabulary and training shards never see held-out text."""
    steps: list[Step] = []
    for source in request.sources:
        folder = request.output_dir / "data/text" / source.name
        title = f"importing the text{f' of {source.name}' if source.name else ''}"
        options = {"output_dir": folder, "held_out_fraction": plan.held_out_fraction, "lang": plan.language}
        options |= {**request.import_options(), "group_by": source.group_by(request.group_by)}
        files = ["--input", *(str(path.absolute()) for path in source.paths)]
        command = [*module_command("data.import_text", **options), *files]
        steps.append((title, command, folder / REPORT_NAME))
    if request.tokens is None or request.add_words:
        own = [text_folder(request, plan, "train", source) for source in request.sources if source.name != REPLAY]
        trained = module_command(
            "data.train_vocabulary",
            input=own[0],
            vocab_size=plan.settings["vocab_size"] if request.tokens is None else None,
            base=_given_vocabulary(request) if request.add_words else None,
            add_words=request.add_words,
            output=vocabulary_file(request),
            **_case_flags(plan.normalization),
            word_segmenter=plan.normalization.word_segmenter or "none",
            sample_megabytes=500 if plan.num_bytes > _LARGE_TEXT else None,
        )
        trained += [word for folder in own[1:] for word in ("--input", str(folder))]
        title = "adding words to the vocabulary" if request.add_words else "training the vocabulary"
        steps.append((title, trained, vocabulary_file(request)))
    for source in request.sources:
        for part in ("train", "held_out") if plan.held_out_fraction else ("train",):
            sink, text = shards(request, part) / source.name, text_folder(request, plan, part, source)
            title = f"making the shards, {' of '.join(filter(None, (part.replace('_', ' '), source.name)))}"
            command = shards_command(plan, config, text, sink, is_held_out=part == "held_out")
            steps.append((title, command, sink / MANIFEST_NAME))
    return steps


def shards_command(plan: TextPlan, config: PretrainingConfig, text: Path, sink: Path, is_held_out: bool) -> list[str]:
    """The command that makes shards from imported text."""
    is_static, evaluation = config.data.masking == "static", config.data.for_evaluation()
    words = plan.segmenter if plan.whole_words() or not is_static else None
    masks = {name: getattr(evaluation, name) for name in ("masked_lm_ratio", "max_predictions_per_seq")}
    return preprocessing_command(
        config,
        text=text,
        sink=sink,
        objective=None,  # pairs of sentences, whatever is learned from them
        num_shards=1 if is_held_out else NUM_SHARDS,
        local_n_workers=len(psutil.Process().cpu_affinity()),
        seed=SEED,
        duplicate_factor=1 if is_held_out else plan.duplicate_factor,
        short_seq_prob=constants.SHORT_SHARE,
        bin_size=None if is_held_out else plan.bin_size,
        language=plan.language,
        word_segmenter=plan.normalization.word_segmenter or words or "none",
        whole_word_masking=True if words and is_static else None,
        **(masks if is_static and is_held_out else {}),
        **_case_flags(plan.normalization),
    )


def _case_flags(normalization: Normalization) -> dict[str, bool | None]:
    flags = {"lowercase": normalization.lowercase, "strip_accents": normalization.strip_accents}
    return {name if value else f"no_{name}": True for name, value in flags.items() if value is not None}

"""The data of a pre-training on own text: import, vocabulary, shards; each step once."""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from bert.conversion.vocabularies import write_vocabulary
from bert.launching.preparation import Run, Steps, preprocessing_command
from bert.launching.process_runner import module_command
from bert.own_text.flags import IMPORT_FLAGS
from bert.own_text.plan import TextPlan
from bert.own_text.reading import fingerprint
from bert.own_text.request import TextRequest
from bert.pretraining.config import PretrainingConfig
from bert.samples.manifest import MANIFEST_NAME, read_manifest

NUM_SHARDS = 8
SEED = 42  # of the data, whatever the seed of the training
_LARGE_TEXT = 500e6  # bytes; the vocabulary of more text is trained on this much of it


def vocabulary_file(request: TextRequest) -> Path:
    """The vocabulary of the run, trained or a copy of the one that was given."""
    return request.output_dir / "data/vocab.txt"


def shards(request: TextRequest, part: str) -> Path:
    """The folder of the shards; part: train or held_out."""
    return request.output_dir / "data/shards" / part


def text_folder(request: TextRequest, plan: TextPlan, part: str) -> Path:
    """The folder of the imported text of a part; there is one for all text if nothing is held out."""
    return request.output_dir / "data/text" / (part if plan.held_out_fraction else "") / "source"


def num_samples(request: TextRequest) -> int | None:
    """Samples of the training shards; None: they are not made yet."""
    manifest = read_manifest(shards(request, "train"))
    return None if manifest is None else sum(record.num_samples for record in manifest.shards.values())


def check_samples(samples: int, global_batch: int) -> None:
    """Refuse fewer samples than one update takes."""
    if samples < global_batch:
        raise ValueError(
            f"the text gave {samples} samples and must give at least one update's, global_batch_size={global_batch}; "
            f"add text, or pass --global-batch-size {max(1, samples // 2)}"
        )


def data_facts(request: TextRequest, plan: TextPlan) -> dict[str, Any]:
    """What the data are made from, by the names of the flags; `files` is a fingerprint."""
    tokens, fraction, segmenter = request.tokens, request.held_out_fraction, request.segmenter or plan.segmenter
    return {
        "text": [str(path.absolute()) for path in request.text],
        "files": fingerprint(request.text, bool(request.import_options.get("follow_links"))),
        "held_out_fraction": plan.held_out_fraction if fraction is None else fraction,
        "duplicate_factor": request.duplicate_factor or plan.duplicate_factor,
        "vocab_size": request.vocab_size() or plan.settings["vocab_size"],
        "lang": request.language or plan.language,
        "word_segmenter": None if segmenter == "none" else segmenter,
        "lowercase": request.lowercase,
        **{name: request.import_options.get(name) for name in ("deduplicate", *IMPORT_FLAGS)},
        "vocab_file": None if tokens is None else hashlib.sha256(repr(tokens.vocabulary.tokens).encode()).hexdigest(),
    }


def note_of_changes(made: Mapping[str, Any], now: Mapping[str, Any], output_dir: Path) -> str:
    """A warning if files of the text changed after the data of a run that has checkpoints were made; "" otherwise.

    Args:
        made, now: `data_facts` of then and now.
    """
    other = f"--from-pretrained-params {shlex.quote(str(output_dir))} --output-dir NEW continues the model on"
    if made and now["vocab_file"] != made["vocab_file"]:  # a fingerprint; its size differs too
        raise ValueError(
            f"the vocabulary differs from that with which the data of the run in {output_dir} were made; repeat the "
            "first command (without --vocab-file, if it was trained), or pass another --output-dir"
        )
    for name, value in made.items():
        if name in ("text", "files") or now[name] == value:
            continue
        raise ValueError(
            f"{name}={_short(now[name])} differs from {_short(value)}, with which the data of the run in "
            f"{output_dir} were made; repeat that, or pass another --output-dir"
        )
    if not made or made["files"] == now["files"]:
        return ""
    if made["text"] != now["text"]:
        raise ValueError(
            f"text={' '.join(now['text'])} differs from {' '.join(made['text'])} of the run in {output_dir}; pass "
            f"another --output-dir ({other} this text)"
        )
    return (
        f"the files of {' '.join(now['text'])} changed after they were imported; the training goes on with the text as "
        f"it was ({other} the new text)"
    )


def _short(value: object) -> str:
    return "unset" if value is None else str(value)[:20]


def prepare(
    request: TextRequest, plan: TextPlan, config: PretrainingConfig, run: Run, *, files: str, has_trained: bool
) -> int:
    """Make what is missing; exit code of the first command that failed, else 0.

    Args:
        files: the fingerprint of the text that the data are made from.
        has_trained: there are checkpoints, and what is there is not made anew.
    """
    if request.tokens is not None and not vocabulary_file(request).exists():
        vocabulary_file(request).parent.mkdir(parents=True, exist_ok=True)
        write_vocabulary(vocabulary_file(request).parent, request.tokens)
    steps = Steps(request.output_dir / "data/prepared.json", run, files)
    for title, command, product in commands(request, plan, config):
        if has_trained and product.exists():
            continue
        if code := steps.step(title, command, product):
            return code
    return 0


def commands(request: TextRequest, plan: TextPlan, config: PretrainingConfig) -> list[tuple[str, Sequence[str], Path]]:
    """(title, command, product) in order. The vocabulary and the training shards never see the held-out text."""
    text = request.output_dir / "data/text"
    imported = module_command(
        "data.import_text",
        output_dir=text,
        held_out_fraction=plan.held_out_fraction,
        lang=plan.language,
        **request.import_options,
    )
    imported += ["--input", *(str(path.absolute()) for path in request.text)]
    steps: list[tuple[str, Sequence[str], Path]] = [("importing the text", imported, text / "report.json")]
    if request.tokens is None:
        trained = module_command(
            "data.train_vocabulary",
            input=text_folder(request, plan, "train"),
            vocab_size=plan.settings["vocab_size"],
            output=vocabulary_file(request),
            no_lowercase=None if request.lowercase else True,
            sample_megabytes=500 if plan.num_bytes > _LARGE_TEXT else None,
        )
        steps.append(("training the vocabulary", trained, vocabulary_file(request)))
    is_static = config.data.masking == "static"
    segmenter = plan.segmenter if plan.whole_words() or not is_static else None
    parts = (("train", NUM_SHARDS, plan.duplicate_factor), ("held_out", 1, 1))
    for part, num_shards, duplicates in parts if plan.held_out_fraction else parts[:1]:
        sink = shards(request, part)
        command = preprocessing_command(
            config,
            text=text_folder(request, plan, part),
            sink=sink,
            num_shards=num_shards,
            local_n_workers=len(psutil.Process().cpu_affinity()),
            seed=SEED,
            duplicate_factor=duplicates,
            short_seq_prob=plan.short_share or None,
            bin_size=plan.bin_size if part == "train" else None,
            language=plan.language,
            word_segmenter=segmenter,
            whole_word_masking=True if segmenter and is_static else None,
            lowercase=True if request.lowercase and request.tokens is not None else None,
            no_lowercase=None if request.lowercase else True,
        )
        steps.append((f"making the shards, {part.replace('_', ' ')}", command, sink / MANIFEST_NAME))
    return steps

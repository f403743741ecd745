"""Train a vocabulary: the same text always gives the same tokens and ids."""

import errno
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from bert.command_errors import command
from bert.config.flags import Flag
from bert.config.plain_commands import read_flags
from bert.config.setting_errors import SettingsWithRules
from bert.files import require_writable, shown, write_atomically
from bert.reporting.progress import announce
from bert.samples.manifest import MANIFEST_NAME, read_manifest
from bert.tokenization.normalization import Normalization
from bert.tokenization.segmentation import CUTTING
from bert.tokenization.vocabulary import Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary
from data.text.lddl_reader import list_sources, numbered_documents, plan_blocks
from data.text.script_facts import ScriptFacts, case_of, segmenter_of
from data.text.vocabulary_training import MODELS, MOST, Texts, add_words, learn_vocabulary

_BLOCK_BYTES = 1 << 22
_MEASURED_MEGABYTES = 20.0  # of the text, to choose case and segmenter by


class VocabularyRequest(SettingsWithRules):
    """The settings of this command, read from its flags."""

    input: Annotated[tuple[Path, ...], Flag(placeholder="DIR", is_repeatable=True)] = Field(
        description="source folders"
    )
    output: Annotated[Path, Flag(placeholder="vocab.txt")] = Field(description="file of the vocabulary")
    vocab_size: Annotated[int, Flag(unit="TOKENS")] = Field(
        30_522, ge=1, le=MOST, description="size of the vocabulary, special tokens included"
    )
    model: Annotated[Literal[*MODELS], Flag(name="--tokenizer", hidden_aliases=("--model",))] = Field(  # type: ignore[valid-type]
        "wordpiece", description="wordpiece: BERT's vocab.txt; bpe (of bytes) and unigram: a tokenizer.json"
    )
    lowercase: Annotated[
        bool | None, Flag(default_text="unless that strips marks of over 1% of the words, or it has no case")
    ] = Field(None, description="lower-case the text")
    strip_accents: Annotated[bool | None, Flag(default_text="if lower-cased")] = Field(
        None, description="strip accents"
    )
    word_segmenter: Literal["auto", *CUTTING, "none"] = Field(  # type: ignore[valid-type]
        "auto", description="cuts Thai, Lao, Khmer, Burmese and Javanese into words; auto: where the text has them"
    )
    base: Annotated[Path | None, Flag(placeholder="vocab.txt")] = Field(
        None, description="with --add-words: add words to this vocabulary"
    )
    add_words: Annotated[int | None, Flag(unit="WORDS")] = Field(
        None, ge=1, le=MOST, description="number of frequent words to add that --base cuts into pieces"
    )
    min_frequency: int = Field(2, ge=1, le=MOST, description="least count of a pair that is merged")
    sample_megabytes: Annotated[
        float | None, Flag(unit="MEGABYTES", default_text="all of it, over 6 minutes a gigabyte")
    ] = Field(None, gt=0, description="train on about this much of the text, spread evenly over it")
    overwrite: bool = Field(False, description="replace another vocabulary at --output")

    def _mistakes(self) -> Iterator[str]:
        if (self.base is None) != (self.add_words is None):
            yield "--base and --add-words need each other; pass both, or neither"
        if (is_json := self.output.suffix == ".json") != (self.model != "wordpiece"):
            yield (
                f"--output={self.output} must end in {'.txt' if is_json else '.json'}, as --tokenizer {self.model} "
                f"makes a {'vocab.txt' if is_json else 'tokenizer.json'}"
            )

    def read_base(self) -> Vocabulary | None:
        """Read the vocabulary of --base; ValueError if no words can be added to it."""
        if self.base is None:
            return None
        base = read_vocabulary(self.base)
        base.check_extendable()
        return base

    def num_tokens(self, base: Vocabulary | None) -> int:
        """Largest number of tokens of the result."""
        return self.vocab_size if base is None else len(base) + (self.add_words or 0)


def texts_of(folders: Sequence[str | Path], sample_megabytes: float | None = None) -> Texts:
    """Documents of source folders, or a sample of about sample_megabytes in evenly spread blocks."""
    blocks = plan_blocks(list_sources(folders), _BLOCK_BYTES)
    if sample_megabytes is not None:
        number = min(len(blocks), max(1, round(sample_megabytes * 1e6 / _BLOCK_BYTES)))
        blocks = tuple(blocks[index * len(blocks) // number] for index in range(number))
    return lambda: (text for block in blocks for _, text in numbered_documents(block, Counter()))


def _normalization(request: VocabularyRequest, base: Vocabulary | None) -> Normalization:
    """Normalisation: as requested, otherwise as in --base, otherwise as the text needs it, which is printed."""
    requested = request.lowercase, request.strip_accents
    facts = ScriptFacts()
    megabytes = min(_MEASURED_MEGABYTES, request.sample_megabytes or math.inf)
    for text in texts_of(request.input, megabytes)():
        facts.add(text)
    case = base.normalization(*requested) if base is not None else case_of(facts.case(), *requested)
    if base is None and requested == (None, None) and not case.lowercase:
        print(f"case: kept; {facts.why()}; --lowercase does so", file=sys.stderr)
    segmenter = segmenter_of(facts.cutter(), request.word_segmenter) if request.model == "wordpiece" else None
    if segmenter:
        print(f"words: cut by {segmenter}, as its script has no spaces between them", file=sys.stderr)
    return replace(case, word_segmenter=segmenter, equal_letters=True)


_EXAMPLES = (
    "--input D/train/source --output vocab.txt --vocab-size 4096",
    "--input D/train/source --output tokenizer.json --tokenizer bpe",
)


def main(argv: list[str] | None = None) -> None:
    request = read_flags(VocabularyRequest, argv, description=__doc__, examples=_EXAMPLES)
    announce("reading", request.input)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    with command(request.output):
        base = request.read_base()
        earlier = None if request.overwrite else _earlier(request.output, request.num_tokens(base))
        if request.output.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(request.output))
        # Before the training, and without making folders for one that is refused.
        require_writable(next(folder for folder in request.output.absolute().parents if folder.exists()))
        vocabulary = _learned(request, base)
        if earlier is not None and earlier.tokens != vocabulary.tokens:
            raise ValueError(_other_vocabulary(request.output, earlier))
        if earlier is None:
            request.output.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(request.output, vocabulary.file_content())
        print(
            f"{len(vocabulary)} tokens in {shown(request.output)} (sha256 {vocabulary.sha256[:16]})"
            f"{'' if earlier is None else ', as they were'}"
        )


def _learned(request: VocabularyRequest, base: Vocabulary | None) -> Vocabulary:
    """The base with added words, or a new vocabulary."""
    texts, normalization = texts_of(request.input, request.sample_megabytes), _normalization(request, base)
    if base is not None:
        assert request.add_words is not None
        return add_words(texts, base, request.add_words, normalization)
    return learn_vocabulary(
        texts, request.vocab_size, model=request.model, normalization=normalization, min_frequency=request.min_frequency
    )


def _earlier(output: Path, vocab_size: int) -> Vocabulary | None:
    """The existing vocabulary at `output`; ValueError for another file, or one with more than `vocab_size` tokens."""
    if not output.is_file():
        return None
    try:
        earlier = read_vocabulary(output)
    except ValueError as error:
        raise ValueError(
            f"{shown(output)}: exists and is no vocabulary ({error}); name another --output, or replace it: --overwrite"
        ) from error
    if len(earlier) > vocab_size:
        raise ValueError(_other_vocabulary(output, earlier))
    return earlier


def _other_vocabulary(output: Path, earlier: Vocabulary) -> str:
    users = []
    for path in (path for depth in range(4) for path in output.parent.glob("*/" * depth + MANIFEST_NAME)):
        with suppress(ValueError):  # no manifest that can be read
            manifest = read_manifest(path.parent)
            users += [shown(path.parent)] if manifest and manifest.vocabulary_sha256 == earlier.sha256 else []
    use = f", and the shards in {', '.join(sorted(users)[:4])} were made with it" if users else ""
    return (
        f"{shown(output)}: exists and holds another vocabulary of {len(earlier)} tokens{use}; name another --output, "
        f"or replace it: --overwrite{' (these shards will be refused then)' if users else ''}"
    )


if __name__ == "__main__":
    main()

"""Train a vocabulary: the same text always gives the same tokens and ids.

python -m data.train_vocabulary --input D/train/source --vocab-size 4096 --output vocab.txt
"""

import argparse
import errno
import math
import os
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bert.command_errors import command
from bert.files import require_writable, shown, write_atomically
from bert.help_parser import HelpParser
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


def texts_of(folders: Sequence[str], sample_megabytes: float | None = None) -> Texts:
    """The documents of source folders; with sample_megabytes about that much of the text, in blocks spread evenly over
    all of it."""
    blocks = plan_blocks(list_sources(folders), _BLOCK_BYTES)
    if sample_megabytes is not None:
        if not 0 < sample_megabytes < math.inf:
            raise ValueError(
                f"sample_megabytes={sample_megabytes} must be more than 0 and finite; leave it out to use all of the "
                "text"
            )
        number = min(len(blocks), max(1, round(sample_megabytes * 1e6 / _BLOCK_BYTES)))
        blocks = tuple(blocks[index * len(blocks) // number] for index in range(number))
    return lambda: (text for block in blocks for _, text in numbered_documents(block, Counter()))


def _normalization(arguments: argparse.Namespace, base: Vocabulary | None) -> Normalization:
    """As given, else that of --base, else as the text needs it, which is printed."""
    given = arguments.lowercase, arguments.strip_accents
    facts = ScriptFacts()
    megabytes = min(_MEASURED_MEGABYTES, arguments.sample_megabytes or math.inf)
    for text in texts_of(arguments.input, megabytes)():
        facts.add(text)
    case = base.normalization(*given) if base is not None else case_of(facts.case(), *given)
    if base is None and given == (None, None) and not case.lowercase:
        print(f"case: kept; {facts.why()}; --lowercase does so", file=sys.stderr)
    segmenter = segmenter_of(facts.cutter(), arguments.word_segmenter) if arguments.model == "wordpiece" else None
    if segmenter:
        print(f"words: cut by {segmenter}, as its script has no spaces between them", file=sys.stderr)
    return replace(case, word_segmenter=segmenter)


def _parser() -> HelpParser:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--input", action="append", required=True, metavar="DIR", help="source folder; may be repeated")
    parser.add_argument("--vocab-size", type=int, default=30_522)
    parser.add_argument("--output", type=Path, required=True, metavar="vocab.txt")
    parser.add_argument(
        "--tokenizer",
        dest="model",
        choices=MODELS,
        default="wordpiece",
        help="wordpiece: BERT's vocab.txt; bpe (of bytes) and unigram: a tokenizer.json (default: wordpiece)",
    )
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        help="lower-case the text (default: unless that strips marks of over 1%% of the words, or it has no case)",
    )
    parser.add_argument(
        "--strip-accents", action=argparse.BooleanOptionalAction, help="strip accents (default: if lower-cased)"
    )
    parser.add_argument(
        "--word-segmenter",
        choices=("auto", *CUTTING, "none"),
        default="auto",
        help="cuts Thai, Lao, Khmer, Burmese and Javanese into words; auto: where the text has them",
    )
    parser.add_argument("--base", type=Path, metavar="vocab.txt", help="with --add-words: add words to this vocabulary")
    parser.add_argument("--add-words", type=int, metavar="N", help="frequent words that --base cuts into pieces")
    parser.add_argument("--min-frequency", type=int, default=2, help="least count of a pair that is merged")
    parser.add_argument(
        "--sample-megabytes",
        type=float,
        help="train on about this much of the text, spread evenly over "
        "it (default: all of it, over 6 minutes a gigabyte)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace another vocabulary at --output")
    parser.add_old_names({"--model": "--tokenizer"})
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    with command(arguments.output):
        base = _base(arguments)
        earlier = None if arguments.overwrite else _earlier(arguments.output, arguments.vocab_size)
        if arguments.output.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(arguments.output))
        # Before the training, and without making folders for one that is refused.
        require_writable(next(folder for folder in arguments.output.absolute().parents if folder.exists()))
        texts, normalization = texts_of(arguments.input, arguments.sample_megabytes), _normalization(arguments, base)
        if base is not None:
            vocabulary = add_words(texts, base, arguments.add_words, normalization)
        else:
            options = {"model": arguments.model, "min_frequency": arguments.min_frequency}
            vocabulary = learn_vocabulary(texts, arguments.vocab_size, normalization=normalization, **options)
        if earlier is not None and earlier.tokens != vocabulary.tokens:
            raise ValueError(_other_vocabulary(arguments.output, earlier))
        if earlier is None:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(arguments.output, vocabulary.file_content())
        print(
            f"{len(vocabulary)} tokens in {shown(arguments.output)} (sha256 {vocabulary.sha256[:16]})"
            f"{'' if earlier is None else ', as they were'}"
        )


def _base(arguments: argparse.Namespace) -> Vocabulary | None:
    """The vocabulary to which words are added; ValueError for flags that contradict each other."""
    if (arguments.base is None) != (arguments.add_words is None):
        raise ValueError("--base and --add-words need each other; pass both, or neither")
    if (is_json := arguments.output.suffix == ".json") != (arguments.model != "wordpiece"):
        raise ValueError(
            f"--output={arguments.output} must end in {'.txt' if is_json else '.json'}, as "
            f"--tokenizer {arguments.model} makes a {'vocab.txt' if is_json else 'tokenizer.json'}"
        )
    if arguments.base is None:
        return None
    if not 1 <= arguments.add_words <= MOST:
        raise ValueError(f"add_words={arguments.add_words} must be at least 1; change --add-words")
    base = read_vocabulary(arguments.base)
    base.check_extendable()
    arguments.vocab_size = len(base) + arguments.add_words
    return base


def _earlier(output: Path, vocab_size: int) -> Vocabulary | None:
    """The vocabulary that stands there; ValueError if the file is none, or is too large to be the one to train."""
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

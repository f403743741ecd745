"""Train a WordPiece vocabulary: the same text always gives the same vocab.txt.

python -m data.train_vocabulary --input D/train/source --vocab-size 4096 --output vocab.txt
"""

import argparse
import errno
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

from bert.command_errors import command
from bert.files import require_writable, shown, write_atomically
from bert.help_parser import HelpParser
from bert.samples.manifest import MANIFEST_NAME, read_manifest
from bert.tokenization.vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary
from bert.tokenization.wordpiece import reference_tokenizer
from data.text.lddl_reader import Block, list_sources, numbered_documents, plan_blocks

_LEAST_ALPHABET, _ALPHABET_COVERAGE, _MOST_CHARACTERS = 1000, 0.999, 0.75  # characters, share of text, of vocabulary
_MAX_COUNT = (1 << 31) - 1
_LEAST_COUNT, _LEAST_DOCUMENTS = 5, 3  # of a word that is added; rarer ones have little to learn from, and may be names
_BLOCK_BYTES = 1 << 22


def train_vocabulary(
    folders: list[str],
    vocab_size: int,
    *,
    lowercase: bool = True,
    min_frequency: int = 2,
    sample_megabytes: float | None = None,
) -> Vocabulary:
    """A vocabulary of at most vocab_size tokens, the special ones first.

    The library's trainer breaks ties by the order in which it reads the characters. It is given all of them in sorted
    order first, so its result is a function of the text. With sample_megabytes it is trained on about that much of the
    text, in blocks spread evenly over all of it.
    """
    for name, value in {"vocab_size": vocab_size, "min_frequency": min_frequency}.items():
        if not 1 <= value <= _MAX_COUNT:
            raise ValueError(f"{name}={value} must be at least 1 and at most {_MAX_COUNT}")
    blocks = _spread(plan_blocks(list_sources(folders), _BLOCK_BYTES), sample_megabytes)
    alphabet, continuations = _characters(blocks, lowercase, vocab_size)
    fixed = [*SPECIAL_TOKENS, *continuations]
    if vocab_size < len(fixed) + len(alphabet):
        raise ValueError(
            f"vocab_size={vocab_size} must be at least {len(fixed) + len(alphabet)}: the special tokens "
            f"and the {len(alphabet)} characters of the text, at and after the beginning of a word"
        )
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(blocks), trainer)
    ids = tokenizer.get_vocab()
    return Vocabulary(tuple(sorted(ids, key=ids.__getitem__)))


def add_words(
    folders: list[str], base: Vocabulary, number: int, *, lowercase: bool = True, sample_megabytes: float | None = None
) -> Vocabulary:
    """The vocabulary with frequent words of the text that it cuts into pieces, whole, at its end: those that spare the
    most tokens first."""
    counts: Counter[str] = Counter()
    documents: Counter[str] = Counter()
    for words in _words(_spread(plan_blocks(list_sources(folders), _BLOCK_BYTES), sample_megabytes), lowercase):
        counts.update(words)
        documents.update(words.keys())
    frequent = [
        word
        for word, count in counts.items()
        if count >= _LEAST_COUNT and documents[word] >= _LEAST_DOCUMENTS and word.isalpha()
    ]
    encodings = reference_tokenizer(base, lowercase).encode_batch(frequent, add_special_tokens=False)
    spared = {word: counts[word] * (len(encoding.ids) - 1) for word, encoding in zip(frequent, encodings, strict=True)}
    chosen = sorted((word for word in spared if spared[word]), key=lambda word: (-spared[word], word))[:number]
    shown_words = f", such as {', '.join(chosen[:5])}" if chosen else ""
    tokens = sum(spared[word] for word in chosen)
    print(f"{len(chosen):,} words are added{shown_words}; they spare {tokens:,} tokens of this text")
    if len(chosen) < number:
        print(f"no other of the {number:,} occurs {_LEAST_COUNT} times, in {_LEAST_DOCUMENTS} documents, in pieces")
    return Vocabulary((*base.tokens, *chosen))


def _spread(blocks: Sequence[Block], megabytes: float | None) -> Sequence[Block]:
    if megabytes is None:
        return blocks
    if not 0 < megabytes < math.inf:
        raise ValueError(
            f"sample_megabytes={megabytes} must be more than 0 and finite; leave it out to use all of the text"
        )
    number = min(len(blocks), max(1, round(megabytes * 1e6 / _BLOCK_BYTES)))
    return [blocks[index * len(blocks) // number] for index in range(number)]


def _texts(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        yield from (text for _, text in numbered_documents(block, Counter()))


def _words(blocks: Sequence[Block], lowercase: bool) -> Iterator[Counter[str]]:
    """The words of each document."""
    normalizer, splitter = BertNormalizer(lowercase=lowercase), BertPreTokenizer()
    for text in _texts(blocks):
        yield Counter(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))


def _characters(blocks: Sequence[Block], lowercase: bool, vocab_size: int) -> tuple[list[str], list[str]]:
    """The most frequent characters, and those of them that continue a word (with ##); both sorted.

    They are the first thousand, and more until they cover 99.9% of the text or are three quarters of the vocabulary:
    Chinese needs 3,000 to 5,000. The others are [UNK]; their share is printed.
    """
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for words in _words(blocks, lowercase):
        for word, count in words.items():
            for character in word:
                counts[character] += count
            inside.update(word[1:])
    alphabet, continuations, covered, total = list[str](), list[str](), 0, counts.total()
    for character in sorted(counts, key=lambda character: (-counts[character], character)):
        used = len(alphabet) + len(continuations)
        is_enough = covered >= _ALPHABET_COVERAGE * total or used >= _MOST_CHARACTERS * vocab_size
        if len(alphabet) >= _LEAST_ALPHABET and is_enough:
            share, rare = 1 - covered / total, len(counts) - len(alphabet)
            print(f"{rare:,} rare characters, {share:.2%} of the text, are [UNK] in this vocabulary", file=sys.stderr)
            break
        covered += counts[character]
        alphabet.append(character)
        continuations += [CONTINUATION_PREFIX + character] if character in inside else []
    return sorted(alphabet), sorted(continuations)


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--input", action="append", required=True, metavar="DIR", help="source folder; may be repeated")
    parser.add_argument("--vocab-size", type=int, default=30_522)
    parser.add_argument("--output", type=Path, required=True, metavar="vocab.txt")
    parser.add_argument("--lowercase", action=argparse.BooleanOptionalAction, default=True)
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
    arguments = parser.parse_args(argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    with command(arguments.output):
        base = None if arguments.base is None else read_vocabulary(arguments.base)
        if (base is None) != (arguments.add_words is None):
            raise ValueError("--base and --add-words need each other; pass both, or neither")
        if base is not None and not 1 <= arguments.add_words <= _MAX_COUNT:
            raise ValueError(f"add_words={arguments.add_words} must be at least 1; change --add-words")
        if base is not None:
            base.check_extendable()
            arguments.vocab_size = len(base) + arguments.add_words
        earlier = None if arguments.overwrite else _earlier(arguments.output, arguments.vocab_size)
        if arguments.output.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(arguments.output))
        # Before the training, and without making folders for one that is refused.
        require_writable(next(folder for folder in arguments.output.absolute().parents if folder.exists()))
        options = {"lowercase": arguments.lowercase, "sample_megabytes": arguments.sample_megabytes}
        if base is not None:
            vocabulary = add_words(arguments.input, base, arguments.add_words, **options)
        else:
            frequency = arguments.min_frequency
            vocabulary = train_vocabulary(arguments.input, arguments.vocab_size, min_frequency=frequency, **options)
        if earlier is not None and earlier.tokens != vocabulary.tokens:
            raise ValueError(_other_vocabulary(arguments.output, earlier))
        if earlier is None:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(arguments.output, vocabulary.file_content())
        print(
            f"{len(vocabulary)} tokens in {shown(arguments.output)} (sha256 {vocabulary.sha256[:16]})"
            f"{'' if earlier is None else ', as they were'}"
        )


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
    manifests = (path for depth in range(4) for path in output.parent.glob("*/" * depth + MANIFEST_NAME))
    users = sorted(shown(path.parent) for path in manifests if _vocabulary_of_shards(path.parent) == earlier.sha256)
    use = f", and the shards in {', '.join(users[:4])} were made with it" if users else ""
    return (
        f"{shown(output)}: exists and holds another vocabulary of {len(earlier)} tokens{use}; name another --output, "
        f"or replace it: --overwrite{' (these shards will be refused then)' if users else ''}"
    )


def _vocabulary_of_shards(folder: Path) -> str | None:
    """sha256 of the vocabulary that shards were made with; None if there are none that can be read."""
    try:
        manifest = read_manifest(folder)
    except ValueError:
        return None
    return manifest.vocabulary_sha256 if manifest else None


if __name__ == "__main__":
    main()

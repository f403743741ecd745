"""Runs the rules of a tokenizer.json in a process that a text ends which would stop ours.

A rule may take for ever (a regular expression, WordPieces of endless words), fill the memory (a
letter replaced by a thousand) or panic in Rust. No look at the rules tells such ones from harmless
ones, and a call of the library can neither be interrupted nor be given a limit. A process can: of
CPU time, which other load does not use up, and of memory. It is started as a script and imports
nothing of ours, so that it starts in a moment.
"""

import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from tokenizers import Tokenizer

_LEAST_SECONDS, _PER_SECOND = 2.0, 100_000  # of CPU time; characters, or bytes of the file, a tenth of what is usual
_MEMORY_BYTES = 4 << 30
_MAX_SHOWN = 60  # characters of a text
RARE = "\U00013080"  # a letter that hardly any vocabulary has


class UnreadableTextError(ValueError):
    """A text that the rules of a tokenizer.json cannot split; the message has the text's beginning."""


class Facts(NamedTuple):
    """What a tokenizer says of itself."""

    ids: dict[str, int]  # of its tokens
    special: list[int]
    prefix: str  # of tokens that continue a word
    knows_rare: bool  # whether a letter that is no token gives tokens
    words: list[str]  # the tokens of "a b"
    pair: list[int]  # the ids of ("a", "b"), and their types
    pair_types: list[int]
    frames: bool  # whether it adds special tokens
    lowercase: bool
    strips: bool  # accents


class TextProcess:
    """A tokenizer in another process, which is started when it is first used, and again after a text that ended it.

    Args:
        content: of a tokenizer.json.
        source: its path.
    """

    def __init__(self, content: bytes, source: str) -> None:
        self._content, self._source, self._lock = content, source, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # the process that started it; a fork of it starts its own

    @cached_property
    def facts(self) -> Facts:
        """ValueError if the library does not read the content."""
        with self._lock:
            return self._start()

    def encode(self, texts: Sequence[str], *, offsets: bool = False, special: bool = False) -> list[Any]:
        """The token ids of each text, or with `offsets` (ids, places of their characters).

        Args:
            special: special tokens in a text are what they are; otherwise they are plain text.

        Raises:
            UnreadableTextError: names the first text at fault.
        """
        with self._lock:
            try:
                return self._encode(texts, offsets, special)
            except UnreadableTextError:
                if len(texts) == 1:
                    raise
                return [row for text in texts for row in self._encode([text], offsets, special)]

    def decode(self, ids: Sequence[int]) -> list[str]:
        """The text of each token."""
        with self._lock:
            texts = self._answer("decode", (ids,), len(ids))
        if isinstance(texts, str):
            raise ValueError(f"{self._source} gives a token no text ({texts}); use another tokenizer")
        return texts

    def _encode(self, texts: Sequence[str], offsets: bool, special: bool) -> list[Any]:
        rows = self._answer("encode", (list(texts), offsets, special), sum(map(len, texts)))
        if isinstance(rows, str):
            raise UnreadableTextError(
                f"the text {texts[0][:_MAX_SHOWN]!r} cannot be split by the rules of {self._source} ({rows}); leave "
                "it out, or use a model with another tokenizer"
            )
        return rows

    def _answer(self, method: str, arguments: tuple[Any, ...], size: int) -> Any:
        if self._process is None or self._owner != os.getpid():
            self._start()
        return self._exchange(method, arguments, size)

    def _start(self) -> Facts:
        pipe = subprocess.PIPE
        command = [sys.executable, "-P", __file__]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end, self._process, self._owner)
        if isinstance(facts := self._exchange("load", (self._content,), 2_000_000 + len(self._content)), str):
            raise ValueError(
                f"{self._source} is not a tokenizer.json that can be read ({facts}); save it again with Hugging "
                "Face's tokenizers, or pass a vocab.txt"
            )
        return Facts(*facts)

    def _exchange(self, method: str, arguments: tuple[Any, ...], size: int) -> Any:
        """The answer, or a text: what went wrong."""
        process, seconds = self._process, _LEAST_SECONDS + size / _PER_SECOND
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            pickle.dump((method, arguments, seconds), process.stdin, protocol=5)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            code = process.wait()
        except BaseException:  # such as Ctrl-C: the next request would get this answer
            self._process = self._end()
            raise
        self._process = self._end()
        if code == -signal.SIGPROF:
            return f"it takes more than {seconds:.0f} s of CPU time"
        return f"it ends its process, code {code}, perhaps by more than {_MEMORY_BYTES >> 30} GB of memory"


@lru_cache(maxsize=2)
def text_process(content: bytes, source: str) -> TextProcess:
    """The one process of a tokenizer.json, for all who read it."""
    return TextProcess(content, source)


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        process.kill()
        process.communicate()


class _Rules:
    """What the other process does."""

    tokenizer: Tokenizer

    def load(self, content: bytes) -> tuple[Any, ...]:
        self.tokenizer = tokenizer = Tokenizer.from_buffer(content)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        try:
            knows_rare = bool(tokenizer.encode(RARE, add_special_tokens=False).ids)
        except BaseException:
            knows_rare = False
        pair, normalizer = tokenizer.encode("a", "b"), tokenizer.normalizer
        return (
            tokenizer.get_vocab(with_added_tokens=True),
            [index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special],
            getattr(tokenizer.model, "continuing_subword_prefix", None) or "",
            knows_rare,
            tokenizer.encode("a b", add_special_tokens=False).tokens if knows_rare else [],
            pair.ids,
            pair.type_ids,
            tokenizer.num_special_tokens_to_add(is_pair=True) > 0,
            normalizer is not None and normalizer.normalize_str("A") == "a",
            normalizer is not None and normalizer.normalize_str("\u00e9") == "e",
        )

    def encode(self, texts: list[str], offsets: bool, special: bool) -> list[Any]:
        self.tokenizer.encode_special_tokens = not special
        if offsets:
            return [(row.ids, row.offsets) for row in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
        return [row.ids for row in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> list[str]:
        return [self.tokenizer.decode([index], skip_special_tokens=False) for index in ids]


def _main() -> None:
    """Answer requests until the pipe is closed. At the end of the time SIGPROF ends the process; signals to the group
    of our process, such as Ctrl-C and Slurm's USR1, are for that one."""
    if "--help" in sys.argv:
        print(__doc__)
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES if most < 0 else min(most, _MEMORY_BYTES), most))
    received, sent = sys.stdin.buffer, sys.stdout.buffer
    rules = _Rules()
    while True:
        try:
            method, arguments, seconds = pickle.load(received)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            result = getattr(rules, method)(*arguments)
        except BaseException as error:  # a panic of Rust is not an Exception
            result = " ".join(str(error).split())[:200] or type(error).__name__
        signal.setitimer(signal.ITIMER_PROF, 0)
        pickle.dump(result, sent, protocol=5)
        sent.flush()


if __name__ == "__main__":
    _main()

"""Runs the rules of a tokenizer.json in its own process, because a text can crash the tokenizer.

A rule may take for ever (a regular expression), fill the memory (a letter replaced by a thousand)
or panic in Rust. No look at the rules tells such ones from harmless ones, and a call of the library
can neither be interrupted nor be given a limit. A process can: of CPU time, which other load does
not use up, and of memory. It is started as a script and imports nothing of ours, so that it starts
in a moment.
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
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

# Seconds of CPU time; characters, or bytes of the file, a tenth of what is usual.
_LEAST_SECONDS, _LEAST_SECONDS_TO_LOAD, _PER_SECOND = 2.0, 20.0, 100_000
_MEMORY_BYTES = 4 << 30
RARE = "\U00013080"  # a letter that hardly any vocabulary has


class UnreadableTextError(ValueError):
    """The rules of a tokenizer.json cannot split a text; the message has the text's beginning."""


class TextProcess:
    """A tokenizer in another process, started at its first use and again after a crash.

    Args:
        content: of a tokenizer.json.
        source: its path.
    """

    def __init__(self, content: bytes, source: str) -> None:
        self._content, self._source, self._lock = content, source, threading.Lock()
        self._owner = 0  # the process that started it, of which a fork starts its own; 0: it does not run

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Properties of the tokenizer, from `_Rules.load`; ValueError if the library cannot read it."""
        facts = self._answer("load", (self._content,), len(self._content))
        if isinstance(facts, str):
            raise ValueError(
                f"{self._source} is not a tokenizer.json that can be read ({facts}); save it again with Hugging "
                "Face's tokenizers, or pass a vocab.txt"
            )
        return facts

    def encode(self, texts: Sequence[str], *, offsets: bool = False, special: bool = False) -> list[Any]:
        """Token ids of each text, or with `offsets` (ids, character ranges).

        Args:
            special: special tokens in a text are what they are; otherwise they are plain text.

        Raises:
            UnreadableTextError: names the first text at fault.
        """
        rows = self._answer("encode", (list(texts), offsets, special), sum(map(len, texts)))
        if isinstance(rows, str) and len(texts) > 1:
            return [row for text in texts for row in self.encode([text], offsets=offsets, special=special)]
        if isinstance(rows, str):
            raise UnreadableTextError(
                f"the text {texts[0][:60]!r} cannot be split by the rules of {self._source} ({rows}); leave it out, or "
                "use a model with another tokenizer"
            )
        return rows

    def decode(self, ids: Sequence[int]) -> list[str]:
        """Text of each token."""
        texts = self._answer("decode", (ids,), len(ids))
        if isinstance(texts, str):
            raise ValueError(f"{self._source} gives a token no text ({texts}); use another tokenizer")
        return texts

    def _answer(self, method: str, arguments: tuple[Any, ...], size: int) -> Any:
        """The result of a method of `_Rules`; or, as a text, the reason of a failure."""
        with self._lock:
            if self._owner != os.getpid():
                self._start()
                if method != "load":
                    self._exchange("load", (self._content,), len(self._content))
            return self._exchange(method, arguments, size)

    def _start(self) -> None:
        pipe, command = subprocess.PIPE, [sys.executable, "-P", __file__]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end, self._process, self._owner)

    def _exchange(self, method: str, arguments: tuple[Any, ...], size: int) -> Any:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        seconds = (_LEAST_SECONDS_TO_LOAD if method == "load" else _LEAST_SECONDS) + size / _PER_SECOND
        try:
            pickle.dump((method, arguments, seconds), process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except BaseException as error:
            self._owner = 0
            code = process.wait() if isinstance(error, EOFError | OSError | pickle.UnpicklingError) else None
            self._end()
            if code is None:  # such as Ctrl-C, after which the next request would get this answer
                raise
        if code == -signal.SIGPROF:
            return f"it takes more than {seconds:.0f} s of CPU time"
        return f"it ends its process, code {code}, perhaps by more than {_MEMORY_BYTES >> 30} GB of memory"


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        process.kill()
        process.communicate()


class _Rules:
    """The tokenizer's rules, run inside the other process."""

    tokenizer: Tokenizer

    def load(self, content: bytes) -> dict[str, Any]:
        self.tokenizer = tokenizer = Tokenizer.from_buffer(content)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        pair, normalizer = tokenizer.encode("a", "b"), tokenizer.normalizer
        try:
            knows_rare = bool(tokenizer.encode(RARE, add_special_tokens=False).ids)
        except BaseException:  # of a Unigram without an unknown token
            knows_rare = False
        return {
            "ids": tokenizer.get_vocab(with_added_tokens=True),
            "special": [index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special],
            "prefix": getattr(tokenizer.model, "continuing_subword_prefix", None) or "",  # of what continues a word
            "knows rare": knows_rare,
            "a b": tokenizer.encode("a b", add_special_tokens=False).tokens if knows_rare else [],
            "pair": pair.ids,
            "pair types": pair.type_ids,
            "frames": tokenizer.num_special_tokens_to_add(is_pair=True) > 0,
            "lowercase": normalizer is not None and normalizer.normalize_str("A") == "a",
            "equal letters": normalizer is not None
            and normalizer.normalize_str("\ufb01e\u0301") == normalizer.normalize_str("fi\u00e9")
            and normalizer.normalize_str("\ufedf") == "\ufedf",  # NFKC would fold forms in its own way
            "strips": normalizer is not None and normalizer.normalize_str("\u00e9") == "e",  # accents
        }

    def encode(self, texts: list[str], offsets: bool, special: bool) -> list[Any]:
        self.tokenizer.encode_special_tokens = not special
        if offsets:
            return [(row.ids, row.offsets) for row in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
        return [row.ids for row in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> list[str]:
        return [self.tokenizer.decode([index], skip_special_tokens=False) for index in ids]


def _main() -> None:
    """Answer requests until the pipe is closed; SIGPROF ends the process when its time is used up."""
    if "--help" in sys.argv:
        print(__doc__)
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES if most < 0 else min(most, _MEMORY_BYTES), most))
    rules = _Rules()
    while True:
        try:
            method, arguments, seconds = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            result = getattr(rules, method)(*arguments)
        except BaseException as error:  # a panic of Rust is not an Exception
            result = " ".join(str(error).split())[:200] or type(error).__name__
        signal.setitimer(signal.ITIMER_PROF, 0)
        pickle.dump(result, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()

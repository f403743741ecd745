"""Answers questions typed in a terminal about a pasted paragraph: `run_squad.py --interactive`."""

import logging
import sys
from typing import IO

from bert.finetuning.squad.config import SquadConfig
from bert.inference.question_answering import AnsweredQuestion, QuestionAnswerer
from bert.training.training_run import choose_device

_SHOWN = 5  # candidates of each answer


def answer_from_terminal(config: SquadConfig) -> int:
    """Answer until standard input ends; returns the exit code."""
    source = config.initialization.initial_weights()
    assert source is not None
    log = logging.getLogger("bert")
    log.addHandler(logging.StreamHandler(sys.stdout))
    log.setLevel(logging.INFO)
    reader = QuestionAnswerer(
        source,
        device=choose_device(config),
        vocab_file=config.data.vocab_file,
        model=config.model,
        windows=config.data.windows(),
        answers=config.data.answers(),
    )
    return converse(reader, sys.stdin, sys.stdout)


def converse(reader: QuestionAnswerer, lines: IO[str], out: IO[str]) -> int:
    """Read paragraphs and questions from `lines` and print answers to `out` until the end or Ctrl-C; returns 0."""
    try:
        while (paragraph := _paragraph(lines, out)) is not None:
            while question := _asked(lines, out, "question (empty: another paragraph): "):
                try:
                    _show(reader.answer(question, paragraph), out)
                except ValueError as error:
                    print(f"  {error}", file=out, flush=True)
    except KeyboardInterrupt:
        pass
    print(file=out)
    return 0


def _paragraph(lines: IO[str], out: IO[str]) -> str | None:
    """Lines up to an empty one; None at the end of the input."""
    print("\nPaste a paragraph, then an empty line (Ctrl-D ends):", file=out, flush=True)
    kept: list[str] = []
    for line in lines:
        if line.strip():
            kept.append(line.rstrip("\r\n"))
        elif kept:
            break
    return "\n".join(kept) or None


def _asked(lines: IO[str], out: IO[str], prompt: str) -> str:
    print(prompt, end="", file=out, flush=True)
    return lines.readline().strip()


def _show(answered: AnsweredQuestion, out: IO[str]) -> None:
    print(f"  {answered.text or '(no answer)'}   [{answered.score:.1%}]", file=out)
    for candidate in answered.n_best[:_SHOWN]:
        print(f"    {candidate.probability:6.1%}  {candidate.text or '(no answer)'}", file=out)
    out.flush()

"""Use of a trained model in a terminal: one text after the other, or questions about a pasted paragraph."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from bert import MESSAGES
from bert.finetuning.squad.config import SquadConfig
from bert.inference.heads import QuestionAnswerer
from bert.inference.model_folder import open_model
from bert.inference.streaming import Run
from bert.inference.trained_model import Result, TrainedModel
from bert.training.devices import choose_device

_SHOWN = 5  # candidates of each answer
_HELP = {
    "masked-lm": "Type a sentence with [MASK] in the place of a word",
    "encoder": "Type a sentence; its vector is compared with that of the sentence before",
    "sequence-classification": "Type a text (two texts: separated by a tab)",
    "token-classification": "Type a sentence",
}


def answer_from_terminal(config: SquadConfig) -> int:
    """`run_squad.py --interactive`: answer until standard input ends; returns the exit code."""
    source = config.initialization.initial_weights()
    assert source is not None
    MESSAGES.addHandler(logging.StreamHandler(sys.stdout))
    MESSAGES.setLevel(logging.INFO)
    data = config.data
    opened = open_model(
        source, QuestionAnswerer.task, device=choose_device(config), vocab_file=data.vocab_file, model=config.model
    )
    return converse(QuestionAnswerer(opened, windows=data.windows(), answers=data.answers()), sys.stdin, sys.stdout)


def talk(model: TrainedModel, lines: IO[str], out: IO[str], run: Run | None = None) -> int:
    """Show the result for each line until the end or Ctrl-C; returns 0."""
    if isinstance(model, QuestionAnswerer):
        return converse(model, lines, out)
    print(f"{_HELP[model.task]} (Ctrl-D ends):", file=out)
    previous: str | None = None
    with _until_interrupted(out):
        while text := _typed(lines, out, "> "):
            if not text.strip():
                continue
            try:
                request = model.request(text.split("\t") if model.splits_tabs and "\t" in text else text)
                if model.task == "encoder" and run is None:
                    shown = _vector_lines(model, request[0], previous)
                else:
                    shown = result_lines((run or model.run)([request])[0])
                previous = request[0]
            except ValueError as error:
                shown = [str(error)]
            print("\n".join(f"  {line}" for line in shown), file=out, flush=True)
    return 0


def result_lines(result: Result) -> list[str]:
    """A result as lines for a person."""
    if "masks" in result:
        fills = [", ".join(f"{fill['token']} {fill['probability']:.1%}" for fill in mask) for mask in result["masks"]]
        return [result["filled"], *fills]
    if "probabilities" in result:
        best = sorted(result["probabilities"].items(), key=lambda item: -item[1])
        return [f"{probability:6.1%}  {label}" for label, probability in best]
    if "entities" in result:
        entities = result["entities"]
        lines = [f"{e['type']:<6} {e['probability']:6.1%}  {e['text']}  [{e['start']}:{e['end']}]" for e in entities]
        return lines or ["(no entity)"]
    if "nearest" in result:
        return [f"{near['similarity']:5.2f}  {near['text']}" for near in result["nearest"]]
    return [f"{result['value']:.4f}"]


def _vector_lines(model: TrainedModel, text: str, previous: str | None) -> list[str]:
    vectors = model.encode([text] if previous is None else [text, previous])
    first = " ".join(f"{value:.3f}" for value in vectors[0][:6])
    lines = [f"{vectors.shape[1]} numbers: {first} ..."]
    if previous is not None:
        cosine = vectors[0] @ vectors[1] / float((vectors[0] @ vectors[0]) * (vectors[1] @ vectors[1])) ** 0.5
        lines.append(f"cosine with the sentence before: {cosine:.3f}")
    return lines


def converse(reader: QuestionAnswerer, lines: IO[str], out: IO[str]) -> int:
    """Read paragraphs and questions from `lines` and print answers to `out` until the end or Ctrl-C; returns 0."""
    with _until_interrupted(out):
        while paragraph := _paragraph(lines, out):
            while question := _typed(lines, out, "question (empty: another paragraph): ").strip():
                try:
                    answered = reader.answer(question, paragraph)
                except ValueError as error:
                    print(f"  {error}", file=out, flush=True)
                    continue
                print(f"  {answered.text or '(no answer)'}   [{answered.score:.1%}]", file=out)
                for candidate in answered.n_best[:_SHOWN]:
                    print(f"    {candidate.probability:6.1%}  {candidate.text or '(no answer)'}", file=out, flush=True)
    return 0


@contextmanager
def _until_interrupted(out: IO[str]) -> Iterator[None]:
    with suppress(KeyboardInterrupt):
        yield
    print(file=out)


def _paragraph(lines: IO[str], out: IO[str]) -> str:
    """Lines up to an empty one; "" at the end of the input."""
    print("\nPaste a paragraph, then an empty line (Ctrl-D ends):", file=out, flush=True)
    kept: list[str] = []
    while line := _typed(lines, out, ""):
        if line.strip():
            kept.append(line.rstrip("\r\n"))
        elif kept:
            break
    return "\n".join(kept)


def _typed(lines: IO[str], out: IO[str], prompt: str) -> str:
    """The next line with its line end; "" at the end of the input. On a terminal it can be edited."""
    if lines is not sys.stdin or not lines.isatty():
        print(prompt, end="", file=out, flush=True)
        return lines.readline()
    import readline  # noqa: F401 - input() uses it, with a history

    try:
        return input(prompt) + "\n"
    except EOFError:
        return ""

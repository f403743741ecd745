"""Runs a trained model on texts that are typed in a terminal, or on questions about a pasted paragraph."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

import numpy as np

from bert import exit_codes
from bert.finetuning.squad.config import SquadConfig
from bert.inference.heads import QuestionAnswerer
from bert.inference.model_folder import open_model
from bert.inference.rows import RawRequest
from bert.inference.trained_model import Result, Run, TrainedModel
from bert.printable import printable
from bert.training.devices import choose_device

_HELP = {
    "masked-lm": "Type a sentence with [MASK] in the place of a word",
    "encoder": "Type a sentence; its vector is compared with the previous sentence's",
    "sequence-classification": "Type a text (two texts: separated by a tab)",
    "token-classification": "Type a sentence",
}


def answer_from_terminal(config: SquadConfig) -> int:
    """Answer the questions of `run_squad.py --interactive` until standard input ends; returns the exit code."""
    source = config.initialization.initial_weights()
    assert source is not None
    data = config.data
    opened = open_model(
        source, QuestionAnswerer.task, device=choose_device(config), vocab_file=data.vocab_file, model=config.model
    )
    return talk(QuestionAnswerer(opened, reader=data), sys.stdin, sys.stdout)


def talk(model: TrainedModel, lines: IO[str], out: IO[str], run: Run | None = None) -> int:
    """Show the result of each typed request, until the end of input or Ctrl-C; returns 0.

    Args:
        run: function that replaces the model's `run`.
    """
    previous: Result = {}
    with suppress(KeyboardInterrupt):
        for request in _questions(lines, out) if model.task == QuestionAnswerer.task else _texts(model, lines, out):
            try:
                cut_before = model.num_truncated
                (result,) = (run or model.run)([model.request(request)])
                shown = result_lines(result, previous)
                previous = result
                if model.num_truncated > cut_before:
                    shown.append(f"longer than {model.longest_text()}: the end was not read")
            except ValueError as error:
                shown = [str(error)]
            print("\n".join(f"  {printable(line)}" for line in shown), file=out, flush=True)
    print(file=out)
    return exit_codes.OK


def _texts(model: TrainedModel, lines: IO[str], out: IO[str]) -> Iterator[RawRequest]:
    print(f"{_HELP[model.task]} (Ctrl-D ends):", file=out)
    while text := _typed(lines, out, "> "):
        if text.strip():
            yield text.split("\t") if model.splits_tabs and "\t" in text else text


def _questions(lines: IO[str], out: IO[str]) -> Iterator[RawRequest]:
    """Read pasted paragraphs, which end with an empty line; yields (question, paragraph)."""
    while True:
        print("\nPaste a paragraph, then an empty line (Ctrl-D ends):", file=out, flush=True)
        paragraph: list[str] = []
        while (line := _typed(lines, out, "")) and (line.strip() or not paragraph):
            paragraph += [line.rstrip("\r\n")] if line.strip() else []
        if not paragraph:
            return
        while question := _typed(lines, out, "question (empty: another paragraph): ").strip():
            yield question, "\n".join(paragraph)


def result_lines(result: Result, previous: Result) -> list[str]:
    """Format a result as lines for the terminal; a vector is compared with the previous vector."""
    if "masks" in result:
        fills = [", ".join(f"{fill['token']} {fill['probability']:.1%}" for fill in mask) for mask in result["masks"]]
        return [result["filled"], *fills]
    if "answers" in result:
        candidates = [(answer["probability"], answer["text"]) for answer in result["answers"]]
        if "no_answer_probability" in result:
            candidates.append((result["no_answer_probability"], "(no answer)"))
        listed = [f"  {probability:6.1%}  {text}" for probability, text in sorted(candidates, key=lambda c: -c[0])]
        return [f"{result['answer'] or '(no answer)'}   [{result['probability']:.1%}]", *listed]
    if "probabilities" in result:
        best = sorted(result["probabilities"].items(), key=lambda item: -item[1])
        return [f"{probability:6.1%}  {label}" for label, probability in best]
    if "entities" in result:
        entities = result["entities"]
        lines = [f"{e['type']:<6} {e['probability']:6.1%}  {e['text']}  [{e['start']}:{e['end']}]" for e in entities]
        return lines or ["(no entity)"]
    if "nearest" in result:
        return [f"{near.get('score', near.get('similarity')):5.2f}  {near['text']}" for near in result["nearest"]]
    if "vector" in result:
        vector = np.array(result["vector"])
        lines = [f"{len(vector)} numbers: {' '.join(f'{value:.3f}' for value in vector[:6])} ..."]
        if previous:
            other = np.array(previous["vector"])
            cosine = vector @ other / ((vector @ vector) * (other @ other)) ** 0.5
            lines.append(f"cosine with the sentence before: {cosine:.3f}")
        return lines
    return [f"{result['value']:.4f}"]


def _typed(lines: IO[str], out: IO[str], prompt: str) -> str:
    """Read a line with its line end; "" at the end of the input. A terminal lets the user edit the line."""
    if lines is not sys.stdin or not lines.isatty():
        print(prompt, end="", file=out, flush=True)
        return lines.readline()
    import readline  # noqa: F401 - input() uses it, with a history

    try:
        return input(prompt) + "\n"
    except EOFError:
        return ""

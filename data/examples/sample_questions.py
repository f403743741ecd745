"""Write a small set of questions about texts of this project in SQuAD 2.0's format, split into training and held out.

It makes D/train.json and D/held_out.json from data/examples/sample_questions.txt, and D/train-answerable.json and
D/held_out-answerable.json without unanswerable questions, as in SQuAD 1.1. The split is by paragraph: no held-out
question is about a training text.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import Field

from bert.command_errors import command
from bert.config.plain_commands import read_flags
from bert.config.settings_base import Settings
from bert.files import write_atomically

SOURCE = Path(__file__).with_suffix(".txt")
HELD_OUT_EVERY = 4  # the last of each group of this many paragraphs is held out


def read_source(path: Path = SOURCE) -> list[dict[str, Any]]:
    paragraphs: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("= "):
            paragraphs.append({"context": line[2:], "qas": []})
        elif line.startswith("? ") and "|" in line and paragraphs:
            paragraphs[-1]["qas"].append(_question(line[2:], paragraphs[-1]["context"], f"{path.name}:{number}"))
        elif line and not line.startswith("#"):
            raise ValueError(f"{path}:{number}: {line[:40]!r} must begin with '= ', or with '? ' and hold a |")
    return paragraphs


def _question(line: str, context: str, place: str) -> dict[str, Any]:
    text, _, right = line.rpartition("|")
    answers = [answer.strip() for answer in right.split(" / ") if answer.strip()]
    for answer in answers:
        if answer not in context:
            raise ValueError(f"{place}: {answer!r} is not in the paragraph")
    return {
        "id": f"sample-{place.rpartition(':')[2]}",
        "question": text.strip(),
        "is_impossible": not answers,
        "answers": [{"text": answer, "answer_start": context.index(answer)} for answer in answers],
    }


def write(output_dir: Path) -> dict[str, int]:
    """Write the files; returns the number of questions in each."""
    output_dir.mkdir(parents=True, exist_ok=True)
    paragraphs = read_source()
    counts = {}
    for name, is_held_out in (("train", False), ("held_out", True)):
        part = [text for number, text in enumerate(paragraphs, 1) if (number % HELD_OUT_EVERY == 0) == is_held_out]
        answerable = [{**text, "qas": [entry for entry in text["qas"] if entry["answers"]]} for text in part]
        for stem, version, chosen in ((name, "v2.0", part), (f"{name}-answerable", "1.1", answerable)):
            data = [{"title": f"paragraph {number}", "paragraphs": [text]} for number, text in enumerate(chosen, 1)]
            content = json.dumps({"version": version, "data": data}, indent=1) + "\n"
            write_atomically(output_dir / f"{stem}.json", content.encode())
            counts[stem] = sum(len(paragraph["qas"]) for paragraph in chosen)
    return counts


class SampleQuestionsRequest(Settings):
    """The settings of this command, read from its flags."""

    output_dir: Path = Field(description="folder of the files")


_EXAMPLES = ("--output-dir D", "--output-dir results/questions")


def main(argv: list[str] | None = None) -> None:
    output_dir = read_flags(SampleQuestionsRequest, argv, description=__doc__, examples=_EXAMPLES).output_dir
    with command(output_dir):
        for name, count in write(output_dir).items():
            print(f"{output_dir / name}.json: {count} questions")


if __name__ == "__main__":
    main()

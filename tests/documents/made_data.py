"""Example texts, questions, entities and sentences with few words, which a small model learns completely."""

import csv
import json
import random
from pathlib import Path

NOUNS = (
    "river sea boat bridge stone hill rain storm flood cloud sun wind farmer fisher child dog bird road field".split()
)
VERBS = "sees finds crosses follows leaves reaches passes hears".split()
SIGNS = {"urgent": "flood storm", "soon": "rain cloud", "routine": "sun wind"}  # what the notes of a class say
SHARES = {"urgent": 0.2, "soon": 0.3, "routine": 0.5}


def stories(number: int) -> list[str]:
    """Return texts of six to ten sentences."""
    draw = random.Random(7)
    texts = []
    for place in range(number):
        sentences = [
            f"The {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)} near the {draw.choice(NOUNS)}."
            for _ in range(draw.randint(6, 10))
        ]
        texts.append(f"In story {place} the day begins. " + " ".join(sentences))
    return texts


def write_notes(path: Path, number: int, columns: tuple[str, ...], encoding: str, seed: int) -> None:
    """Write a table of notes whose classes are of different sizes; every patient has four notes."""
    draw = random.Random(seed)
    with open(path, "w", encoding=encoding, newline="") as file:
        table = csv.DictWriter(file, columns, delimiter=";", extrasaction="ignore")
        table.writeheader()
        for row in range(number):
            (urgency,) = draw.choices([*SHARES], [*SHARES.values()])
            note = f"{SIGNS[urgency]}, {_verbs(draw, 3)} \u00fc"
            table.writerow({"id": f"N{row}", "patient": f"P{row // 4}", "note": note, "urgency": urgency})


def write_questions(path: Path, number: int, seed: int) -> list[str]:
    """Write a file in SQuAD's format; the answer follows "near the". Return the questions' names."""
    draw = random.Random(seed)
    paragraphs = []
    for place in range(number):
        answer = draw.choice(NOUNS)
        context = f"The {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)} near the {answer}."
        entry = {"text": answer, "answer_start": context.rindex(answer)}
        asked = {"id": f"q{place}", "question": "Near what is it?", "answers": [entry]}
        paragraphs.append({"context": context, "qas": [asked]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return [f"q{place}" for place in range(number)]


def write_entities(path: Path, number: int, seed: int) -> None:
    """Write sentences in CoNLL's form; the first noun is a person, the last a place."""
    draw = random.Random(seed)
    with open(path, "w") as file:
        for _ in range(number):
            first, verb, last = draw.choice(NOUNS), draw.choice(VERBS), draw.choice(NOUNS)
            file.write(f"The O\n{first} B-PER\n{verb} O\nnear O\nthe O\n{last} B-LOC\n. O\n\n")


def write_paraphrases(folder: Path, train: int, dev: int) -> None:
    """Write MRPC's files: a pair is a paraphrase if both sentences have the sun."""
    draw = random.Random(5)
    folder.mkdir()
    for name, number in (("train", train), ("dev", dev)):
        rows = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"]
        for _ in range(number):
            is_one = draw.choice([0, 1])
            pair = "\t".join(f"{_verbs(draw, 3)} {['rain', 'sun'][is_one]} {_verbs(draw, 2)}" for _ in range(2))
            rows.append(f"{is_one}\t1\t2\t{pair}\n")
        (folder / f"{name}.tsv").write_text("".join(rows))


def _verbs(draw: random.Random, number: int) -> str:
    return " ".join(draw.choice(VERBS) for _ in range(number))

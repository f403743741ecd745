"""SQuAD files for tests: small ones written by hand, and generated ones."""

import json
import random
from pathlib import Path

ALPHABET = (
    "the a an An sea Sea of Nile - ice ICE ice-cream U.S. don't it's 1,000 3.5% café Äpfel naïve İzmir "
    "東京 Москва “quoted” (so) [x] état… e\u0301cole \u200b 😀 fish&chips — ' \" _ und_er $5 the. A, an!"
).split(" ")


def file_of(path: Path, *paragraphs: dict, **members) -> Path:
    """Write a file with one article of these paragraphs."""
    data = [{"title": "t", "paragraphs": list(paragraphs)}]
    path.write_text(json.dumps({"version": "test", "data": data, **members}))
    return path


def paragraph(context: str, *questions: dict) -> dict:
    return {"context": context, "qas": list(questions)}


def question(identity: str, text: str, *answers: tuple[str, int], **members) -> dict:
    entries = [{"text": answer, "answer_start": start} for answer, start in answers]
    return {"id": identity, "question": text, "answers": entries, **members}


def random_text(rng: random.Random, most: int = 9) -> str:
    return " ".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, most)))


def generated(rng: random.Random, num_paragraphs: int, version_2: bool) -> dict:
    """Return the content of a valid file with words of several scripts."""
    paragraphs, number = [], 0
    for _ in range(num_paragraphs):
        words = [rng.choice(ALPHABET) for _ in range(rng.randint(1, 60))]
        context = rng.choice([" ", "  ", "\n"]).join(words)
        qas = []
        for _ in range(rng.randint(0, 4)):
            first = rng.randrange(len(words))
            text = words[first]
            entry = question(f"q{number}", random_text(rng) + "?", (text, context.index(text)))
            if version_2 and rng.random() < 0.3:
                entry = question(f"q{number}", random_text(rng) + "?", is_impossible=True)
            qas.append(entry)
            number += 1
        paragraphs.append(paragraph(context, *qas))
    paragraphs.append(paragraph("The Nile is long.", question("last", "What is long?", ("Nile", 4))))
    return {"version": "v2.0" if version_2 else "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}

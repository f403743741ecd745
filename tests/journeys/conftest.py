"""What the journeys share: a clone in whose root they type their commands, shards, and a tiny model made of them.

Everything here is made by the commands that users type, once in a run of the tests.
"""

import csv
import json
import random
from pathlib import Path

import pytest

from tests.journeys.commands import output_of
from tests.newcomer.folders import odd_files
from tests.support.disk_cache import made_once
from tests.support.documents import fresh_clone

NOUNS = (
    "river sea boat bridge stone hill rain storm flood cloud sun wind farmer fisher child dog bird road field".split()
)
VERBS = "sees finds crosses follows leaves reaches passes hears".split()
SIGNS = {"urgent": "flood storm", "soon": "rain cloud", "routine": "sun wind"}  # what the notes of a class say
SHARES = {"urgent": 0.2, "soon": 0.3, "routine": 0.5}
FEW = "--device cpu --no-visualdl --learning-rate 1e-2"
PREPARE = (
    "-m data.import_text --input {0}/raw --output-dir {0} --held-out-fraction 0.1 --deduplicate exact",
    "-m data.train_vocabulary --input {0}/train/source --vocab-size 400 --output {0}/vocab.txt",
    "-m data.preprocess_bert_pretrain --text {0}/train/source --sink {0}/shards/train --vocab-file {0}/vocab.txt "
    "--target-seq-length 64 --num-shards 4 --masking static",
    "-m data.preprocess_bert_pretrain --text {0}/held_out/source --sink {0}/shards/held_out --vocab-file {0}/vocab.txt "
    "--target-seq-length 64 --num-shards 1 --masking static",
    "-m data.inspect {0}/shards/train --vocab-file {0}/vocab.txt",
)


def stories(number: int) -> list[str]:
    """Texts of six to ten sentences."""
    draw = random.Random(7)
    texts = []
    for place in range(number):
        sentences = [
            f"The {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)} near the {draw.choice(NOUNS)}."
            for _ in range(draw.randint(6, 10))
        ]
        texts.append(f"In story {place} the day begins. " + " ".join(sentences))
    return texts


@pytest.fixture(scope="session")
def clone(tmp_path_factory) -> Path:
    return made_once(tmp_path_factory, "clone", fresh_clone)


@pytest.fixture(scope="session")
def data(clone, tmp_path_factory) -> Path:
    """raw/ (fifteen files of as many kinds), what the commands of PREPARE make of them, and their outputs.json."""

    def make(folder: Path) -> None:
        odd_files(folder / "raw", stories(130))
        outputs = [output_of(".venv/bin/python " + line.format(folder), clone) for line in PREPARE]
        (folder / "outputs.json").write_text(json.dumps(outputs))

    return made_once(tmp_path_factory, "data", make)


def tiny_training(data: Path) -> str:
    """The flags of a training of a tiny model on the shards; it takes a second."""
    words = len((data / "vocab.txt").read_text().splitlines())
    return (
        f"--config quickstart_phase1 --input-dir {data}/shards/train --eval-dir {data}/shards/held_out "
        f"--vocab-file {data}/vocab.txt --vocab-size {words} --hidden-size 32 --num-hidden-layers 2 "
        "--num-attention-heads 2 --intermediate-size 64 --max-position-embeddings 64 --max-seq-length 64 "
        "--max-predictions-per-seq 10 --batch-size 8 --global-batch-size 16 --bert-model tiny --device cpu "
        "--no-visualdl"
    )


@pytest.fixture(scope="session")
def model(clone, data, tmp_path_factory) -> Path:
    """The output folder of a pre-training."""

    def make(folder: Path) -> None:
        output_of(
            f".venv/bin/python run_pretraining.py {tiny_training(data)} --max-steps 60 --output-dir {folder}", clone
        )

    return made_once(tmp_path_factory, "model", make)


def words(draw: random.Random, number: int) -> str:
    return " ".join(draw.choice(VERBS) for _ in range(number))


def write_notes(path: Path, number: int, columns: tuple[str, ...], encoding: str, seed: int) -> None:
    """A table of notes whose classes are of different sizes; every patient has four notes."""
    draw = random.Random(seed)
    with open(path, "w", encoding=encoding, newline="") as file:
        table = csv.DictWriter(file, columns, delimiter=";", extrasaction="ignore")
        table.writeheader()
        for row in range(number):
            (urgency,) = draw.choices([*SHARES], [*SHARES.values()])
            note = f"{SIGNS[urgency]}, {words(draw, 3)} \u00fc"
            table.writerow({"id": f"N{row}", "patient": f"P{row // 4}", "note": note, "urgency": urgency})


@pytest.fixture(scope="session")
def classifier(clone, model, tmp_path_factory) -> Path:
    """train.csv, the model "my results" that a user makes of it, and the output of the command."""

    def make(folder: Path) -> None:
        write_notes(folder / "train.csv", 240, ("id", "patient", "note", "urgency"), "cp1252", 1)
        line = (
            f"bash scripts/run_classify.sh --train {folder}/train.csv --model {model} --balance {FEW} "
            f"--group-column patient --positive-label urgent --wanted-recall 0.9 --best-by auc:urgent "
            f"--output-dir '{folder}/my results'"
        )
        (folder / "output").write_text(output_of(line, clone))

    return made_once(tmp_path_factory, "classifier", make)

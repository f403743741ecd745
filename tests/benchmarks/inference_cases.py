"""Cases of the inference comparison: exports of one classifier, and batches of equal or real lengths."""

import json
from pathlib import Path

import numpy as np

import run_convert
import run_export
from bert import REPOSITORY
from bert.finetuning.loader import FeatureTable
from bert.inference.model_folder import OpenedModel
from bert.inference.samples import ExportedTokenizer, Texts, read_texts
from bert.randomness import integers_below, permutation, stream_key
from data.examples import sample_questions
from tests.benchmarks.inference_ours import EXPORTS

Batches = list[dict[str, np.ndarray]]
MIX, SORTED_MIX = "mix", "mix sorted by length"
_LONGEST = 384
_MIXED = 200  # texts


def real_mix(folder: Path) -> Texts:
    """The held-out sentences, pairs, and questions with their paragraphs, in a random order."""
    sample_questions.write(folder)
    document = json.loads((folder / "held_out.json").read_text())
    texts: list[str | tuple[str, str]] = [
        (question["question"], paragraph["context"])
        for article in document["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    for name, columns in (("sentiment", ("sentence",)), ("paraphrases", ("sentence1", "sentence2"))):
        texts += read_texts(REPOSITORY / "data/examples" / name / "held_out.tsv", columns)
    return [texts[index] for index in permutation(stream_key(42, "real mix"), len(texts))[:_MIXED]]


def cases_of(opened: OpenedModel, folder: Path, batch_sizes: list[int], lengths: list[int]) -> dict[str, Batches]:
    """Return batches of every case; batches of one length hold random tokens."""
    cases: dict[str, Batches] = {}
    table = ExportedTokenizer(folder / "hf").table(real_mix(folder), _LONGEST)
    orders = {MIX: np.arange(len(table)), SORTED_MIX: np.argsort(-table.lengths(), kind="stable")}
    for size in batch_sizes:
        for length in lengths:
            ids = integers_below(stream_key(7, length), np.arange(size * length), len(opened.tokens.vocabulary))
            shape = (size, length)
            feed = {"input_ids": ids.reshape(shape), "token_type_ids": np.zeros(shape, "int64")}
            cases[f"{size} x {length}"] = [{**feed, "attention_mask": np.ones(shape, "int64")}]
        for name, order in orders.items():
            if size == 1 and name == SORTED_MIX:
                continue  # the same batches
            cases[f"{size} x {name}"] = batches_of(table, order, size)
    return cases


def batches_of(table: FeatureTable, order: np.ndarray, size: int) -> Batches:
    """Divide the sequences, in an order, into batches, each padded to its longest sequence."""
    parts = [order[start : start + size] for start in range(0, len(order), size)]
    return [table.feed(rows, int(table.lengths()[rows].max()), with_labels=False) for rows in parts]


def prepare(checkpoint: Path, folder: Path, calibration: Path) -> None:
    """The exports of the checkpoint, and its copy for transformers.

    Raises:
        ValueError: the folder holds those of another checkpoint.
    """
    mark = folder / "checkpoint.txt"
    other = mark.read_text() if mark.exists() else "another model" if (folder / "model").exists() else None
    if other not in (None, str(checkpoint)):
        raise ValueError(f"{folder} holds the exports of {other}; remove it, or pass another --folder")
    mark.write_text(str(checkpoint))
    common = ["--checkpoint", str(checkpoint), "--tolerance", "10", "--sample", str(calibration)]
    for name in EXPORTS.values():
        to_format, precision = name.rsplit("-", 1)
        more = ["--calibration", str(calibration)] if name in ("paddle-inference-int8", "openvino-int8") else []
        words = [*common, *more, "--to", str(folder / name), "--format", to_format, "--precision", precision]
        if not (folder / name).exists():
            run_export.main(words)
    for name, to_format in (("hf", "hf"), ("model", "native")):
        if not (folder / name).exists():
            run_convert.main(["--from", str(checkpoint), "--to", str(folder / name), "--to-format", to_format])


def labelled_case(opened: OpenedModel, file: Path, folder: Path) -> tuple[Batches, np.ndarray]:
    """Return the batches of a labelled TSV, and the classes as numbers."""
    texts = read_texts(file, opened.usage.text_columns)
    table = ExportedTokenizer(folder / "hf").table(texts, _LONGEST)
    header, *rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
    assert opened.labels is not None
    labels = [opened.labels.index(row[header.index("label")]) for row in rows][: len(table)]
    return batches_of(table, np.arange(len(table)), 8), np.array(labels)

"""Raw files become shards; files made to do harm are refused."""

import json
import os
import pickle
import zipfile

import numpy as np
import pyarrow.parquet as pq

from tests.journeys.commands import output_of


def test_raw_files_become_shards_that_the_inspection_and_pyarrow_read(data):
    imported, vocabulary, train, held_out, inspected = json.loads((data / "outputs.json").read_text())
    assert "scan.pdf" in imported and "train: " in imported and "held_out: " in imported
    assert "café" in "".join(path.read_text().lower() for path in (data / "train/source").rglob("*.txt"))  # Latin-1
    tokens = (data / "vocab.txt").read_text().splitlines()
    assert tokens[0] == "[PAD]" and {"river", "storm"} < set(tokens) and f"{len(tokens)} tokens in " in vocabulary
    shards = sorted((data / "shards/train").glob("*.parquet"))
    rows = sum(pq.read_metadata(shard).num_rows for shard in shards)
    assert f"{rows} samples in {len(shards)} shards" in train and "1 shards" in held_out
    assert {"A", "B", "is_random_next", "num_tokens"} <= set(pq.read_schema(shards[0]).names)
    assert "no problem found" in inspected and "masked: 1" in inspected


class Calls:
    """Pickles to a call of os.system."""

    def __init__(self, command: str):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_hostile_pickle_zip_and_shard_are_refused_in_one_line_and_run_nothing(clone, data, tmp_path):
    weights, texts, shards = (tmp_path / name for name in ("weights", "texts", "shards"))
    for folder in (weights, texts, shards):
        folder.mkdir()
    (weights / "model_state.pdparams").write_bytes(
        pickle.dumps({"w": np.zeros(3), "x": Calls(f"touch {tmp_path}/ran")})
    )
    with zipfile.ZipFile(texts / "a.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../outside.txt", "x")
        archive.writestr("word/document.xml", b"<w>" + b" " * (1 << 28))  # 256 MB in 256 KB
    for path in (data / "shards/train").iterdir():
        content = bytearray(path.read_bytes())
        if path.name == "shard-0.parquet":
            content[len(content) // 2] ^= 64
        (shards / path.name).write_bytes(content)
    for line, words in (
        (f"run_convert.py --from {weights} --to {tmp_path}/to --to-format native", "model_state.pdparams"),
        (f"-m data.import_text --input {texts} --output-dir {tmp_path}/imported", "a.docx"),
        (f"-m data.inspect {shards} --vocab-file {data}/vocab.txt", "shard-0.parquet"),
    ):
        output = output_of(f".venv/bin/python {line}", clone, words, code=2)
        assert sum("error: " in shown for shown in output.splitlines()) <= 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shards", "texts", "weights"]

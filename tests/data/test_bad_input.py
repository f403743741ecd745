"""Every data command answers bad input with exit code 2 and one line."""

import importlib
import shutil

import pytest

from bert.exit_codes import BAD_INPUT
from tests.support.corpora import random_table, write_shards, write_source, write_vocabulary

SHARDS = "data.preprocess_bert_pretrain --vocab-file vocab.txt --text good --sink out"
VOCABULARY = "data.train_vocabulary --input good --output out.txt"
IMPORT = "data.import_text --input texts --output-dir out"
BALANCE = "data.balance_shards --indir shards --num-shards 2 --outdir out"
INSPECT = "data.inspect shards --vocab-file vocab.txt"
FAR = "http://127.0.0.1:9/"
BAD = {
    "import_text": [
        *("data.import_text --output-dir out --input " + path for path in ("nowhere", "empty", "photo.png", "pipe")),
        "data.import_text --input texts --output-dir file",
        "data.import_text --input texts --output-dir /proc/none",
        *(
            f"{IMPORT} {flag}"
            for flag in ("--held-out-fraction nan", "--held-out-fraction -1", "--held-out-fraction x")
        ),
        *(
            f"{IMPORT} {flag}"
            for flag in ("--held-out-fraction 0.5", "--min-characters -1", "--lang ../x", "--misspelt")
        ),
        f"{IMPORT} --deduplicate near --near-threshold nan",
    ],
    "train_vocabulary": [
        *(f"{VOCABULARY} --input {path}" for path in ("nowhere", "empty", "file", "texts")),
        *(f"{VOCABULARY} --vocab-size {size}" for size in ("0", "-3", "x", "9" * 30)),
        *(f"{VOCABULARY} --min-frequency {count}" for count in ("0", "-3", "9" * 30)),
        *(f"{VOCABULARY} --sample-megabytes {size}" for size in ("0", "nan", "inf")),
        *(f"{VOCABULARY} --output {path}" for path in ("empty", "file/vocab.txt", "/proc/none/vocab.txt")),
    ],
    "preprocess_bert_pretrain": [
        *(f"{SHARDS} --text {path}" for path in ("nowhere", "empty", "file", "texts", "good")),
        *(f"{SHARDS} --vocab-file {path}" for path in ("nowhere", "empty", "file")),
        *(f"{SHARDS} --sink {path}" for path in ("file", "/proc/none")),
        *(
            f"{SHARDS} --{name} 0"
            for name in ("num-shards", "num-blocks", "block-size", "bin-size", "duplicate-factor")
        ),
        *(f"{SHARDS} --{name} 0" for name in ("local-n-workers", "max-predictions-per-seq", "sample-ratio")),
        *(f"{SHARDS} --{name} nan" for name in ("short-seq-prob", "sample-ratio", "masked-lm-ratio", "num-shards")),
        *(f"{SHARDS} --target-seq-length {length}" for length in ("3", "-1", "999999")),
        f"{SHARDS} --language klingon",
        "data.preprocess_bert_pretrain --vocab-file vocab.txt --sink out",
    ],
    "balance_shards": [
        *(f"{BALANCE} --indir {path}" for path in ("nowhere", "empty", "file", "texts", "cut")),
        *(f"{BALANCE} --outdir {path}" for path in ("file", "shards", "/proc/none")),
        *(f"{BALANCE} --num-shards {number}" for number in ("0", "-1", "9999999", "x")),
    ],
    "inspect": [
        *(
            f"data.inspect {path} --vocab-file vocab.txt"
            for path in ("nowhere", "empty", "file", "texts", "good", "cut")
        ),
        *(f"{INSPECT} --vocab-file {path}" for path in ("nowhere", "empty", "file")),
        *(f"{INSPECT} {flag}" for flag in ("--samples -1", "--seed -1", "--png x.docx", "--png none/x.png")),
    ],
    "downloads": [
        "data.download_wikipedia --outdir out --local-dump nowhere",
        "data.download_wikipedia --outdir out --local-dump file",
        "data.download_wikipedia --outdir out --dump-date 3",
        "data.download_wikipedia --outdir out --lang ../x",
        "data.download_wikipedia --outdir out --mirror nonsense",
        f"data.download_wikipedia --outdir out --checksum zz --mirror {FAR}",
        "data.download_books --outdir out",
        *(
            f"data.download_books --outdir out --url-list {path}"
            for path in ("nowhere", "file", "texts/a.txt", "empty")
        ),
        *(f"data.download_books --outdir out --local-books {path}" for path in ("nowhere", "empty", "texts")),
        *(f"data.download_{name} --outdir out --mirror nonsense" for name in ("squad", "glue", "vocabulary")),
        *(f"data.download_{name} --outdir file --mirror {FAR}" for name in ("squad", "glue", "vocabulary")),
    ],
    "examples": [
        *(f"data.examples.{name} --output-dir file" for name in ("documentation", "sample_questions")),
        *(f"data.examples.documentation --output-dir out --max-megabytes {size}" for size in ("0", "nan", "x")),
        *(f"data.examples.documentation --output-dir out --held-out-fraction {share}" for share in ("0", "1", "nan")),
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Good and bad inputs by name."""
    root = tmp_path_factory.mktemp("inputs")
    write_vocabulary(root / "vocab.txt")
    write_source(root / "good", num_documents=5)
    tables = [random_table(60, seed) for seed in range(2)]
    for name in ("shards", "cut"):
        write_shards(root / name, tables)
    damaged = next((root / "cut").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    for name in ("empty", "texts"):
        (root / name).mkdir()
    (root / "texts/a.txt").write_text("Some raw text.")
    (root / "file").touch()
    (root / "photo.png").write_bytes(b"\x89PNG\r\n")
    (root / "pipe").symlink_to("nowhere")
    return root


@pytest.mark.parametrize("line", [line for lines in BAD.values() for line in lines])
def test_bad_input_ends_with_code_2_and_says_why_in_one_line(folder, monkeypatch, capsys, line):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    module, *words = line.split()
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main(words)
    printed = capsys.readouterr().err
    assert ended.value.code == BAD_INPUT, printed
    errors = [text for text in printed.splitlines() if "error: " in text]
    assert len(errors) == 1 and "Traceback" not in printed, printed
    shutil.rmtree(folder / "out", ignore_errors=True)  # an unfinished run may stay, to be resumed
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("line", [IMPORT, VOCABULARY + " --vocab-size 60", BALANCE])
def test_the_same_lines_without_the_mistake_end_well(folder, monkeypatch, tmp_path, line):
    monkeypatch.chdir(folder)
    module, *words = line.replace(" out", f" {tmp_path}/out").split()
    importlib.import_module(module).main(words)

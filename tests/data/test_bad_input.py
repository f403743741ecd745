"""Every data command answers bad input with exit code 2 and one line (tests/golden/refusals.txt).

pytest tests/data/test_bad_input.py --write-golden      # after a message was reworded
"""

import importlib
import re
import shutil

import pytest

from bert import REPOSITORY
from bert.exit_codes import BAD_INPUT
from tests.support.corpora import random_table, write_shards, write_source, write_vocabulary

SHARDS = "data.preprocess_bert_pretrain --vocab-file vocab.txt --text good --sink out"
VOCABULARY = "data.train_vocabulary --input good --output out.txt"
CONVERT = "data.import_shards --indir shards --vocab-file vocab.txt --outdir out"
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
        f"{IMPORT} --encoding klingon",
        *(f"{IMPORT} {flags}" for flags in ("--format parquet", "--held-out-fraction 1", "--input blank")),
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
        *(f"{SHARDS} --num-blocks 2 --block-size 3000", f"{SHARDS} --bin-size 129", f"{SHARDS} --short-seq-prob 2"),
        *(f"{SHARDS} --books nowhere", f"{SHARDS} --text blank"),
        f"{SHARDS} --scheduler-address tcp://127.0.0.1:1",
        f"{SHARDS} --language klingon",
        "data.preprocess_bert_pretrain --vocab-file vocab.txt --sink out",
    ],
    "balance_shards": [
        *(f"{BALANCE} --indir {path}" for path in ("nowhere", "empty", "file", "texts", "cut")),
        *(f"{BALANCE} --outdir {path}" for path in ("file", "shards", "/proc/none")),
        *(f"{BALANCE} --num-shards {number}" for number in ("0", "-1", "9999999", "x")),
    ],
    "import_shards": [
        *(f"{CONVERT} {flags}" for flags in ("--num-shards 0", "--num-shards 9999", "--max-seq-length 8")),
        *(f"{CONVERT} --output-format hdf5 {flag}" for flag in ("", "--indir masked --max-predictions-per-seq 1")),
        *(f"{CONVERT} --indir {path}" for path in ("nowhere", "cut")),
    ],
    "loader": ["tests.benchmarks.measure_loader shards vocab.txt --num-workers -4"],
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
        "data.download_wikipedia --outdir out --lang de",
        "data.download_wikipedia --outdir out --lang ../x",
        "data.download_wikipedia --outdir out --mirror nonsense",
        f"data.download_wikipedia --outdir out --checksum zz --mirror {FAR}",
        *(f"data.download_model {name}" for name in ("bert-base-uncasd", "./x", "a/b --output-dir good")),
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
    """Make good and bad inputs by name."""
    root = tmp_path_factory.mktemp("inputs")
    write_vocabulary(root / "vocab.txt")
    write_source(root / "good", num_documents=5)
    tables = [random_table(60, seed) for seed in range(2)]
    for name in ("shards", "cut"):
        write_shards(root / name, tables)
    write_shards(root / "masked", [random_table(13, 1, masked=True)])
    damaged = next((root / "cut").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:100])
    for name in ("empty", "texts", "blank"):
        (root / name).mkdir()
    (root / "blank/0.txt").touch()
    (root / "texts/a.txt").write_text("Some raw text.")
    (root / "file").touch()
    (root / "photo.png").write_bytes(b"\x89PNG\r\n")
    (root / "pipe").symlink_to("nowhere")
    return root


VARYING = {  # with the place of the checkout and the versions of Python and of packages
    r"(PYTHONPATH=\S+ )?\S*python\S* (-P )?-m ": "python -m ",
    r"one of (\.\w+, )+\.\w+": "one of ...",
    r"says \d+": "says N",
    "^(argument|unrecognized|the following) .*": "argparse",
}
GOLDEN = REPOSITORY / "tests/golden/refusals.txt"


@pytest.fixture(scope="module")
def golden(request):
    """Map each command to its error; the map is written at the end of the module with --write-golden."""
    known = dict(re.findall(r"^(\S.*)\n    (.*)$", GOLDEN.read_text() if GOLDEN.exists() else "", re.MULTILINE))
    yield known
    if request.config.getoption("--write-golden"):
        GOLDEN.write_text("".join(f"{line}\n    {known.get(line)}\n" for lines in BAD.values() for line in lines))


@pytest.mark.parametrize("line", [line for lines in BAD.values() for line in lines])
def test_bad_input_ends_with_code_2_and_says_why_in_one_line(folder, golden, monkeypatch, capsys, write_golden, line):
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    module, *words = line.split()
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main(words)
    printed = capsys.readouterr().err
    assert ended.value.code == BAD_INPUT, printed
    errors = [text for text in printed.splitlines() if "error: " in text]
    assert len(errors) == 1 and "Traceback" not in printed, printed
    error = errors[0].partition("error: ")[2].replace(str(folder), "FOLDER")
    for pattern, same in VARYING.items():
        error = re.sub(pattern, same, error)
    if write_golden:
        golden[line] = error
    assert error == golden[line]
    shutil.rmtree(folder / "out", ignore_errors=True)  # an unfinished run may stay, to be resumed
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("line", [IMPORT, VOCABULARY + " --vocab-size 60", BALANCE])
def test_the_same_lines_without_the_mistake_end_well(folder, monkeypatch, tmp_path, line):
    monkeypatch.chdir(folder)
    module, *words = line.replace(" out", f" {tmp_path}/out").split()
    importlib.import_module(module).main(words)


@pytest.mark.parametrize(
    ("line", "errors"),
    [
        (
            "data.import_text --output-dir out --lang en --min-characters few --deduplicate nearly --inptu texts",
            [
                "--inptu is not a flag; did you mean --input?",
                "deduplicate=nearly must be one of exact, near, none; did you mean near?",
                "min_characters=few must be a valid integer, unable to parse string as an integer; change "
                "--min-characters",
                "--input must be given (files and folders)",
            ],
        ),
        (
            "data.preprocess_bert_pretrain --vocab-file vocab.txt --sink out --bin-size 0 --sample-ratio 3 "
            "--num-blocks 2 --block-size 3000",
            [
                "no source given; name at least one of --text --wikipedia --books --common-crawl --open-webtext",
                "--num-blocks=2 and --block-size=3000 both set the size of blocks; give one of them",
                "bin_size=0 must lie between 1 and target_seq_length=128; 64 is usual for 512",
                "sample_ratio=3.0 must be above 0 and at most 1",
            ],
        ),
        (
            "data.train_vocabulary --input good --output out.json --base vocab.txt",
            [
                "--base and --add-words need each other; pass both, or neither",
                "--output=out.json must end in .txt, as --tokenizer wordpiece makes a vocab.txt",
            ],
        ),
        (
            "data.inspect --samples -1 --seed x",
            [
                "DIR must be given (folder of the shards)",
                "--vocab-file must be given (the vocabulary the shards were made with)",
                "samples=-1 must be greater than or equal to 0; change --samples",
                "seed=x must be a valid integer, unable to parse string as an integer; change --seed",
            ],
        ),
        (
            "data.download_glue --task MRPC RTF --mirrors x",
            [
                "--mirrors is not a flag; did you mean --mirror?",
                "--output-dir must be given (gets a folder for each task)",
                "task=RTF must be one of CoLA, SST-2, MRPC, QQP, STS-B, MNLI, QNLI, RTE, WNLI, AX; did you mean RTE?",
            ],
        ),
    ],
    ids=["import_text", "preprocess_bert_pretrain", "train_vocabulary", "inspect", "download_glue"],
)
def test_all_mistakes_of_a_line_are_listed_together(folder, monkeypatch, capsys, line, errors):
    monkeypatch.chdir(folder)
    module, *words = line.split()
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main(words)
    assert ended.value.code == BAD_INPUT
    assert capsys.readouterr().err.splitlines() == [f"error: {error}" for error in errors]
    assert not (folder / "out").exists()

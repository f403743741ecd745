"""GLUE's files as published, and invalid files, whose errors name line, value and remedy."""

import numpy as np
import pytest

from bert.glue.files import find_file
from bert.glue.task_table import TASKS, find_task
from bert.labels.examples import read_examples

BOM = "\ufeff"
MNLI_HEADER = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
    "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label"
)
_STS = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
_COLA = 'gj04\t1\t\tThe box was "too" heavy.'
# task -> (first line of train.tsv as published, another line, its texts and label)
PUBLISHED = {
    "CoLA": (_COLA, "gj04\t0\t*\tHim left early.", ("Him left early.", "0")),
    "SST-2": ("sentence\tlabel", "a quiet , funny film \t1", ("a quiet , funny film ", "1")),
    "MRPC": (
        BOM + "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        '1\t17\t18\tHe said "no.\tHe refused.',
        ('He said "no.', "He refused.", "1"),
    ),
    "STS-B": (
        _STS + "\tscore",
        "0\tnews\tf\t2012\t1\tnone\tnone\tA dog runs.\tA dog is running.\t4.800",
        ("A dog runs.", "A dog is running.", "4.800"),
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "7\t1\t2\tHow old is it?\tWhat is its age?\t1",
        ("How old is it?", "What is its age?", "1"),
    ),
    "MNLI": (
        MNLI_HEADER,
        "0\t1\t1n\tfiction\t( x )\t( y )\t(ROOT)\t(ROOT)\tIt rained.\tIt was dry.\tneutral\tcontradiction",
        ("It rained.", "It was dry.", "contradiction"),
    ),
    "QNLI": ("index\tquestion\tsentence\tlabel", "0\tWhen?\tIn May.\tentailment", ("When?", "In May.", "entailment")),
    "RTE": ("index\tsentence1\tsentence2\tlabel", "0\tA.\tB.\tnot_entailment", ("A.", "B.", "not_entailment")),
    "WNLI": ("index\tsentence1\tsentence2\tlabel", "0\tI put it.\tIt was put.\t1", ("I put it.", "It was put.", "1")),
}


def read(tmp_path, content, *, task="SST-2", name="train.tsv", split="train", **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    spec = TASKS[task]
    chosen = {"train": spec.train, "dev": next(iter(spec.dev.values())), "test": next(iter(spec.test.values()))}[split]
    return read_examples(path, chosen, spec, **options)


def test_every_task_with_a_training_file_is_covered():
    assert {name for name, task in TASKS.items() if task.train} == set(PUBLISHED)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_training_files_are_read(tmp_path, name, line_end):
    first, line, (*texts, label) = PUBLISHED[name]
    examples = read(tmp_path, f"{first}{line_end}{line}{line_end}", task=name)
    assert [column[-1] for column in examples.texts] == texts
    assert examples.labels[-1] == label
    assert len(examples) == 1 + (name == "CoLA")
    encoded = TASKS[name].encode(examples.labels)
    if name == "STS-B":
        np.testing.assert_array_equal(encoded, np.array([4.8], np.float32))
    else:
        assert TASKS[name].labels[encoded[-1]] == label


TEST_FILES = {
    "CoLA": ("index\tsentence", "0\tHim left."),
    "SST-2": ("index\tsentence", "0\ta dull film"),
    "MRPC": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t3\t4\tA b.\tC d."),
    "STS-B": (_STS, "0\tn\tf\ty\t1\ts\ts\tA b.\tC d."),
    "QQP": ("id\tquestion1\tquestion2", "0\tA b.\tC d."),
    "MNLI": (MNLI_HEADER.removesuffix("\tlabel1\tgold_label"), "0\t1\t1n\tf\tx\ty\tr\tr\tA b.\tC d."),
    "QNLI": ("index\tquestion\tsentence", "0\tA b.\tC d."),
    "RTE": ("index\tsentence1\tsentence2", "0\tA b.\tC d."),
    "WNLI": ("index\tsentence1\tsentence2", "0\tA b.\tC d."),
    "AX": ("index\tsentence1\tsentence2", "0\tA b.\tC d."),
}


@pytest.mark.parametrize("name", TASKS)
def test_published_test_files_are_read(tmp_path, name):
    examples = read(tmp_path, "\n".join(TEST_FILES[name]) + "\n", task=name, split="test")
    assert examples.labels is None and examples.indices == ["0"]
    assert len(examples.texts) == (1 if name in ("CoLA", "SST-2") else 2)


def test_mrpc_is_read_from_microsofts_files_too(tmp_path):
    (tmp_path / "msr_paraphrase_train.txt").write_bytes(
        (BOM + "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n0\t1\t2\tA.\tB.\r\n").encode()
    )
    path = find_file(tmp_path, TASKS["MRPC"].train)
    examples = read_examples(path, TASKS["MRPC"].train, TASKS["MRPC"])
    assert (examples.texts, examples.labels) == ((["A."], ["B."]), ["0"])


def test_no_character_but_the_line_feed_ends_a_line(tmp_path):
    odd = "one\u0085two\u2028three\x0bfour\x0c\x1c five\rsix"
    examples = read(tmp_path, f"sentence\tlabel\n{odd}\t1\nnext\t0\n")
    assert examples.texts[0] == [odd, "next"]


def test_quotes_are_text_and_swallow_no_line(tmp_path):
    """Python's csv module, with its defaults, reads these six lines as two."""
    lines = ['"an open quote', 'closed" here', '"', '""', '"tab follows"', "plain"]
    examples = read(tmp_path, "sentence\tlabel\n" + "".join(f"{line}\t1\n" for line in lines))
    assert examples.texts[0] == lines


def test_unlabelled_pairs_of_multinli_are_counted(tmp_path):
    line = "0\t1\t1n\tfiction\tx\ty\tr\tr\tIt rained.\tIt was dry.\tneutral\t"
    examples = read(tmp_path, "\n".join([MNLI_HEADER, line + "-", line + "neutral"]), task="MNLI")
    assert len(examples) == 1 and examples.counts["unlabelled"] == 1
    assert "1 of 2 examples skipped" in examples.warnings[0]


def test_an_empty_sentence_is_kept_and_counted(tmp_path):
    examples = read(tmp_path, "\n".join([PUBLISHED["QQP"][0], "1\t1\t2\tWhy?\t\t0"]), task="QQP")
    assert examples.counts["empty_texts"] == 1 and examples.texts[1] == [""]


# Row 25 of the table in tests/README.md: the content of each file, and what the error must contain
HOSTILE = {
    "too few fields": ("sentence\tlabel\ngood\t1\nbad\n", ["line 3: 1 fields, the first row 2", "'bad'", "correct"]),
    "a long line": ("sentence\tlabel\n" + "x" * 100_000, ["line 2: 1 fields"]),
    "too many fields": ("sentence\tlabel\na\tb\t1\n", ["line 2: 3 fields"]),
    "a blank line inside": ("sentence\tlabel\na\t1\n\nb\t0\n", ["line 3: 1 fields"]),
    "an unknown label": ("sentence\tlabel\na\t1\nb\t2\n", ["line 3: label '2' is not one of 0, 1"]),
    "an empty label": ("sentence\tlabel\na\t\n", ["line 2: label '' is not one of 0, 1"]),
    "a label with a space": ("sentence\tlabel\na\t0 1\n", ["line 2: label '0 1' is not one of"]),
    "not UTF-8": (b"sentence\tlabel\nna\xefve\t1\n", [":2: byte 0xef is not UTF-8", "iconv"]),
    "UTF-16": ("sentence\tlabel\na\t1\n".encode("utf-16-le"), [":1: a NUL character", "UTF-8"]),
    "UTF-16 with a mark": ("sentence\tlabel\na\t1\n".encode("utf-16"), [":1: byte 0xff", "iconv -f utf-16-le -t"]),
    "empty": ("", ["is empty"]),
    "only blank lines": ("\n\n\r\n", [":1: no column 'sentence'"]),
    "only the first line": ("sentence\tlabel\n", ["has no examples"]),
    "no line of names": ("a fine film\t1\nanother\t0\n", [":1: no column 'sentence'", "'a fine film'", "custom"]),
    "another task's file": ("index\tquestion\tsentence\tlab\n0\ta\tb\t1\n", [":1: no column 'label'"]),
    "a column twice": ("sentence\tlabel\tlabel\na\t1\t1\n", [":1: 2 columns 'label'"]),
    "commas for tabs": ("sentence,label\na,1\n", [":1: no column 'sentence'"]),
    "a page in place of the file": ("<html><body>404 Not Found</body></html>\n", ["no column 'sentence'", "<html>"]),
    "a zip in place of the file": (b"PK\x03\x04\x14\x00\x00\x00\x08\x00", ["NUL"]),
}


def test_hostile_files_are_refused_with_line_value_and_remedy(tmp_path):
    wrong = {}
    for fault, (content, phrases) in HOSTILE.items():
        with pytest.raises(ValueError) as error:
            read(tmp_path, content, max_bad_line_fraction=1e-4)
        said = str(error.value)
        missing = [phrase for phrase in (str(tmp_path / "train.tsv"), *phrases) if phrase not in said]
        if missing or len(said) >= 1000:
            wrong[fault] = missing, said
    assert not wrong


def test_a_bad_similarity_is_refused(tmp_path):
    header, line, _ = PUBLISHED["STS-B"]
    bad = {"high": "'high' is not a number", "nan": "finite", "inf": "finite", "5.1": "from 0 to 5", "-0.1": "from 0"}
    for score, phrase in {**bad, "": "not a number"}.items():
        with pytest.raises(ValueError, match=f"line 2: label .*{phrase}"):
            read(tmp_path, f"{header}\n{line.replace('4.800', score)}\n", task="STS-B")


def test_of_many_bad_lines_the_first_are_shown_and_all_are_counted(tmp_path):
    with pytest.raises(ValueError, match=r"50 of 100 lines.*line 3: .*line 5: .*line 7: .*; \.\.\.$"):
        read(tmp_path, "sentence\tlabel\n" + "a\t1\nb\t7\n" * 50)


def test_a_few_bad_lines_of_a_large_training_file_are_left_out_and_told(tmp_path):
    content = "sentence\tlabel\n" + "a\t1\n" * 30_000 + "torn\nline\t1\n"
    examples = read(tmp_path, content, max_bad_line_fraction=1e-4)
    assert len(examples) == 30_001 and examples.counts["bad_lines"] == 1
    assert "1 of 30002 lines skipped" in examples.warnings[0] and "line 30002" in examples.warnings[0]
    with pytest.raises(ValueError, match="1 of 30002 lines cannot be read"):
        read(tmp_path, content)


def test_the_fraction_to_skip_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"50 of 149 lines .*or skip them with --max-bad-line-fraction 0.34\."):
        read(tmp_path, "sentence\tlabel\n" + "a\t1\nb\t7\n" * 50 + "a\t1\n" * 49, max_bad_line_fraction=1e-4)
    with pytest.raises(ValueError, match=r"2 of 2 lines cannot be read; correct them\. line 2"):
        read(tmp_path, "sentence\tlabel\na\t7\nb\t7\n", max_bad_line_fraction=1e-4)


def test_a_missing_file_is_named_with_what_is_there(tmp_path):
    (tmp_path / "train.csv").write_text("")
    with pytest.raises(ValueError, match=r"has no dev.tsv; it has train.csv.*--download"):
        find_file(tmp_path, TASKS["RTE"].dev["dev"])
    with pytest.raises(ValueError, match="it has nothing"):
        find_file(tmp_path / "nowhere", TASKS["RTE"].train)
    for number in range(13, 0, -1):
        (tmp_path / f"a{number:02}").write_text("")
    with pytest.raises(
        ValueError, match="it has " + ", ".join(f"a{number:02}" for number in range(1, 13)) + r"\. --down"
    ):
        find_file(tmp_path, TASKS["RTE"].train)


def test_a_byte_order_mark_is_one_at_the_beginning_alone(tmp_path):
    found = read(tmp_path, f"{BOM}sentence\tlabel\n{BOM}a\t1\n")
    assert list(found.texts[0]) == [f"{BOM}a"] and list(found.labels) == ["1"]


@pytest.mark.parametrize("name, task", [("mrpc", "MRPC"), ("sst2", "SST-2"), ("STS_B", "STS-B"), ("AX", "AX")])
def test_tasks_are_found_by_the_names_people_use(name, task):
    assert find_task(name).name == task


def test_random_bytes_give_an_error_and_no_traceback_of_ours(tmp_path):
    """300 damaged files are read or raise a ValueError; no other exception occurs."""
    rng = np.random.RandomState(0)
    whole = ("sentence\tlabel\n" + 'a "quoted" line\t1\nnaïve\t0\n' * 20).encode()
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for place in rng.randint(0, len(whole), rng.randint(1, 6)):
            damaged[place] = rng.randint(256)
        try:
            examples = read(tmp_path, bytes(damaged))
            assert set(examples.labels) <= {"0", "1"} and len(examples) >= 38
        except ValueError as error:
            assert str(tmp_path) in str(error)
            refused += 1
    assert 100 < refused < 300
